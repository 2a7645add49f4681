"""Choose the Workloads that Kueue would preempt to make room for another one.

Mirrors Kueue's preemptor, classical (with hierarchical cohorts) and with fair sharing, and its
oracle for the flavor assigner, on a ``UsageTree``. Topologies are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter

from webhook.kueue.classical_preemption import classical_victims
from webhook.kueue.fair_preemption import fair_victims
from webhook.kueue.preemption import PreemptionSearch, Preemptor, QuotaHolder, Victim
from webhook.kueue.quota import UsageTree
from webhook.model.queues import DEFAULT_STRATEGIES, Preemption

_order = attrgetter("order")


class Possibility(IntEnum):
    """What preempting can do for one cell (``PreemptionPossibility``), from worst to best."""

    NO_CANDIDATES = 0
    PREEMPT = 1
    RECLAIM = 2
    """All targets are in other ClusterQueues."""


class Preemptions:
    """Who holds quota in one tree, and whom of them a Workload would preempt.

    The tree's usage already includes the holders'. Each call leaves the tree as it was.
    """

    def __init__(
        self,
        tree: UsageTree,
        policies: Mapping[int, Preemption],
        holders: Iterable[QuotaHolder] = (),
        *,
        strategies: Sequence[str] | None = None,
        queue_usages: Mapping[str, float] | None = None,
    ) -> None:
        """Index the holders.

        *policies*: of each leaf. *strategies*: fair sharing's, in Kueue's words (none named: its
        default two); None: fair sharing is off. *queue_usages*: of the LocalQueues that admission
        fair sharing orders by usage.
        """
        self._tree = tree
        self._policies = policies
        self._strategies = strategies
        self._queue_usages = queue_usages or {}
        self._drawn: Collection[str] = ()
        self._holders: dict[int, list[QuotaHolder]] = {}
        """By leaf, in the order in which they go."""
        for holder in holders:
            self.add(holder)

    def add(self, holder: QuotaHolder) -> None:
        """Note that a Workload holds quota; the caller charges the tree."""
        insort(self._holders.setdefault(holder.leaf, []), holder, key=_order)

    def remove(self, holder: QuotaHolder) -> None:
        held = self._holders[holder.leaf]
        del held[bisect_left(held, holder.order, key=_order)]
        if not held:
            del self._holders[holder.leaf]

    def order_by_use(self, usages: Mapping[str, float]) -> None:
        """Go by these usages of LocalQueues from now on; they may change later."""
        self._queue_usages = usages

    def draw(self, uids: Collection[str]) -> None:
        """Let these go first from now on where Kueue's order does not say who does."""
        self._drawn = uids

    def targets(self, preemptor: Preemptor, short: Collection[int]) -> tuple[Victim, ...]:
        """Return whom to preempt; none: preempting does not help.

        *short*: the cells of which quota is short.
        """
        search = PreemptionSearch(
            tree=self._tree,
            holders=self._holders,
            preemptor=preemptor,
            short=frozenset(short),
            policy=self._policies[preemptor.leaf],
            path=tuple(self._tree.path(preemptor.leaf)),
            queue_usages=self._queue_usages,
            drawn=self._drawn,
        )
        if self._strategies is None:
            return classical_victims(search)
        return fair_victims(search, tuple(self._strategies) or DEFAULT_STRATEGIES)

    def possibility(self, preemptor: Preemptor, cell: int, amount: int) -> tuple[Possibility, int]:
        """Return what preempting can do for one cell, and the borrowing height after it."""
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption_oracle.go#L43
        tree, leaf = self._tree, preemptor.leaf
        wanted = Preemptor(
            leaf=leaf,
            taken=((cell, amount),),
            priority=preemptor.priority,
            queued_at=preemptor.queued_at,
        )
        victims = self.targets(wanted, (cell,))
        for victim in victims:
            tree.charge(victim.holder.leaf, victim.holder.taken, -1)
        height, _ = tree.height(leaf, cell, amount)
        for victim in victims:
            tree.charge(victim.holder.leaf, victim.holder.taken)
        if not victims:
            return Possibility.NO_CANDIDATES, height
        if any(victim.holder.leaf == leaf for victim in victims):
            return Possibility.PREEMPT, height
        return Possibility.RECLAIM, height
