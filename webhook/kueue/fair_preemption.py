"""Whom Kueue preempts with fair sharing: from the ClusterQueue that borrows most, by its share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from webhook.kueue.fair_sharing import Share, share
from webhook.kueue.preemption import PreemptionReason, QuotaHolder, Victim
from webhook.kueue.preemption_candidates import CandidateGroup, CandidateOrder, grouped, order_of
from webhook.kueue.preemption_search import PreemptionSearch, by_usage
from webhook.kueue.quota import Taken
from webhook.model.queues import LESS_THAN_INITIAL_SHARE

_Queues: TypeAlias = Mapping[int, Iterable[QuotaHolder]]
"""By leaf."""


def fair_victims(search: PreemptionSearch, strategies: Sequence[str]) -> tuple[Victim, ...]:
    """Return whom to preempt; none: preempting does not help."""
    # ``fairPreemptions``; shares are compared as if the preemptor had its quota:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L534
    tree, preemptor = search.tree, search.preemptor
    candidates = _by_queue(search)
    tree.charge(preemptor.leaf, preemptor.taken)
    victims, spared = _by_first_strategy(search, _TargetOrder(search, candidates), strategies[0])
    fits = search.fits_when_charged()
    if not fits and len(strategies) > 1:
        victims += _by_initial_share(search, _TargetOrder(search, spared))
        fits = search.fits_when_charged()
    tree.charge(preemptor.leaf, preemptor.taken, -1)
    if not fits:
        search.restore(victims)
        return ()
    return search.minimized(victims, borrowing=True)


def _by_queue(search: PreemptionSearch) -> _Queues:
    # ``findCandidates``
    queues = {search.preemptor.leaf: search.own()}
    if search.reclaims():
        queues |= {leaf: search.others(leaf) for leaf in search.others_over()}
    if not search.candidates.queue_usages:
        return {leaf: (holder for _, holder in held) for leaf, held in queues.items()}
    groups = {leaf: tuple(grouped(held, _group(search, leaf))) for leaf, held in queues.items()}
    return {
        leaf: [
            candidate.holder
            for candidate in by_usage(
                search,
                group,
                beside=chain.from_iterable(groups[other] for other in groups if other != leaf),
            )
        ]
        for leaf, group in groups.items()
    }


def _group(search: PreemptionSearch, leaf: int) -> CandidateGroup:
    is_own = leaf == search.preemptor.leaf
    return CandidateGroup.SAME_QUEUE if is_own else CandidateGroup.BY_PRIORITY


def _by_first_strategy(
    search: PreemptionSearch, order: _TargetOrder, strategy: str
) -> tuple[list[Victim], _Queues]:
    """Return the victims, and the candidates that the strategy spares."""
    # ``runFirstFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L382
    own = search.preemptor.leaf
    compares_shares = search.is_over(own)
    victims: list[Victim] = []
    spared: dict[int, Iterable[QuotaHolder]] = {}
    while (leaf := order.next()) is not None:
        if leaf == own:
            reason = PreemptionReason.IN_CLUSTER_QUEUE
            holder = order.pop(leaf)
        elif not compares_shares:
            reason = PreemptionReason.IN_COHORT_RECLAMATION
            holder = order.pop(leaf)
        else:
            reason = PreemptionReason.IN_COHORT_FAIR_SHARING
            before, passing = _first_passing(search, order, leaf, strategy)
            spared[leaf] = chain(spared.get(leaf, ()), before)
            if passing is None:
                continue
            holder = passing
        order.release(holder)
        victims.append(Victim(holder=holder, reason=reason))
        if search.fits_when_charged():
            break
    return victims, spared


def _first_passing(
    search: PreemptionSearch, order: _TargetOrder, leaf: int, strategy: str
) -> tuple[Iterable[QuotaHolder], QuotaHolder | None]:
    """Return a ClusterQueue's first candidate that passes the strategy, and those before it."""
    own_node, node = order.below_common_cohort(leaf)
    own_rank, rank = order.rank(own_node), order.rank(node)
    if strategy == LESS_THAN_INITIAL_SHARE and own_rank < rank:
        return (), order.pop(leaf)
    if strategy == LESS_THAN_INITIAL_SHARE or own_rank > rank:
        # A share never grows when usage is released, so no candidate passes either strategy.
        return order.drain(leaf), None
    before: list[QuotaHolder] = []
    failed: set[Taken] = set()
    while order.has(leaf):
        holder = order.pop(leaf)
        if holder.taken not in failed and own_rank <= search.share_without(holder, node).rank:
            return before, holder
        failed.add(holder.taken)
        before.append(holder)
    return before, None


def _by_initial_share(search: PreemptionSearch, order: _TargetOrder) -> list[Victim]:
    """Return the victims of the second strategy, at most one of each ClusterQueue."""
    # ``runSecondFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L499
    victims: list[Victim] = []
    while (leaf := order.next()) is not None:
        own_node, node = order.below_common_cohort(leaf)
        holder = order.pop(leaf)
        order.drop(leaf)
        if order.rank(own_node) >= order.rank(node):
            continue
        order.release(holder)
        victims.append(Victim(holder=holder, reason=PreemptionReason.IN_COHORT_FAIR_SHARING))
        if search.fits_when_charged():
            break
    return victims


class _TargetOrder:
    """The ClusterQueues from which fair sharing preempts, the one that borrows most first.

    After each answer of ``next``, a candidate is popped or the ClusterQueue dropped.
    """

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/fairsharing/ordering.go

    def __init__(self, search: PreemptionSearch, candidates: _Queues) -> None:
        self._search = search
        self._children = search.candidates.children
        self._rest = {leaf: iter(holders) for leaf, holders in candidates.items()}
        self._first: dict[int, QuotaHolder] = {}
        self._shares: dict[int, Share] = {}
        self._pruned: set[int] = set()
        """Nodes from which nothing more is to be had."""
        for leaf in self._rest:
            self._advance(leaf)

    def next(self) -> int | None:
        """Return the ClusterQueue whose turn it is; None: there is none left."""
        root = self._search.path[-1]
        if len(self._search.path) == 1:
            return root if self.has(root) and root not in self._pruned else None
        while root not in self._pruned:
            leaf = self._descend(root)
            if leaf is not None:
                return leaf
        return None

    def has(self, leaf: int) -> bool:
        return leaf in self._first

    def pop(self, leaf: int) -> QuotaHolder:
        first = self._first[leaf]
        self._advance(leaf)
        return first

    def drain(self, leaf: int) -> Iterable[QuotaHolder]:
        return chain([self._first.pop(leaf)], self._rest[leaf])

    def drop(self, leaf: int) -> None:
        self._pruned.add(leaf)

    def release(self, holder: QuotaHolder) -> None:
        """Take a victim's usage out of the tree."""
        self._search.release(holder)
        for node in self._search.tree.path(holder.leaf):
            self._shares.pop(node, None)

    def rank(self, node: int) -> tuple[bool, float]:
        return self._share(node).rank

    def below_common_cohort(self, leaf: int) -> tuple[int, int]:
        """Return the nodes just below the lowest cohort that both share: preemptor's, target's."""
        # ``getAlmostLCAs``
        tree, path = self._search.tree, self._search.path
        below = leaf
        for node in tree.path(tree.parents[leaf]):
            if node in path:
                return path[path.index(node) - 1], below
            below = node
        raise ValueError(leaf)

    def _advance(self, leaf: int) -> None:
        first = next(self._rest[leaf], None)
        if first is not None:
            self._first[leaf] = first
        else:
            self._first.pop(leaf, None)

    def _share(self, node: int) -> Share:
        if node not in self._shares:
            self._shares[node] = share(self._search.tree, node)
        return self._shares[node]

    def _descend(self, cohort: int) -> int | None:
        """Return the ClusterQueue to take from in a cohort; None: nodes were pruned instead."""
        for node in self._children[cohort]:
            if node not in self._pruned and not self._may_take(node):
                self._pruned.add(node)
        ranked = [
            (self.rank(node), node) for node in self._children[cohort] if node not in self._pruned
        ]
        if not ranked:
            self._pruned.add(cohort)
            return None
        highest = max(rank for rank, _ in ranked)
        best = [node for rank, node in ranked if rank == highest]
        # With equal shares, cohorts go before ClusterQueues.
        cohorts = [node for node in best if self._search.tree.heights[node]]
        if cohorts:
            return self._descend(cohorts[-1])
        return min(best, key=self._first_order)

    def _may_take(self, node: int) -> bool:
        is_cohort = self._search.tree.heights[node] > 0
        if not is_cohort and not self.has(node):
            return False
        return node in self._search.path or bool(self._share(node).borrowed)

    def _first_order(self, leaf: int) -> tuple[bool, bool, CandidateOrder]:
        # Of ClusterQueues with equal shares, the one whose first candidate goes first.
        order = order_of(self._first[leaf])
        return order[0], leaf == self._search.path[0], order
