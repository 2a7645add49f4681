"""Assesses an option whose queue is MultiKueue's in each worker cluster where it could run.

MultiKueue sends a Workload that has quota at the manager to the LocalQueue of the same namespace
and name on the workers, and the first that reserves quota there keeps it. So it starts when both
let it: the manager, and the earliest worker. This must not know the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from webhook.kueue import multikueue
from webhook.kueue.flavor_plan import demand
from webhook.kueue.tree_forecast import FoundStart
from webhook.model.decision import Assessment, Fit, InCluster, Rejection
from webhook.model.forecasts import Start
from webhook.model.queues import ClusterQueue, LocalQueue, PodSetNeeds, StopPolicy
from webhook.model.reasons import Reason
from webhook.model.words import span
from webhook.state.occupancy import Occupancy, assignment, starts_now


def fresh(occupancy: Occupancy, now: float, limit_seconds: float) -> Occupancy:
    """Return the occupancy with those worker clusters marked as stale that were silent too long.

    *now* is in seconds on the clock of ``Snapshot.as_of``.
    """
    if not occupancy.clusters and not occupancy.unheard:
        return occupancy
    limit = f"(limit {span(limit_seconds)})"
    seen = {name: now - there.snapshot.as_of for name, there in occupancy.clusters.items()}
    stale = {
        name: f"stale: its queues were last seen {span(age)} ago {limit}"
        for name, age in seen.items()
        if age > limit_seconds
    }
    # A cluster that is watched but was never heard gets the same time before it is refused: as an
    # unknown one, a cluster that hangs would otherwise be the first choice.
    unseen = {name: now - since for name, since in occupancy.unheard.items()}
    stale |= {
        name: f"stale: its queues were not seen in {span(age)} {limit}"
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
    """Assess each worker cluster behind the manager's *queues*; empty: they are not MultiKueue's.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    local_queue, cluster_queue = queues
    snapshot = occupancy.snapshot
    assessed = (
        (name, _assess(name, occupancy, needs, local_queue, priority))
        for name in multikueue.behind(cluster_queue, snapshot.setup)
    )
    return tuple(
        replace(there, starts_now=False)
        if there.starts_now and multikueue.asked_after(name, cluster_queue, snapshot.setup)
        else there
        for name, there in assessed
    )


def best(clusters: Sequence[InCluster]) -> InCluster | None:
    """Return the cluster that would start the Job soonest by its free quota; None: all refuse it.

    A cluster where it would have to wait ranks after one whose queues are not known.
    """
    usable = [in_cluster for in_cluster in clusters if not in_cluster.refused]
    return max(usable, key=_promise, default=None)


def reach(
    occupancy: Occupancy, assessment: Assessment, *, now: float, priority: int
) -> FoundStart | None:
    """Fill in the start in each cluster; return that in the one that the option is counted in.

    That is the cluster with the earliest start, or the present one where the Job starts at once.
    None: no start is forecast there. *now* is in seconds on the clock of ``Snapshot.as_of``.

    Raises:
        FieldError: a toleration or an affinity term of the Job cannot be read.

    """
    known = forecast_starts(occupancy, assessment, now=now, priority=priority)
    assessment.clusters = tuple(
        replace(in_cluster, starts_in=known[in_cluster.cluster].start.seconds)
        if in_cluster.cluster in known
        else in_cluster
        for in_cluster in assessment.clusters
    )
    by_name = {in_cluster.cluster: in_cluster for in_cluster in assessment.clusters}
    before = after = by_name[assessment.cluster]
    # What starts now by the counts needs no forecast: the counts are newer (decision 0010).
    if known and not assessment.starts_now:
        after = by_name[min(known, key=lambda name: _soonest(known[name].start))]
    assessment.cluster = after.cluster
    # What waits at the manager stays counted; only the worker's part is exchanged.
    assessment.pending = (assessment.pending or 0) - before.pending + after.pending
    assessment.reserving = after.reserving
    return known.get(after.cluster)


def forecast_starts(
    occupancy: Occupancy, assessment: Assessment, *, now: float, priority: int
) -> Mapping[str, FoundStart]:
    """Return the start in each cluster that would take the Job, where one is forecast.

    It counts from when the manager reserves quota. *now* and errors as for ``reach``.
    """
    starts = {
        in_cluster.cluster: _begin(occupancy, assessment, in_cluster, now, priority)
        for in_cluster in assessment.clusters
        if not in_cluster.refused and in_cluster.fit is not None
    }
    return {name: found for name, found in starts.items() if found is not None}


def _soonest(start: Start) -> tuple[bool, float]:
    """Order starts by whether they are known, then by seconds."""
    return not start.is_known, start.seconds


def _begin(
    occupancy: Occupancy, assessment: Assessment, in_cluster: InCluster, now: float, priority: int
) -> FoundStart | None:
    there = occupancy.clusters[in_cluster.cluster]
    queue = there.snapshot.setup.cluster_queues[in_cluster.cluster_queue]
    wanted = demand(assessment.needs, queue, there.snapshot.setup)
    # MultiKueue creates the Job on the worker with the same namespace and queue name.
    namespace = assessment.job.namespace if assessment.job is not None else ""
    earliest = there.start_times.start_of(
        queue.name,
        wanted,
        now=now,
        priority=priority,
        local_queue=f"{namespace}/{assessment.queue}",
        needs=assessment.needs,
    )
    if earliest is None:
        return None
    managers = occupancy.snapshot.setup.cluster_queues[assessment.cluster_queue]
    asked = multikueue.asked_after(in_cluster.cluster, managers, occupancy.snapshot.setup)
    return replace(earliest, start=_from(asked, earliest.start))


def _from(seconds: float, start: Start) -> Start:
    """Return a start that is no sooner than in so many seconds."""
    if not seconds:
        return start
    later = {name: max(seconds, getattr(start, name)) for name in ("seconds", "low", "high")}
    return replace(start, **later)


def refusal(clusters: Sequence[InCluster], cluster_queue: str) -> Rejection:
    why = "; ".join(f"{in_cluster.cluster} {in_cluster.refused}" for in_cluster in clusters)
    detail = f"no cluster of ClusterQueue {cluster_queue} would take it: {why}"
    return Rejection(reason=Reason.NO_CLUSTER_FITS, detail=detail)


def at_worker(
    name: str, occupancy: Occupancy, place: tuple[str, str]
) -> tuple[LocalQueue, ClusterQueue] | None:
    """Return the queues of a LocalQueue (namespace, name) on a worker; None: none are known."""
    if name not in occupancy.clusters:
        return None
    snapshot = occupancy.clusters[name].snapshot
    local_queue = snapshot.setup.local_queues.get(place)
    if local_queue is None or local_queue.cluster_queue not in snapshot.setup.cluster_queues:
        return None
    return local_queue, snapshot.setup.cluster_queues[local_queue.cluster_queue]


def likely(occupancy: Occupancy, place: tuple[str, str]) -> str:
    """Return the worker cluster in which to count a Job without a decision; empty: in none.

    *place* is its (namespace, LocalQueue). Until its Workload is observed on a worker, the Job
    counts where the fewest Workloads are pending.
    """
    snapshot = occupancy.snapshot
    local_queue = snapshot.setup.local_queues.get(place)
    queue = snapshot.setup.cluster_queues.get(local_queue.cluster_queue if local_queue else "")
    if queue is None:
        return ""
    lengths = {
        name: occupancy.clusters[name].held(queues[1].name).pending
        for name in multikueue.behind(queue, snapshot.setup)
        # The counts of a cluster that was silent for too long cannot be relied on.
        if name not in occupancy.stale and (queues := at_worker(name, occupancy, place))
    }
    return min(lengths, key=lengths.__getitem__, default="")


def _assess(
    name: str,
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    manager_queue: LocalQueue,
    priority: int,
) -> InCluster:
    refused = multikueue.inactive(name, occupancy.snapshot.setup) or occupancy.stale.get(name, "")
    # Of a cluster that is not watched, nothing is known but that it is active.
    if refused or name not in occupancy.clusters:
        return InCluster(cluster=name, refused=refused)
    # MultiKueue creates the Job on the worker with the same namespace and queue name.
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
    assigned = assignment(occupancy, needs, cluster_queue, priority=priority)
    held = occupancy.held(cluster_queue.name)
    return InCluster(
        cluster=name,
        cluster_queue=cluster_queue.name,
        fit=assigned.fit,
        starts_now=starts_now(occupancy, assigned, local_queue, cluster_queue, priority=priority),
        pending=held.pending,
        reserving=held.reserving,
        detail=assigned.detail,
        refused=_closed(occupancy, local_queue, cluster_queue) or _detail(assigned.rejection),
    )


def _closed(occupancy: Occupancy, local_queue: LocalQueue, cluster_queue: ClusterQueue) -> str:
    """Return why Kueue would admit nothing of this namespace there; empty: it would."""
    namespace = local_queue.namespace
    if not cluster_queue.namespaces.matches(occupancy.snapshot.cluster.labels_of(namespace)):
        return f"has ClusterQueue {cluster_queue.name}, which does not select {namespace}"
    if not cluster_queue.active:
        return f"has ClusterQueue {cluster_queue.name} inactive"
    for queue in (local_queue, cluster_queue):
        if queue.stop_policy is not StopPolicy.NONE:
            return f"has {queue.name} with stopPolicy {queue.stop_policy}"
    return ""


def _detail(rejection: Rejection | None) -> str:
    return rejection.detail if rejection is not None else ""


def _promise(in_cluster: InCluster) -> tuple[float, bool, int]:
    # Unknown ranks between a queue without free quota and one where Kueue may preempt.
    fit = float(in_cluster.fit) if in_cluster.fit is not None else (Fit.WAITS + Fit.MAY_PREEMPT) / 2
    return fit, in_cluster.starts_now, -in_cluster.pending
