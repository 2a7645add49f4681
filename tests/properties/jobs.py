"""Strategies: Jobs as the API server sends them, and adaptations as policies hold them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from webhook.model.policy.fallback_policy import Adaptation, Option

RESOURCES = {
    "cpu": ["500m", "1", "2", "8", "1500m"],
    "memory": ["512Mi", "6Gi", "16Gi", "1e9"],
    "nvidia.com/gpu": ["1", "2", "8"],
    "nvidia.com/mig-1g.5gb": ["1", "3"],
    "amd.com/gpu": ["1"],
    "nvidia.com/gpumem": ["3000"],
    "ephemeral-storage": ["10Gi"],
    "example.com/fpga": ["1"],
}
EXTENDED = [name for name in RESOURCES if "/" in name]
INSTEAD = [
    {"nvidia.com/mig-1g.5gb": "1"},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": "3000"},
    {"aws.amazon.com/neuroncore": 2},
]
"""What may be given for a device."""
SHARED = [name for name in RESOURCES if "/" not in name]
NAMES = ["main", "helper", "a~b/c"]
ENV_NAMES = ["RUN_ENV", "NVIDIA_VISIBLE_DEVICES", "MODE", "a.b"]
LABEL_KEYS = [
    "workload-type",
    "cloud.google.com/gke-accelerator",
    "nvidia.com/gpu.product",
    "topology.kubernetes.io/zone",
    "a~weird",
]
TAINT_KEYS = ["nvidia.com/gpu", "dedicated", "sku", "amd.com/gpu"]
POLICY_KEYS = [key for key in LABEL_KEYS if "~" not in key]
VALUES = st.sampled_from(["gpu", "cpu", "", "t4"])
TEXTS = st.sampled_from(["gpu", "cpu", "", "t4", "ünïcode", "x/y~z"])


def _optional(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


def _texts(
    keys: list[str], values: st.SearchStrategy[str] = TEXTS
) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), values, min_size=1, max_size=3)


def _amounts(names: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return _optional({}, {name: st.sampled_from(RESOURCES[name]) for name in names})


def _resources() -> st.SearchStrategy[dict[str, Any]]:
    """Requests and limits, limits only, requests only or neither; devices the same in both."""
    return st.builds(
        _blocks, _amounts(SHARED), _amounts(SHARED), _amounts(EXTENDED), twice=st.booleans()
    )


def _blocks(
    requests: dict[str, str], limits: dict[str, str], devices: dict[str, str], *, twice: bool
) -> dict[str, Any]:
    blocks = {
        "requests": {**requests, **(devices if twice else {})},
        "limits": {**limits, **devices},
    }
    return {key: amounts for key, amounts in blocks.items() if amounts}


def _env() -> st.SearchStrategy[list[dict[str, Any]]]:
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    name = st.sampled_from(ENV_NAMES)
    literal = st.fixed_dictionaries({"name": name, "value": TEXTS})
    bare = st.fixed_dictionaries({"name": name})
    taken = st.fixed_dictionaries({"name": name, "valueFrom": st.just(field)})
    # No unique names: the API server takes duplicates, and the last one counts.
    return st.lists(st.one_of(literal, bare, taken), min_size=1, max_size=4)


def _containers(prefix: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    optional: dict[str, Any] = {"env": _env(), "command": st.just(["run"])}
    if prefix:
        optional["restartPolicy"] = st.just("Always")
    one = _optional({"image": st.just("example.com/sd:1"), "resources": _resources()}, optional)
    return st.lists(one, min_size=1, max_size=3).map(
        lambda found: [
            {"name": prefix + name, **item} for name, item in zip(NAMES, found, strict=False)
        ]
    )


def tolerations() -> st.SearchStrategy[dict[str, Any]]:
    return _optional(
        {"operator": st.sampled_from(["Exists", "Equal"])},
        {
            "key": st.sampled_from(TAINT_KEYS),
            "value": st.sampled_from(["gpu", "true"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "tolerationSeconds": st.integers(0, 9),
        },
    )


def _tolerable(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the API server refuses in a policy's toleration."""
    exists = found["operator"] == "Exists" or "key" not in found
    kept = {**found, "operator": "Exists" if exists else "Equal"}
    if exists:
        kept.pop("value", None)
    if kept.get("effect") != "NoExecute":
        kept.pop("tolerationSeconds", None)
    return kept


def _expressions() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = _optional(
        {
            "key": st.sampled_from(LABEL_KEYS),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
        },
        {"values": st.lists(st.sampled_from(["t4", "false", "3"]), min_size=1, max_size=2)},
    )
    return st.lists(one, min_size=1, max_size=3)


def affinities() -> st.SearchStrategy[dict[str, Any]]:
    term = _optional(
        {"matchExpressions": _expressions()},
        {"matchFields": st.just([{"key": "metadata.name", "operator": "In", "values": ["n1"]}])},
    )
    terms = st.lists(term, min_size=1, max_size=3)
    weighted = st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": term})
    node = _optional(
        {},
        {
            "requiredDuringSchedulingIgnoredDuringExecution": terms.map(
                lambda found: {"nodeSelectorTerms": found}
            ),
            "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                weighted, min_size=1, max_size=2
            ),
        },
    )
    return _optional({}, {"nodeAffinity": node, "podAntiAffinity": st.just({})})


def _metadata(labels: list[str], annotations: list[str]) -> dict[str, Any]:
    return {"labels": _texts(labels), "annotations": _texts(annotations)}


def _pod_spec() -> st.SearchStrategy[dict[str, Any]]:
    return _optional(
        {"containers": _containers(""), "restartPolicy": st.just("Never")},
        {
            "initContainers": _containers("init-"),
            "nodeSelector": _texts(LABEL_KEYS),
            "tolerations": st.lists(tolerations(), min_size=1, max_size=3),
            "affinity": affinities(),
            "runtimeClassName": st.sampled_from(["nvidia", "gvisor"]),
        },
    )


def jobs() -> st.SearchStrategy[dict[str, Any]]:
    topology = "kueue.x-k8s.io/podset-required-topology"
    template = _optional(
        {"spec": _pod_spec()},
        {"metadata": _optional({}, _metadata(LABEL_KEYS, [topology, "note"]))},
    )
    metadata = _optional(
        {"name": st.just("light-1"), "namespace": st.just("team")},
        _metadata(["kueue.x-k8s.io/queue-name", "workload-type"], ["note", "a/b"]),
    )
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("batch/v1"),
            "kind": st.just("Job"),
            "metadata": metadata,
            "spec": _optional(
                {"template": template, "suspend": st.booleans()},
                {"parallelism": st.integers(0, 5), "completions": st.integers(1, 5)},
            ),
        }
    )


def adaptations() -> st.SearchStrategy[Adaptation]:
    blocks: dict[str, Any] = {
        "accelerator": st.sampled_from(["Keep", "Remove", "Replace"]),
        "by": st.sampled_from(INSTEAD),
        "perRemoved": _amounts(SHARED),
        "containers": st.lists(st.sampled_from(NAMES[:2]), unique=True, min_size=1, max_size=2),
        "resources": st.fixed_dictionaries(
            {
                "remove": st.lists(st.sampled_from(list(RESOURCES)), unique=True, max_size=2),
                "requests": _amounts(SHARED),
                "limits": _amounts(SHARED),
            }
        ),
        "env": _texts(ENV_NAMES),
        "image": st.sampled_from(["", "example.com/sd-cpu:1"]),
        "nodeSelector": st.fixed_dictionaries(
            {
                "remove": st.lists(st.sampled_from(POLICY_KEYS), unique=True, max_size=2),
                "set": _texts(["pool", "workload-type"], VALUES),
            }
        ),
        "tolerations": st.fixed_dictionaries(
            {
                "remove": st.lists(
                    _optional({"key": st.sampled_from(TAINT_KEYS)}, {"value": st.just("gpu")}),
                    max_size=2,
                ),
                "add": st.lists(tolerations().map(_tolerable), max_size=2),
            }
        ),
        "affinity": st.sampled_from(["Keep", "Remove"]),
        "runtimeClassName": st.sampled_from(["Keep", "Remove", "gvisor"]),
        "labels": _texts(["tier", "workload-type"], VALUES),
        "annotations": _texts(["note", "tier"]),
    }
    return _optional({}, blocks).map(_valid).map(Adaptation.model_validate)


def _valid(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a policy may not say: limits below requests, and what belongs to others."""
    changes = found.get("resources", {"requests": {}, "limits": {}})
    same = {name: changes["requests"].get(name, value) for name, value in changes["limits"].items()}
    kept = {key: value for key, value in found.items() if key not in ("perRemoved", "by")}
    accelerator = found.get("accelerator")
    if accelerator == "Remove":
        kept["perRemoved"] = found.get("perRemoved", {})
    if accelerator == "Replace":
        kept["by"] = found.get("by", INSTEAD[0])
    return {**kept, "resources": {**changes, "limits": same}}


def options() -> st.SearchStrategy[Option]:
    return adaptations().map(lambda found: Option(name="cpu", queue="cpu-lq", adaptation=found))
