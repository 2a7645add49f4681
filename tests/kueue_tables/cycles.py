"""Replays one scheduling cycle: which Workloads start on which flavors, and which are preempted.

Kueue takes one Workload of each ClusterQueue into a cycle; the event loop would take more, so it is
given those heads alone, in the order of the product.
"""

from tests import worlds
from tests.kueue_tables.clusters import NOW, amounts, cluster, key
from webhook.kueue import forecast
from webhook.kueue.simulation import Running
from webhook.kueue.tree_workloads import UNKNOWN_SECONDS
from webhook.state import forecast_input
from webhook.state.forecast_input import forecast_givens

WORLD = ("objects", "resourceFlavors", "clusterQueues", "additionalClusterQueues", "cohorts")
QUEUES = ("queues", "additionalLocalQueues")
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
RUN_SECONDS = 1e6


def one_cycle(case):
    """Return what the event loop does in one cycle, and what Kueue does."""
    state, snapshot = world(case)
    heads = [queue[0] for queue in pending(state, snapshot) if queue]
    return cycle(state, snapshot, heads), wanted(case, snapshot)


def many_cycles(case):
    """Return what the event loop starts before anything ends, and what Kueue does."""
    state, snapshot = world(case)
    groups = [group for queue in pending(state, snapshot) for group in queue]
    holding = [
        run
        for name in snapshot.setup.cluster_queues
        for run in forecast_input.running_in(name, state.contents_of(name).holding, 0.0)
    ]
    planned = forecast.PlannedStarts(
        forecast_givens(snapshot, lambda *_: None, NOW), holding, groups
    )
    starts = [start for start in planned.begun if start.at < UNKNOWN_SECONDS]
    return {"started": started(starts), "preempted": {}}, wanted(case, snapshot)


def world(case):
    queues = [with_usage(queue, case) for queue in case.all(*QUEUES)]
    fair_sharing = case.fields.get("fairSharing") or case.fields.get("preemptionFairSharing")
    if case.fields.get("enableFairSharing"):
        fair_sharing = {"preemptionStrategies": None, **(fair_sharing or {})}
    workloads = [marked(workload) for workload in case.fields["workloads"]]
    return cluster([*case.all(*WORLD), *queues, *workloads], case, fairSharing=fair_sharing)


def marked(workload):
    """Return a Workload with the mark that Kueue's controllers put on slices of elastic Jobs."""
    metadata = workload["metadata"]
    annotations = {"kueue.x-k8s.io/elastic-job": "true", **metadata.get("annotations", {})}
    return {**workload, "metadata": {**metadata, "annotations": annotations}}


def with_usage(queue, case):
    """Return a LocalQueue with what it has used of late, where the case says so."""
    used = case.fields.get("initialUsage", {}).get(queue["metadata"]["name"])
    if used is None:
        return queue
    status = {"consumedResources": used, "lastUpdate": case.common["now"]}
    return {**queue, "status": {"fairSharing": {"admissionFairSharingStatus": status}}}


def pending(state, snapshot):
    """Return the pending Workloads of each ClusterQueue, in the order of the product."""
    return [
        [
            group
            for group in forecast_input.queued(
                state.contents_of(name).waiting,
                0.0,
                key_of=lambda workload: f"{workload.namespace}/{workload.name}",
            )
            if queue.namespaces.matches(snapshot.cluster.labels_of(group.namespace))
        ]
        for name, queue in sorted(snapshot.setup.cluster_queues.items())
    ]


def cycle(state, snapshot, groups):
    """Run one cycle of each tree with these pending Workloads."""
    by_queue = worlds.simulations(snapshot)
    # All ClusterQueues of a tree have one Simulation.
    for simulation in dict.fromkeys(by_queue.values()):
        # The very first cycle has rules of its own.
        simulation.step()
    for name, simulation in by_queue.items():
        for workload in state.contents_of(name).holding:
            simulation.add_running(running(name, workload))
    # Of one priority, those that are added first count as older.
    for group in sorted(groups, key=lambda group: group.created):
        waiting = worlds.with_run(group, snapshot, seconds=RUN_SECONDS)
        by_queue[waiting.cluster_queue].add_waiting(waiting)
    begun, preempted = {}, {}
    for simulation in dict.fromkeys(by_queue.values()):
        simulation.follow(simulation.now, wakes=False, drawn={})
        begun |= started(simulation.begun)
        preempted |= {victims.key: victims.preempted_for.value for victims in simulation.preempted}
    return {"started": begun, "preempted": preempted}


def started(begun):
    """Map each Workload that started to its flavors and to how much it uses of each cell."""
    return {start.key: assigned(start.flavors, start.usage) for start in begun}


def assigned(flavors, taken):
    return list(flavors), sorted(amount for _, amount in taken if amount)


def running(name, workload):
    return Running(
        cluster_queue=name,
        usage=dict(workload.charge),
        seconds=RUN_SECONDS,
        key=f"{workload.namespace}/{workload.name}",
        priority=workload.priority,
        order=workload.queued_at,
        reserved_at=workload.reserved_at - NOW,
        uid=workload.uid,
    )


def wanted(case, snapshot):
    sources = {key(source): source for source in case.fields["workloads"]}
    return {
        "started": {
            name: (flavors(given, snapshot), charged(given, replaced(sources[name], sources)))
            for name, given in case.fields.get("wantAssignments", {}).items()
            if not has_quota(sources[name])
        },
        "preempted": case.fields.get("wantVictims", {}),
    }


def has_quota(source):
    return "admission" in source.get("status", {})


def flavors(assigned, snapshot):
    """Return the flavor of each resource group of each pod set."""
    queue = snapshot.setup.cluster_queues[assigned["clusterQueue"]]
    return [
        names[0]
        for pod_set in assigned["podSetAssignments"]
        for group in queue.groups
        if (names := [n for r, n in pod_set.get("flavors", {}).items() if r in group.resources])
    ]


def replaced(source, sources):
    """Return the admission of the slice that a Workload replaces; None: it replaces none."""
    name = source["metadata"].get("annotations", {}).get(REPLACES)
    return sources[name]["status"]["admission"] if name else None


def charged(assigned, given_back):
    """Return how much a Workload takes of each cell beyond what its slice gives back."""
    total = {}
    for sign, admission in ((1, assigned), (-1, given_back)):
        for pod_set in admission["podSetAssignments"] if admission else ():
            for cell, amount in amounts(pod_set).items():
                total[cell] = total.get(cell, 0) + sign * amount
    return sorted(amount for amount in total.values() if amount)
