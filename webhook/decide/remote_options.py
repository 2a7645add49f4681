"""An option whose queue is behind MultiKueue, in each worker cluster where it could run.

MultiKueue sends a Workload that has quota at the manager to the LocalQueue of the same namespace
and name on the workers, and the first that reserves quota there keeps it. So it starts when both
would let it: the manager, and the earliest of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from webhook.kueue import multikueue
from webhook.kueue.flavor_plan import demand
from webhook.kueue.occupancy import Occupancy, assignment, starts_now
from webhook.model.decision import Assessment, Fit, InCluster, Rejection
from webhook.model.forecasts import Estimates, Start
from webhook.model.queues import ClusterQueue, LocalQueue, PodSetNeeds, StopPolicy, namespace_labels
from webhook.model.reasons import Reason


def fresh(occupancy: Occupancy, now: float, limit_seconds: float) -> Occupancy:
    """Mark the clusters that were last heard of too long ago."""
    if not occupancy.clusters and not occupancy.unheard:
        return occupancy
    limit = f"(limit {limit_seconds:.0f} s)"
    seen = {name: now - each.snapshot.as_of for name, each in occupancy.clusters.items()}
    stale = {
        name: f"stale: its queues were last seen {age:.0f} s ago {limit}"
        for name, age in seen.items()
        if age > limit_seconds
    }
    unseen = {name: now - since for name, since in occupancy.unheard.items()}
    stale |= {
        name: f"stale: its queues were not seen in {age:.0f} s {limit}"
        for name, age in unseen.items()
        if age > limit_seconds
    }
    return replace(occupancy, stale=stale) if stale else occupancy


def assess(
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    queues: tuple[LocalQueue, ClusterQueue],
    *,
    priority: int,
) -> tuple[InCluster, ...]:
    """See how each cluster behind the manager's *queues* would take it; none: it is no such queue.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    local_queue, cluster_queue = queues
    return tuple(
        _look(name, occupancy, needs, local_queue, priority)
        for name in multikueue.behind(cluster_queue, occupancy.snapshot)
    )


def best(found: Sequence[InCluster]) -> InCluster | None:
    """Choose the cluster that would take it soonest by what is free; None: none would.

    One that has no room is passed over for one of which nothing is known.
    """
    usable = [each for each in found if not each.refused]
    return max(usable, key=_promise, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A start in a worker cluster, and what is known there of runs."""

    start: Start
    flavors: str
    run_times: Estimates
    start_delays: Estimates


def reach(
    occupancy: Occupancy, item: Assessment, *, now: float, priority: int
) -> tuple[Assessment, Reached | None]:
    """Forecast the start in each cluster, and count on the earliest; None: it is not forecast.

    Raises:
        FieldError: a toleration or an affinity term of the Job cannot be read.

    """
    starts = {
        each.cluster: _begin(occupancy.clusters[each.cluster], item, each, now, priority)
        for each in item.clusters
        if not each.refused and each.fit is not None
    }
    known = {name: found for name, found in starts.items() if found is not None}
    found = tuple(
        replace(each, starts_in=known[each.cluster].start.seconds)
        if each.cluster in known
        else each
        for each in item.clusters
    )
    before = next(each for each in found if each.cluster == item.cluster)
    after = before
    if known and not item.starts_now:
        after = min(
            (each for each in found if each.cluster in known),
            key=lambda each: _soonest(known[each.cluster].start),
        )
    counted = replace(
        item,
        cluster=after.cluster,
        clusters=found,
        pending=(item.pending or 0) - before.pending + after.pending,
        reserving=after.reserving,
    )
    return counted, known.get(after.cluster)


def _soonest(start: Start) -> tuple[bool, float]:
    """Prefer what is known to what is guessed."""
    return not start.is_known, start.seconds


def _begin(
    there: Occupancy, item: Assessment, each: InCluster, now: float, priority: int
) -> Reached | None:
    queue = there.snapshot.cluster_queues[each.cluster_queue]
    wanted = demand(item.needs, queue, there.snapshot)
    found = there.outlook.start_of(queue.name, wanted, now=now, priority=priority)
    if found is None:
        return None
    return Reached(
        start=found.start,
        flavors=found.names,
        run_times=there.snapshot.run_times,
        start_delays=there.snapshot.start_delays,
    )


def refusal(found: Sequence[InCluster], cluster_queue: str) -> Rejection:
    why = "; ".join(f"{each.cluster} {each.refused}" for each in found)
    detail = f"no cluster of ClusterQueue {cluster_queue} would take it: {why}"
    return Rejection(reason=Reason.NO_CLUSTER_FITS, detail=detail)


def at_worker(
    name: str, occupancy: Occupancy, place: tuple[str, str]
) -> tuple[LocalQueue, ClusterQueue] | None:
    """Find the queues behind a (namespace, name) on a cluster that is watched."""
    if name not in occupancy.clusters:
        return None
    snapshot = occupancy.clusters[name].snapshot
    local_queue = snapshot.local_queues.get(place)
    if local_queue is None or local_queue.cluster_queue not in snapshot.cluster_queues:
        return None
    return local_queue, snapshot.cluster_queues[local_queue.cluster_queue]


def likely(occupancy: Occupancy, place: tuple[str, str]) -> str:
    """Guess where a Job of a (namespace, LocalQueue) that nobody decided on goes; empty: here.

    It is counted where fewest wait until it is seen, which takes a second or two.
    """
    snapshot = occupancy.snapshot
    local_queue = snapshot.local_queues.get(place)
    queue = snapshot.cluster_queues.get(local_queue.cluster_queue if local_queue else "")
    if queue is None:
        return ""
    lengths = {
        name: occupancy.clusters[name].held(found[1].name).pending
        for name in multikueue.behind(queue, snapshot)
        if name not in occupancy.stale and (found := at_worker(name, occupancy, place))
    }
    return min(lengths, key=lengths.__getitem__, default="")


def _look(
    name: str,
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    manager_queue: LocalQueue,
    priority: int,
) -> InCluster:
    refused = multikueue.inactive(name, occupancy.snapshot) or occupancy.stale.get(name, "")
    if refused or name not in occupancy.clusters:
        return InCluster(cluster=name, refused=refused)
    place = manager_queue.namespace, manager_queue.name
    queues = at_worker(name, occupancy, place)
    if queues is None:
        missing = f"has no LocalQueue {manager_queue.name} in namespace {manager_queue.namespace}"
        return InCluster(cluster=name, refused=missing)
    return _judged(name, occupancy.clusters[name], needs, queues, priority)


def _judged(
    name: str,
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    queues: tuple[LocalQueue, ClusterQueue],
    priority: int,
) -> InCluster:
    local_queue, cluster_queue = queues
    found = assignment(occupancy, needs, cluster_queue, priority=priority)
    held = occupancy.held(cluster_queue.name)
    return InCluster(
        cluster=name,
        cluster_queue=cluster_queue.name,
        fit=found.fit,
        starts_now=starts_now(occupancy, found, local_queue, cluster_queue, priority=priority),
        pending=held.pending,
        reserving=held.reserving,
        detail=found.detail,
        refused=_closed(occupancy, local_queue, cluster_queue) or _detail(found.rejection),
    )


def _closed(occupancy: Occupancy, local_queue: LocalQueue, cluster_queue: ClusterQueue) -> str:
    """Say why Kueue would let nobody of this namespace in there; empty: it would."""
    namespace = local_queue.namespace
    if not cluster_queue.namespaces.matches(namespace_labels(occupancy.snapshot, namespace)):
        return f"has ClusterQueue {cluster_queue.name}, which does not select {namespace}"
    if not cluster_queue.active:
        return f"has ClusterQueue {cluster_queue.name} inactive"
    for queue in (local_queue, cluster_queue):
        if queue.stop_policy is not StopPolicy.NONE:
            return f"has {queue.name} with stopPolicy {queue.stop_policy}"
    return ""


def _detail(rejection: Rejection | None) -> str:
    return rejection.detail if rejection is not None else ""


def _promise(each: InCluster) -> tuple[float, bool, int]:
    fit = float(each.fit) if each.fit is not None else (Fit.WAITS + Fit.MAY_PREEMPT) / 2
    return fit, each.starts_now, -each.pending
