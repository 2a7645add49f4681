"""One scheduling cycle of Kueue for a cohort tree: which pending Workloads are admitted, in order.

A cycle costs little where little has changed: heads that need the same of the same cohort are
passed over together when it has no room, and a head that its own ClusterQueue's limits keep out is
not tried again before that ClusterQueue releases quota. Nothing here knows of time.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from webhook.kueue import queue_lines
from webhook.kueue.queue_lines import ClusterQueueHeads, Fitting, FullQueues, Key, QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ClusterQueue

Turn: TypeAlias = tuple[int, float]
"""A place in the order of a cycle, after all heads with this key: borrows (0, 1), negated
priority."""
Kept: TypeAlias = tuple[int, int, int, Taken]
"""Quota set aside for a head: its height, its negated priority, its node, the amounts."""
_Kept: TypeAlias = "list[Kept]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedGroup:
    """Workloads of one group that reserve quota in a cycle, with the same flavors."""

    line: ClusterQueueHeads
    entry: QueueEntry
    found: Fitting
    """The flavors and quota of each one of them."""
    count: int


class SchedulingCycle:
    """The pending Workloads of one cohort tree, and the cycles that admit them."""

    def __init__(
        self, tree: UsageTree, queues: Iterable[ClusterQueue], *, fair_sharing: bool = False
    ) -> None:
        self.kept: Sequence[Kept] = ()
        """Quota set aside for heads after the last cycle."""
        self.turns: Sequence[Turn] = ()
        """Turns at which the usage is to be recorded, in ascending order."""
        self.before: list[list[int]] = []
        """Usage, with what was set aside, at each of *turns* in the last cycle. Shorter than
        *turns* where nothing was admitted after a turn: then the usage at the end holds for it."""
        self._come = 0
        """How many of *turns* have passed in this cycle."""
        self._tree = tree
        self.claims = queue_lines.Claims(fair_sharing=fair_sharing)
        self._has_cohort = any(parent >= 0 for parent in tree.parents)
        self._sets_aside = self._has_cohort and any(map(queue_lines.is_strict, queues))
        self._is_first = True
        self._lines: dict[object, ClusterQueueHeads] = {}
        self._of_leaf: defaultdict[int, list[ClusterQueueHeads]] = defaultdict(list)
        self._buckets: dict[object, FullQueues] = {}
        self._serial = count()

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: int) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        # What can never fit is in nobody's way under BestEffortFIFO, but under StrictFIFO it
        # blocks all that come after it.
        if not entry.shape.is_possible and not queue_lines.is_strict(queue):
            return
        key = queue.name if queue_lines.is_strict(queue) else (queue.name, entry.shape)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._line(queue)
        line.add(entry, order)
        if line.entries[0][2] is entry:
            self._store(line, 0)

    def withdraw(self, key: str) -> None:
        """Remove the pending group with this key, if there is one."""
        for line in self._lines.values():
            for place, (_, _, entry) in enumerate(line.entries):
                if entry.waiting.key != key:
                    continue
                del line.entries[place]
                heapq.heapify(line.entries)
                if place == 0:
                    line.stored = None
                    if line.entries:
                        self._store(line, 0)
                return

    def released(self, leaf: int) -> None:
        """Let the next cycle try the heads again that a release of their ClusterQueue may help."""
        if not self._has_cohort:
            return
        for line in self._of_leaf[leaf]:
            if not line.entries:
                continue
            # A head that need no longer borrow comes before all that do.
            if line.stored is None or (line.stored[0] and self._owns(line)):
                self._store(line, 0)
            # With quota that it lends to nobody, what it needs of the cohort has changed, too.
            elif self._tree.keeps and self._bucket(line) is not line.bucket:
                self._store(line, line.stored[0])

    def is_awaited(self) -> bool:
        """Tell whether any Workload is pending."""
        return any(line.entries for line in self._lines.values())

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (line for line in self._lines.values() if line.entries)

    def starts(self) -> list[StartedGroup]:
        """Run one cycle, and return what reserves quota, in order.

        As in Kueue's ``makeClassicalIterator``, heads that do not borrow come first, then higher
        priorities, then older ones. In the very first cycle only priority and age count, as in
        ``kueue.occupancy``: most of the pending have just come, and Kueue took them one by one.
        """
        started: list[StartedGroup] = []
        kept: _Kept = []
        put_back: list[ClusterQueueHeads] = []
        ready = self._ready()
        self._come, self.before = 0, []
        while ready:
            key, bucket = heapq.heappop(ready)
            # Its first head may have moved since, or others may have taken the quota.
            if bucket.top() is not key or not self._may_fit(bucket):
                continue
            while self._come < len(self.turns) and self.turns[self._come] < key[:2]:
                self._come += 1
            line = bucket.heap[0][1]
            self._try(line, started, kept, put_back)
            for each in {bucket, line.bucket or bucket}:
                if (top := each.top()) is not None:
                    heapq.heappush(ready, (top, each))
        for line in put_back:
            self._store(line, 0)
        self._is_first = False
        self.kept = [each for each in kept if each[3]]
        return started

    def _try(
        self,
        line: ClusterQueueHeads,
        started: list[StartedGroup],
        kept: _Kept,
        put_back: list[ClusterQueueHeads],
    ) -> None:
        """Admit a queue's head, store it under another key, or pass it over in this cycle."""
        borrows = line.stored[0] if line.stored else 0
        if self._tree.keeps and self._bucket(line) is not line.bucket:
            self._store(line, borrows)
            return
        found = queue_lines.fitting(self._tree, line, self.claims, exact_height=self._sets_aside)
        if found.fits and self._borrows(found) > borrows:
            # It turns out to borrow, so all heads that fit without borrowing come before it.
            self._store(line, 1)
        elif found.fits and not self._is_kept_out(line, found, kept):
            self._take_down(kept)
            started.append(self._take(line, found, is_alone=not kept))
        else:
            self._pass_over(line, found, kept, put_back)

    def _line(self, queue: ClusterQueue) -> ClusterQueueHeads:
        leaf, strict = self._tree.leaves[queue.name], queue_lines.is_strict(queue)
        line = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=strict)
        self._of_leaf[leaf].append(line)
        return line

    def _bucket(self, line: ClusterQueueHeads) -> FullQueues:
        """Return the bucket of a queue's head, which it shares with all that need the same.

        It is checked at the cohort; a head in StrictFIFO, with a choice of flavors or without a
        cohort has a bucket of its own at the ClusterQueue.
        """
        tree, shape = self._tree, line.entries[0][2].shape
        parent = tree.parents[line.leaf]
        if line.is_strict or shape.only is None or parent < 0:
            if line.bucket is None:
                line.bucket = FullQueues(node=line.leaf)
                self._buckets[id(line)] = line.bucket
            return line.bucket
        wanted = queue_lines.wanted_above(tree, line.leaf, shape.only) if tree.keeps else shape.only
        key = parent, wanted
        if key not in self._buckets:
            self._buckets[key] = FullQueues(node=parent, wanted=wanted)
        return self._buckets[key]

    def _ready(self) -> list[tuple[Key, FullQueues]]:
        """Return a heap of the buckets whose first head may fit."""
        ready = [
            (key, bucket)
            for bucket in self._buckets.values()
            if (key := bucket.top()) is not None and self._may_fit(bucket)
        ]
        heapq.heapify(ready)
        return ready

    def _may_fit(self, bucket: FullQueues) -> bool:
        if bucket.wanted is not None:
            return queue_lines.has(self._tree, bucket.node, bucket.wanted)
        line = bucket.heap[0][1]
        # A StrictFIFO head must be tried even without room: quota may be set aside for it.
        if self._sets_aside and line.is_strict:
            return True
        return queue_lines.has_room(self._tree, bucket.node, line.entries[0][2].shape)

    def _store(self, line: ClusterQueueHeads, borrows: int) -> None:
        """Put a queue's head into its bucket; *borrows* (0, 1) is the first part of its key."""
        priority, order, _ = line.entries[0]
        key = line.stored = borrows, priority, order, next(self._serial)
        line.bucket = self._bucket(line)
        heapq.heappush(line.bucket.heap, (key, line))

    def _owns(self, line: ClusterQueueHeads) -> bool:
        only = line.entries[0][2].shape.only
        return only is None or queue_lines.owns(self._tree, line.leaf, only)

    def _borrows(self, found: Fitting) -> int:
        return 0 if self._is_first or not found.height else 1

    def _take(self, line: ClusterQueueHeads, found: Fitting, *, is_alone: bool) -> StartedGroup:
        """Charge a queue's head, and with *is_alone* also those after it that fare alike."""
        entry = line.entries[0][2]
        keeps_height = self._has_cohort and not self._is_first
        number = (
            queue_lines.alike(self._tree, line, found, keeps_height=keeps_height) if is_alone else 1
        )
        self._tree.charge(line.leaf, found.taken, number)
        self.claims.hold(line.leaf, entry.waiting.priority, number)
        line.take(number)
        if line.entries:
            self._store(line, 0 if line.is_strict else self._borrows(found))
        else:
            line.stored = None
        return StartedGroup(line=line, entry=entry, found=found, count=number)

    def _pass_over(
        self,
        line: ClusterQueueHeads,
        found: Fitting,
        kept: _Kept,
        put_back: list[ClusterQueueHeads],
    ) -> None:
        """Let a queue's head wait, and set quota aside for it where Kueue does."""
        line.stored = None
        if line.is_strict and not found.fits and self._sets_aside:
            aside = queue_lines.set_aside(self._tree, line, found, self.claims)
            self._take_down(kept)
            kept.append((found.height, line.entries[0][0], line.leaf, aside))
        has_choice = line.entries[0][2].shape.only is None
        # These may fit in the next cycle without a release of their own ClusterQueue.
        if found.fits or line.is_strict or has_choice:
            put_back.append(line)

    def _take_down(self, kept: _Kept) -> None:
        """Record the usage for the turns that have passed since the last change to it."""
        missing = self._come - len(self.before)
        if missing:
            self.before += [with_set_aside(self._tree, kept)] * missing

    def _is_kept_out(self, line: ClusterQueueHeads, found: Fitting, kept: _Kept) -> bool:
        """Tell whether a head that fits needs quota set aside for heads that come before it."""
        mine = found.height, line.entries[0][0]
        before = [(leaf, aside) for height, order, leaf, aside in kept if (height, order) <= mine]
        if not before:
            return False
        for leaf, aside in before:
            self._tree.charge(leaf, aside)
        room = self._tree.room(line.leaf, found.taken)
        for leaf, aside in before:
            self._tree.charge(leaf, aside, -1)
        return room < 1


def with_set_aside(tree: UsageTree, kept: Iterable[Kept]) -> list[int]:
    """Return a copy of the tree's usage, with what is set aside for heads added."""
    # The tree is charged and released again, because that also counts what reaches the cohorts.
    asides = [(leaf, aside) for _, _, leaf, aside in kept if aside]
    for leaf, aside in asides:
        tree.charge(leaf, aside)
    used = list(tree.used)
    for leaf, aside in asides:
        tree.charge(leaf, aside, -1)
    return used
