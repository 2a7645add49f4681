"""Replays the order in which one cycle serves its heads.

Kueue's tests give a head the height from which it borrows; here a ClusterQueue is built for each
head in which it borrows from just there.
"""

from tests.kueue_tables.clusters import cluster, key
from tests.kueue_tables.cycles import cycle, pending

FLAVOR = {"kind": "ResourceFlavor", "metadata": {"name": "default"}}
COHORTS = (("root", "", 100), ("with-quota", "root", 100), ("without-quota", "root", 0))
POD_SET = {
    "name": "main",
    "count": 1,
    "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
}


def entries(case):
    """Replay TestEntryOrdering."""
    sources = [entry["Head"]["Info"]["Obj"] for entry in case.fields["input"]]
    heights = [entry["assignment"].get("Borrowing", 0) for entry in case.fields["input"]]
    # The cohort at the root has quota, and one of the two below it has.
    objects = [FLAVOR, *map(cohort, *zip(*COHORTS, strict=True))]
    for number, (source, height) in enumerate(zip(sources, heights, strict=True)):
        above = "without-quota" if height > 1 else "with-quota"
        objects += in_queue(f"queue-{number}", source, above, 0 if height else 1)
    started = in_order(*cluster(objects, case, waitForPodsReady=pods_ready(case)))
    return [name.removeprefix("/") for name in started], case.fields["wantOrder"]


def in_order(state, snapshot):
    """Return the keys of all pending Workloads, in the order in which one cycle starts them."""
    groups = [group for queue in pending(state, snapshot) for group in queue]
    return list(cycle(state, snapshot, groups)["started"])


def pods_ready(case):
    timestamp = case.fields.get("workloadOrdering", {}).get("PodsReadyRequeuingTimestamp")
    return timestamp and {"timeout": "5m", "requeuingStrategy": {"timestamp": timestamp}}


def cohort(name, parent, amount):
    spec = {"parentName": parent, "resourceGroups": quotas(amount, amount)}
    return {"kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def quotas(cpus, memory=0):
    resources = [
        {"name": name, "nominalQuota": str(amount)}
        for name, amount in (("cpu", cpus), ("memory", memory))
    ]
    flavors = [{"name": "default", "resources": resources}]
    return [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]


def in_queue(name, source, above, cpus):
    """Return a Workload with a ClusterQueue of its own in the cohort *above*."""
    namespace = source["metadata"].get("namespace", "")
    spec = {"cohortName": above, "namespaceSelector": {}, "resourceGroups": quotas(cpus)}
    workload = {"queueName": name, "podSets": [POD_SET], **source.get("spec", {})}
    return (
        {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
        {**source, "spec": workload},
    )


def less(case):
    """Replay TestEntryComparerLess: which of two heads comes first under fair sharing.

    Kueue's test states their shares; here each gets a ClusterQueue that borrows just so.
    """
    heads = [case.fields[name]["Head"]["Info"]["Obj"] for name in "ab"]
    shares = {
        value["key"]["workloadKey"]: value["value"] for value in case.fields.get("drsValues", ())
    }
    ratios = [shares.get(key(head), {}).get("unweightedRatio", 0) for head in heads]
    objects = [FLAVOR, cohort("shared", "", 100)]
    for name, source, ratio in zip("ab", heads, ratios, strict=True):
        borrows = shares.get(key(source), {}).get("borrowing", False)
        objects += in_queue(name, source, "shared", 0 if borrows else 1)
        if ratio > min(ratios):
            objects.append(borrower(name))
    first, _ = in_order(*cluster(objects, case, fairSharing={}))
    return first == key(heads[0]), case.fields["wantLess"]


def borrower(queue):
    """Return a Workload that borrows memory, of which no head asks for any."""
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": {"memory": "default"},
        "resourceUsage": {"memory": "1"},
    }
    return {
        "kind": "Workload",
        "metadata": {"name": "borrower", "namespace": "default"},
        "spec": {"podSets": [POD_SET]},
        "status": {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assigned]},
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
        },
    }
