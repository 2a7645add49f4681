"""The scheduling cycles of a ClusterQueue without a cohort, whose heads nobody may preempt for.

It takes turns with no other ClusterQueue and borrows from none, so of all heads that fit the first
one by priority and age is the next. ``SchedulingCycle`` comes to the same in more steps.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from webhook.kueue import queue_heads
from webhook.kueue.assignment import Assignment
from webhook.kueue.cycle_preemptions import IssuedPreemptions
from webhook.kueue.fair_rounds import LocalQueueUse
from webhook.kueue.queue_heads import ClusterQueueHeads, QueueEntry, Shape
from webhook.kueue.quota import UsageTree
from webhook.kueue.scheduling_cycle import StartedGroup
from webhook.kueue.turns import Kept, Turn
from webhook.model.queues import ClusterQueue, KueueConfig

_Ready: TypeAlias = tuple[float, float, ClusterQueueHeads]
"""Negated priority and age of a head, which no two have in common."""


class LoneQueueCycle:
    """What is pending in one ClusterQueue, and the cycles that admit it."""

    goes_on = False
    preempted: Sequence[IssuedPreemptions] = ()
    kept: Sequence[Kept] = ()
    """There is nobody to set quota aside from."""

    def __init__(self, tree: UsageTree, kueue: KueueConfig) -> None:
        """Begin with nothing pending; *tree* has no cohort."""
        self.claims = queue_heads.Claims(kueue)
        self.turns: Sequence[Turn] = ()
        """As in ``SchedulingCycle``."""
        self.before: list[list[int]] = []
        """As in ``SchedulingCycle``."""
        self._tree = tree
        self._lines: dict[Shape | None, ClusterQueueHeads] = {}
        """By shape; one by itself under StrictFIFO."""

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Do nothing: the ClusterQueue does not order its LocalQueues by use."""

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        is_strict = queue_heads.is_strict(queue)
        # Under BestEffortFIFO nobody waits for what can never fit.
        if not (is_strict or entry.shape.is_possible):
            return
        key = None if is_strict else entry.shape
        line = self._lines.get(key)
        if line is None:
            leaf = self._tree.leaves[queue.name]
            line = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=is_strict)
            self._lines[key] = line
        line.add(entry, order)

    def released(self, leaf: int) -> None:
        """Do nothing: all heads are tried at each moment."""

    def is_awaited(self) -> bool:
        """Return whether any Workload is pending."""
        return any(line.entries for line in self._lines.values())

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (line for line in self._lines.values() if line.entries)

    def starts(self) -> list[StartedGroup]:
        """Run the cycles of this moment, and return what reserves quota, in order."""
        self.before = []
        started: list[StartedGroup] = []
        ready = self._with_room()
        while ready:
            priority, _, line = ready[0]
            fitting = queue_heads.fitting(self._tree, line, self.claims, exact_height=False)
            # Usage only grows within a moment, so who does not fit does not fit later in it.
            if not fitting.fits:
                heapq.heappop(ready)
                continue
            if self.turns:
                self._record((0, priority))
            started.append(self._take(line, fitting))
            if line.entries:
                heapq.heapreplace(ready, _ready(line))
            else:
                heapq.heappop(ready)
        return started

    def _with_room(self) -> list[_Ready]:
        """Return a heap of the heads for which there may be room."""
        tree, ready = self._tree, []
        for line in self._lines.values():
            if not line.entries:
                continue
            priority, order, entry = line.entries[0]
            if queue_heads.has_room(tree, line.leaf, entry.shape):
                ready.append((priority, order, line))
        heapq.heapify(ready)
        return ready

    def _take(self, line: ClusterQueueHeads, fitting: Assignment) -> StartedGroup:
        """Charge a head and those that fare alike, and take them out of their line."""
        _, order, entry = line.entries[0]
        number = queue_heads.alike(self._tree, line, fitting, keeps_height=False)
        self._tree.charge(line.leaf, fitting.taken, number)
        line.take(number)
        return StartedGroup(heads=line, entry=entry, order=order, found=fitting, count=number)

    def _record(self, turn: Turn) -> None:
        """Record the usage for the turns that come before that of a head which changes it."""
        missing = bisect_left(self.turns, turn) - len(self.before)
        if missing > 0:
            self.before += [self._tree.used[:]] * missing


def _ready(line: ClusterQueueHeads) -> _Ready:
    priority, order, _ = line.entries[0]
    return priority, order, line
