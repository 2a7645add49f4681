"""Seeded Jobs that the API server accepts as they are, and policies with every adaptation."""

from hack import paper

LABEL = "adaptation"
RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu")
GPU = "nvidia.com/gpu"
PINNING_LABELS = {"nvidia.com/gpu.product": "Tesla-T4", "cloud.google.com/gke-accelerator": "t4"}
OTHER_LABELS = {"topology.kubernetes.io/zone": "a", "pool": "batch"}
PINNING_TOLERATIONS = (
    {"key": GPU, "operator": "Exists", "effect": "NoSchedule"},
    {"key": GPU, "operator": "Equal", "value": "present"},
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
)
OTHER_TOLERATIONS = (
    {"key": "spot", "operator": "Exists"},
    {"key": "dedicated", "value": "batch", "effect": "NoExecute", "tolerationSeconds": 60},
)
AMOUNTS = {"cpu": ("100m", "500m", "2", "6"), "memory": ("256Mi", "1Gi", "6Gi", "16Gi")}

REMOVE = {"accelerator": "Remove"}
ADAPTATIONS = {
    "remove": REMOVE,
    "paper": {**REMOVE, "perRemoved": {"cpu": "4", "memory": "6Gi"}, "env": {"RUN_ENV": "cpu"}},
    "storage": {**REMOVE, "perRemoved": {"cpu": "500m", "ephemeral-storage": "2Gi"}, "image": "b"},
    "bare": {**REMOVE, "affinity": "Remove", "runtimeClassName": "Remove"},
    "elsewhere": {
        **REMOVE,
        "nodeSelector": {"remove": ["pool"], "set": {"pool": "cpu"}},
        "tolerations": {"remove": [{"key": "spot"}], "add": [{"key": "cpu", "operator": "Exists"}]},
    },
    "noted": {
        **REMOVE,
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3", "memory": "20Gi"}},
        "labels": {"tier": "cpu"},
        "annotations": {"example.com/tier": "cpu"},
    },
    "sandboxed": {**REMOVE, "perRemoved": {"cpu": "1"}, "runtimeClassName": "gvisor"},
    "by-name": {
        "containers": ["main"],
        "resources": {"remove": [GPU], "requests": {"cpu": "5"}, "limits": {"cpu": "5"}},
    },
    "image": {"containers": ["main"], "image": "stable-diffusion:cpu", "env": {"A": "", "B": "2"}},
    "unpinned": {
        "affinity": "Remove",
        "nodeSelector": {"remove": list(PINNING_LABELS)},
        "tolerations": {"remove": [{"key": GPU}, {"key": "sku", "value": "gpu"}]},
    },
    "huge": {**REMOVE, "perRemoved": {"hugepages-2Mi": "64Mi"}},
}


def policies(names):
    """Return one policy for each adaptation; each sends its Jobs to CPU, whatever is free."""
    return [_policy(names, kind, adaptation) for kind, adaptation in ADAPTATIONS.items()]


def _policy(names, kind, adaptation):
    policy = paper.policy(names)
    policy["metadata"]["name"] = f"{names.policy}-{kind}"
    del policy["spec"]["match"]["namespaceSelector"]
    policy["spec"]["match"]["jobSelector"] = {"matchLabels": {LABEL: kind}}
    policy["spec"]["options"][1]["adaptation"] = adaptation
    policy["spec"]["strategy"]["threshold"] = [{"option": "cpu", "orPendingBelow": 100_000}]
    return policy


def job(number, namespace, random):
    """Return one Job; its kind of adaptation goes round by number, everything else is random."""
    kind = list(ADAPTATIONS)[number % len(ADAPTATIONS)]
    parallelism = random.choice([1, 1, 2])
    spec = {"parallelism": parallelism, "completions": 3, "backoffLimit": 0}
    annotations = {f"sim.example.com/{device}-run": "100ms" for device in ("gpu", "cpu")}
    template = {"metadata": {"annotations": annotations}, "spec": _pod(random)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number}",
            "namespace": namespace,
            "labels": {paper.QUEUE_LABEL: "gpu-lq", LABEL: kind},
        },
        "spec": {**spec, "template": template},
    }


def _pod(random):
    gpus = random.choice(["1", "2", "8"])
    pod = {
        "restartPolicy": random.choice(["Never", "OnFailure"]),
        "containers": [_container("main", random, gpus=gpus)],
        "nodeSelector": _some(random, PINNING_LABELS) | _some(random, OTHER_LABELS),
        "tolerations": _part(random, PINNING_TOLERATIONS) + _part(random, OTHER_TOLERATIONS),
    }
    if random.random() < 0.4:
        second = random.choice(["", "1"])
        pod["containers"].append(_container("second", random, gpus=second))
    pod["initContainers"] = [
        _container("prepare", random, gpus=random.choice(["", "", "1"])),
        {**_container("side", random, gpus=random.choice(["", "1"])), "restartPolicy": "Always"},
    ][: random.choice([0, 0, 1, 2])]
    if random.random() < 0.5:
        pod["affinity"] = _affinity(random)
    if random.random() < 0.4:
        pod["runtimeClassName"] = random.choice(["nvidia", "nvidia", "gvisor"])
    return {key: value for key, value in pod.items() if value}


def _container(name, random, *, gpus):
    """Devices and large pages have limits; of the rest, no request is above its limit."""
    requests, limits = {}, {}
    for resource, amounts in AMOUNTS.items():
        low, high = sorted(random.choices(range(len(amounts)), k=2))
        if random.random() < 0.7:
            requests[resource] = amounts[low]
        if random.random() < 0.5:
            limits[resource] = amounts[high]
    if random.random() < 0.2:
        requests["ephemeral-storage"] = limits["ephemeral-storage"] = "1Gi"
    if random.random() < 0.15:
        requests["memory"] = "256Mi"
        requests["hugepages-2Mi"] = limits["hugepages-2Mi"] = "128Mi"
    if gpus:
        limits[GPU] = gpus
        requests |= {GPU: gpus} if random.random() < 0.5 else {}
    blocks = {"requests": requests, "limits": limits}
    container = {
        "name": name,
        "image": "stable-diffusion",
        "resources": {key: amounts for key, amounts in blocks.items() if amounts},
    }
    if random.random() < 0.5:
        field = {"fieldRef": {"fieldPath": "metadata.name"}}
        variables = [{"name": "RUN_ENV", "value": "gpu"}, {"name": "A", "valueFrom": field}]
        container["env"] = variables[: random.choice([1, 2])]
    return container


def _affinity(random):
    pinning = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["Tesla-T4", "A100"]}
    other = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}
    exists = {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}
    terms = [{"matchExpressions": found} for found in ([pinning], [pinning, other], [other])]
    node = {}
    if random.random() < 0.7:
        chosen = random.choices(terms, k=random.choice([1, 2]))
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": chosen}
    if random.random() < 0.6:
        preferences = [{"weight": 5, "preference": {"matchExpressions": [exists]}}]
        node["preferredDuringSchedulingIgnoredDuringExecution"] = preferences
    spread = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}
    return {"nodeAffinity": node} if node else {"podAntiAffinity": apart}


def _some(random, labels):
    return {key: value for key, value in labels.items() if random.random() < 0.3}


def _part(random, items):
    return [item for item in items if random.random() < 0.4]
