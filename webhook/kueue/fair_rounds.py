"""Cycles in which shares or use decide who is served next: round by round, as Kueue runs them.

In each round every ClusterQueue has one head: the first by the use of its LocalQueue (admission
fair sharing), priority and age. Heads are served by dominant resource share (fair sharing), or else
as without it. What does not fit is passed over until the next cycle. Nothing here knows of time.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from webhook.kueue import fair_sharing, queue_heads
from webhook.kueue.assignment import Assignment
from webhook.kueue.cycle_preemptions import CyclePreemptions, Outcome
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.line_turns import LineTurns
from webhook.kueue.preemption import Victim
from webhook.kueue.queue_heads import Claims, ClusterQueueHeads, FlavorSearches, QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.turns import Line
from webhook.model.queues import AdmissionFairSharing, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The head of a ClusterQueue in one round, with the flavors that it was assigned."""

    heads: ClusterQueueHeads
    fitting: Assignment
    victims: Sequence[Victim] = ()
    """Whom it would preempt, where that is known before it is its turn."""

    @property
    def leaf(self) -> int:
        return self.heads.leaf

    @property
    def taken(self) -> Taken:
        return self.fitting.taken

    @property
    def entry(self) -> QueueEntry:
        return self.heads.entries[0][2]

    @property
    def priority(self) -> float:
        return -self.heads.entries[0][0]

    @property
    def queued_at(self) -> float:
        return self.heads.entries[0][1]


def in_order(
    tree: UsageTree,
    contenders: Sequence[Contender],
    *,
    by_shares: bool,
    turns: LineTurns | None,
    usage: Callable[[], list[int]],
) -> Iterator[Contender]:
    """Yield the heads of one cycle as Kueue serves them; quota may be charged in between.

    The *usage* at the turns of newcomers before each of them is recorded in *turns*.
    """
    if not by_shares:
        for contender in sorted(
            contenders, key=lambda one: (one.fitting.height, -one.priority, one.queued_at)
        ):
            if turns is not None:
                turns.note_head(usage, (contender.fitting.height, -contender.priority))
            yield contender
        return
    tournament = Tournament(tree, contenders)
    while (winner := tournament.pop()) is not None:
        if turns is not None:
            turns.note_winner(usage, tournament)
        yield winner


def begin_turns(
    turns: LineTurns,
    contenders: Sequence[Contender],
    precedence: Callable[[Contender], float],
    use: LocalQueueUse | None,
    *,
    is_again: bool,
) -> None:
    """Let *turns* begin a cycle with these heads.

    *precedence*: up to which priority newcomers of the same use come behind a head. *is_again* as
    in ``LineTurns``.
    """
    heads = {contender.leaf: contender for contender in contenders}
    ahead: dict[Line, float] = {}
    for line in turns.lines:
        contender = heads.get(line[0])
        if contender is not None:
            before = precedence(contender)
            ahead[line] = before if use is None else use.ahead(contender.entry, line[1], before)
    asked = {leaf: contender.taken for leaf, contender in heads.items()}
    turns.begin_cycle(ahead, asked, is_again=is_again)


class LocalQueueUse:
    """What LocalQueues have used of late, by which they are ordered; others have used nothing.

    Kueue settles it when a Workload is admitted, and at intervals.
    """

    def __init__(
        self,
        tree: UsageTree,
        rules: AdmissionFairSharing,
        consumed: Mapping[str, Mapping[str, float]],
        weigh: Callable[[Mapping[str, float], str], float],
        settled: Mapping[str, float] | None = None,
        cluster_queues: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with what LocalQueues (``namespace/name``) have *consumed*, by resource.

        *weigh* is how Kueue weighs it. *settled* is when, in seconds since the beginning; 0
        where nothing is said. *cluster_queues* are theirs, where newcomers are told apart.
        """
        self.cluster_queues = cluster_queues or {}
        self.amounts = {name: weigh(amounts, name) for name, amounts in consumed.items()}
        """LocalQueue to its use, as Kueue weighs it: the least is served first."""
        self.now = 0.0
        """In seconds since the beginning."""
        self._tree, self._rules, self._weigh = tree, rules, weigh
        self._consumed = dict(consumed)
        self._settled = {name: (settled or {}).get(name, 0.0) for name in consumed}
        self._held: dict[str, Counter[str]] = {name: Counter() for name in consumed}

    def of(self, entry: QueueEntry) -> float:
        return self.amounts.get(entry.waiting.local_queue, 0.0)

    def ahead(self, head: QueueEntry, local_queue: str, precedence: float) -> float:
        """Return up to which priority newcomers of a LocalQueue come behind a head.

        *precedence* is that of newcomers of the same use; *local_queue* "": use does not count.
        """
        used, own = self.of(head), self.amounts.get(local_queue, 0.0)
        if not local_queue or used == own:
            return precedence
        return inf if used < own else -inf

    def hold(self, name: str, taken: Taken, sign: int) -> None:
        """Note that Workloads of a LocalQueue get quota, or give it back."""
        if name in self._held:
            for resource, amount in self._requests(taken).items():
                self._held[name][resource] += sign * amount

    def admit(self, entry: QueueEntry, taken: Taken, count: int) -> None:
        """Note that one of its Workloads gets quota."""
        name, rules = entry.waiting.local_queue, self._rules
        if name not in self.amounts:
            return
        for _ in range(count):
            self.hold(name, taken, 1)
        charged = fair_sharing.entry_penalty(
            fair_sharing.in_whole_units(self._requests(taken)),
            sampling=rules.sampling_seconds,
            half_life=rules.half_life_seconds,
        )
        consumed = dict(self._decayed(name, self.now - self._settled[name]))
        for resource, amount in charged.items():
            consumed[resource] = consumed.get(resource, 0.0) + count * amount
        self._settle(name, consumed, self.now)

    def advance(self, now: float) -> None:
        """Let time pass, and settle what is due by then."""
        self.now = now
        interval = self._rules.sampling_seconds
        for name, at in self._settled.items():
            if interval > 0 and now - at >= interval:
                elapsed = (now - at) // interval * interval
                self._settle(name, self._decayed(name, elapsed), at + elapsed)

    def _decayed(self, name: str, elapsed: float) -> Mapping[str, float]:
        return fair_sharing.decayed(
            self._consumed[name],
            fair_sharing.in_whole_units(self._held[name]),
            elapsed=max(0.0, elapsed),
            half_life=self._rules.half_life_seconds,
        )

    def _settle(self, name: str, consumed: Mapping[str, float], at: float) -> None:
        self._consumed[name], self._settled[name] = consumed, at
        self.amounts[name] = self._weigh(consumed, name)

    def _requests(self, taken: Taken) -> Mapping[str, int]:
        requests: Counter[str] = Counter()
        for cell, amount in taken:
            requests[self._tree.cells[cell][1]] += amount
        return requests


def use_of(
    snapshot: Snapshot, tree: UsageTree, *, unix: float | None = None
) -> LocalQueueUse | None:
    """Return what LocalQueues have used; None: no ClusterQueue of the tree orders them by it.

    *unix* is when the schedule begins, in seconds since 1970; None: it is not known.
    """
    rules, queues = snapshot.kueue.admission_fair_sharing, snapshot.cluster_queues
    if rules is None or not any(queues[name].usage_based for name in tree.leaves):
        return None
    weightless_last = snapshot.kueue.release.weightless_last
    members = {
        f"{namespace}/{name}": (snapshot.consumed.get((namespace, name)), local_queue)
        for (namespace, name), local_queue in snapshot.local_queues.items()
        if local_queue.cluster_queue in tree.leaves
        and queues[local_queue.cluster_queue].usage_based
    }

    def weigh(amounts: Mapping[str, float], name: str) -> float:
        return fair_sharing.queue_usage(
            amounts,
            weight=members[name][1].fair_weight,
            resource_weights=rules.resource_weights,
            weightless_last=weightless_last,
        )

    return LocalQueueUse(
        tree,
        rules,
        {name: consumed.amounts if consumed else {} for name, (consumed, _) in members.items()},
        weigh,
        settled={
            name: min(0.0, consumed.updated - unix)
            for name, (consumed, _) in members.items()
            if unix is not None and consumed is not None and consumed.updated
        },
        cluster_queues={
            name: local_queue.cluster_queue for name, (_, local_queue) in members.items()
        },
    )


class FairRounds:
    """Serves the heads of one tree in rounds, for ``SchedulingCycle``."""

    def __init__(
        self,
        tree: UsageTree,
        claims: Claims,
        *,
        preemptions: CyclePreemptions | None,
        use: LocalQueueUse | None = None,
    ) -> None:
        self.kept: list[tuple[int, Taken]] = []
        """Quota set aside for heads after the last cycle: (node, amounts)."""
        self.line_turns: LineTurns | None = None
        """As in ``ExactCycles``."""
        self._is_alone = False
        """One ClusterQueue is left, whose search for flavors begins anew in this round."""
        self._searches = FlavorSearches()
        self._hopeful: set[int] = set()
        """The ids of the heads that may preempt as a moment begins."""
        self._tree, self._claims, self._preemptions = tree, claims, preemptions
        self._use = use
        self._asides: list[tuple[int, Taken]] = []
        """What is set aside in this round."""

    def run(
        self,
        of_leaf: Mapping[int, Sequence[ClusterQueueHeads]],
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
    ) -> None:
        """Run rounds until nothing more starts; *take* lets Workloads of a head start."""
        hopeful = [] if self._preemptions is None else self._preemptions.begin(of_leaf)
        self._hopeful = {id(heads) for heads in hopeful}
        pending = self._pending(of_leaf)
        has_moved = True
        self._searches.begin()
        if self.line_turns is not None:
            self.line_turns.begin()
        while pending and has_moved:
            self.kept = []
            has_moved = self._run_round(pending, take)
            # Each cycle begins with the usage as it is, and sets quota aside anew.
            for leaf, aside in self._asides:
                self._charge(leaf, aside, -1)
            self._asides.clear()
            pending = {leaf: heads for leaf, heads in pending.items() if heads}
            has_moved = self._searches.go_on(has_changed=has_moved)
        if self._preemptions is not None:
            self._preemptions.end()

    def _run_round(
        self,
        pending: dict[int, list[ClusterQueueHeads]],
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
    ) -> bool:
        """Serve the first head of each ClusterQueue; False: the next round would be as this one."""
        tree, turns, has_moved = self._tree, self.line_turns, False
        self._is_alone = len(pending) == 1 and not self._searches.is_any_open
        began = list(tree.used)
        contenders = [self._contender(heads) for heads in pending.values()]
        if turns is not None:
            # The first round in which its turn comes leaves a newcomer the most.
            precedence = attrgetter("priority")
            begin_turns(turns, contenders, precedence, self._use, is_again=False)
        by_shares, usage = self._claims.fair_sharing, tree.used.copy
        for contender in in_order(tree, contenders, by_shares=by_shares, turns=turns, usage=usage):
            has_moved |= self._serve(contender, pending, take, began=began)
            # Most often the first who starts takes all there is, and nobody preempts.
            may_end = self._preemptions is None and contender.fitting.fits
            if may_end and not self._has_room(pending):
                pending.clear()
                break
        if turns is not None:
            turns.end_cycle(usage)
        return has_moved

    def _pending(
        self, of_leaf: Mapping[int, Sequence[ClusterQueueHeads]]
    ) -> dict[int, list[ClusterQueueHeads]]:
        """Return the heads that may get quota in this cycle, by ClusterQueue."""
        room: dict[object, bool] = {}
        return {
            leaf: able
            for leaf, heads in of_leaf.items()
            if (able := [one for one in heads if self._may_start(one, room)])
        }

    def _has_room(self, pending: Mapping[int, Sequence[ClusterQueueHeads]]) -> bool:
        """Return whether any of these heads may still get quota."""
        room: dict[object, bool] = {}
        return any(self._may_start(one, room) for heads in pending.values() for one in heads)

    def _may_start(self, heads: ClusterQueueHeads, room: dict[object, bool]) -> bool:
        if not heads.entries:
            return False
        if heads.is_strict or id(heads) in self._hopeful:
            return True
        tree, shape = self._tree, heads.entries[0][2].shape
        if shape.only is not None and not tree.keeps:
            # Heads that need the same of the same cohort are passed over together.
            key = tree.parents[heads.leaf], shape.only
            if key not in room:
                room[key] = key[0] < 0 or tree.has(key[0], shape.only)
            if not room[key]:
                return False
        return queue_heads.has_room(tree, heads.leaf, shape)

    def _contender(self, of_queue: Iterable[ClusterQueueHeads]) -> Contender:
        first = min(of_queue, key=self._rank)
        behind = self._searches.resume(first)
        fitting = queue_heads.fitting(
            self._tree, first, self._claims, exact_height=True, after=behind
        )
        return Contender(heads=first, fitting=fitting)

    def _rank(self, heads: ClusterQueueHeads) -> tuple[float, bool, float, float]:
        priority, order, entry = heads.entries[0]
        # Use comes before preemptors and priority: ``queueOrderingFunc`` in ``cluster_queue.go``.
        by_use = self._use if heads.queue.usage_based else None
        is_closed = self._preemptions is not None and self._preemptions.is_closed(heads)
        return by_use.of(entry) if by_use else 0.0, is_closed, priority, order

    def _serve(
        self,
        contender: Contender,
        pending: Mapping[int, list[ClusterQueueHeads]],
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
        *,
        began: Sequence[int],
    ) -> bool:
        """Start a head, preempt for it or pass it over; False: its queue goes on as it was.

        One that is skipped goes on with its next flavor in the next round, as in Kueue.
        """
        heads, fitting, others = contender.heads, contender.fitting, pending[contender.leaf]
        if fitting.fits:
            if not self._tree.has(heads.leaf, fitting.taken):
                self._searches.keep_open(heads, fitting)
                return False
            self._start(heads, fitting, take)
            if not heads.entries:
                others.remove(heads)
            return True
        outcome = Outcome.WAITS
        if self._preemptions is not None:
            outcome = self._preemptions.attempt(heads, fitting, began=began)
        if outcome is Outcome.SKIPPED:
            self._searches.keep_open(heads, fitting)
            return False
        if outcome is Outcome.PREEMPTS:
            # A head that waits for its victims keeps its ClusterQueue's others out.
            others.clear()
            return True
        self._set_aside(heads, fitting)
        if heads.is_strict:
            # It is first in the next cycle, too.
            return False
        others.remove(heads)
        return True

    def _start(
        self,
        heads: ClusterQueueHeads,
        fitting: Assignment,
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
    ) -> None:
        entry, number = heads.entries[0][2], 1
        if self._is_alone and self._use is None:
            number = queue_heads.alike(self._tree, heads, fitting, keeps_height=False)
        self._charge(heads.leaf, fitting.taken, number)
        if self._preemptions is not None:
            self._preemptions.admitted(heads)
        if self._use is not None and heads.queue.usage_based:
            self._use.admit(entry, fitting.taken, number)
        take(heads, fitting, number)

    def _set_aside(self, heads: ClusterQueueHeads, fitting: Assignment) -> None:
        if self._tree.parents[heads.leaf] < 0 or not heads.is_strict:
            return
        aside = queue_heads.set_aside(self._tree, heads, fitting, self._claims)
        if aside:
            self._charge(heads.leaf, aside, 1)
            self._asides.append((heads.leaf, aside))
            self.kept.append((heads.leaf, aside))

    def _charge(self, leaf: int, taken: Taken, count: int) -> None:
        if self._preemptions is None:
            self._tree.charge(leaf, taken, count)
        else:
            self._preemptions.charge(leaf, taken, count)
