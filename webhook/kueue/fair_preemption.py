"""Whom Kueue preempts with fair sharing: from the ClusterQueue that borrows most, by its share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from webhook.kueue.fair_sharing import Share, share
from webhook.kueue.preemption import PreemptionReason, Preemptor, QuotaHolder, Victim
from webhook.kueue.preemption_candidates import (
    CandidateGroup,
    CandidateHolders,
    CandidateOrder,
    grouped,
    order_of,
)
from webhook.kueue.preemption_search import PreemptionSearch, by_usage
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import LESS_THAN_INITIAL_SHARE

_Queues: TypeAlias = Mapping[int, Iterable[QuotaHolder]]
"""By leaf."""
_Rank: TypeAlias = tuple[bool, float]
"""As ``Share.rank``."""


class FairSearches:
    """The searches for victims by share at one usage of the tree.

    Kueue asks for a head twice: to assign its flavors, and whom to preempt then.
    """

    def __init__(self, tree: UsageTree, candidates: CandidateHolders) -> None:
        self._tree, self._candidates = tree, candidates
        self._used, self._version = tree.used[:], candidates.version
        self._shares: dict[int, Share] = {}
        """Those that were asked for."""
        self._found: dict[tuple[Preemptor, frozenset[int]], tuple[Victim, ...]] = {}

    def is_current(self) -> bool:
        """Return whether the usage and the holders are still the same."""
        return self._version == self._candidates.version and self._used == self._tree.used

    def victims(self, search: PreemptionSearch, strategies: Sequence[str]) -> tuple[Victim, ...]:
        """Return whom to preempt; none: preempting does not help."""
        # What LocalQueues have used changes from one moment to the next.
        if search.candidates.queue_usages:
            return _victims(search, strategies, self._shares)
        asked = search.preemptor, search.short
        if asked not in self._found:
            self._found[asked] = _victims(search, strategies, self._shares)
        return self._found[asked]


def _victims(
    search: PreemptionSearch, strategies: Sequence[str], shares: dict[int, Share]
) -> tuple[Victim, ...]:
    # ``fairPreemptions``; shares are compared as if the preemptor had its quota:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L534
    tree, preemptor = search.tree, search.preemptor
    candidates = _by_queue(search)
    tree.charge(preemptor.leaf, preemptor.taken)
    charged = _SharesNow(tree, preemptor.leaf, shares)
    order = _TargetOrder(search, candidates, charged)
    victims, spared = _by_first_strategy(search, order, strategies[0])
    fits = search.fits_when_charged()
    if not fits and len(strategies) > 1:
        victims += _by_initial_share(search, _TargetOrder(search, spared, charged))
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
            failing, passing = _first_passing(search, order, leaf, strategy)
            for other, holders in failing.items():
                spared[other] = chain(spared.get(other, ()), holders)
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
) -> tuple[_Queues, QuotaHolder | None]:
    """Return a ClusterQueue's first candidate that passes the strategy, and those that fail."""
    own_node, node = order.below_common_cohort(leaf)
    own_rank, rank = order.rank(own_node), order.rank(node)
    if strategy == LESS_THAN_INITIAL_SHARE and own_rank < rank:
        return {}, order.pop(leaf)
    if own_rank > rank:
        failing = order.drain_around(node)
        # The share of a ClusterQueue from which nothing is to be had stays as it is, so they do not
        # pass another strategy either.
        return ({} if own_node == search.preemptor.leaf else failing), None
    if strategy == LESS_THAN_INITIAL_SHARE:
        # A share never grows when usage is released, so no candidate passes.
        return {leaf: order.drain(leaf)}, None
    before: list[QuotaHolder] = []
    failed: set[Taken] = set()
    while order.has(leaf):
        holder = order.pop(leaf)
        if holder.taken not in failed and own_rank <= search.share_without(holder, node).rank:
            return {leaf: before}, holder
        failed.add(holder.taken)
        before.append(holder)
    return {leaf: before}, None


def _by_initial_share(search: PreemptionSearch, order: _TargetOrder) -> list[Victim]:
    """Return the victims of the second strategy, at most one of each ClusterQueue."""
    # ``runSecondFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L499
    victims: list[Victim] = []
    while (leaf := order.next()) is not None:
        own_node, node = order.below_common_cohort(leaf)
        own_rank, rank = order.rank(own_node), order.rank(node)
        if own_rank > rank:
            order.drain_around(node)
            continue
        holder = order.pop(leaf)
        order.drop(leaf)
        if own_rank == rank:
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

    def __init__(self, search: PreemptionSearch, candidates: _Queues, shares: _SharesNow) -> None:
        self._search, self._shares = search, shares
        self._children = search.candidates.children
        self._rest: dict[int, Iterator[QuotaHolder]] = {
            leaf: iter(holders) for leaf, holders in candidates.items()
        }
        self._first: dict[int, QuotaHolder | None] = {}
        """The first candidate of each ClusterQueue that was asked for it; None: none is left."""
        self._ranked: dict[int, dict[int, _Rank]] = {}
        """Cohort to the ranks of those in it from which something may be had, once it is asked."""
        self._below: dict[int, tuple[int, int]] = {}
        """What ``below_common_cohort`` has returned."""

    def next(self) -> int | None:
        """Return the ClusterQueue whose turn it is; None: there is none left."""
        root = self._search.path[-1]
        if len(self._search.path) == 1:
            return root if self.has(root) else None
        while self._takers(root):
            leaf = self._descend(root)
            if leaf is not None:
                return leaf
        return None

    def has(self, leaf: int) -> bool:
        return self._first_of(leaf) is not None

    def pop(self, leaf: int) -> QuotaHolder:
        first = self._first_of(leaf)
        if first is None:
            raise KeyError(leaf)
        del self._first[leaf]
        return first

    def drain(self, leaf: int) -> Iterable[QuotaHolder]:
        """Take nothing more from a ClusterQueue, and return the candidates that it has left."""
        first, rest = self._first_of(leaf), self._rest[leaf]
        self.drop(leaf)
        return rest if first is None else chain([first], rest)

    def drop(self, leaf: int) -> None:
        """Take nothing more from a ClusterQueue."""
        self._first[leaf] = None
        self._prune(leaf)

    def drain_around(self, node: int) -> _Queues:
        """Take nothing more from all that share a cohort with a node and the preemptor's part.

        The share of the preemptor's part is above that of the node, whose turn it is. Return the
        candidates that they have left.
        """
        # So it is above that of all others there, whose turns come later, and stays so: shares do
        # not grow when usage is released, and nothing is to be had from the preemptor's part any
        # more, or it would come first.
        takers = self._ranked[self._search.tree.parents[node]]
        below = chain.from_iterable(map(self._search.candidates.leaves_below, takers))
        left: dict[int, Iterable[QuotaHolder]] = {
            leaf: self._rest[leaf] for leaf in below if leaf in self._rest
        }
        for leaf in left.keys() & self._first.keys():
            left[leaf] = self.drain(leaf)
        takers.clear()
        return left

    def release(self, holder: QuotaHolder) -> None:
        """Take a victim's usage out of the tree."""
        self._search.release(holder)
        parents = self._search.tree.parents
        for node in self._shares.forget(holder.leaf):
            takers = self._ranked.get(parents[node], {})
            if node not in takers:
                continue
            if self._may_take(node):
                takers[node] = self.rank(node)
            else:
                del takers[node]

    def rank(self, node: int) -> _Rank:
        return self._shares.of(node).rank

    def below_common_cohort(self, leaf: int) -> tuple[int, int]:
        """Return the nodes just below the lowest cohort that both share: preemptor's, target's."""
        if leaf not in self._below:
            self._below[leaf] = self._find_below(leaf)
        return self._below[leaf]

    def _find_below(self, leaf: int) -> tuple[int, int]:
        # ``getAlmostLCAs``
        tree, path = self._search.tree, self._search.path
        below = leaf
        for node in tree.path(tree.parents[leaf]):
            if node in path:
                return path[path.index(node) - 1], below
            below = node
        raise ValueError(leaf)

    def _first_of(self, leaf: int) -> QuotaHolder | None:
        if leaf not in self._first:
            self._first[leaf] = next(self._rest.get(leaf, iter(())), None)
        return self._first[leaf]

    def _prune(self, node: int) -> None:
        """Have nothing more to take from a node."""
        self._ranked.get(self._search.tree.parents[node], {}).pop(node, None)

    def _takers(self, cohort: int) -> Mapping[int, _Rank]:
        """Return the ranks of those in a cohort from which something may be had."""
        # Usage only shrinks and candidates only get fewer, so who is left out stays out.
        if cohort not in self._ranked:
            self._ranked[cohort] = {
                node: self.rank(node) for node in self._children[cohort] if self._may_take(node)
            }
        return self._ranked[cohort]

    def _descend(self, cohort: int) -> int | None:
        """Return the ClusterQueue to take from in a cohort; None: nodes were pruned instead."""
        takers = self._takers(cohort)
        if not takers:
            self._prune(cohort)
            return None
        highest = max(takers.values())
        best = [node for node, rank in takers.items() if rank == highest]
        # With equal shares, cohorts go before ClusterQueues.
        cohorts = [node for node in best if self._search.tree.heights[node]]
        if cohorts:
            return self._descend(cohorts[-1])
        for leaf in [leaf for leaf in best if not self.has(leaf)]:
            self._prune(leaf)
            best.remove(leaf)
        return min(best, key=self._first_order, default=None)

    def _may_take(self, node: int) -> bool:
        is_cohort = self._search.tree.heights[node] > 0
        if not is_cohort and node not in self._rest:
            return False
        return node in self._search.path or bool(self._shares.of(node).borrowed)

    def _first_order(self, leaf: int) -> tuple[bool, bool, CandidateOrder]:
        # Of ClusterQueues with equal shares, the one whose first candidate goes first.
        first = self._first_of(leaf)
        if first is None:
            raise KeyError(leaf)
        order = order_of(first)
        return order[0], leaf == self._search.path[0], order


class _SharesNow:
    """The shares in a tree while a preemptor's quota is charged and that of victims released."""

    def __init__(self, tree: UsageTree, preemptor: int, before: dict[int, Share]) -> None:
        """*before*: shares without either, of those whose share was asked; more are added."""
        self._tree, self._before = tree, before
        self._changed: dict[int, Share | None] = dict.fromkeys(tree.path(preemptor))
        """The shares of nodes whose usage is another one than before; None: it is to be found."""

    def of(self, node: int) -> Share:
        if node not in self._changed:
            if node not in self._before:
                self._before[node] = share(self._tree, node)
            return self._before[node]
        known = self._changed[node]
        if known is None:
            known = self._changed[node] = share(self._tree, node)
        return known

    def forget(self, leaf: int) -> Sequence[int]:
        """Return the nodes whose usage has changed with that of a ClusterQueue."""
        path = tuple(self._tree.path(leaf))
        self._changed |= dict.fromkeys(path)
        return path
