"""Kueue's scheduling cycles in a cohort tree at one moment: who is admitted, in which order.

Kueue takes one Workload of each ClusterQueue into a cycle, so who waits behind others of its
ClusterQueue that do not fit comes so many cycles later. What is assigned goes by the usage with
which a cycle begins; whether it still fits is checked as each head is served.

Little is done where little has changed: heads that need the same of the same cohort are passed over
together when it has no room, and a head that its own ClusterQueue's limits keep out is not tried
again before that ClusterQueue releases quota. Nothing here knows of time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from webhook.kueue import cycle_preemptions, queue_heads
from webhook.kueue.assignment import Assignment
from webhook.kueue.cycle_preemptions import CyclePreemptions, IssuedPreemptions, Outcome
from webhook.kueue.fair_rounds import FairRounds, LocalQueueUse
from webhook.kueue.head_buckets import HeadBuckets
from webhook.kueue.head_levels import HeadLevels, ahead_in
from webhook.kueue.line_turns import LineTurns
from webhook.kueue.queue_heads import ClusterQueueHeads, FullQueues, Key, QueueEntry, Shape
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.turns import Kept, Turn, TurnUsage, at_turn, set_aside_before, with_set_aside
from webhook.model.queues import ClusterQueue, KueueConfig

_MOST_ASKED_AGAIN = 5_000
"""So many heads are asked in the later cycles of moments whom they would preempt, which takes about
half a second: those of the first minutes where 20,000 wait, and all where hundreds do."""


# Not frozen, for the same reason as ``StartedWorkloads``.
@dataclass(slots=True, kw_only=True)
class StartedGroup:
    """Workloads of one group that reserve quota in a cycle, with the same flavors."""

    heads: ClusterQueueHeads
    entry: QueueEntry
    order: float
    """Their place by age: the least is the oldest."""
    found: Assignment
    """The flavors and quota of each one of them."""
    count: int
    cycle: int = 0
    """In which of the cycles of a moment, counted from 0, where each cycle counts."""


@dataclass(slots=True, kw_only=True)
class _Moment:
    """Kueue's cycles at one moment, of which each takes one Workload of each ClusterQueue."""

    used: Sequence[int]
    """The usage with which the moment begins."""
    ready: list[tuple[Key, Key, FullQueues, bool]] = field(default_factory=list)
    """A heap of buckets: when their first heads are served, or later, the keys of these, and
    whether it is known by now from how high up they borrow."""
    assigned: dict[ClusterQueueHeads, Assignment] = field(default_factory=dict)
    """What was assigned since somebody was last served."""
    started: list[StartedGroup] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    put_back: dict[ClusterQueueHeads, None] = field(default_factory=dict)
    """Heads that are stored anew when the moment is over."""
    goes_on: bool = False
    """Its first cycles have been run; those after them ask again who preempts."""
    may_preempt: bool = False
    """Some head may preempt, so that usage need not only grow."""
    recorded: int = 0
    """The cycle to which the usage belongs that is recorded for *turns*."""


class SchedulingCycle:
    """The pending Workloads of one cohort tree, and the cycles that admit them."""

    goes_on = False
    """Whether the moment has more cycles: others may preempt, now that some have started."""
    line_turns: LineTurns | None = None
    """As in ``ExactCycles``."""
    first: TurnUsage | None = None
    """The usage at *turns* in the first cycle of a moment, where *before* is that of another one;
    None: it is not."""
    ahead: Sequence[float] = ()
    """As in ``TurnUsage``, for *before*."""

    def __init__(
        self,
        tree: UsageTree,
        queues: Iterable[ClusterQueue],
        kueue: KueueConfig,
        *,
        preemptions: CyclePreemptions | None = None,
    ) -> None:
        """Begin with nothing pending; *preemptions*: None where nobody may preempt."""
        self.kept: Sequence[Kept] = ()
        """Quota set aside for heads after the last cycle."""
        self.turns: Sequence[Turn] = ()
        """Turns at which the usage is to be recorded, in ascending order."""
        self.before: list[list[int]] = []
        """Usage, with what was set aside, at each of *turns* in the last cycle that changed it.
        Shorter than *turns* where nothing was admitted after a turn: then the usage at the end
        holds for it."""
        self._tree = tree
        self.claims = queue_heads.Claims(kueue)
        self._has_cohort = any(parent >= 0 for parent in tree.parents)
        self._is_deep = max(tree.heights) > 1
        self._sets_aside = self._has_cohort and any(map(queue_heads.is_strict, queues))
        self._is_first = True
        self._has_places = False
        """Places among the heads of a ClusterQueue count: not alone, nor at the first moment."""
        self._heads: dict[object, ClusterQueueHeads] = {}
        self._of_leaf: defaultdict[int, list[ClusterQueueHeads]] = defaultdict(list)
        self._hopeless: defaultdict[int, dict[Shape, ClusterQueueHeads]] = defaultdict(dict)
        """ClusterQueue to what can never fit there: nobody serves it, but it has its places."""
        self._buckets = HeadBuckets(tree)
        self._serial = count()
        self._levels = HeadLevels(len(tree.parents), self._lines)
        self._preemptions = preemptions
        self._asks_left = _MOST_ASKED_AGAIN if preemptions is not None else 0
        if preemptions is not None:
            self.claims.oracle_of = preemptions.oracle
            self.claims.finds_victims = preemptions.finds_victims
            # Nothing here depends on the mode of a head that has no choice.
            preemptions.tells_modes = False
        self._closed: defaultdict[int, dict[ClusterQueueHeads, int]] = defaultdict(dict)
        """By ClusterQueue the heads that are out of the heap as long as victims are stopping for
        another one of it, and from how high up they then borrow, or higher."""
        self._rounds: FairRounds | None = None
        if kueue.fair_sharing and self._has_cohort:
            self._rounds = self._new_rounds(None)

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by their use, where ClusterQueues do so; before anything joins."""
        self._rounds = self._new_rounds(use)

    def _new_rounds(self, use: LocalQueueUse | None) -> FairRounds:
        if self._preemptions is not None:
            self._preemptions.tells_modes = True
        return FairRounds(
            self._tree,
            self.claims,
            preemptions=self._preemptions,
            use=use,
        )

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        # What can never fit only takes a turn under BestEffortFIFO, but under StrictFIFO it blocks
        # all that come after it.
        if not (entry.shape.is_possible or queue_heads.is_strict(queue)):
            self._take_turns(queue, entry, order)
            return
        key: object = queue.name if queue_heads.is_strict(queue) else (queue.name, entry.shape)
        if self._rounds is not None and queue.usage_based:
            key = key, entry.waiting.local_queue
        heads = self._heads.get(key)
        if heads is None:
            heads = self._heads[key] = self._new_heads(queue)
        heads.add(entry, order)
        self._levels.change(heads.leaf)
        if heads.entries[0][2] is entry:
            self._store(heads, 0)
            self._count_places(heads.leaf)
        if self._preemptions is not None:
            self._preemptions.joined(heads.leaf, entry.shape)

    def _take_turns(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Let others of a ClusterQueue come a cycle later than what can never fit."""
        leaf = self._tree.leaves[queue.name]
        if entry.shape not in self._hopeless[leaf]:
            heads = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=False)
            self._hopeless[leaf][entry.shape] = heads
        self._hopeless[leaf][entry.shape].add(entry, order)
        self._levels.change(leaf)
        self._count_places(leaf)

    def released(self, leaf: int) -> None:
        """Let the next cycle try the heads again that a release of their ClusterQueue may help."""
        if not self._has_cohort or self._rounds is not None:
            return
        is_awaited = self._preemptions is not None and self._preemptions.is_awaited(leaf)
        for heads in self._of_leaf[leaf]:
            if not heads.entries:
                continue
            if is_awaited and self._is_closed(heads):
                self._put(heads, 0)
                continue
            # A head that need no longer borrow comes before all that do.
            if heads.stored is None or (heads.stored[1] and self._owns(heads)):
                self._store(heads, 0)
            # With quota that it lends to nobody, what it needs of the cohort has changed, too.
            elif self._tree.keeps and self._buckets.of(heads) is not heads.bucket:
                self._store(heads, heads.stored[1])

    @property
    def preempted(self) -> Sequence[IssuedPreemptions]:
        """The preemptions of the last cycle."""
        return () if self._preemptions is None else self._preemptions.issued

    def is_awaited(self) -> bool:
        """Return whether any Workload is pending."""
        return any(heads.entries for heads in self._heads.values())

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (heads for heads in self._heads.values() if heads.entries)

    def starts(self) -> list[StartedGroup]:
        """Run cycles of this moment, and return what reserves quota, in order.

        While it *goes_on*, the caller lets these hold their quota and calls again. As in Kueue's
        ``makeClassicalIterator``, heads that borrow from a lower height come first, then higher
        priorities, then older ones. At the very first moment only priority and age count, as in
        ``kueue.occupancy``: most of the pending have just come, and Kueue took them one by one.
        """
        moment = _Moment(used=self._tree.used[:], goes_on=self.goes_on)
        if not moment.goes_on:
            self.before, self.first = [], None
        if self._rounds is not None:
            return self._starts_in_rounds(self._rounds)
        claims = self._claims() if self._preemptions is not None else ()
        moment.may_preempt = bool(claims)
        if claims or not moment.goes_on:
            self._open(moment, claims)
            self._serve(moment)
            self._end(moment, self._drop(claims, moment.put_back) if claims else {})
            self._note_heads(moment)
        if moment.goes_on:
            self._asks_left -= len(claims)
        self.goes_on = bool(moment.started) and self._asks_left > 0
        return moment.started

    def _serve(self, moment: _Moment) -> None:
        """Serve the heads that are ready, each in its turn."""
        ready, may_end = moment.ready, self._has_cohort and not moment.may_preempt
        while ready:
            served, key, bucket, is_placed = heapq.heappop(ready)
            if bucket.due is not None and bucket.due[1] is key:
                bucket.due = None
            # Its first head may have moved since, or others may have taken the quota.
            if bucket.top() is not key or not self._may_fit(bucket):
                continue
            if not is_placed and self._comes_later(key, bucket, moment):
                continue
            heads = bucket.heap[0][1]
            fitting = self._due(served, heads, moment)
            is_admitted = fitting is not None and self._try(served, heads, fitting, moment)
            if heads.leaf in self._closed:
                self._reopen(heads.leaf, moment)
            if is_admitted and may_end and self._buckets.are_full():
                break
            self._add(bucket, moment)
            if heads.bucket is not bucket and heads.bucket is not None:
                self._add(heads.bucket, moment)
        for _, _, bucket, _ in ready:
            bucket.due = None

    def _note_heads(self, moment: _Moment) -> None:
        """Note behind whom newcomers come in a later cycle than the recorded ones."""
        if not self.turns or moment.goes_on:
            return
        levels = self._levels.with_started(
            (group.heads.leaf, group.entry.waiting.priority) for group in moment.started
        )
        self.ahead = ahead_in(moment.recorded, levels)
        if self.first is not None:
            self.first = replace(self.first, ahead=ahead_in(0, levels))

    def _open(
        self, moment: _Moment, claims: Iterable[tuple[ClusterQueueHeads, int | None]]
    ) -> None:
        """Add the buckets to a moment whose first head may fit or preempt."""
        for key, bucket in self._buckets.with_room():
            # Most never come to their turn, and only then it is worked out when that is.
            bucket.due = key, key
            moment.ready.append((key, key, bucket, False))
        heapq.heapify(moment.ready)
        for bucket in self._buckets.own.values():
            if bucket.top() is not None and self._may_fit(bucket):
                self._add(bucket, moment)
        for heads, _ in claims:
            if heads.bucket is not None and heads.stored is not None:
                self._add(heads.bucket, moment)

    def _comes_later(self, key: Key, bucket: FullQueues, moment: _Moment) -> bool:
        """Put a bucket off whose heads borrow from higher up than was known when it was added."""
        later = self._buckets.turn(key, bucket, moment.used)
        if later is key:
            return False
        bucket.due = later, key
        heapq.heappush(moment.ready, (later, key, bucket, True))
        return True

    def _end(self, moment: _Moment, borrows: Mapping[ClusterQueueHeads, int]) -> None:
        """Store the heads that were passed over, or served later than their places say.

        *borrows*: whether those that might preempt borrow.
        """
        for heads in moment.put_back:
            if heads.entries:
                known = heads.stored[1] if heads.stored else borrows.get(heads, 0)
                self._store(heads, min(1, known))
        if self._is_first:
            self._is_first, self._has_places = False, self._has_cohort
            for leaf in self._of_leaf:
                self._count_places(leaf)
        self.kept = [head for head in moment.kept if head[3]] if moment.kept else ()

    def _starts_in_rounds(self, rounds: FairRounds) -> list[StartedGroup]:
        started: list[StartedGroup] = []

        def take(heads: ClusterQueueHeads, fitting: Assignment, number: int) -> None:
            started.append(self._taken(heads, fitting, number))

        rounds.line_turns = self.line_turns
        rounds.run(self._of_leaf, take)
        self._is_first = False
        self.kept = [(0, 0, leaf, aside) for leaf, aside in rounds.kept]
        return started

    def _due(self, served: Key, heads: ClusterQueueHeads, moment: _Moment) -> Assignment | None:
        """Return what a queue's head is assigned; None: it is not served now, but stored anew."""
        if self._is_closed(heads):
            self._put(heads, 0)
            return None
        if heads.claim is not None and not moment.kept and self._is_in_vain(heads):
            self._record(served, moment)
            heads.stored = None
            moment.put_back[heads] = None
            return None
        borrows = heads.stored[1] if heads.stored else 0
        if self._tree.keeps and self._buckets.of(heads) is not heads.bucket:
            self._store(heads, borrows)
            return None
        shape = heads.entries[0][2].shape
        if shape.only is None or self._sets_aside or heads.claim is not None:
            fitting = self._assigned(heads, moment)
        else:
            # Only its height could be another one by the usage with which its cycle began.
            fitting = queue_heads.fitting(self._tree, heads, self.claims, exact_height=False)
        height = self._height(heads, fitting, moment) if fitting.height else 0
        if height <= served[1]:
            return fitting
        if borrows or heads.bucket is None or heads.bucket.wanted is None:
            moment.put_back[heads] = None
            self._store(heads, height, place=served[0])
        else:
            # It turns out to borrow, so all heads that fit without borrowing come before it.
            self._store(heads, 1, place=served[0])
        return None

    def _assigned(self, heads: ClusterQueueHeads, moment: _Moment) -> Assignment:
        if heads not in moment.assigned:
            exact = self._sets_aside or heads.claim is not None
            moment.assigned[heads] = queue_heads.fitting(
                self._tree, heads, self.claims, exact_height=exact
            )
        return moment.assigned[heads]

    def _height(self, heads: ClusterQueueHeads, fitting: Assignment, moment: _Moment) -> int:
        """Return from how high up a queue's head borrows, for its turn."""
        if self._is_first:
            return 0
        if not self._is_deep or heads in moment.assigned:
            return fitting.height
        return max(self._tree.height(heads.leaf, cell, amount)[0] for cell, amount in fitting.taken)

    def _try(
        self, served: Key, heads: ClusterQueueHeads, fitting: Assignment, moment: _Moment
    ) -> bool:
        """Admit a queue's head, or pass it over; return whether it is admitted."""
        gets = fitting if fitting.fits else None
        if gets is not None and moment.kept:
            gets = self._beside_kept(heads, gets, moment.kept)
        if gets is None:
            self._pass_over(served, heads, fitting, moment)
            return False
        if self.turns:
            self._record(served, moment)
        moment.assigned.clear()
        moment.started.append(self._take(served, heads, gets, moment))
        return True

    def _count_places(self, leaf: int, moment: _Moment | None = None) -> None:
        """Count how many heads of their ClusterQueue come before each head of one.

        Those whose place changes take part again in *moment*.
        """
        lines = self._lines(leaf)
        if not self._has_places or len(lines) == 1:
            return
        pending = sorted((heads for heads in lines if heads.entries), key=_first)
        for place, heads in enumerate(pending):
            if heads.place != place:
                heads.place = place
                if heads.stored is None:
                    continue
                self._store(heads, heads.stored[1])
                if moment is not None and heads.bucket is not None:
                    self._add(heads.bucket, moment)

    def _lines(self, leaf: int) -> Collection[ClusterQueueHeads]:
        """Return all heads of a ClusterQueue, with what can never fit; some are empty."""
        lines = self._of_leaf[leaf]
        return [*lines, *self._hopeless[leaf].values()] if self._hopeless else lines

    def _new_heads(self, queue: ClusterQueue) -> ClusterQueueHeads:
        leaf, strict = self._tree.leaves[queue.name], queue_heads.is_strict(queue)
        heads = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=strict)
        self._of_leaf[leaf].append(heads)
        return heads

    def _add(self, bucket: FullQueues, moment: _Moment) -> None:
        """Let a bucket that has a head take part in this moment."""
        key = bucket.top()
        if key is None:
            return
        due = bucket.due if bucket.due is not None and bucket.due[1] is key else None
        # Usage only grows while nobody preempts, so its turn does not come earlier than it was.
        if due is not None and not moment.may_preempt:
            return
        served = self._buckets.turn(key, bucket, self._tree.used) if key[1] else key
        if due is None or due[0] != served:
            bucket.due = served, key
            heapq.heappush(moment.ready, (served, key, bucket, True))

    def _may_fit(self, bucket: FullQueues) -> bool:
        if bucket.wanted is not None:
            return self._tree.has(bucket.node, bucket.wanted)
        heads = bucket.heap[0][1]
        if heads.claim is bucket:
            return True
        # A StrictFIFO head must be tried even without room: quota may be set aside for it.
        if self._sets_aside and heads.is_strict:
            return True
        return queue_heads.has_room(self._tree, bucket.node, heads.entries[0][2].shape)

    def _store(self, heads: ClusterQueueHeads, borrows: int, *, place: int | None = None) -> None:
        """Put a queue's head into its bucket; *place*: another one than it has in its queue."""
        priority, order, _ = heads.entries[0]
        served = heads.place if place is None else place
        if self._preemptions is not None and self._preemptions.comes_first(heads):
            served = 0
        key = heads.stored = served, borrows, priority, order, next(self._serial)
        heads.bucket = self._buckets.of(heads)
        heapq.heappush(heads.bucket.heap, (key, heads))

    def _owns(self, heads: ClusterQueueHeads) -> bool:
        only = heads.entries[0][2].shape.only
        return only is None or self._tree.owns(heads.leaf, only)

    def _take(
        self, served: Key, heads: ClusterQueueHeads, fitting: Assignment, moment: _Moment
    ) -> StartedGroup:
        """Charge a queue's head, and where nobody comes in between also those that fare alike."""
        number = 1
        if not moment.kept:
            by_height = self._has_cohort and not self._is_first
            number = queue_heads.alike(self._tree, heads, fitting, keeps_height=by_height)
            if self._is_deep and by_height and number > 1 and served[1]:
                number = min(number, self._tree.room_below(heads.leaf, fitting.taken, served[1]))
        if self._preemptions is None:
            self._tree.charge(heads.leaf, fitting.taken, number)
        else:
            self._preemptions.admitted(heads)
            self._preemptions.charge(heads.leaf, fitting.taken, number)
        first = heads.entries[0]
        group = self._taken(heads, fitting, number)
        if heads.entries:
            self._store(heads, 0 if heads.is_strict else min(1, served[1]))
        else:
            heads.stored = None
        if self._has_places and (not heads.entries or heads.entries[0] is not first):
            self._count_places(heads.leaf, moment)
        return group

    def _taken(self, heads: ClusterQueueHeads, fitting: Assignment, number: int) -> StartedGroup:
        """Take Workloads that have been charged out of a queue's head."""
        _, order, entry = heads.entries[0]
        heads.take(number)
        return StartedGroup(heads=heads, entry=entry, order=order, found=fitting, count=number)

    def _pass_over(
        self, served: Key, heads: ClusterQueueHeads, fitting: Assignment, moment: _Moment
    ) -> None:
        """Let a queue's head wait, and set quota aside for it where Kueue does."""
        heads.stored = None
        if (
            heads.claim is not None
            and not fitting.fits
            and self._claim(served, heads, fitting, moment)
        ):
            moment.put_back[heads] = None
            return
        if heads.is_strict and not fitting.fits and self._sets_aside:
            aside = queue_heads.set_aside(self._tree, heads, fitting, self.claims)
            self._record(served, moment)
            moment.kept.append((fitting.height, heads.entries[0][0], heads.leaf, aside))
        has_choice = heads.entries[0][2].shape.only is None
        # These may fit at the next moment without a release of their own ClusterQueue.
        if fitting.fits or heads.is_strict or has_choice:
            moment.put_back[heads] = None

    def _claims(self) -> list[tuple[ClusterQueueHeads, int | None]]:
        """Give the heads that may preempt in this cycle a bucket of their own.

        Return them with the first part of the key that each had; None: it was out of the heap.
        """
        claims = []
        for heads in () if self._preemptions is None else self._preemptions.begin(self._of_leaf):
            closed = self._closed.get(heads.leaf, {})
            had = heads.stored[1] if heads.stored else closed.get(heads)
            claims.append((heads, had))
            heads.claim = FullQueues(node=heads.leaf)
            borrows = 0 if self._is_first else cycle_preemptions.borrows(self._tree, heads)
            self._put(heads, borrows)
        return claims

    def _claim(
        self, served: Key, heads: ClusterQueueHeads, fitting: Assignment, moment: _Moment
    ) -> bool:
        """Preempt for a head; False: it is no help, and the head waits for quota."""
        if self._preemptions is None:
            return False
        # What is about to be taken for the head was free at the turns before.
        self._record(served, moment)
        outcome = self._preemptions.attempt(
            heads, fitting, kept=_before(heads, fitting, moment.kept)
        )
        return outcome is not Outcome.WAITS

    def _is_in_vain(self, heads: ClusterQueueHeads) -> bool:
        return self._preemptions is not None and self._preemptions.is_in_vain(heads)

    def _is_closed(self, heads: ClusterQueueHeads) -> bool:
        return self._preemptions is not None and self._preemptions.is_closed(heads)

    def _put(self, heads: ClusterQueueHeads, borrows: int) -> None:
        """Put a queue's head into its bucket, or keep it out while another one is awaited."""
        if self._is_closed(heads):
            heads.stored = None
            self._closed[heads.leaf][heads] = borrows
        else:
            self._store(heads, borrows)

    def _reopen(self, leaf: int, moment: _Moment) -> None:
        """Try the heads of a ClusterQueue that no other one of it keeps out any longer."""
        if self._preemptions is None or self._preemptions.is_awaited(leaf):
            return
        for heads, borrows in self._closed.pop(leaf).items():
            self._store(heads, borrows)
            if heads.bucket is not None:
                self._add(heads.bucket, moment)

    def _drop(
        self,
        claims: Iterable[tuple[ClusterQueueHeads, int | None]],
        put_back: Collection[ClusterQueueHeads],
    ) -> dict[ClusterQueueHeads, int]:
        """Put the heads that might preempt back among the others, and end their preemptions.

        Return whether those borrow that are stored anew with others of *put_back*.
        """
        later: dict[ClusterQueueHeads, int] = {}
        for heads, had in claims:
            heads.claim = None
            borrows = min(1, heads.stored[1]) if heads.stored else had
            if not heads.entries or borrows is None:
                continue
            if heads in put_back and not self._is_closed(heads):
                heads.stored, later[heads] = None, borrows
            else:
                self._put(heads, borrows)
        if self._preemptions is not None:
            self._preemptions.end()
        return later

    def _record(self, served: Key, moment: _Moment) -> None:
        """Record the usage for the turns that come before that of a head which changes it."""
        # Newcomers have their turns in the first cycles: in later ones only others preempt.
        if moment.goes_on:
            return
        # A newcomer comes behind the heads of its own ClusterQueue, so what the last cycle
        # leaves free counts.
        if served[0] > moment.recorded:
            if self.first is None:
                rest = len(self.turns) - len(self.before)
                at_end = [with_set_aside(self._tree, moment.kept)] * rest
                self.first = TurnUsage(before=self.before + at_end, ahead=())
            moment.recorded, self.before = served[0], []
        missing = bisect_left(self.turns, served[1:3]) - len(self.before)
        if missing > 0:
            self.before += [with_set_aside(self._tree, moment.kept)] * missing

    def _beside_kept(
        self, heads: ClusterQueueHeads, fitting: Assignment, kept: list[Kept]
    ) -> Assignment | None:
        """Return what a head that fits gets beside quota set aside; None: it is kept out."""

        def is_kept_out(assigned: Assignment) -> bool:
            return self._is_kept_out(heads, assigned, kept)

        if any(fitting.unfinished) and is_kept_out(fitting):
            # Its next cycle, of the same moment, goes on with its next flavor.
            fitting = queue_heads.fitting(
                self._tree, heads, self.claims, exact_height=True, is_kept_out=is_kept_out
            )
        return fitting if fitting.fits and not is_kept_out(fitting) else None

    def _is_kept_out(self, heads: ClusterQueueHeads, fitting: Assignment, kept: list[Kept]) -> bool:
        """Return whether a head that fits needs quota set aside for heads that come before it."""
        turn = fitting.height, heads.entries[0][0]
        return at_turn(self._tree, turn, kept).room(heads.leaf, fitting.taken) < 1


def _before(
    heads: ClusterQueueHeads, fitting: Assignment, kept: list[Kept]
) -> Sequence[tuple[int, Taken]]:
    """Return what is set aside for heads that come before one: (node, amounts)."""
    return set_aside_before((fitting.height, heads.entries[0][0]), kept)


def _first(heads: ClusterQueueHeads) -> tuple[float, float, QueueEntry]:
    return heads.entries[0]
