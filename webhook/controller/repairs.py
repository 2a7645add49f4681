"""Repairs Workloads that raced a move, and lets deactivated ones follow theirs.

Kueue writes an admission without a resourceVersion, so one that it chose before a move may land
after it. Then the Workload is deactivated until it has given its quota back, and activated again in
its new queue. A Workload that somebody else deactivated follows its moved Job, and stays so. What
is to be done shows on Job and Workload alone, so restarts and leaders do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import kueue_path
from webhook.api.watch import get_by_list
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.job_events import Happening, event_on_job, post_event
from webhook.controller.world import World
from webhook.learn.workload_runs import admitted_at, is_true, read_conditions, since
from webhook.model import fields
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import Pending
from webhook.model.queues import Stage
from webhook.model.reasons import EventReason, Obstacle
from webhook.state.workload import REPAIR, Workload, read_workload

RACE_SECONDS: Final = 60.0
"""Longest time between a move and a reservation that raced it, either way, as Kueue records when it
chose and not when it wrote; and the longest for which such a Workload may have been admitted."""
LOST_SECONDS: Final = 20.0
"""After a move; a Workload that then still holds quota in its old queue is reported and stays."""
AGAIN_SECONDS: Final = 5.0
"""Until a Workload that does not show what was written to it is checked again."""


class Repairs:
    def __init__(
        self, transport: KubernetesApi, may_write: Callable[[], bool], metrics: ControllerMetrics
    ) -> None:
        self._transport = transport
        self._may_write = may_write
        self._metrics = metrics
        self._later: dict[tuple[str, str], float] = {}
        """(Job, action) to the monotonic time from which it may be repeated."""

    def step(
        self, jobs: Iterable[Pending], workloads: Mapping[str, Sequence[Workload]], at: World
    ) -> list[str]:
        """Check all Jobs that were moved or undone while they were pending, and repair races.

        Return the lines to log.
        """
        self._later = {action: until for action, until in self._later.items() if until > at.now}
        lines: list[str] = []
        for job in jobs:
            if job.has_left:
                for workload in workloads.get(job.key, ()):
                    lines += self._judge(workload, job, at)
        return lines

    def _judge(self, workload: Workload, job: Pending, at: World) -> list[str]:
        if workload.is_repaired:
            if workload.stage is not Stage.RESERVING and self._is_due(job, "activate", at):
                return self._activate(workload, job)
        elif is_left_behind(workload, job):
            if self._is_due(job, "follow", at):
                return self._let_follow(workload, job)
        elif job.left is not None and is_overtaken(workload, job, at):
            if workload.queue == job.queue and self._is_due(job, "take back", at):
                return self._take_back(workload, job, at)
            if at.unix - job.left.unix > LOST_SECONDS and self._is_due(job, "tell", at):
                self._later[job.key, "tell"] = at.now + RACE_SECONDS
                return self._tell(workload, job, at.unix)
        return []

    def _is_due(self, job: Pending, what: str, at: World) -> bool:
        if (job.key, what) in self._later or not self._may_write():
            return False
        self._later[job.key, what] = at.now + AGAIN_SECONDS
        return True

    def _activate(self, workload: Workload, job: Pending) -> list[str]:
        wanted = {"metadata": {"annotations": {REPAIR: None}}, "spec": {"active": True}}
        try:
            to_workload(self._transport, workload, wanted)
        except ClusterError as error:
            return [f"Job {job.key}: its Workload is not activated: {error}"]
        return []

    def _let_follow(self, workload: Workload, job: Pending) -> list[str]:
        """Write a Job's queue into its deactivated Workload, which stays so."""
        try:
            source = read_anew(self._transport, workload)
            if source is None or not is_left_behind(read_workload(source), job):
                return []
            metadata = {"resourceVersion": _version(source)}
            to_workload(
                self._transport, workload, {"metadata": metadata, "spec": {"queueName": job.queue}}
            )
        except (ClusterError, FieldError) as error:
            if isinstance(error, ClusterError) and error.is_conflict:
                # It has changed: the next step checks it again.
                del self._later[job.key, "follow"]
                return []
            return [f"Job {job.key}: its deactivated Workload does not follow: {error}"]
        return [f"Job {job.key}: its deactivated Workload follows it to {job.queue}"]

    def _take_back(self, workload: Workload, job: Pending, at: World) -> list[str]:
        """Read the Workload again, as it may be running by now; deactivate it if it still raced."""
        try:
            source = read_anew(self._transport, workload)
            if source is None or not is_raced(source, job, at):
                return []
            to_workload(self._transport, workload, _deactivated(source, workload))
        except (ClusterError, FieldError) as error:
            if isinstance(error, ClusterError) and error.is_conflict:
                # It has changed: the next step checks it again.
                del self._later[job.key, "take back"]
                return []
            return [Attention(f"Job {job.key}: its Workload is not repaired: {error}")]
        self._metrics.count_move(job.policy or job.undone, "repaired")
        where = f"admitted in ClusterQueue {workload.cluster_queue}"
        return [f"Job {job.key}: {where} after it was moved to {job.queue}; taken back from there"]

    def _tell(self, workload: Workload, job: Pending, unix: float) -> list[str]:
        text = (
            f"sent to LocalQueue {job.queue} just when Kueue gave it quota in ClusterQueue "
            f"{workload.cluster_queue}: it goes on there"
        )
        where = job.job.namespace, job.job.reference
        since = job.left.unix if job.left else 0.0
        lost = Happening(EventReason.MOVE_LOST, text, since, where, job.uid)
        try:
            post_event(self._transport, event_on_job(lost, unix=unix))
        except ClusterError as error:
            return [f"Job {job.key}: no Event written: {error}"]
        return [f"Job {job.key}: {text}"]


def is_left_behind(workload: Workload, job: Pending) -> bool:
    """Return whether it is deactivated, without quota, in a queue that its Job was moved from.

    Kueue follows a changed queue only of a Workload that was never evicted, and the eviction of a
    deactivated one is not over before it gets quota again.
    """
    is_deactivated = workload.obstacle is Obstacle.DEACTIVATED
    return is_deactivated and job.left is not None and workload.queue != job.queue != ""


def is_overtaken(workload: Workload, job: Pending, at: World) -> bool:
    """Return whether it holds quota where its Job was until a move or an undo in the last minute.

    Where a LocalQueue points by now makes no difference: what counts is which ClusterQueues the
    Job's other options had when it was moved.
    """
    if workload.stage is not Stage.RESERVING or job.left is None:
        return False
    if abs(at.unix - job.left.unix) > RACE_SECONDS:
        return False
    local_queue = at.snapshot.setup.local_queues.get((workload.namespace, job.queue))
    return (
        local_queue is not None
        and workload.cluster_queue != local_queue.cluster_queue
        and workload.cluster_queue in job.left.cluster_queues
    )


def is_raced(source: Mapping[str, Any], job: Pending, at: World) -> bool:
    """Return whether the Workload, as just read, raced a move, and nothing of it has run for long.

    Raises:
        FieldError: it cannot be read.

    """
    workload = read_workload(source)
    if job.left is None or workload.queue != job.queue or not is_overtaken(workload, job, at):
        return False
    conditions = read_conditions(fields.mapping(source, "status", ""))
    reserved, admitted = since(conditions, "QuotaReserved"), admitted_at(conditions)
    if not reserved or abs(reserved - job.left.unix) > RACE_SECONDS:
        return False
    if is_true(conditions, "PodsReady") or job.has_ready_pods:
        return False
    return all(not begun or at.unix - begun <= RACE_SECONDS for begun in (admitted, job.started))


def _deactivated(source: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    # Kueue evicts an inactive Workload, which frees its quota: docs/decisions/0013-moves.md.
    return {
        "metadata": {
            "resourceVersion": _version(source),
            "annotations": {REPAIR: workload.cluster_queue},
        },
        "spec": {"active": False},
    }


def _version(source: Mapping[str, Any]) -> str:
    return fields.text(fields.mapping(source, "metadata", ""), "resourceVersion", "metadata")


def to_workload(transport: KubernetesApi, workload: Workload, wanted: Mapping[str, Any]) -> None:
    transport.patch(f"{workloads_path(transport, workload)}/{workload.name}", wanted)


def read_anew(transport: KubernetesApi, workload: Workload) -> Mapping[str, Any] | None:
    """Return a Workload as it is now, read by the right to list them; None: it was deleted."""
    return get_by_list(transport, workloads_path(transport, workload), workload.name)


def workloads_path(transport: KubernetesApi, workload: Workload) -> str:
    place = f"namespaces/{workload.namespace}/workloads"
    return kueue_path(transport.kueue_version(), place)
