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
from itertools import chain, count
from typing import TypeAlias

from webhook.kueue import cycle_preemptions, queue_heads
from webhook.kueue.assignment import Assignment
from webhook.kueue.cycle_preemptions import CyclePreemptions, IssuedPreemptions, Outcome
from webhook.kueue.fair_rounds import FairRounds, LocalQueueUse
from webhook.kueue.queue_heads import ClusterQueueHeads, FullQueues, Key, QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ClusterQueue, KueueConfig

Turn: TypeAlias = tuple[int, float]
"""A place in the order of a cycle, after all heads with this key: borrows (0, 1), negated
priority."""
Kept: TypeAlias = tuple[int, int, int, Taken]
"""Quota set aside for a head: its height, its negated priority, its node, the amounts."""
_Kept: TypeAlias = "list[Kept]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedGroup:
    """Workloads of one group that reserve quota in a cycle, with the same flavors."""

    heads: ClusterQueueHeads
    entry: QueueEntry
    order: float
    """Their place by age: the least is the oldest."""
    found: Assignment
    """The flavors and quota of each one of them."""
    count: int


class SchedulingCycle:
    """The pending Workloads of one cohort tree, and the cycles that admit them."""

    def __init__(
        self,
        tree: UsageTree,
        queues: Iterable[ClusterQueue],
        kueue: KueueConfig,
        *,
        preemptions: CyclePreemptions | None = None,
    ) -> None:
        """*preemptions*: None where no ClusterQueue of the tree may preempt."""
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
        self.claims = queue_heads.Claims(kueue)
        self._has_cohort = any(parent >= 0 for parent in tree.parents)
        self._sets_aside = self._has_cohort and any(map(queue_heads.is_strict, queues))
        self._is_first = True
        self._heads: dict[object, ClusterQueueHeads] = {}
        self._of_leaf: defaultdict[int, list[ClusterQueueHeads]] = defaultdict(list)
        self._buckets: dict[object, FullQueues] = {}
        self._serial = count()
        self._preemptions = preemptions
        if preemptions is not None:
            self.claims.oracle_of = preemptions.oracle
        self._closed: defaultdict[int, list[ClusterQueueHeads]] = defaultdict(list)
        """By ClusterQueue the heads that another one of it keeps out of this cycle."""
        self._rounds: FairRounds | None = None
        if kueue.fair_sharing and self._has_cohort:
            self._rounds = FairRounds(tree, self.claims, preemptions=preemptions)

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by their use, where ClusterQueues do so; before anything joins."""
        self._rounds = FairRounds(self._tree, self.claims, preemptions=self._preemptions, use=use)

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        # What can never fit is in nobody's way under BestEffortFIFO, but under StrictFIFO it
        # blocks all that come after it.
        if not entry.shape.is_possible and not queue_heads.is_strict(queue):
            return
        key: object = queue.name if queue_heads.is_strict(queue) else (queue.name, entry.shape)
        if self._rounds is not None and queue.usage_based:
            key = key, entry.waiting.local_queue
        heads = self._heads.get(key)
        if heads is None:
            heads = self._heads[key] = self._new_heads(queue)
        heads.add(entry, order)
        if heads.entries[0][2] is entry:
            self._store(heads, 0)
        if self._preemptions is not None:
            self._preemptions.joined(heads.leaf)

    def withdraw(self, key: str) -> None:
        """Remove the pending group with this key, if there is one."""
        for heads in self._heads.values():
            for place, (_, _, entry) in enumerate(heads.entries):
                if entry.waiting.key != key:
                    continue
                del heads.entries[place]
                heapq.heapify(heads.entries)
                if place == 0:
                    heads.stored = None
                    if heads.entries:
                        self._store(heads, 0)
                return

    def released(self, leaf: int) -> None:
        """Let the next cycle try the heads again that a release of their ClusterQueue may help."""
        if not self._has_cohort or self._rounds is not None:
            return
        for heads in self._of_leaf[leaf]:
            if not heads.entries:
                continue
            # A head that need no longer borrow comes before all that do.
            if heads.stored is None or (heads.stored[0] and self._owns(heads)):
                self._store(heads, 0)
            # With quota that it lends to nobody, what it needs of the cohort has changed, too.
            elif self._tree.keeps and self._bucket(heads) is not heads.bucket:
                self._store(heads, heads.stored[0])

    @property
    def preempted(self) -> Sequence[IssuedPreemptions]:
        """The preemptions of the last cycle."""
        return () if self._preemptions is None else self._preemptions.issued

    def is_awaited(self) -> bool:
        """Tell whether any Workload is pending."""
        return any(heads.entries for heads in self._heads.values())

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (heads for heads in self._heads.values() if heads.entries)

    def starts(self) -> list[StartedGroup]:
        """Run one cycle, and return what reserves quota, in order.

        As in Kueue's ``makeClassicalIterator``, heads that do not borrow come first, then higher
        priorities, then older ones. In the very first cycle only priority and age count, as in
        ``kueue.occupancy``: most of the pending have just come, and Kueue took them one by one.
        """
        if self._rounds is not None:
            return self._starts_in_rounds(self._rounds)
        started: list[StartedGroup] = []
        kept: _Kept = []
        put_back: list[ClusterQueueHeads] = []
        claims = self._claims()
        ready = self._ready(claims)
        self._come, self.before = 0, []
        while ready:
            key, bucket = heapq.heappop(ready)
            # Its first head may have moved since, or others may have taken the quota.
            if bucket.top() is not key or not self._may_fit(bucket):
                continue
            while self._come < len(self.turns) and self.turns[self._come] < key[:2]:
                self._come += 1
            heads = bucket.heap[0][1]
            self._try(heads, started, kept, put_back)
            if self._closed:
                self._reopen(heads.leaf, ready)
            for changed in {bucket, heads.bucket or bucket}:
                if (top := changed.top()) is not None:
                    heapq.heappush(ready, (top, changed))
        self._drop(claims)
        for heads in (*put_back, *chain.from_iterable(self._closed.values())):
            self._store(heads, 0)
        self._closed.clear()
        self._is_first = False
        self.kept = [head for head in kept if head[3]]
        return started

    def _starts_in_rounds(self, rounds: FairRounds) -> list[StartedGroup]:
        started: list[StartedGroup] = []

        def take(heads: ClusterQueueHeads, fitting: Assignment, number: int) -> None:
            started.append(self._taken(heads, fitting, number))

        rounds.run(self._of_leaf, take)
        self.before = []
        self.kept = [(0, 0, leaf, aside) for leaf, aside in rounds.kept]
        return started

    def _try(
        self,
        heads: ClusterQueueHeads,
        started: list[StartedGroup],
        kept: _Kept,
        put_back: list[ClusterQueueHeads],
    ) -> None:
        """Admit a queue's head, store it under another key, or pass it over in this cycle."""
        borrows = heads.stored[0] if heads.stored else 0
        if self._preemptions is not None and self._preemptions.is_closed(heads):
            heads.stored = None
            self._closed[heads.leaf].append(heads)
            return
        if self._tree.keeps and self._bucket(heads) is not heads.bucket:
            self._store(heads, borrows)
            return
        is_exact = self._sets_aside or heads.claim is not None
        fitting = queue_heads.fitting(self._tree, heads, self.claims, exact_height=is_exact)
        if fitting.fits and self._borrows(fitting) > borrows:
            # It turns out to borrow, so all heads that fit without borrowing come before it.
            self._store(heads, 1)
        elif fitting.fits and not self._is_kept_out(heads, fitting, kept):
            self._take_down(kept)
            started.append(self._take(heads, fitting, is_alone=not kept))
        else:
            self._pass_over(heads, fitting, kept, put_back)

    def _new_heads(self, queue: ClusterQueue) -> ClusterQueueHeads:
        leaf, strict = self._tree.leaves[queue.name], queue_heads.is_strict(queue)
        heads = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=strict)
        self._of_leaf[leaf].append(heads)
        return heads

    def _bucket(self, heads: ClusterQueueHeads) -> FullQueues:
        """Return the bucket of a queue's head, which it shares with all that need the same.

        It is checked at the cohort; a head in StrictFIFO, with a choice of flavors or without a
        cohort has a bucket of its own at the ClusterQueue.
        """
        if heads.claim is not None:
            return heads.claim
        tree, shape = self._tree, heads.entries[0][2].shape
        parent = tree.parents[heads.leaf]
        if heads.is_strict or shape.only is None or parent < 0:
            own = self._buckets.get(id(heads))
            if own is None:
                own = self._buckets[id(heads)] = FullQueues(node=heads.leaf)
            return own
        wanted = (
            queue_heads.wanted_above(tree, heads.leaf, shape.only) if tree.keeps else shape.only
        )
        key = parent, wanted
        if key not in self._buckets:
            self._buckets[key] = FullQueues(node=parent, wanted=wanted)
        return self._buckets[key]

    def _ready(
        self, claims: Iterable[tuple[ClusterQueueHeads, int | None]]
    ) -> list[tuple[Key, FullQueues]]:
        """Return a heap of the buckets whose first head may fit, or preempt."""
        ready = [
            (key, bucket)
            for bucket in self._buckets.values()
            if (key := bucket.top()) is not None and self._may_fit(bucket)
        ]
        for heads, _ in claims:
            if heads.bucket is not None and heads.stored is not None:
                ready.append((heads.stored, heads.bucket))
        heapq.heapify(ready)
        return ready

    def _may_fit(self, bucket: FullQueues) -> bool:
        if bucket.wanted is not None:
            return queue_heads.has(self._tree, bucket.node, bucket.wanted)
        heads = bucket.heap[0][1]
        if heads.claim is bucket:
            return True
        # A StrictFIFO head must be tried even without room: quota may be set aside for it.
        if self._sets_aside and heads.is_strict:
            return True
        return queue_heads.has_room(self._tree, bucket.node, heads.entries[0][2].shape)

    def _store(self, heads: ClusterQueueHeads, borrows: int) -> None:
        """Put a queue's head into its bucket; *borrows* (0, 1) is the first part of its key."""
        priority, order, _ = heads.entries[0]
        key = heads.stored = borrows, priority, order, next(self._serial)
        heads.bucket = self._bucket(heads)
        heapq.heappush(heads.bucket.heap, (key, heads))

    def _owns(self, heads: ClusterQueueHeads) -> bool:
        only = heads.entries[0][2].shape.only
        return only is None or queue_heads.owns(self._tree, heads.leaf, only)

    def _borrows(self, fitting: Assignment) -> int:
        return 0 if self._is_first or not fitting.height else 1

    def _take(
        self, heads: ClusterQueueHeads, fitting: Assignment, *, is_alone: bool
    ) -> StartedGroup:
        """Charge a queue's head, and with *is_alone* also those after it that fare alike."""
        keeps_height = self._has_cohort and not self._is_first
        number = (
            queue_heads.alike(self._tree, heads, fitting, keeps_height=keeps_height)
            if is_alone
            else 1
        )
        if self._preemptions is None:
            self._tree.charge(heads.leaf, fitting.taken, number)
        else:
            self._preemptions.admitted(heads)
            self._preemptions.charge(heads.leaf, fitting.taken, number)
        group = self._taken(heads, fitting, number)
        if heads.entries:
            self._store(heads, 0 if heads.is_strict else self._borrows(fitting))
        else:
            heads.stored = None
        return group

    def _taken(self, heads: ClusterQueueHeads, fitting: Assignment, number: int) -> StartedGroup:
        """Take Workloads that have been charged out of a queue's head."""
        _, order, entry = heads.entries[0]
        self.claims.hold(heads.leaf, entry.waiting.priority, number)
        heads.take(number)
        return StartedGroup(heads=heads, entry=entry, order=order, found=fitting, count=number)

    def _pass_over(
        self,
        heads: ClusterQueueHeads,
        fitting: Assignment,
        kept: _Kept,
        put_back: list[ClusterQueueHeads],
    ) -> None:
        """Let a queue's head wait, and set quota aside for it where Kueue does."""
        heads.stored = None
        if heads.claim is not None and not fitting.fits and self._claim(heads, fitting, kept):
            put_back.append(heads)
            return
        if heads.is_strict and not fitting.fits and self._sets_aside:
            aside = queue_heads.set_aside(self._tree, heads, fitting, self.claims)
            self._take_down(kept)
            kept.append((fitting.height, heads.entries[0][0], heads.leaf, aside))
        has_choice = heads.entries[0][2].shape.only is None
        # These may fit in the next cycle without a release of their own ClusterQueue.
        if fitting.fits or heads.is_strict or has_choice:
            put_back.append(heads)

    def _claims(self) -> list[tuple[ClusterQueueHeads, int | None]]:
        """Give the heads that may preempt in this cycle a bucket of their own.

        Return them with the first part of the key that each had; None: it was out of the heap.
        """
        if self._preemptions is None:
            return []
        claims = []
        for heads in self._preemptions.begin(self._of_leaf):
            had = heads.stored[0] if heads.stored else None
            claims.append((heads, had))
            heads.claim = FullQueues(node=heads.leaf)
            borrows = 0 if self._is_first else cycle_preemptions.borrows(self._tree, heads)
            self._store(heads, borrows)
        return claims

    def _claim(self, heads: ClusterQueueHeads, fitting: Assignment, kept: _Kept) -> bool:
        """Preempt for a head; False: it is no help, and the head waits for quota."""
        if self._preemptions is None:
            return False
        # What is about to be taken for the head was free at the turns before.
        self._take_down(kept)
        return self._preemptions.attempt(heads, fitting) is not Outcome.WAITS

    def _reopen(self, leaf: int, ready: list[tuple[Key, FullQueues]]) -> None:
        """Try the heads of a ClusterQueue that no other one of it keeps out any longer."""
        if self._preemptions is None or self._preemptions.is_awaited(leaf):
            return
        for heads in self._closed.pop(leaf, ()):
            self._store(heads, 0)
            if heads.bucket is not None and heads.stored is not None:
                heapq.heappush(ready, (heads.stored, heads.bucket))

    def _drop(self, claims: Iterable[tuple[ClusterQueueHeads, int | None]]) -> None:
        """Put the heads that might preempt back among the others, and end their preemptions."""
        for heads, had in claims:
            heads.claim = None
            borrows = heads.stored[0] if heads.stored else had
            if heads.entries and borrows is not None:
                self._store(heads, borrows)
        if self._preemptions is not None:
            self._preemptions.end()

    def _take_down(self, kept: _Kept) -> None:
        """Record the usage for the turns that have passed since the last change to it."""
        missing = self._come - len(self.before)
        if missing:
            self.before += [with_set_aside(self._tree, kept)] * missing

    def _is_kept_out(self, heads: ClusterQueueHeads, fitting: Assignment, kept: _Kept) -> bool:
        """Tell whether a head that fits needs quota set aside for heads that come before it."""
        mine = fitting.height, heads.entries[0][0]
        before = [(leaf, aside) for height, order, leaf, aside in kept if (height, order) <= mine]
        if not before:
            return False
        for leaf, aside in before:
            self._tree.charge(leaf, aside)
        room = self._tree.room(heads.leaf, fitting.taken)
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
