"""A small scenario, and a way to read one with anything changed in it."""

import copy

from webhook.simulate.scenario_file import read_scenario


def flavor(name):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
    }


def cluster_queue(name, **quota):
    resources = [{"name": key.replace("_", "."), "nominalQuota": n} for key, n in quota.items()]
    group = {
        "coveredResources": [each["name"] for each in resources],
        "flavors": [{"name": name, "resources": resources}],
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }


def local_queue(name, namespace="team"):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": name},
    }


def job(queue="fast", cpu="1", **metadata):
    labels = {"kueue.x-k8s.io/queue-name": queue}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "team", "labels": labels, **metadata},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }


def policy(name="spill", strategy=None, mode="Observe"):
    rules = [{"option": "fast", "orPendingBelow": 1}, {"option": "slow", "orPendingBelow": 1}]
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": name},
        "spec": {
            "mode": mode,
            "match": {"jobSelector": {}},
            "options": [{"queue": "fast"}, {"queue": "slow", "slowdown": 3}],
            "strategy": strategy or {"type": "Threshold", "threshold": rules},
        },
    }


def document():
    """Two queues of one Job each, four Jobs at once."""
    return {
        "name": "small",
        "cluster": {
            "objects": [
                *(flavor(name) for name in ("fast", "slow")),
                *(cluster_queue(name, cpu=1) for name in ("fast", "slow")),
                *(local_queue(name) for name in ("fast", "slow")),
            ]
        },
        "policies": {"objects": [policy()]},
        "jobs": {"work": {"job": job(), "runTimes": {"fast": "10s", "slow": "30s"}}},
        "arrivals": [{"burst": {"count": 4, "jobs": ["work"]}}],
    }


def changed(path, value):
    """Return the document with one place replaced, added, or (value None) removed."""
    found = copy.deepcopy(document())
    place = found
    for part in path[:-1]:
        place = place[part]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return found


def read(source=None, files=None, **more):
    files = files or {}

    def read_text(name):
        return files[name]

    return read_scenario(source or document(), read_text=read_text, **more)


def multikueue(*names):
    """The objects by which the ClusterQueue ``fast`` leads to worker clusters."""
    version = "kueue.x-k8s.io/v1beta2"
    check = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"kind": "MultiKueueConfig", "name": "all"},
    }
    kinds = [
        ("AdmissionCheck", "remote", check),
        ("MultiKueueConfig", "all", {"clusters": list(names)}),
    ]
    kinds += [("MultiKueueCluster", name, {}) for name in names]
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {**spec}}
        for kind, name, spec in kinds
    ]


def worker(name, cpu=1, flavor_name="fast", **rest):
    queue = cluster_queue("fast", cpu=cpu)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = flavor_name
    return {"name": name, "objects": [flavor(flavor_name), queue, local_queue("fast")], **rest}


def with_workers(*workers, cpu=10, names=None):
    """Return the document with the queue ``fast`` leading to clusters, and *cpu* let through."""
    found = copy.deepcopy(document())
    objects = found["cluster"]["objects"]
    queue = objects[2] = cluster_queue("fast", cpu=cpu)
    queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "remote"}]}
    objects += multikueue(*(names or [each["name"] for each in workers]))
    found["clusters"] = [copy.deepcopy(each) for each in workers]
    return found
