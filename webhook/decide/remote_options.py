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
from webhook.kueue.newcomer import FoundStart
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.forecasts import Forecast, Start
from webhook.model.queues import ClusterQueue, LocalQueue, PodSetNeeds, StopPolicy
from webhook.model.reasons import Reason
from webhook.model.words import span
from webhook.state.occupancy import Occupancy, assignment, passes_now


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
    assessment: Assessment,
    queues: tuple[LocalQueue, ClusterQueue],
    *,
    priority: int,
) -> None:
    """Assess an option in each worker cluster behind the manager's *queues*, if there are any.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    local_queue, cluster_queue = queues
    assessment.clusters = tuple(
        Assessment(option=assessment.option, queue=local_queue.name, cluster=name)
        for name in multikueue.behind(cluster_queue, occupancy.snapshot.setup)
    )
    for there in assessment.clusters:
        _assess(there, occupancy, assessment.needs, local_queue, priority)
        # A cluster that is asked after others starts nothing now.
        if multikueue.asked_after(there.cluster, cluster_queue, occupancy.snapshot.setup):
            there.starts_now = False


def best(clusters: Sequence[Assessment]) -> Assessment | None:
    """Return the cluster that would start the Job soonest by its free quota; None: all refuse it.

    A cluster where it would have to wait ranks after one whose queues are not known.
    """
    usable = [there for there in clusters if there.rejection is None]
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
    by_name = {there.cluster: there for there in assessment.clusters}
    for name, found in known.items():
        by_name[name].forecast = Forecast(start=found.start)
    before = after = by_name[assessment.cluster]
    # What starts now by the counts needs no forecast: the counts are newer (decision 0010).
    if known and not assessment.starts_now:
        starts = {name: reached.start for name, reached in known.items()}
        # Those that are known come first.
        soonest = min(starts, key=lambda name: (not starts[name].is_known, starts[name].seconds))
        after = by_name[soonest]
    assessment.cluster = after.cluster
    # What waits at the manager stays counted; only the worker's part is exchanged.
    assessment.pending = (assessment.pending or 0) - (before.pending or 0)
    assessment.pending += after.pending or 0
    assessment.reserving = after.reserving
    return known.get(after.cluster)


def forecast_starts(
    occupancy: Occupancy, assessment: Assessment, *, now: float, priority: int
) -> Mapping[str, FoundStart]:
    """Return the start in each cluster that would take the Job, where one is forecast.

    It counts from when the manager reserves quota. *now* and errors as for ``reach``.
    """
    starts = {
        there.cluster: _begin(occupancy, assessment, there, now, priority)
        for there in assessment.clusters
        if there.rejection is None and there.fit is not None
    }
    return {name: found for name, found in starts.items() if found is not None}


def _begin(
    occupancy: Occupancy, assessment: Assessment, in_cluster: Assessment, now: float, priority: int
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


def refusal(clusters: Sequence[Assessment], cluster_queue: str) -> Rejection:
    why = "; ".join(
        f"{there.cluster} {there.rejection.detail}" for there in clusters if there.rejection
    )
    detail = f"no cluster of ClusterQueue {cluster_queue} would take it: {why}"
    return _no_fit(detail)


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
    there: Assessment,
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    manager_queue: LocalQueue,
    priority: int,
) -> None:
    name = there.cluster
    refused = multikueue.inactive(name, occupancy.snapshot.setup) or occupancy.stale.get(name, "")
    # MultiKueue creates the Job on the worker with the same namespace and queue name.
    place = manager_queue.namespace, manager_queue.name
    queues = at_worker(name, occupancy, place) if not refused else None
    # Of a cluster that is not watched, nothing is known but that it is active.
    if not refused and queues is None and name in occupancy.clusters:
        refused = f"has no LocalQueue {manager_queue.name} in namespace {manager_queue.namespace}"
    if refused:
        there.rejection = _no_fit(refused)
    if queues is None:
        return
    local_queue, cluster_queue = queues
    worker = occupancy.clusters[name]
    found = assignment(worker, needs, cluster_queue, priority=priority)
    held = worker.held(cluster_queue.name)
    there.cluster_queue = cluster_queue.name
    there.fit, there.detail = found.fit, found.detail
    passes = passes_now(worker, found, local_queue, cluster_queue, priority=priority)
    there.starts_now = passes and not found.has_checks(cluster_queue)
    there.pending, there.reserving = held.pending, held.reserving
    closed = _closed(worker, local_queue, cluster_queue)
    there.rejection = _no_fit(closed) if closed else found.rejection


def _no_fit(detail: str) -> Rejection:
    return Rejection(reason=Reason.NO_CLUSTER_FITS, detail=detail)


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


def _promise(there: Assessment) -> tuple[float, bool, int]:
    # Unknown ranks between a queue without free quota and one where Kueue may preempt.
    fit = float(there.fit) if there.fit is not None else (Fit.WAITS + Fit.MAY_PREEMPT) / 2
    return fit, there.starts_now, -(there.pending or 0)
