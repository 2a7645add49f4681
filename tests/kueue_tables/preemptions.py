"""Replays the choice of Workloads to preempt for one that has been assigned flavors."""

from tests.kueue_tables.clusters import cluster
from tests.kueue_tables.trees import taken, tree_of
from webhook.kueue.preemption import Preemptions, TriedHead
from webhook.model.queues import QuotaHolder

QUEUE = "queue"
WORLD = ("flavors", "flvs", "clusterQueues", "cohorts", "admitted")


def classical(case):
    """Replay TestPreemption and TestHierarchicalPreemptions."""
    assigned = [pod_set.get("Flavors", {}) for pod_set in case.fields["assignment"]["PodSets"]]
    return victims(case, assigned)


def fair(case):
    """Replay TestFairPreemptions."""
    flavor = {"Name": case.fields["flavorName"], "Mode": "Preempt"}
    strategies = {"preemptionStrategies": case.fields.get("strategies")}
    return victims(case, [{"cpu": flavor}], fairSharing=strategies)


def victims(case, assigned, **settings):
    """Return whom ours and Kueue's preempt; *assigned*: for each pod set, resource to flavor."""
    fields = case.fields
    objects = [*case.all(*WORLD), *incoming(fields["incoming"], fields["targetCQ"])]
    state, snapshot = cluster(objects, case, **settings)
    usage = {name: held.usage for name, held in snapshot.workloads.held.items()}
    tree = tree_of(snapshot, fields["targetCQ"], usage)
    (group,) = state.contents_of(fields["targetCQ"]).waiting
    preemptor = TriedHead(
        leaf=tree.leaves[fields["targetCQ"]],
        taken=taken(tree, wanted(group.arrival.needs, assigned)),
        priority=group.arrival.priority,
        queued_at=group.arrival.created,
    )
    short = {
        tree.indices[flavor["Name"], resource]
        for flavors in assigned
        for resource, flavor in flavors.items()
        if flavor["Mode"] == "Preempt" and (flavor["Name"], resource) in tree.indices
    }
    preemptions = Preemptions(
        tree,
        {
            leaf: snapshot.setup.cluster_queues[name].preemption
            for name, leaf in tree.leaves.items()
        },
        holders(tree, snapshot),
        strategies=snapshot.setup.kueue.preemption_strategies if settings else None,
    )
    chosen = preemptions.targets(preemptor, short)
    # Kueue does not preempt once more whom it has evicted.
    ours = {v.holder.key: v.reason.value for v in chosen if settings or not v.holder.is_evicted}
    return ours, fields.get("wantVictims", {})


def incoming(source, target):
    """Return the Workload that is to get quota, and a LocalQueue for it."""
    # One of Kueue's cases gives it a quota that it has elsewhere, and ignores that.
    pending = {name: value for name, value in source.items() if name != "status"}
    return (
        {"kind": "LocalQueue", "metadata": {"name": QUEUE}, "spec": {"clusterQueue": target}},
        {**pending, "spec": {**source["spec"], "queueName": QUEUE}},
    )


def wanted(needs, assigned):
    """Return what a Workload uses with the flavors that each pod set was assigned."""
    usage = {}
    for pod_set, flavors in zip(needs, assigned, strict=True):
        for resource, amount in {**pod_set.total, "pods": pod_set.count}.items():
            if resource in flavors:
                cell = flavors[resource]["Name"], resource
                usage[cell] = usage.get(cell, 0) + amount
    return usage


def holders(tree, snapshot):
    return [
        QuotaHolder(
            key=reservation.key,
            leaf=tree.leaves[name],
            taken=taken(tree, dict(reservation.charge)),
            priority=reservation.priority,
            reserved_at=reservation.reserved_at,
            queued_at=reservation.queued_at,
            is_evicted=reservation.is_evicted,
            uid=reservation.uid,
            local_queue=reservation.local_queue,
        )
        for name, reservations in snapshot.workloads.reserving.items()
        if name in tree.leaves
        for reservation in reservations
    ]


OWN = "preemptor"
POLICY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
NOMINAL = 100


def order(case):
    """Replay TestCandidatesOrdering: of equal candidates the first is preempted, again and again.

    Kueue's test only sorts; here each candidate uses one CPU, and one more is needed than is free.
    """
    names = dict.fromkeys(source.get("ClusterQueue", OWN) for source in case.fields["candidates"])
    objects = [
        {"kind": "ResourceFlavor", "metadata": {"name": "default"}},
        *(queue_of(name) for name in {OWN: None, **names}),
        *(with_quota(source) for source in case.fields["candidates"]),
    ]
    _, snapshot = cluster(objects, case)
    tree = tree_of(
        snapshot, OWN, {name: held.usage for name, held in snapshot.workloads.held.items()}
    )
    left = {holder.key: holder for holder in holders(tree, snapshot)}
    usages = {
        left[f"/{source['Obj']['metadata']['name']}"].local_queue: source["LocalQueueFSUsage"]
        for source in case.fields["candidates"]
        if "LocalQueueFSUsage" in source
    }
    policies = {
        leaf: snapshot.setup.cluster_queues[n].preemption for n, leaf in tree.leaves.items()
    }
    preemptions = Preemptions(tree, policies, left.values(), queue_usages=usages)
    preempted = []
    while left:
        needed = ((0, NOMINAL - len(left) + 1),)
        preemptor = TriedHead(leaf=tree.leaves[OWN], taken=needed, priority=1000, queued_at=0.0)
        (victim,) = preemptions.targets(preemptor, {0})
        holder = left.pop(victim.holder.key)
        preemptions.remove(holder)
        tree.charge(holder.leaf, holder.taken, -1)
        preempted.append(holder.key.removeprefix("/"))
    return preempted, case.fields["wantCandidates"]


def queue_of(name):
    cpu = {"name": "cpu", "nominalQuota": str(NOMINAL if name == OWN else 0)}
    flavors = [{"name": "default", "resources": [cpu]}]
    spec = {
        "cohortName": "all",
        "preemption": POLICY,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def with_quota(source):
    """Return a candidate that uses one CPU of its ClusterQueue."""
    status = source["Obj"]["status"]
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": {"cpu": "default"},
        "resourceUsage": {"cpu": "1"},
    }
    admission = {
        "clusterQueue": source.get("ClusterQueue", OWN),
        "podSetAssignments": [assigned],
    }
    reserved = [{"type": "QuotaReserved", "status": "True", "reason": "AdmittedByTest"}]
    conditions = status["conditions"]
    if all(condition["type"] != "QuotaReserved" for condition in conditions):
        conditions = conditions + reserved
    return {**source["Obj"], "status": {"admission": admission, "conditions": conditions}}
