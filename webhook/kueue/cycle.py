"""Kueue's scheduling cycles in one cohort tree, one after the other.

A cycle takes the first Workload of each ClusterQueue that Kueue would try, assigns flavors to all
by the usage with which it begins, and serves them in Kueue's order. What was tried in vain rests
until the next requeue batch, with all that are equal. A head that is issued preemptions does not
get its quota in this cycle: its victims have to stop first. Nothing here knows of time.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from webhook.kueue import assignment, queue_lines
from webhook.kueue.assignment import (
    Assignment,
    Claimant,
    DomainsInUse,
    Oracle,
    oracle_by_counts,
)
from webhook.kueue.cycle_log import Kind, Rank
from webhook.kueue.fair_sharing import LocalQueueUse, Tournament
from webhook.kueue.preemption import Candidate, TriedHead
from webhook.kueue.queue_lines import ClusterQueueHeads, FlavorSearches, QueueEntry, Shape
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.quota_holders import QuotaHolders
from webhook.model.queues import ClusterQueue, KueueConfig, QuotaHolder

_MORE_THAN_THERE_IS: Final = 1 << 61
Kept: TypeAlias = tuple[int, float, int, Taken]
"""Quota set aside for a head: its height, its negated priority, its node, the amounts."""


# Not frozen, for the same reason as ``StartedWorkloads``.
@dataclass(slots=True, kw_only=True, eq=False)
class Contender:
    """The head of a ClusterQueue in one cycle, with what it was assigned."""

    heads: ClusterQueueHeads
    entry: QueueEntry
    fitting: Assignment
    victims: tuple[Candidate, ...] = ()
    """Whom it would preempt."""
    priority: float
    queued_at: float
    rank: Rank
    count: int = 0
    """How many of its group reserve quota in the cycle, each as much as it; 0: it does not."""

    @property
    def leaf(self) -> int:
        return self.heads.leaf

    @property
    def taken(self) -> Taken:
        return self.fitting.taken

    @property
    def turn(self) -> tuple[int, float, float]:
        """Its place in the order of a cycle, where shares do not decide it."""
        return self.fitting.height, -self.priority, self.queued_at


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """What has become of the heads of one cycle so far."""

    leaving: dict[str, QuotaHolder] = field(default_factory=dict)
    """Whom the heads preempt."""
    started: list[Contender] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    served: list[TriedHead] = field(default_factory=list)
    changes: bool = False
    """The next cycle is another one."""
    is_alone: bool = False
    """There is one line of equal Workloads in all: several can start in one cycle."""


class Cycles:
    """The pending Workloads of one cohort tree, and the cycles that admit them."""

    tries = 0
    """Number of heads that were tried in all cycles."""

    def __init__(  # noqa: PLR0913 - what they follow
        self,
        tree: UsageTree,
        kueue: KueueConfig,
        *,
        holders: QuotaHolders | None,
        came_one_by_one: bool = False,
        are_joined: bool = False,
        oracle_of: Callable[[ClusterQueueHeads], Oracle] | None = None,
        domains: DomainsInUse | None = None,
    ) -> None:
        """Begin with nothing pending; *holders*: None where nobody may preempt.

        *domains*: of the Topologies in which Workloads are placed.

        *came_one_by_one*: at the first moment Kueue takes them by priority and age. *are_joined*:
        a moment stands for several, one after the other. *oracle_of* says whom a head may preempt
        where *holders* are not known.
        """
        self.kept: Sequence[Kept] = ()
        """Quota set aside in the last cycle for heads that come again in the next one."""
        self.preempted: list[Contender] = []
        """The heads that preempted in the last cycle."""
        self.heads: Sequence[tuple[int, Rank]] = ()
        """The ClusterQueues' heads in the last cycle, as ``CycleLog`` has them."""
        self.served: Sequence[TriedHead] = ()
        """What they took, as ``CycleLog`` has it."""
        self.began: Sequence[int] = ()
        """The usage with which the last cycle began."""
        self.goes_on = False
        """Whether the next cycle would be another than the last."""
        self.drawn: Mapping[int, str] = {}
        """ClusterQueue to the key of its head in the next cycle, whoever would come first."""
        self.overruled: list[tuple[str, str]] = []
        """Keys of who would have been the head in the last cycle, and of who was drawn instead."""
        self.is_fair = kueue.fair_sharing
        """Whether shares decide who is served next."""
        self._is_order_shared = kueue.fair_sharing and max(tree.heights) > 1
        """Who takes nothing may still decide who comes next: by shares, in cohorts of cohorts."""
        self._tree, self._kueue, self._oracle_of = tree, kueue, oracle_of
        self._holders, self._domains = holders, domains
        self._are_joined = are_joined
        self._is_by_age, self._has_begun = came_one_by_one and not kueue.fair_sharing, False
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

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by their use, where ClusterQueues do so; before anything joins."""
        self._use, self._is_by_age = use, False

    def stop_preempting(self) -> None:
        """Let nobody preempt any more."""
        self._holders = None

    def join(self, queue: ClusterQueue, entry: QueueEntry, order: float) -> None:
        """Queue a group of equal Workloads; the least *order* is the oldest."""
        is_strict = queue_lines.is_strict(queue)
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

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        return (heads for heads in self._lines.values() if heads.entries)

    @property
    def is_awake(self) -> bool:
        """Whether some head is tried again before the next requeue batch."""
        return any(heads.entries for lines in self._heap.values() for heads in lines)

    def rest_if_in_vain(self) -> bool:
        """Let all heads rest if none of them would get anything; return whether they do.

        The cycles in which they would be tried change nothing else. In a tree of one ClusterQueue
        that holds of each head by itself: only one is tried in a cycle, so it keeps quota from
        nobody.
        """
        awake = [heads for lines in self._heap.values() for heads in lines if heads.entries]
        # A StrictFIFO head stays awake, and keeps quota from the others.
        in_vain = [
            heads
            for heads in awake
            if not (
                self._may_preempt
                or heads.is_strict
                or queue_lines.has_room(self._tree, heads.leaf, heads.first.shape)
            )
        ]
        if len(in_vain) < len(awake) and len(self._tree.leaves) > 1:
            return False
        for heads in in_vain:
            self._resting[heads.leaf].add(_kind(heads.first))
            del self._heap[heads.leaf][heads]
        if len(in_vain) < len(awake):
            return False
        self.kept = ()
        return True

    @property
    def _may_preempt(self) -> bool:
        return self._holders is not None or self._oracle_of is not None

    def tried(self) -> Iterator[ClusterQueueHeads]:
        """Yield the heads that the next cycle tries; what else waits in their ClusterQueues rests.

        Where that cycle would be as the last, they are tried for ever.
        """
        for lines in self._heap.values():
            if pending := [heads for heads in lines if heads.entries]:
                yield min(pending, key=self._rank)

    def still_tried(self) -> tuple[Sequence[tuple[int, Rank]], Sequence[TriedHead]]:
        """Return the last cycle's heads that the next one tries again, and what they take."""
        again = {heads.leaf: _log_rank(self._rank(heads)) for heads in self.tried()}
        served = [head for head in self.served if head.leaf in again and not head.starts]
        return tuple(again.items()), served

    def asleep(self) -> frozenset[Kind]:
        """Return what was tried in vain since the last requeue batch."""
        return frozenset(
            (leaf, shape.parts, priority)
            for leaf, kinds in self._resting.items()
            for shape, priority in kinds
        )

    def begin(self) -> None:
        """Begin a moment: the search for flavors begins anew."""
        self._searches.begin()
        self._is_by_age &= not self._has_begun
        self._has_begun = True
        self.served = ()

    def starts(self) -> list[Contender]:
        """Run one cycle, and return what reserves quota in it, in order."""
        self.preempted = []
        self.began = began = self._tree.used[:]
        # Where one goes on with its next flavor, the others that are equal begin with the first.
        begins_anew = self._use is None and not self._searches.is_any_open
        contenders = self._contenders()
        self.tries += len(contenders)
        is_alone = begins_anew and sum(map(len, self._heap.values())) == 1
        cycle = _Cycle(is_alone=is_alone and not self._may_preempt and self._domains is None)
        heads = {contender.leaf: contender.rank for contender in contenders}
        for contender in self._in_order(contenders, cycle):
            heads[contender.leaf] = contender.rank
            self._serve(contender, cycle)
        self.heads = tuple(heads.items())
        self._tree.used[:] = began
        for start in cycle.started:
            self._tree.charge(start.leaf, start.taken, start.count)
        self.kept, self.served = cycle.kept, cycle.served
        self.goes_on = self._searches.go_on(has_changed=cycle.changes)
        return cycle.started

    def note_changes(self, changed: Collection[str]) -> None:
        """As ``FlavorSearches.note_changes``, where cycles follow Kueue's."""
        self._searches.note_changes(changed)

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
                head = pending[0] if len(pending) == 1 else min(pending, key=self._rank)
                found.append(self._contender(self._drawn(leaf, pending, head)))
        return found

    def _drawn(
        self, leaf: int, pending: Sequence[ClusterQueueHeads], first: ClusterQueueHeads
    ) -> ClusterQueueHeads:
        """Return the head that was drawn for a ClusterQueue; *first*, where none was."""
        wanted = self.drawn.get(leaf)
        if wanted is None or wanted == first.first.waiting.key:
            return first
        for heads in pending:
            for place, entry in enumerate(heads.entries):
                if entry[2].waiting.key == wanted:
                    self.overruled.append((first.first.waiting.key, wanted))
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
        priority, order, entry = heads.entries[0]
        behind = self._searches.resume(heads)
        fitting = self._assigned(heads, behind)
        return Contender(
            heads=heads,
            entry=entry,
            fitting=fitting,
            victims=self._victims(heads, fitting.taken)
            if assignment.asks_for_victims(fitting.mode)
            else (),
            priority=-priority,
            queued_at=order,
            rank=_log_rank(self._rank(heads)),
        )

    def _assigned(self, heads: ClusterQueueHeads, behind: Sequence[str]) -> Assignment:
        needs = heads.first.waiting.needs
        if self._domains is not None and needs:
            return self._domains.assigned(needs, heads.first.shape.parts, self._claimant(heads))
        return queue_lines.assigned_this_cycle(
            heads.first.shape, self._claimant(heads), after=behind
        )

    def _claimant(self, heads: ClusterQueueHeads) -> Claimant:
        return Claimant(
            tree=self._tree,
            leaf=heads.leaf,
            queue=heads.queue,
            oracle=self._oracle(heads),
            fair_sharing=self.is_fair,
            release=self._kueue.release,
            victims=lambda taken: len(self._victims(heads, taken)),
        )

    def _oracle(self, heads: ClusterQueueHeads) -> Oracle:
        """Return what a queue's head may preempt."""
        if self._oracle_of is not None:
            return self._oracle_of(heads)
        if self._holders is None:
            return oracle_by_counts(self._tree, heads.leaf, heads.queue, lower_holds=lambda: False)
        return partial(self._holders.preemptions.possibility, _preemptor(heads, ()))

    def _victims(self, heads: ClusterQueueHeads, taken: Taken) -> tuple[Candidate, ...]:
        """Return whom Kueue would preempt for a head at the present usage."""
        if self._holders is None:
            return ()
        return self._holders.preemptions.victims(_preemptor(heads, taken))

    def _in_order(self, contenders: Sequence[Contender], cycle: _Cycle) -> Iterator[Contender]:
        """Yield the heads as Kueue serves them; quota may be charged in between."""
        if self._is_by_age:
            yield from self._one_by_one(contenders, cycle)
        elif self.is_fair:
            tournament = Tournament(self._tree, contenders)
            while (winner := tournament.pop()) is not None:
                yield winner
                if (successor := self._successor(winner, cycle)) is not None:
                    tournament.add(successor)
        else:
            turns = [(contender.turn, contender.leaf, contender) for contender in contenders]
            heapq.heapify(turns)
            while turns:
                *_, contender = heapq.heappop(turns)
                yield contender
                if (successor := self._successor(contender, cycle)) is not None:
                    heapq.heappush(turns, (successor.turn, successor.leaf, successor))

    def _successor(self, served: Contender, cycle: _Cycle) -> Contender | None:
        """Return who comes next in the ClusterQueue of a head that has started.

        In moments that stand for several, one that fits would be tried before what the others wait
        for is free, and one that does not keeps quota from those that are served after it.
        """
        if not (self._are_joined and cycle.started and cycle.started[-1].entry is served.entry):
            return None
        pending = [heads for heads in self._heap[served.leaf] if heads.entries]
        if not pending:
            return None
        self.tries += 1
        return self._contender(min(pending, key=self._rank))

    def _one_by_one(self, contenders: Sequence[Contender], cycle: _Cycle) -> Iterator[Contender]:
        unfitting = (contender for contender in contenders if not contender.fitting.fits)
        waiting = sorted(unfitting, key=lambda contender: contender.turn)
        for contender in sorted(contenders, key=_by_age):
            if not contender.fitting.fits:
                continue
            # Each came alone, beside the heads that already waited.
            before = [one for one in waiting if one.turn < contender.turn]
            yield from before
            waiting = [one for one in waiting if one not in before]
            yield contender
            # The next one of its ClusterQueue may be older than the heads of the others.
            if cycle.started:
                return
        yield from waiting

    def _serve(self, contender: Contender, cycle: _Cycle) -> None:
        """Start a head, preempt for it, or let it wait (``processEntry``)."""
        contender = self._placed_anew(contender, cycle)
        heads, fitting, victims = contender.heads, contender.fitting, contender.victims
        charged: Taken = ()
        leaving: tuple[QuotaHolder, ...] = ()
        starts = False
        if not fitting.fits and not victims:
            charged = self._set_aside(contender, cycle)
            self._rest(contender, cycle)
        elif not self._has_room(contender, cycle):
            self._searches.keep_open(heads, fitting)
        elif victims:
            charged, leaving = fitting.taken, tuple(victim.holder for victim in victims)
            self._preempt(contender, cycle)
        else:
            self._start(contender, cycle)
            # With a newcomer in another ClusterQueue only one of several equal ones starts.
            charged, starts = fitting.taken, True
        if charged or self._is_order_shared:
            cycle.served.append(
                TriedHead(
                    leaf=contender.leaf,
                    priority=contender.priority,
                    queued_at=contender.queued_at,
                    taken=fitting.taken,
                    height=fitting.height,
                    charged=charged,
                    leaving=leaving,
                    starts=starts,
                )
            )

    def _placed_anew(self, contender: Contender, cycle: _Cycle) -> Contender:
        """Return a head with other domains where some of its own may be taken in this cycle."""
        # ``updateAssignmentForTAS``
        if not (contender.fitting.placed and any(start.fitting.placed for start in cycle.started)):
            return contender
        again = self._assigned(contender.heads, ())
        # One without room by now is tried again in the next cycle.
        lost = replace(contender.fitting, taken=((0, _MORE_THAN_THERE_IS),))
        return replace(contender, fitting=again if again.fits else lost)

    def _set_aside(self, contender: Contender, cycle: _Cycle) -> Taken:
        """Keep quota from the heads after one that finds nobody to preempt; return it."""
        # ``reserveCapacityForUnreclaimablePreempt``
        heads, fitting = contender.heads, contender.fitting
        aside = assignment.set_aside(fitting, self._claimant(heads))
        if aside:
            self._tree.charge(heads.leaf, aside)
            # One with flavors left to try comes again in the next cycle, as a strict one does.
            if heads.is_strict or any(fitting.unfinished):
                cycle.kept.append((fitting.height, -contender.priority, heads.leaf, aside))
        return aside

    def _rest(self, contender: Contender, cycle: _Cycle) -> None:
        """Let a head wait for the next batch, with all that are equal, unless it is strict."""
        # ``requeueIfNotPresent`` and ``handleInadmissibleHash`` in ``cluster_queue.go``.
        heads, fitting = contender.heads, contender.fitting
        if heads.is_strict or any(fitting.unfinished):
            self._searches.keep_open(heads, fitting)
            return
        kind, lines = _kind(contender.entry), self._heap[heads.leaf]
        self._resting[heads.leaf].add(kind)
        for other in [other for other in lines if other.entries]:
            if _kind(other.first) == kind:
                del lines[other]
        cycle.changes = True

    def _has_room(self, contender: Contender, cycle: _Cycle) -> bool:
        """Return whether a head has room once all victims of this cycle have gone (``fits``).

        It has none where another head preempts one of its own victims.
        """
        tree = self._tree
        if any(victim.holder.key in cycle.leaving for victim in contender.victims):
            return False
        gone = [*(victim.holder for victim in contender.victims), *cycle.leaving.values()]
        for holder in gone:
            tree.charge(holder.leaf, holder.taken, -1)
        has_room = tree.has(contender.leaf, contender.taken)
        for holder in gone:
            tree.charge(holder.leaf, holder.taken)
        return has_room

    def _preempt(self, contender: Contender, cycle: _Cycle) -> None:
        heads, entry = contender.heads, contender.entry
        self._tree.charge(contender.leaf, contender.taken)
        for victim in contender.victims:
            cycle.leaving[victim.holder.key] = victim.holder
            cycle.changes |= not victim.holder.is_evicted
        if not heads.is_strict and self._sticky.get(contender.leaf) is not entry:
            self._sticky[contender.leaf] = entry
            cycle.changes = True
        self.preempted.append(contender)

    def _start(self, contender: Contender, cycle: _Cycle) -> None:
        """Let a head start, and with it those that come next."""
        heads, fitting, entry, number = contender.heads, contender.fitting, contender.entry, 1
        if cycle.is_alone:
            number = queue_lines.alike(self._tree, heads, fitting)
        self._tree.charge(heads.leaf, fitting.taken, number)
        if self._sticky.get(heads.leaf) is entry:
            del self._sticky[heads.leaf]
        if self._use is not None and heads.queue.usage_based:
            self._use.admit(entry, fitting.taken, 1)
        if self._domains is not None:
            self._domains.shift(fitting.placed, 1)
        heads.take(number)
        if not heads.entries:
            self._heap[heads.leaf].pop(heads)
        contender.count = number
        cycle.started.append(contender)
        cycle.changes = True


def _by_age(contender: Contender) -> tuple[float, float]:
    return -contender.priority, contender.queued_at


def _log_rank(rank: tuple[float, bool, float, float, str]) -> Rank:
    return rank[:4]


def _kind(entry: QueueEntry) -> tuple[Shape, float]:
    """Return by what Kueue takes Workloads to be equal (``computeSchedulingHash``)."""
    # Equal demands of a ClusterQueue have one Shape.
    return entry.shape, entry.waiting.priority


def _preemptor(heads: ClusterQueueHeads, taken: Taken) -> TriedHead:
    priority, order, _ = heads.entries[0]
    return TriedHead(leaf=heads.leaf, taken=taken, priority=-priority, queued_at=order)
