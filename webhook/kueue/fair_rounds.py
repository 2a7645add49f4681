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

from webhook.kueue import fair_sharing, queue_heads
from webhook.kueue.assignment import Assignment
from webhook.kueue.cycle_preemptions import CyclePreemptions, Outcome
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.queue_heads import Claims, ClusterQueueHeads, QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The head of a ClusterQueue in one round, with the flavors that it was assigned."""

    heads: ClusterQueueHeads
    fitting: Assignment

    @property
    def leaf(self) -> int:
        return self.heads.leaf

    @property
    def taken(self) -> Taken:
        return self.fitting.taken

    @property
    def priority(self) -> float:
        return -self.heads.entries[0][0]

    @property
    def queued_at(self) -> float:
        return self.heads.entries[0][1]


@dataclass(slots=True, kw_only=True)
class LocalQueueUse:
    """The recent usage of LocalQueues in ClusterQueues that order them by it; elsewhere it is 0."""

    amounts: dict[str, float]
    """LocalQueue (``namespace/name``) to its use, as Kueue weighs it: the least is served first."""
    penalty: Callable[[str, Taken], float]
    """What is added to a LocalQueue's use when one of its Workloads gets quota."""

    def of(self, entry: QueueEntry) -> float:
        return self.amounts.get(entry.waiting.local_queue, 0.0)

    def admit(self, entry: QueueEntry, taken: Taken, count: int) -> None:
        name = entry.waiting.local_queue
        if name in self.amounts:
            self.amounts[name] += count * self.penalty(name, taken)


def use_of(snapshot: Snapshot, tree: UsageTree) -> LocalQueueUse | None:
    """Return what LocalQueues have used; None: no ClusterQueue of the tree orders them by it."""
    rules, queues = snapshot.kueue.admission_fair_sharing, snapshot.cluster_queues
    if rules is None or not any(queues[name].usage_based for name in tree.leaves):
        return None
    weightless_last = snapshot.kueue.release.weightless_last
    members = {
        f"{namespace}/{name}": (snapshot.consumed.get((namespace, name)), local_queue.fair_weight)
        for (namespace, name), local_queue in snapshot.local_queues.items()
        if local_queue.cluster_queue in tree.leaves
    }

    def use(amounts: Mapping[str, float], name: str) -> float:
        weights, weight = rules.resource_weights, members[name][1]
        return fair_sharing.queue_usage(
            amounts, weight=weight, resource_weights=weights, weightless_last=weightless_last
        )

    def penalty(name: str, taken: Taken) -> float:
        requests: Counter[str] = Counter()
        for cell, amount in taken:
            requests[tree.cells[cell][1]] += amount
        charged = fair_sharing.entry_penalty(
            fair_sharing.in_whole_units(requests),
            sampling=rules.sampling_seconds,
            half_life=rules.half_life_seconds,
        )
        return use(charged, name)

    return LocalQueueUse(
        amounts={
            name: use(consumed.amounts if consumed else {}, name)
            for name, (consumed, _) in members.items()
        },
        penalty=penalty,
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
        self._tree, self._claims, self._preemptions = tree, claims, preemptions
        self._use = use

    def run(
        self,
        of_leaf: Mapping[int, Sequence[ClusterQueueHeads]],
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
    ) -> None:
        """Run rounds until nothing more starts; *take* lets Workloads of a head start."""
        hopeful = [] if self._preemptions is None else self._preemptions.begin(of_leaf)
        pending = self._pending(of_leaf, {id(heads) for heads in hopeful})
        self.kept = []
        while pending:
            contenders = [self._contender(heads) for heads in pending.values() if heads]
            served = [
                self._serve(contender, pending, take, is_alone=len(contenders) == 1)
                for contender in self._in_order(contenders)
            ]
            pending = {leaf: heads for leaf, heads in pending.items() if heads}
            if not any(served):
                break
        for leaf, aside in self.kept:
            self._charge(leaf, aside, -1)
        if self._preemptions is not None:
            self._preemptions.end()

    def _pending(
        self, of_leaf: Mapping[int, Sequence[ClusterQueueHeads]], hopeful: set[int]
    ) -> dict[int, list[ClusterQueueHeads]]:
        """Return the heads that may get quota in this cycle, by ClusterQueue."""
        room: dict[object, bool] = {}
        return {
            leaf: able
            for leaf, heads in of_leaf.items()
            if (able := [one for one in heads if self._may_start(one, hopeful, room)])
        }

    def _may_start(
        self, heads: ClusterQueueHeads, hopeful: set[int], room: dict[object, bool]
    ) -> bool:
        if not heads.entries:
            return False
        if heads.is_strict or id(heads) in hopeful:
            return True
        tree, shape = self._tree, heads.entries[0][2].shape
        if shape.only is not None and not tree.keeps:
            # Heads that need the same of the same cohort are passed over together.
            key = tree.parents[heads.leaf], shape.only
            if key not in room:
                room[key] = key[0] < 0 or queue_heads.has(tree, key[0], shape.only)
            if not room[key]:
                return False
        return queue_heads.has_room(tree, heads.leaf, shape)

    def _contender(self, of_queue: Iterable[ClusterQueueHeads]) -> Contender:
        first = min(of_queue, key=self._rank)
        fitting = queue_heads.fitting(self._tree, first, self._claims, exact_height=True)
        return Contender(heads=first, fitting=fitting)

    def _rank(self, heads: ClusterQueueHeads) -> tuple[bool, float, float, float]:
        priority, order, entry = heads.entries[0]
        # Use comes before priority: ``queueOrderingFunc`` in Kueue's ``cluster_queue.go``.
        by_use = self._use if heads.queue.usage_based else None
        is_closed = self._preemptions is not None and self._preemptions.is_closed(heads)
        return is_closed, by_use.of(entry) if by_use else 0.0, priority, order

    def _in_order(self, contenders: Sequence[Contender]) -> Iterator[Contender]:
        if not self._claims.fair_sharing:
            yield from sorted(
                contenders, key=lambda one: (one.fitting.height, -one.priority, one.queued_at)
            )
            return
        tournament = Tournament(self._tree, contenders)
        while (winner := tournament.pop()) is not None:
            yield winner

    def _serve(
        self,
        contender: Contender,
        pending: Mapping[int, list[ClusterQueueHeads]],
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
        *,
        is_alone: bool,
    ) -> bool:
        """Start a head, preempt for it or pass it over; False: it is to be tried again as it is."""
        heads, fitting, others = contender.heads, contender.fitting, pending[contender.leaf]
        if fitting.fits:
            if not queue_heads.has(self._tree, heads.leaf, fitting.taken):
                return False
            self._start(heads, fitting, take, is_alone=is_alone)
            if not heads.entries:
                others.remove(heads)
            return True
        outcome = Outcome.WAITS
        if self._preemptions is not None:
            outcome = self._preemptions.attempt(heads, fitting)
        if outcome is Outcome.SKIPPED:
            return False
        if outcome is Outcome.WAITS:
            self._set_aside(heads, fitting)
        # A head that waits for its victims keeps its ClusterQueue's others out, as one does that
        # is first in a StrictFIFO queue.
        if outcome is Outcome.PREEMPTS or heads.is_strict:
            others.clear()
        else:
            others.remove(heads)
        return True

    def _start(
        self,
        heads: ClusterQueueHeads,
        fitting: Assignment,
        take: Callable[[ClusterQueueHeads, Assignment, int], None],
        *,
        is_alone: bool,
    ) -> None:
        entry, number = heads.entries[0][2], 1
        if is_alone and self._use is None:
            number = queue_heads.alike(self._tree, heads, fitting, keeps_height=False)
        self._charge(heads.leaf, fitting.taken, number)
        if self._preemptions is not None:
            self._preemptions.admitted(heads)
        if self._use is not None and heads.queue.usage_based:
            self._use.admit(entry, fitting.taken, number)
        take(heads, fitting, number)

    def _set_aside(self, heads: ClusterQueueHeads, fitting: Assignment) -> None:
        if not heads.is_strict or self._tree.parents[heads.leaf] < 0:
            return
        aside = queue_heads.set_aside(self._tree, heads, fitting, self._claims)
        if aside:
            self._charge(heads.leaf, aside, 1)
            self.kept.append((heads.leaf, aside))

    def _charge(self, leaf: int, taken: Taken, count: int) -> None:
        if self._preemptions is None:
            self._tree.charge(leaf, taken, count)
        else:
            self._preemptions.charge(leaf, taken, count)
