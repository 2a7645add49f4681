"""Kueue's scheduling cycles in one cohort tree as they are, one after the other.

A cycle takes the first Workload of each ClusterQueue that Kueue would try, assigns flavors to all
by the usage with which it begins, and serves them in Kueue's order. What was tried in vain rests
until the next requeue batch, with all that are equal. ``SchedulingCycle`` gains the time that this
takes where events share a cycle. Nothing here knows of time.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from webhook.kueue import queue_heads
from webhook.kueue.cycle_preemptions import CyclePreemptions, IssuedPreemptions
from webhook.kueue.fair_rounds import Contender, LocalQueueUse, begin_turns, in_order
from webhook.kueue.line_turns import LineTurns
from webhook.kueue.preemption import QuotaHolder, Victim
from webhook.kueue.queue_heads import Claims, ClusterQueueHeads, FlavorSearches, QueueEntry, Shape
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.scheduling_cycle import StartedGroup
from webhook.kueue.turns import Kept, Turn, TurnUsage
from webhook.model.queues import ClusterQueue, KueueConfig


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """What has become of the heads of one cycle so far."""

    began: Sequence[int]
    """The usage with which it began."""
    leaving: dict[str, QuotaHolder] = field(default_factory=dict)
    """Whom the heads preempt."""
    started: list[StartedGroup] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    passing: list[tuple[int, Taken]] = field(default_factory=list)
    """Quota set aside for heads that rest from the next cycle on: (node, amounts)."""
    before: list[list[int]] = field(default_factory=list)
    """The usage at the turns of newcomers so far."""
    changes: bool = False
    """The next cycle is another one."""
    is_alone: bool = False
    """There is one line of equal Workloads in all: several can start in one cycle."""


class ExactCycles:
    """The pending Workloads of one cohort tree, and the cycles that admit them."""

    tries = 0
    """Number of heads that were tried in all cycles."""

    def __init__(
        self,
        tree: UsageTree,
        kueue: KueueConfig,
        *,
        preemptions: CyclePreemptions | None,
        came_one_by_one: bool = False,
    ) -> None:
        """Begin with nothing pending; *preemptions*: None where nobody may preempt.

        *came_one_by_one*: at the first moment Kueue takes them by priority and age, as in
        ``SchedulingCycle``.
        """
        self._is_by_age, self._has_begun = came_one_by_one and not kueue.fair_sharing, False
        self.claims = Claims(kueue)
        self.kept: Sequence[Kept] = ()
        """Quota set aside in the last cycle for heads that come again in the next one."""
        self.turns: Sequence[Turn] = ()
        """As in ``SchedulingCycle``."""
        self.line_turns: LineTurns | None = None
        """Records the turns of newcomers instead, where they have such; None: nobody asks."""
        self.turn_usage: list[TurnUsage] = []
        """The usage at *turns* in each cycle of this moment."""
        self.after: list[int] = []
        """That at the end of the last of them, with what its preemptors keep of what their victims
        leave."""
        self.goes_on = False
        """Whether the next cycle would be another than the last."""
        self.drawn: Mapping[int, str] = {}
        """ClusterQueue to the key of its head in the next cycle, whoever would come first."""
        self.overruled: list[tuple[str, str]] = []
        """Keys of who would have been the head in the last cycle, and of who was drawn instead."""
        self._tree, self._preemptions = tree, preemptions
        self._number = 0
        """In which cycle of a moment it is, counted from 0."""
        self._use: LocalQueueUse | None = None
        self._lines: dict[object, ClusterQueueHeads] = {}
        self._heap: defaultdict[int, dict[ClusterQueueHeads, None]] = defaultdict(dict)
        """ClusterQueue to what is tried in its cycles; the others are ``inadmissibleWorkloads``."""
        self._resting: defaultdict[int, set[tuple[Shape, float]]] = defaultdict(set)
        """ClusterQueue to what was tried in vain since the last batch: equal Workloads are not
        tried (``hashToBulkMoveReason``)."""
        self._sticky: dict[int, QueueEntry] = {}
        """ClusterQueue to who has last preempted there, and comes first (``preemptorWorkload``)."""
        self._searches = FlavorSearches()
        if preemptions is not None:
            self.claims.oracle_of = preemptions.oracle
            self.claims.finds_victims = preemptions.finds_victims

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by their use, where ClusterQueues do so; before anything joins."""
        self._use, self._is_by_age = use, False

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        is_strict = queue_heads.is_strict(queue)
        key: object = queue.name if is_strict else (queue.name, _kind(entry))
        if queue.usage_based:
            key = key, entry.waiting.local_queue
        leaf = self._tree.leaves[queue.name]
        heads = self._lines.get(key)
        if heads is None:
            heads = ClusterQueueHeads(queue=queue, leaf=leaf, is_strict=is_strict)
            self._lines[key] = heads
        heads.add(entry, order)
        if is_strict or _kind(entry) not in self._resting[leaf]:
            self._heap[leaf][heads] = None

    def withdraw(self, key: str) -> None:
        """Remove the pending group with this key, if there is one."""
        for heads in self._lines.values():
            kept = [one for one in heads.entries if one[2].waiting.key != key]
            if len(kept) < len(heads.entries):
                if (first := self._sticky.get(heads.leaf)) and first.waiting.key == key:
                    del self._sticky[heads.leaf]
                heads.entries[:] = kept
                heapq.heapify(heads.entries)
                if not kept:
                    self._heap[heads.leaf].pop(heads, None)
                return

    def released(self, leaf: int) -> None:
        """Do nothing: who rests waits for the next batch, and the others are tried anyway."""

    def is_awaited(self) -> bool:
        """Return whether any Workload is pending."""
        return any(heads.entries for heads in self._lines.values())

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (heads for heads in self._lines.values() if heads.entries)

    @property
    def is_awake(self) -> bool:
        """Whether some head is tried again before the next requeue batch."""
        return any(heads.entries for lines in self._heap.values() for heads in lines)

    def rest_if_in_vain(self) -> bool:
        """Let all heads rest if none of them would get anything; return whether they do.

        The cycles in which they would be tried change nothing else: a newcomer finds no less once
        they have ended.
        """
        awake = [heads for lines in self._heap.values() for heads in lines if heads.entries]
        # A StrictFIFO head stays awake, and keeps quota from the others.
        if any(heads.is_strict for heads in awake):
            return False
        if any(map(self._may_get, awake)):
            return False
        for heads in awake:
            self._resting[heads.leaf].add(_kind(heads.entries[0][2]))
            del self._heap[heads.leaf][heads]
        self.kept = ()
        return True

    def _may_get(self, heads: ClusterQueueHeads) -> bool:
        """Return whether a head may fit, or preempt; False is certain."""
        if queue_heads.has_room(self._tree, heads.leaf, heads.entries[0][2].shape):
            return True
        return self._preemptions is not None and self._preemptions.may_help(heads)

    def tried(self) -> Iterator[ClusterQueueHeads]:
        """Yield the heads that the next cycle tries; what else waits in their ClusterQueues rests.

        Where that cycle would be as the last, they are tried for ever.
        """
        for lines in self._heap.values():
            if pending := [heads for heads in lines if heads.entries]:
                yield min(pending, key=self._rank)

    def awaited(self) -> frozenset[int]:
        """Return the ClusterQueues, by node, whose head waits for its victims."""
        return frozenset(self._sticky)

    @property
    def preempted(self) -> Sequence[IssuedPreemptions]:
        """The preemptions of the last cycle."""
        return () if self._preemptions is None else self._preemptions.issued

    def begin(self) -> None:
        """Begin a moment: the search for flavors begins anew."""
        self._searches.begin()
        self._is_by_age &= not self._has_begun
        self._has_begun = True
        self._number = 0
        self.turn_usage, self.after = [], []
        if self.line_turns is not None:
            self.line_turns.begin()

    def starts(self) -> list[StartedGroup]:
        """Run one cycle, and return what reserves quota in it, in order."""
        if self._preemptions is not None:
            self._preemptions.issued = []
        tree = self._tree
        cycle = _Cycle(began=tree.used[:])
        # Where one goes on with its next flavor, the others that are equal begin with the first.
        begins_anew = self._use is None and not self._searches.is_any_open
        contenders = self._contenders()
        self.tries += len(contenders)
        cycle.is_alone = begins_anew and sum(map(len, self._heap.values())) == 1
        if self.line_turns is not None:
            begin_turns(self.line_turns, contenders, self._precedence, self._use, is_again=True)
        # A head that preempts as it is served comes first only from the next cycle on.
        ahead = self._ahead(contenders)
        for contender in self._in_order(contenders, cycle):
            if self.turns:
                turn = contender.fitting.height, -contender.priority
                self._record(bisect_left(self.turns, turn), cycle)
            self._serve(contender, cycle)
        self._end_records(cycle, ahead)
        tree.used[:] = cycle.began
        for start in cycle.started:
            tree.charge(start.heads.leaf, start.found.taken, start.count)
        self.kept = cycle.kept
        self._number += 1
        self.goes_on = self._searches.go_on(has_changed=cycle.changes)
        return cycle.started

    def note_changes(self, queues: Collection[str]) -> None:
        """As ``FlavorSearches.note_changes``, where cycles follow Kueue's."""
        self._searches.note_changes(queues)

    def wake(self) -> None:
        """Let everybody be tried again, as a requeue batch does."""
        self._resting.clear()
        for heads in self._lines.values():
            if heads.entries:
                self._heap[heads.leaf][heads] = None

    def rest(self, awake: frozenset[str], preemptors: frozenset[str]) -> None:
        """Let all rest until the next batch but StrictFIFO heads and those with these keys.

        *preemptors* are the keys of those who have last preempted in their ClusterQueues.
        """
        for heads in self._lines.values():
            for _, _, entry in heads.entries:
                if entry.waiting.key in preemptors and not heads.is_strict:
                    self._sticky[heads.leaf] = entry
        for leaf, lines in self._heap.items():
            for heads in [heads for heads in lines if not heads.is_strict]:
                if awake.isdisjoint(entry.waiting.key for _, _, entry in heads.entries):
                    self._resting[leaf].update(_kind(entry) for _, _, entry in heads.entries)
                    del lines[heads]

    def _contenders(self) -> list[Contender]:
        """Return the first head of each ClusterQueue, with its flavors and victims."""
        found = []
        self.overruled = []
        for leaf, lines in self._heap.items():
            pending = [heads for heads in lines if heads.entries]
            if pending:
                head = min(pending, key=self._rank)
                found.append(self._contender(self._drawn(leaf, pending, head)))
        return found

    def _drawn(
        self, leaf: int, pending: Sequence[ClusterQueueHeads], first: ClusterQueueHeads
    ) -> ClusterQueueHeads:
        """Return the head that was drawn for a ClusterQueue; *first*, where none was."""
        expected, wanted = first.entries[0][2].waiting.key, self.drawn.get(leaf)
        if wanted in (None, expected):
            return first
        for heads in pending:
            for place, entry in enumerate(heads.entries):
                if entry[2].waiting.key == wanted:
                    self.overruled.append((expected, wanted))
                    return self._apart(heads, place)
        return first

    def _apart(self, heads: ClusterQueueHeads, place: int) -> ClusterQueueHeads:
        """Return a line of its own with the group at this place of another one."""
        if len(heads.entries) == 1:
            return heads
        entry = heads.entries.pop(place)
        heapq.heapify(heads.entries)
        own = ClusterQueueHeads(queue=heads.queue, leaf=heads.leaf, is_strict=heads.is_strict)
        own.entries.append(entry)
        self._lines[own] = own
        self._heap[heads.leaf][own] = None
        return own

    def _rank(self, heads: ClusterQueueHeads) -> tuple[float, bool, float, float, str]:
        priority, order, entry = heads.entries[0]
        # Use comes before preemptors and priority: ``queueOrderingFunc`` in ``cluster_queue.go``.
        by_use = self._use if heads.queue.usage_based else None
        is_sticky = self._sticky.get(heads.leaf) is entry
        used = by_use.of(entry) if by_use else 0.0
        return used, not is_sticky, priority, order, entry.waiting.uid

    def _contender(self, heads: ClusterQueueHeads) -> Contender:
        behind = self._searches.resume(heads)
        fitting = queue_heads.fitting_this_cycle(self._tree, heads, self.claims, after=behind)
        victims: Sequence[Victim] = ()
        if self._preemptions is not None and not fitting.fits:
            victims = self._preemptions.victims(heads, fitting)
        return Contender(heads=heads, fitting=fitting, victims=victims)

    def _in_order(self, contenders: Sequence[Contender], cycle: _Cycle) -> Iterator[Contender]:
        if not self._is_by_age:
            yield from in_order(
                self._tree,
                contenders,
                by_shares=self.claims.fair_sharing,
                turns=self.line_turns,
                usage=partial(self._usage, cycle),
            )
            return
        waiting = sorted((one for one in contenders if not one.fitting.fits), key=_turn)
        for contender in sorted(contenders, key=_by_age):
            if not contender.fitting.fits:
                continue
            # Each came alone, beside the heads that already waited.
            before = [one for one in waiting if _turn(one) < _turn(contender)]
            yield from before
            waiting = [one for one in waiting if one not in before]
            yield contender
            # The next one of its ClusterQueue may be older than the heads of the others.
            if cycle.started:
                return
        yield from waiting

    def _ahead(self, contenders: Sequence[Contender]) -> Sequence[float]:
        """Return ``TurnUsage.ahead``."""
        ahead = [-inf] * len(self._tree.parents)
        for contender in contenders:
            ahead[contender.leaf] = self._precedence(contender)
        return ahead

    def _precedence(self, contender: Contender) -> float:
        """Return up to which priority newcomers come behind the head of a ClusterQueue."""
        is_sticky = self._sticky.get(contender.leaf) is contender.heads.entries[0][2]
        return inf if is_sticky else contender.priority

    def _record(self, turns: int, cycle: _Cycle) -> None:
        """Record the usage for the first *turns*, as far as it is not yet recorded."""
        missing = turns - len(cycle.before)
        if missing > 0:
            cycle.before += [self._usage(cycle)] * missing

    def _end_records(self, cycle: _Cycle, ahead: Sequence[float]) -> None:
        """Record the usage for the turns that came after all heads, and that after the cycle."""
        if self.turns:
            self._record(len(self.turns), cycle)
            self.turn_usage.append(TurnUsage(before=cycle.before, ahead=ahead))
        elif self.line_turns is not None:
            self.line_turns.end_cycle(partial(self._usage, cycle))
        else:
            return
        # Who rests from now on keeps nothing any longer.
        for leaf, aside in cycle.passing:
            self._tree.charge(leaf, aside, -1)
        self.after = self._usage(cycle)

    def _usage(self, cycle: _Cycle) -> list[int]:
        """Return the usage with which a newcomer must fit whose turn comes now.

        It must fit with that with which the cycle began, and again once all victims have gone.
        """
        tree = self._tree
        gone = [(holder.leaf, holder.taken) for holder in cycle.leaving.values()]
        for node, taken in gone:
            tree.charge(node, taken, -1)
        usage = list(map(max, cycle.began, tree.used))
        for node, taken in gone:
            tree.charge(node, taken)
        return usage

    def _serve(self, contender: Contender, cycle: _Cycle) -> None:
        """Start a head, preempt for it, or let it wait (``processEntry``)."""
        heads, fitting, victims = contender.heads, contender.fitting, contender.victims
        if not fitting.fits and not victims:
            self._set_aside(contender, cycle)
            self._rest(contender, cycle)
        elif not self._has_room(contender, cycle):
            self._searches.keep_open(heads, fitting)
        elif victims:
            self._preempt(contender, cycle)
        else:
            self._start(contender, cycle)

    def _set_aside(self, contender: Contender, cycle: _Cycle) -> None:
        """Keep quota from the heads after one that finds nobody to preempt."""
        # ``reserveCapacityForUnreclaimablePreempt``
        heads, fitting = contender.heads, contender.fitting
        aside = queue_heads.set_aside(self._tree, heads, fitting, self.claims)
        if aside:
            self._tree.charge(heads.leaf, aside)
            # One with flavors left to try comes again in the next cycle, as a strict one does.
            if heads.is_strict or any(fitting.unfinished):
                cycle.kept.append((fitting.height, heads.entries[0][0], heads.leaf, aside))
            else:
                cycle.passing.append((heads.leaf, aside))

    def _rest(self, contender: Contender, cycle: _Cycle) -> None:
        """Let a head wait for the next batch, with all that are equal, unless it is strict."""
        # ``requeueIfNotPresent`` and ``handleInadmissibleHash`` in ``cluster_queue.go``.
        heads, fitting = contender.heads, contender.fitting
        if heads.is_strict or any(fitting.unfinished):
            self._searches.keep_open(heads, fitting)
            return
        kind, lines = _kind(heads.entries[0][2]), self._heap[heads.leaf]
        self._resting[heads.leaf].add(kind)
        for other in [other for other in lines if other.entries]:
            if _kind(other.entries[0][2]) == kind:
                del lines[other]
        cycle.changes = True

    def _has_room(self, contender: Contender, cycle: _Cycle) -> bool:
        """Return whether a head has room once all victims of this cycle have gone (``fits``).

        It has none where another head preempts one of its own victims.
        """
        tree = self._tree
        if any(victim.holder.key in cycle.leaving for victim in contender.victims):
            return False
        leaving = {victim.holder.key: victim.holder for victim in contender.victims}
        for holder in (leaving | cycle.leaving).values():
            tree.charge(holder.leaf, holder.taken, -1)
        has_room = tree.has(contender.leaf, contender.taken)
        for holder in (leaving | cycle.leaving).values():
            tree.charge(holder.leaf, holder.taken)
        return has_room

    def _preempt(self, contender: Contender, cycle: _Cycle) -> None:
        heads, entry = contender.heads, contender.heads.entries[0][2]
        self._tree.charge(contender.leaf, contender.taken)
        for victim in contender.victims:
            cycle.leaving[victim.holder.key] = victim.holder
            cycle.changes |= not victim.holder.is_evicted
        if not heads.is_strict and self._sticky.get(contender.leaf) is not entry:
            self._sticky[contender.leaf] = entry
            cycle.changes = True
        if self._preemptions is not None:
            self._preemptions.issue(heads, contender.victims)

    def _start(self, contender: Contender, cycle: _Cycle) -> None:
        heads, fitting, number = contender.heads, contender.fitting, 1
        _, order, entry = heads.entries[0]
        if cycle.is_alone:
            number = queue_heads.alike(self._tree, heads, fitting, keeps_height=False)
        self._tree.charge(heads.leaf, fitting.taken, number)
        if self._sticky.get(heads.leaf) is entry:
            del self._sticky[heads.leaf]
        if self._use is not None and heads.queue.usage_based:
            self._use.admit(entry, fitting.taken, 1)
        heads.take(number)
        if not heads.entries:
            self._heap[heads.leaf].pop(heads)
        cycle.started.append(
            StartedGroup(
                heads=heads,
                entry=entry,
                order=order,
                found=fitting,
                count=number,
                cycle=self._number,
            )
        )
        cycle.changes = True


def _by_age(contender: Contender) -> tuple[float, float]:
    return -contender.priority, contender.queued_at


def _turn(contender: Contender) -> tuple[int, float, float]:
    return contender.fitting.height, *_by_age(contender)


def _kind(entry: QueueEntry) -> tuple[Shape, float]:
    """Return by what Kueue takes Workloads to be equal (``computeSchedulingHash``)."""
    # Equal demands of a ClusterQueue have one Shape.
    return entry.shape, entry.waiting.priority
