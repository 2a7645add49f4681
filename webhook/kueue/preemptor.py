"""Choose the Workloads that Kueue would preempt to make room for another one.

Mirrors Kueue's preemptor, classical (with hierarchical cohorts) and with fair sharing, and its
oracle for the flavor assigner, on a ``UsageTree``. Topologies are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from webhook.kueue.classical_preemption import classical_victims
from webhook.kueue.fair_preemption import FairSearches
from webhook.kueue.preemption import Preemptor, QuotaHolder, Victim
from webhook.kueue.preemption_candidates import CandidateHolders, ReclaimCandidates
from webhook.kueue.preemption_search import PreemptionSearch
from webhook.kueue.quota import UsageTree
from webhook.model.queues import DEFAULT_STRATEGIES, Preemption

_USAGES_KEPT = 2
"""In a cycle it is asked at the usage with which it began, and at what its preemptions leave."""
_SearchesT = TypeVar("_SearchesT", ReclaimCandidates, FairSearches)


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
        self._candidates = CandidateHolders(tree, queue_usages or {})
        self._reclaim = deque[ReclaimCandidates](maxlen=_USAGES_KEPT)
        self._fair = deque[FairSearches](maxlen=_USAGES_KEPT)
        for holder in holders:
            self.add(holder)

    def add(self, holder: QuotaHolder) -> None:
        """Note that a Workload holds quota; the caller charges the tree."""
        self._candidates.add(holder)

    def remove(self, holder: QuotaHolder) -> None:
        self._candidates.remove(holder)

    def is_evicting(self, leaf: int) -> bool:
        """Return whether some Workload of a ClusterQueue is evicted, and holds its quota still."""
        return self._candidates.is_evicting(leaf)

    def order_by_use(self, usages: Mapping[str, float]) -> None:
        """Go by these usages of LocalQueues from now on; they may change later."""
        self._candidates.queue_usages = usages

    def draw(self, uids: Collection[str]) -> None:
        """Let these go first from now on where Kueue's order does not say who does."""
        self._candidates.drawn = uids
        self._fair.clear()

    def targets(self, preemptor: Preemptor, short: Collection[int]) -> tuple[Victim, ...]:
        """Return whom to preempt; none: preempting does not help.

        *short*: the cells of which quota is short.
        """
        policy = self._policies[preemptor.leaf]
        if not self._candidates.may_have(preemptor, policy):
            return ()
        search = PreemptionSearch(
            tree=self._tree,
            candidates=self._candidates,
            preemptor=preemptor,
            short=frozenset(short),
            policy=policy,
            path=tuple(self._tree.path(preemptor.leaf)),
        )
        if self._strategies is None:
            return classical_victims(search, self._now(self._reclaim, ReclaimCandidates))
        return self._now(self._fair, FairSearches).victims(
            search, tuple(self._strategies) or DEFAULT_STRATEGIES
        )

    def _now(self, known: deque[_SearchesT], make: type[_SearchesT]) -> _SearchesT:
        """Return the searches at the usage as it is, of those that are known or new ones."""
        for searches in known:
            if searches.is_current():
                return searches
        new = make(self._tree, self._candidates)
        known.appendleft(new)
        return new

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
