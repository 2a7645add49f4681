"""Replays the flavor assigner: which flavors a Workload gets, and what it takes to get their quota.

As in Kueue's tests, the oracle of preemption has its answers from the case.
"""

from tests.kueue_tables.clusters import cells, cluster
from tests.kueue_tables.trees import tree_of
from webhook.kueue import assignment
from webhook.kueue.assignment import Assignment, Claimant, PreemptionMode
from webhook.state.occupancy import parts_of

MODES = {
    PreemptionMode.EXCEEDS: "NoFit",
    PreemptionMode.WAITS: "NoFit",
    PreemptionMode.NO_CANDIDATES: "Preempt",
    PreemptionMode.PREEMPT: "Preempt",
    PreemptionMode.RECLAIM: "Preempt",
    PreemptionMode.FITS: "Fit",
}
ORACLE = {
    "NoCandidates": PreemptionMode.NO_CANDIDATES,
    "Preempt": PreemptionMode.PREEMPT,
    "Reclaim": PreemptionMode.RECLAIM,
}
GRANULAR = (
    PreemptionMode.WAITS,
    PreemptionMode.NO_CANDIDATES,
    PreemptionMode.PREEMPT,
    PreemptionMode.RECLAIM,
    PreemptionMode.FITS,
)
"""Kueue's modes, by their number."""
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
QUEUE = {"kind": "LocalQueue", "metadata": {"name": "queue", "namespace": "default"}}


def flavors(case):
    """Replay TestAssignFlavors."""
    fields, want = case.fields, case.fields["wantAssignment"]
    names = [name for name in ("clusterQueue", "secondaryClusterQueue") if name in fields]
    usage = {fields[name]["metadata"]["name"]: fields.get(f"{name}Usage") for name in names}
    workload = pending(fields["wlPods"], fields.get("wlReclaimablePods"))
    objects = [*(fields[name] for name in names), workload]
    if "preemptWorkloadSlice" in fields:
        workload["metadata"]["annotations"] = {REPLACES: "default/replaced"}
        objects.append(slice_of(fields))
    assigned, tree, groups = assign(case, fields["clusterQueue"], objects, usage)
    if fields["wantRepMode"] == "NoFit":
        return {"mode": MODES[assigned.mode]}, {"mode": "NoFit"}
    wanted = {
        "mode": fields["wantRepMode"],
        "flavors": [
            in_group[0]
            for pod_set in first_of_groups(fields["wlPods"], want["PodSets"])
            for group in groups
            if (in_group := of_group(pod_set.get("Flavors", {}), group))
        ],
        "usage": without_zeros(cells(want.get("Usage", {}).get("Quota"))),
        "height": want.get("Borrowing", 0),
    }
    ours = {
        "mode": MODES[assigned.mode],
        "flavors": list(assigned.flavors),
        "usage": without_zeros(tree.amounts(assigned.taken)),
        "height": assigned.height,
    }
    return ours, wanted


def first_of_groups(pod_sets, assigned):
    """Leave out the pod sets that got their flavors together with an earlier one."""
    seen = set()
    for number, (pod_set, of_pod_set) in enumerate(zip(pod_sets, assigned, strict=True)):
        group = pod_set.get("topologyRequest", {}).get("podSetGroupName", number)
        if group not in seen:
            seen.add(group)
            yield of_pod_set


def slice_of(fields):
    """Return the slice that a Workload replaces."""
    assignments = [
        {
            "name": requests["Name"],
            "count": 1,
            "flavors": requests["Flavors"],
            # The tables have CPU in milli-CPU.
            "resourceUsage": {
                name: f"{amount}m" if name == "cpu" else str(amount)
                for name, amount in requests["Requests"].items()
            },
        }
        for requests in fields["preemptWorkloadSlice"]
    ]
    admission = {
        "clusterQueue": fields["clusterQueue"]["metadata"]["name"],
        "podSetAssignments": assignments,
    }
    return {
        "kind": "Workload",
        "metadata": {
            "name": "replaced",
            "namespace": "default",
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
        },
        "spec": {"podSets": [{"name": each["name"], "count": 1} for each in assignments]},
        "status": {
            "admission": admission,
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
        },
    }


def without_zeros(amounts):
    return {cell: amount for cell, amount in amounts.items() if amount}


def of_group(assigned, group):
    """Return the flavors that were assigned to the resources of a group."""
    return [flavor["Name"] for name, flavor in assigned.items() if name in group.resources]


def in_cohort(case):
    """Replay TestHierarchical and TestReclaimBeforePriorityPreemption."""
    fields, other = case.fields, case.common["otherCq"]
    usage = {
        fields["testCq"]["metadata"]["name"]: fields.get("testClusterQueueUsage"),
        other["metadata"]["name"]: fields.get("otherClusterQueueUsage"),
    }
    objects = [fields["testCq"], other, pending([fields["workloadRequests"]])]
    assigned, tree, _ = assign(case, fields["testCq"], objects, usage)
    flavors_of = {resource: flavor for flavor, resource in tree.amounts(assigned.taken)}
    return (MODES[assigned.mode], flavors_of), (fields["wantMode"], fields["wantAssigment"])


def preferred(case):
    """Replay TestIsPreferred."""
    spec = {"flavorFungibility": case.fields.get("config", {})}
    queue = {"kind": "ClusterQueue", "metadata": {"name": "queue"}, "spec": spec}
    _, snapshot = cluster([queue], case)
    levels = (
        (GRANULAR[level["preemptionMode"]], level["borrowingLevel"])
        for level in (case.fields["a"], case.fields["b"])
    )
    is_better = assignment.is_better(*levels, snapshot.setup.cluster_queues["queue"])
    return is_better, case.fields["wantPreferred"]


def reserved(case):
    """Replay TestResourcesToReserve: what a cycle keeps for a head of which this is assigned."""
    fields, queue = case.fields, case.common["cq"]
    name = queue["metadata"]["name"]
    _, snapshot = cluster([*case.all("resourceFlavors"), queue], case)
    tree = tree_of(snapshot, name, {name: cells(fields.get("cqUsage"))})
    modes = {"Fit": PreemptionMode.FITS, "Preempt": PreemptionMode.PREEMPT}
    assigned = Assignment(
        mode=modes[fields["assignmentMode"]],
        taken=tree.taken(cells(fields["assignmentUsage"])),
        height=fields.get("borrowing", 0),
    )
    kept = assigned.taken
    if assigned.mode is not PreemptionMode.FITS:
        kept = assignment.set_aside(assigned, claimant(tree, snapshot, name, {}))
    return tree.amounts(kept), without_zeros(cells(fields["wantReserved"]))


def pending(pod_sets, reclaimable=None):
    return {
        "kind": "Workload",
        "metadata": {"name": "workload", "namespace": "default"},
        "spec": {"queueName": "queue", "podSets": pod_sets},
        "status": {"reclaimablePods": reclaimable or []},
    }


def assign(case, target, objects, usage):
    """Assign flavors in *target*; also return its tree and its resource groups."""
    name = target["metadata"]["name"]
    objects = [
        *case.all("resourceFlavors", "cohorts", "objects", "topologies"),
        *objects,
        {**QUEUE, "spec": {"clusterQueue": name}},
    ]
    settings = {"fairSharing": {}} if case.fields.get("enableFairSharing") else {}
    state, snapshot = cluster(objects, case, **settings)
    tree = tree_of(snapshot, name, {queue: cells(of) for queue, of in usage.items()})
    (group,) = state.contents_of(name).waiting
    place = claimant(tree, snapshot, name, cells(case.fields.get("simulationResult")))
    parts = parts_of(group.arrival.needs, place, snapshot.setup)
    return assignment.assign(parts, place), tree, place.queue.groups


def claimant(tree, snapshot, name, simulated):
    """Return who asks; *simulated*: cell to what Kueue's oracle says."""

    def oracle(cell, _):
        result = simulated.get(tree.cells[cell])
        if result is None:
            return PreemptionMode.PREEMPT, 0
        return ORACLE[result["preemptionPossiblity"]], result["borrowingAfterSimulation"]

    return Claimant(
        tree=tree,
        leaf=tree.leaves[name],
        queue=snapshot.setup.cluster_queues[name],
        oracle=oracle,
        fair_sharing=snapshot.setup.kueue.fair_sharing,
    )
