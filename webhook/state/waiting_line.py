"""Who waits in which ClusterQueue, at which position, and when each of them is expected to start.

It pairs Workloads by name with the starts of the forecasts' event loop, which knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, isfinite
from typing import Any

from webhook.kueue.forecast import pending_starts
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota import tree_names
from webhook.model.forecasts import Start
from webhook.state import forecast_input
from webhook.state.queue_counts import QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.state import State
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingWorkload:
    """A pending Workload, its place in its ClusterQueue, and its start."""

    workload: Workload
    cluster_queue: str
    position: int
    """1: the first in Kueue's order, by priority and then age."""
    pending: int
    """How many wait in its ClusterQueue."""
    start: Start
    """In seconds from the snapshot's time on."""
    until: float = 0.0
    """Until when it backs off after an eviction, in seconds since 1970; 0: it does not."""

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of its Job, or of itself where nothing owns it."""
        return f"{self.workload.namespace}/{self.workload.job or self.workload.name}"

    def later(self, seconds: float) -> WaitingWorkload:
        """Return the same *seconds* afterwards, if nothing has happened since."""
        start = self.start
        starts, low, high = (
            max(0.0, at - seconds) for at in (start.seconds, start.low, start.high)
        )
        return replace(self, start=replace(start, seconds=starts, low=low, high=high))

    def figures(self) -> dict[str, Any]:
        """Return what is known of it as JSON has it; a time that is not known is null."""
        workload, start = self.workload, self.start
        return {
            "namespace": workload.namespace,
            "job": workload.job,
            "workload": workload.name,
            "localQueue": workload.queue,
            "clusterQueue": self.cluster_queue,
            "priority": workload.priority,
            "created": workload.created,
            "position": self.position,
            "pending": self.pending,
            "startsIn": _or_null(start.seconds),
            "startsInLow": _or_null(start.low),
            "startsInHigh": _or_null(start.high),
            "isKnown": start.is_known,
            "restsOn": list(start.doubts),
        }


def _or_null(seconds: float) -> float | None:
    return round(seconds, 1) if isfinite(seconds) else None


_NEVER = Start(seconds=inf, low=inf, high=inf)


def all_waiting(state: State, snapshot: Snapshot, unix: float) -> tuple[WaitingWorkload, ...]:
    """Return all that wait in the ClusterQueues of a snapshot of *state*; as ``waiting_in``."""
    contents = {name: state.contents_of(name) for name in snapshot.setup.cluster_queues}
    return waiting_in(contents, snapshot, unix)


def waiting_of(
    state: State, snapshot: Snapshot, unix: float, key: str
) -> tuple[WaitingWorkload, ...]:
    """Return the Workloads of one Job that wait; *key* is as in ``WaitingWorkload``."""
    roots = tree_names(snapshot.setup.cluster_queues, snapshot.setup.cohorts)
    trees = {
        roots.get(queue.cluster_queue)
        for workload in state.workloads()
        if f"{workload.namespace}/{workload.job or workload.name}" == key
        for queue in [snapshot.setup.local_queues.get((workload.namespace, workload.queue))]
        if queue is not None
    }
    members = (name for name in snapshot.setup.cluster_queues if roots.get(name) in trees)
    contents = {name: state.contents_of(name) for name in members}
    return tuple(each for each in waiting_in(contents, snapshot, unix) if each.key == key)


def waiting_in(
    contents: Mapping[str, QueueContents], snapshot: Snapshot, unix: float
) -> tuple[WaitingWorkload, ...]:
    """Return all that wait, by ClusterQueue and position; *contents* are those of whole trees.

    *unix* is the snapshot's instant, in seconds since 1970.
    """
    clock = snapshot.as_of - unix
    groups = {name: tuple(_keyed(name, contents[name], clock)) for name in sorted(contents)}
    queued = [group for of_queue in groups.values() for group in of_queue]
    queued.sort(key=lambda group: group.created)
    starts = pending_starts(
        forecast_input.forecast_givens(
            snapshot, forecast_input.LentRunTimes(snapshot), snapshot.as_of
        ),
        [
            run
            for name in groups
            for run in forecast_input.running_in(name, contents[name].holding, clock)
        ],
        queued,
        only=contents,
        expected=[
            arrivals
            for name in groups
            for arrivals in forecast_input.expected(name, forecast_input.came(contents[name]), unix)
        ],
    )
    return tuple(
        waiting
        for name, of_queue in groups.items()
        for waiting in _placed(name, contents[name], of_queue, starts)
    )


def _keyed(name: str, contents: QueueContents, clock: float) -> Iterator[PendingGroup]:
    """Yield the groups of a ClusterQueue, each under a key of its own."""
    for number, group in enumerate(forecast_input.queued(contents.waiting, clock)):
        yield replace(group, key=f"{name} {number}")


def _placed(
    name: str,
    contents: QueueContents,
    groups: tuple[PendingGroup, ...],
    starts: Mapping[str, tuple[Start, ...]],
) -> list[WaitingWorkload]:
    """Return the Workloads of a ClusterQueue in Kueue's order."""
    members = iter(forecast_input.in_order(contents.waiting))
    found = [
        (workload, start)
        for group in groups
        for workload, start in zip(
            islice(members, group.count),
            starts.get(group.key, (_NEVER,) * group.count),
            strict=True,
        )
    ]
    return [
        WaitingWorkload(
            workload=workload,
            cluster_queue=name,
            position=position,
            pending=len(found),
            start=start,
            until=float(workload.requeue_at) if not workload.competes else 0.0,
        )
        for position, (workload, start) in enumerate(found, 1)
    ]
