"""When running Workloads give their quota back, and when Kueue then tries others again.

What is pending is not known here. All times are seconds since the beginning of a ``Schedule``.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from webhook.kueue.queue_heads import is_strict
from webhook.kueue.quota_holders import RunningGroup, StartedWorkloads
from webhook.model.queues import NEVER, ClusterQueue, KueueConfig


class Runs:
    """Running groups, ordered by when they finish or release their quota.

    *idle* maps a ClusterQueue's node to the seconds for which quota that it releases lies idle.
    With *live* quota lies idle only where Workloads are pending, and until the tree's next requeue
    batch; otherwise always, because a newcomer that waits for the quota is pending then.
    """

    def __init__(self, idle: Mapping[int, float], *, live: bool = False) -> None:
        self.ended: list[StartedWorkloads] = []
        """With *live*, what has finished since the caller last emptied this list."""
        self.released: list[StartedWorkloads] = []
        """With *live*, what has released its quota since the caller last emptied this list."""
        self._idle, self._is_live = idle, live
        self._heap: list[tuple[float, int, RunningGroup]] = []
        self._order = 0
        self._batch_at = -inf
        """When Kueue's next requeue batch comes, in seconds since the beginning."""

    def add(self, until: float, run: RunningGroup) -> None:
        """Add a group that finishes at *until*."""
        # Kueue gathers releases for ``requeueBatchPeriod`` before it tries Workloads again that
        # did not fit (decision 0010). No run time contains that, so it is added here.
        self._push(until if self._is_live else until + self._idle[run.leaf], run)

    def holding(self) -> Iterator[RunningGroup]:
        """Yield the groups that hold quota, in no order."""
        return (run for _, _, run in self._heap if run.count)

    def end(self, key: str, at: float) -> None:
        """Let the group with this key finish at *at*, whatever was expected when it started.

        Nothing happens where none is running: it may have been preempted as soon as it started.
        """
        for number, (_, order, run) in enumerate(self._heap):
            if run.begun is not None and run.begun.key == key and run.count:
                run.begun = replace(run.begun, finish=at)
                self._heap[number] = at, order, run
                heapq.heapify(self._heap)
                return

    def next_at(self) -> float:
        """Return when the next group finishes or releases its quota; inf: nothing runs."""
        heap = self._heap
        # Of some groups nobody is left, because all were preempted.
        while heap:
            at, _, run = heap[0]
            if run.count:
                return at
            heapq.heappop(heap)
        return inf

    def pop(self, is_awaited: Callable[[], bool]) -> tuple[float, RunningGroup | None]:
        """Remove the next event, and return its time and the group that releases its quota.

        None instead of a group: one has finished, and its quota still lies idle. *is_awaited*
        tells whether any Workload is pending in the tree.
        """
        at, _, run = heapq.heappop(self._heap)
        if not self._is_live or run.begun is None:
            return at, run
        if not run.is_over:
            run.is_over = True
            self.ended.append(run.begun)
            idle = self._idle[run.leaf]
            # Where nothing is pending nothing was tried in vain, so no batch is waited for. All
            # that finishes before the batch is released with it.
            if idle and is_awaited():
                if self._batch_at <= at:
                    self._batch_at = at + idle
                self._push(self._batch_at, run)
                return at, None
        self.released.append(run.begun)
        return at, run

    def _push(self, at: float, run: RunningGroup) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, run))


@dataclass(slots=True)
class RequeueBatch:
    """Kueue's next requeue batch, in which it tries again what did not fit."""

    seconds: float
    """So long after a release it comes; 0: nothing waits for it, or everything does."""
    at: float = inf
    """In seconds since the beginning of the schedule; inf: none comes."""

    def expect(self, released_at: float) -> None:
        """Let one come after a release, unless one does already."""
        if self.seconds:
            self.at = min(self.at, released_at + self.seconds)


def batch_seconds(queues: Collection[ClusterQueue], kueue: KueueConfig) -> float:
    """Return how long after a release a requeue batch comes; 0: all wait for it, or nobody."""
    # A StrictFIFO head stays in the queue, and is tried again without a requeue batch. So does a
    # preemptor: where only some wait for the batch, quota does not lie idle for all. Where events
    # share a cycle, the ClusterQueue that releases decides, which costs less.
    some_never_rest = any(map(is_strict, queues)) or any(map(may_preempt, queues))
    return kueue.requeue_seconds if some_never_rest and not all(map(is_strict, queues)) else 0.0


def may_preempt(queue: ClusterQueue) -> bool:
    """Return whether some policy of a ClusterQueue lets its Workloads preempt others."""
    policies = queue.preemption
    return policies.within_cluster_queue != NEVER or policies.reclaim_within_cohort != NEVER


class ReleaseMoments:
    """Shares out the times of releases among starts, in order and in equal parts."""

    def __init__(self, releases: Sequence[tuple[float, int]], starts: int, now: float) -> None:
        self._now = now
        self._is_one = not releases or releases[0][0] == releases[-1][0] == now
        if self._is_one:
            return
        self._sums = [0.0]
        self._counts = [0]
        for at, count in releases:
            self._sums.append(self._sums[-1] + at * count)
            self._counts.append(self._counts[-1] + count)
        self._starts, self._dealt, self._summed = starts, 0, 0.0

    def of(self, count: int) -> float:
        """Return the mean time of the next *count* starts, in seconds since the beginning.

        Where there are more releases than starts, a start has the time of the last of its share.
        """
        if self._is_one:
            return self._now
        share = self._counts[-1] / self._starts
        low, high = self._dealt * share, (self._dealt + count) * share
        self._dealt += count
        # The starts before this one have been given all up to there.
        before, self._summed = self._summed, self._sum_to(high)
        # A start that needs several releases cannot come before the last of them.
        if share > 1:
            low = high - 1
            before = self._sum_to(low)
        return (self._summed - before) / (high - low)

    def _sum_to(self, position: float) -> float:
        """Sum up the times of the first *position* released Workloads; it may be a fraction."""
        index = min(bisect_left(self._counts, position), len(self._counts) - 1)
        if index == 0:
            return 0.0
        width = self._counts[index] - self._counts[index - 1]
        part = (position - self._counts[index - 1]) / width
        return self._sums[index - 1] + part * (self._sums[index] - self._sums[index - 1])
