"""When a newcomer would start, by the log of a simulation without it.

The log is gone through from the newcomer's arrival on. In each cycle the simulator's own functions
say whether it would be the head of its ClusterQueue, which flavors it would get, whom it would
preempt, and whether it has room once its turn comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from webhook.kueue import assignment, queue_lines
from webhook.kueue.assignment import (
    Assignment,
    Claimant,
    DomainsInUse,
    Level,
    PreemptionMode,
)
from webhook.kueue.cycle_log import CHECKPOINT, CycleLog, Rank
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.flavor_plan import Demand, flavors_with_topology
from webhook.kueue.preemption import Candidate, Preemptions, TriedHead
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.simulation import may_preempt
from webhook.kueue.topology_placement import OccupiedDomains
from webhook.model.forecasts import Start
from webhook.model.quantity import Amounts
from webhook.model.queues import ClusterQueue, PodSetNeeds, QuotaHolder
from webhook.model.snapshot_parts import KueueSetup

_MOMENT = 1e-6
"""Seconds by which the same moment may differ on two clocks, as sums of times are rounded."""
NEWEST = float(1 << 60)
"""The place by age of who comes after all that are there."""
_NOTHING = Assignment(mode=PreemptionMode.EXCEEDS)
_NEVER = Start(seconds=inf, low=inf, high=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A Workload that was decided and is in no log yet, and what quota it will hold until when."""

    cluster_queue: str
    usage: Amounts
    start: float
    """On the clock of ``Snapshot.as_of``."""
    end: float
    priority: int = 0
    spread: float = 0.0
    """Standard deviation of ``end``, in seconds."""
    is_unseen: bool = False
    """How long it runs is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A Workload that is not there yet: what it asks for, when it comes, and beside whom."""

    queue: ClusterQueue
    demand: Demand
    setup: KueueSetup
    now: float = 0.0
    """When it comes, on the clock of ``Snapshot.as_of``."""
    among: Sequence[PlacedJob] = ()
    """The Jobs that were placed before it, and are in no log yet."""
    priority: int = 0
    local_queue: str = ""
    """``namespace/name``, which counts where LocalQueues are served by their use."""
    needs: Sequence[PodSetNeeds] = ()
    """What its pods ask for of the domains of Topologies."""
    elsewhere: OccupiedDomains = field(default_factory=dict)
    """What Workloads of other trees use of these domains."""
    age: float = NEWEST
    """Its place by age among those that wait, as in the simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """How a newcomer gets its quota, and its start by that; the defaults: it never starts."""

    at: float = inf
    """When it gets quota, on the clock of the log."""
    assigned: Assignment = _NOTHING
    spread: float = 0.0
    """Standard deviation of *at*, in seconds."""
    preempts: bool = False
    """Others have to stop for it from *at* on."""
    # From here on what is known once its doubts are added.
    usage: Amounts = field(default_factory=dict)
    start: Start = _NEVER
    """In seconds from when it comes."""

    @property
    def names(self) -> str:
        """The flavors as ``model.forecasts.Estimates`` names them, joined by commas."""
        return ",".join(sorted(set(self.assigned.flavors)))


class Replay:
    """One way through a log, with one newcomer and those that were placed before it."""

    def __init__(
        self,
        tree: UsageTree,
        log: CycleLog,
        newcomer: Newcomer,
        *,
        began: float = 0.0,
    ) -> None:
        """*tree*: with nothing used. The log *began* then, on the clock of ``Snapshot.as_of``."""
        self._tree, self._log, self._newcomer = tree.copy(), log, newcomer
        setup, placements = newcomer.setup, newcomer.among
        self._kueue = setup.kueue
        self._leaf = tree.leaves[newcomer.queue.name]
        self._shape = queue_lines.shape_of(tree, self._leaf, newcomer.demand)
        self._is_strict = queue_lines.is_strict(newcomer.queue)
        self._overlay = _Overlay(tree, placements, began)
        if self._is_strict:
            self._overlay.keep_behind(newcomer, placements)
        self._holders = self._all_holders(setup)
        self._may_preempt = may_preempt(newcomer.queue)
        self._domains: DomainsInUse | None = None
        if newcomer.needs and flavors_with_topology(newcomer.queue, setup):
            self._domains = DomainsInUse(setup, newcomer.elsewhere)
        self._applied = -1
        """The entry as whose cycle begins the usage *_used* is."""
        self._used: Sequence[int] = ()
        self._needed = self._least_needed()
        self._way: Iterator[tuple[int, float, bool]] = iter(())

    def _all_holders(self, setup: KueueSetup) -> Preemptions | None:
        """Return who may be preempted, nobody at first; None: nobody of the tree preempts."""
        members = {leaf: setup.cluster_queues.get(name) for name, leaf in self._tree.leaves.items()}
        policies = {leaf: queue.preemption for leaf, queue in members.items() if queue is not None}
        if not any(queue is not None and may_preempt(queue) for queue in members.values()):
            return None
        strategies = self._kueue.preemption_strategies if self._kueue.fair_sharing else None
        return Preemptions(self._tree, policies, strategies=strategies)

    def begin(self, since: float) -> FoundStart | None:
        """Return how the newcomer gets quota that comes *since* then; None: it never does."""
        if not self._shape.is_possible:
            return None
        log = self._log
        awake_from = first = max(0, bisect_right(log.times, since) - 1)
        # Who is equal to one that was tried in vain since the last batch is not tried either.
        kind = self._leaf, self._shape.parts, float(self._newcomer.priority)
        is_asleep = log.is_asleep(kind, first)
        self._way = self._moments(since, first)
        for index, at, wakes in self._way:
            if at < self._overlay.earliest or self._is_behind(index):
                continue
            if is_asleep and index == first and at == since:
                continue
            if not wakes and self._is_resting(index, awake_from):
                continue
            self._apply(index)
            found, rests = self._tried(index, at, spread=self._spread(index, at, since))
            if found is not None:
                return found
            # One that found room, and then none at its turn, is tried again in the next cycle.
            awake_from = index if rests else index + 1
        return None

    def _spread(self, index: int, at: float, since: float) -> float:
        """Return the standard deviation of a moment, in seconds."""
        log, overlay = self._log, self._overlay
        if at == since or at <= 0.0:
            return 0.0
        return max(log.spreads[index], overlay.spread if at > log.times[index] else 0.0)

    def _is_resting(self, index: int, awake_from: int) -> bool:
        """Return whether it was tried in vain since the last requeue batch.

        *awake_from*: the entries before that do not count.
        """
        if self._is_strict:
            return False
        for before in range(index, awake_from, -1):
            if self._log.wakes[before]:
                return False
            if not self._is_behind(before - 1):
                return True
        return False

    def _least_needed(self) -> Sequence[Sequence[Taken]]:
        """Return of each part the choices of what the whole tree must have free at the least.

        What the nodes above it keep for themselves it may get beside that.
        """
        tree = self._tree
        kept = [
            sum(tree.local[node * tree.width + cell] for node in list(tree.path(self._leaf))[:-1])
            for cell in range(tree.width)
        ]
        return [
            [tuple((cell, n - kept[cell]) for cell, n in taken if n) for _, taken in choices]
            for choices in self._shape.least.parts
        ]

    def _with_room(self, entries: Iterable[int]) -> Iterator[int]:
        """Yield the entries in which it may have room."""
        # Of thousands of entries few have it, and most lack of what it needs the largest part of.
        quota = self._tree.subtree
        only = [choices[0] for choices in self._needed if len(choices) == 1]
        parts = [(n / max(1, quota[cell]), cell, n) for taken in only for cell, n in taken]
        if parts:
            _, cell, least = max(parts)
            free = self._log.free[cell]
            entries = (index for index in entries if free[index] >= least)
        return (index for index in entries if self._may_fit(index))

    def _may_fit(self, index: int) -> bool:
        """Return whether enough of the whole tree's quota is free in an entry."""
        free = self._log.free
        for choices in self._needed:
            for taken in choices:
                for cell, amount in taken:
                    if free[cell][index] < amount:
                        break
                else:
                    break
            else:
                return False
        return True

    def _moments(self, since: float, first: int) -> Iterator[tuple[int, float, bool]]:
        """Yield the entries in which a newcomer may get quota, when, and if it is tried anyway.

        *first*: the last entry before it comes.
        """
        log, overlay = self._log, self._overlay
        overlay.advance(since)
        yield first, since, True
        is_searching = self._holders is None
        idle = self._kueue.requeue_seconds
        entries = range(first + 1, len(log.times))
        for index in self._with_room(entries) if is_searching else entries:
            at = log.times[index]
            # As quota of a placement comes free, all are tried again as in the entry before.
            while overlay.next_end + idle < at:
                end = overlay.next_end + idle
                overlay.advance(end)
                yield index - 1, end, True
            overlay.advance(at)
            yield index, at, bool(log.wakes[index])
        while overlay.next_end < inf:
            end = overlay.next_end + idle
            overlay.advance(end)
            yield len(log.times) - 1, end, True

    def _apply(self, index: int) -> None:
        """Let the tree be as the entry's cycle begins, with what is placed by then."""
        tree = self._tree
        if index != self._applied:
            self._go_to(index)
        tree.used[:] = self._used
        for leaf, taken in self._overlay.held:
            tree.charge(leaf, taken)

    def _go_to(self, index: int) -> None:
        tree, log, first = self._tree, self._log, self._applied
        is_far = first < 0 or index - first > CHECKPOINT
        if is_far and self._holders is None and self._domains is None:
            first = index - index % CHECKPOINT
            tree.used[:] = log.used[first // CHECKPOINT]
        elif first < 0:
            first = 0
            tree.used[:] = log.used[0]
            self._note_changes(0, charges=False)
        else:
            tree.used[:] = self._used
        for number in range(first + 1, index + 1):
            self._note_changes(number, charges=True)
        self._applied, self._used = index, tree.used[:]

    def _note_changes(self, number: int, *, charges: bool) -> None:
        """Follow what happened since the entry before.

        *charges*: what runs at the beginning is in the usage already.
        """
        for leaf, taken, sign, holder, placed in self._log.changes(number):
            if sign and charges:
                self._tree.charge(leaf, taken, sign)
            if self._holders is not None and holder is not None:
                _follow(self._holders, holder, sign)
            if self._domains is not None:
                self._domains.shift(placed, sign)

    def _is_behind(self, index: int) -> bool:
        """Return whether another Workload of its ClusterQueue comes first in this cycle."""
        head = self._log.ahead(self._leaf, index)
        if head is None:
            return False
        used = 0.0
        if self._newcomer.queue.usage_based:
            used = self._log.uses[index].get(self._newcomer.local_queue, 0.0)
        own: Rank = used, True, -float(self._newcomer.priority), self._newcomer.age
        return head < own

    def _tried(self, index: int, at: float, *, spread: float) -> tuple[FoundStart | None, bool]:
        """Try the newcomer in a cycle; return its start, or whether it rests until the next batch.

        *spread*: the standard deviation of *at*.
        """
        tree = self._tree
        if not (self._may_preempt or queue_lines.has_room(tree, self._leaf, self._shape)):
            return None, not self._is_strict
        found = self._assigned()
        wants = assignment.asks_for_victims(found.mode)
        victims = self._victims(found.taken) if wants else ()
        if not (found.fits or victims):
            return None, not self._is_strict
        if not self._has_room_at_its_turn(index, found, victims):
            return None, False
        return FoundStart(at=at, assigned=found, spread=spread, preempts=bool(victims)), False

    def _assigned(self) -> Assignment:
        if self._domains is not None:
            needs, parts = self._newcomer.needs, self._shape.parts
            return self._domains.assigned(needs, parts, self._claimant())
        return queue_lines.assigned(self._shape, self._claimant())

    def _claimant(self) -> Claimant:
        return Claimant(
            tree=self._tree,
            leaf=self._leaf,
            queue=self._newcomer.queue,
            oracle=self._possibility,
            fair_sharing=self._kueue.fair_sharing,
            release=self._kueue.release,
            victims=lambda taken: len(self._victims(taken)),
        )

    def _possibility(self, cell: int, amount: int) -> Level:
        """Return what preempting can do for one cell (``Oracle``)."""
        if self._holders is None or not self._may_preempt:
            height, _ = self._tree.height(self._leaf, cell, amount)
            return PreemptionMode.NO_CANDIDATES, height
        return self._holders.possibility(self._as_head(()), cell, amount)

    def _victims(self, taken: Taken) -> tuple[Candidate, ...]:
        return () if self._holders is None else self._holders.victims(self._as_head(taken))

    def _as_head(self, taken: Taken, *, height: int = 0) -> TriedHead:
        newcomer = self._newcomer
        return TriedHead(self._leaf, newcomer.priority, newcomer.age, taken, height)

    def _has_room_at_its_turn(
        self, index: int, found: Assignment, victims: Sequence[Candidate]
    ) -> bool:
        """Return whether heads that are served before it leave it room, once victims have gone."""
        tree = self._tree
        began = tree.used[:]
        gone = {victim.holder.key: victim.holder for victim in victims}
        for head in self._before(index, found):
            if any(holder.key in gone for holder in head.leaving):
                tree.used[:] = began
                return False
            tree.charge(head.leaf, head.charged)
            gone |= {holder.key: holder for holder in head.leaving}
        for holder in gone.values():
            tree.charge(holder.leaf, holder.taken, -1)
        has_room = tree.has(self._leaf, found.taken)
        tree.used[:] = began
        return has_room

    def _before(self, index: int, found: Assignment) -> Iterator[TriedHead]:
        """Yield the heads that are served before the newcomer; quota is charged in between."""
        others = [head for head in self._log.served(index) if not self._is_instead_of(head)]
        if not self._kueue.fair_sharing:
            turn = found.height, -float(self._newcomer.priority), self._newcomer.age
            for head in others:
                if (head.height, -head.priority, head.queued_at) < turn:
                    yield head
            return
        own = self._as_head(found.taken, height=found.height)
        waiting: dict[int, deque[TriedHead]] = {}
        for head in [*others, own]:
            waiting.setdefault(head.leaf, deque()).append(head)
        tournament = Tournament(self._tree, [heads.popleft() for heads in waiting.values()])
        while (winner := tournament.pop()) is not None and winner is not own:
            yield winner
            if behind := waiting[winner.leaf]:
                tournament.add(behind.popleft())

    def _is_instead_of(self, head: TriedHead) -> bool:
        """Return whether the newcomer is tried in a head's place."""
        if head.leaf != self._leaf:
            return False
        # Where moments are joined, those before it in its ClusterQueue may start in one cycle.
        before = -head.priority, head.queued_at
        is_before = before < (-float(self._newcomer.priority), self._newcomer.age)
        return self._newcomer.queue.usage_based or not is_before

    def preempted_at(self, begin: FoundStart, until: float) -> tuple[float, int] | None:
        """Return when the newcomer that has just begun is preempted, and by how many.

        None: it is not, or not before *until*.
        """
        holders, tree = self._holders, self._tree
        if holders is None:
            return None
        own = QuotaHolder(
            key="newcomer",
            leaf=self._leaf,
            taken=begin.assigned.taken,
            priority=self._newcomer.priority,
            reserved_at=begin.at,
            queued_at=self._newcomer.age,
        )
        holders.add(own)
        for index, at, _ in self._way:
            if at >= until:
                return None
            self._apply(index)
            tree.charge(own.leaf, own.taken)
            count = sum(self._preempts(head, own, holders) for head in self._log.served(index))
            if count:
                return at, count
        return None

    def _preempts(self, head: TriedHead, own: QuotaHolder, holders: Preemptions) -> bool:
        """Return whether a head preempts the newcomer; it then takes its quota itself."""
        tree = self._tree
        victims: tuple[Candidate, ...] = ()
        if head.starts or head.leaving:
            victims = holders.victims(head._replace(taken=head.charged))
        tree.charge(head.leaf, head.charged)
        return any(victim.holder is own for victim in victims)


def _follow(holders: Preemptions, holder: QuotaHolder, sign: int) -> None:
    """Note who gets quota, gives it back, or is evicted and stops."""
    if sign > 0:
        holders.add(holder)
    elif sign < 0:
        holders.remove(holder)
    else:
        holders.remove(holder._replace(is_evicted=False))
        holders.add(holder)


class _Overlay:
    """The usage of placements as time goes by."""

    def __init__(self, tree: UsageTree, placements: Sequence[PlacedJob], began: float) -> None:
        self.earliest = -inf
        """Before then the newcomer is behind a placement."""
        self._began = began
        events: list[tuple[float, int, int, int, Taken, float]] = []
        for placement in placements:
            leaf = tree.leaves.get(placement.cluster_queue)
            if leaf is not None:
                taken = tree.taken(placement.usage)
                number = len(events)
                events.append((placement.start - began, 1, number, leaf, taken, 0.0))
                events.append((placement.end - began, -1, number, leaf, taken, placement.spread))
        self._events = sorted(events)
        self._ends = [at for at, sign, *_ in reversed(self._events) if sign < 0]
        self._place = 0
        self.held: list[tuple[int, Taken]] = []
        """What placements hold by now, by ClusterQueue's node."""
        self.spread = 0.0
        """Standard deviation of when the last of them gave its quota back, in seconds."""

    def keep_behind(self, newcomer: Newcomer, placements: Sequence[PlacedJob]) -> None:
        """Let a newcomer not overtake the placements of its own StrictFIFO ClusterQueue."""
        for placement in placements:
            is_before = newcomer.priority <= placement.priority
            if is_before and placement.cluster_queue == newcomer.queue.name:
                self.earliest = max(self.earliest, placement.start - self._began)

    @property
    def next_end(self) -> float:
        """When the next placement gives its quota back; inf: none does."""
        return self._ends[-1] if self._ends else inf

    def advance(self, until: float) -> None:
        """Let placements take and release quota up to *until*."""
        until += _MOMENT
        while self._place < len(self._events) and self._events[self._place][0] <= until:
            _, sign, _, leaf, taken, spread = self._events[self._place]
            self._place += 1
            if sign > 0:
                self.held.append((leaf, taken))
            else:
                self.held.remove((leaf, taken))
                self.spread = spread
                self._ends.pop()
