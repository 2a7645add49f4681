"""Whom Kueue preempts with fair sharing: from the ClusterQueue that borrows most, by its share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeAlias

from webhook.kueue.fair_sharing import share
from webhook.kueue.preemption import (
    Candidate,
    CandidateGroup,
    PreemptionReason,
    PreemptionSearch,
    Victim,
)
from webhook.model.queues import LESS_THAN_INITIAL_SHARE

_Queues: TypeAlias = Mapping[int, Iterable[Candidate]]
"""By leaf, each in the order in which they go."""
_Rank: TypeAlias = tuple[bool, float]
"""As ``Share.rank``."""


def fair_victims(search: PreemptionSearch, strategies: Sequence[str]) -> tuple[Victim, ...]:
    """Return whom to preempt; none: preempting does not help."""
    # ``fairPreemptions``; shares are compared as if the preemptor had its quota:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L534
    tree, preemptor = search.tree, search.preemptor
    candidates = _by_queue(search)
    tree.charge(preemptor.leaf, preemptor.taken)
    victims, spared = _by_first_strategy(search, candidates, strategies[0])
    if len(strategies) > 1 and not _fits(search):
        victims += _by_initial_share(search, spared)
    fits = _fits(search)
    tree.charge(preemptor.leaf, preemptor.taken, -1)
    if not fits:
        search.restore(victims)
        return ()
    return search.minimized(victims, borrowing=True)


def _fits(search: PreemptionSearch) -> bool:
    """Return whether it fits, where the preemptor's own usage is in the tree already."""
    # ``workloadFitsForFairSharing``
    preemptor = search.preemptor
    search.tree.charge(preemptor.leaf, preemptor.taken, -1)
    fits = search.fits(borrowing=True)
    search.tree.charge(preemptor.leaf, preemptor.taken)
    return fits


def _by_queue(search: PreemptionSearch) -> _Queues:
    # ``findCandidates``
    own = search.preemptor.leaf
    queues: dict[int, Iterable[Candidate]] = {
        leaf: search.candidates(leaf, CandidateGroup.BY_PRIORITY) for leaf in search.reclaimed()
    }
    queues[own] = search.candidates(own, CandidateGroup.SAME_QUEUE)
    if not search.queue_usages:
        return queues
    ordered: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in search.in_order(queues.values()):
        ordered[candidate.holder.leaf].append(candidate)
    return ordered


def _by_first_strategy(
    search: PreemptionSearch, candidates: _Queues, strategy: str
) -> tuple[list[Victim], _Queues]:
    """Return the victims, and the candidates that the strategy spares."""
    # ``runFirstFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L382
    own = search.preemptor.leaf
    compares_shares = search.is_over(own)
    order = _TargetOrder(search, candidates)
    victims: list[Victim] = []
    spared: dict[int, Iterable[Candidate]] = {}
    passing: Candidate | None
    while (leaf := order.next()) is not None:
        if leaf == own:
            reason, passing = PreemptionReason.IN_CLUSTER_QUEUE, order.pop(leaf)
        elif not compares_shares:
            reason, passing = PreemptionReason.IN_COHORT_RECLAMATION, order.pop(leaf)
        else:
            reason = PreemptionReason.IN_COHORT_FAIR_SHARING
            failing, passing = _first_passing(order, leaf, strategy)
            spared[leaf] = chain(spared.get(leaf, ()), failing)
        if passing is None:
            continue
        order.release(passing)
        victims.append(Victim(holder=passing.holder, reason=reason))
        if _fits(search):
            break
    return victims, spared


def _first_passing(
    order: _TargetOrder, leaf: int, strategy: str
) -> tuple[Iterable[Candidate], Candidate | None]:
    """Return a ClusterQueue's first candidate that passes the strategy, and those that fail."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/fairsharing/strategy.go
    own_rank, rank = order.ranks(leaf)
    by_initial = strategy == LESS_THAN_INITIAL_SHARE
    # A share never grows when usage is released.
    if own_rank > rank or (by_initial and own_rank == rank):
        return order.drain(leaf), None
    failing: list[Candidate] = []
    while order.has(leaf):
        candidate = order.pop(leaf)
        if by_initial or own_rank <= order.rank_without(candidate):
            return failing, candidate
        failing.append(candidate)
    return failing, None


def _by_initial_share(search: PreemptionSearch, candidates: _Queues) -> list[Victim]:
    """Return the victims of the second strategy, at most one of each ClusterQueue."""
    # ``runSecondFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L499
    order = _TargetOrder(search, candidates)
    victims: list[Victim] = []
    while (leaf := order.next()) is not None:
        own_rank, rank = order.ranks(leaf)
        candidate = order.pop(leaf)
        order.drop(leaf)
        if own_rank < rank:
            order.release(candidate)
            victims.append(
                Victim(holder=candidate.holder, reason=PreemptionReason.IN_COHORT_FAIR_SHARING)
            )
            if _fits(search):
                break
    return victims


class _TargetOrder:
    """The ClusterQueues from which fair sharing preempts, the one that borrows most first.

    After each answer of ``next``, a candidate is popped or the ClusterQueue dropped.
    """

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/fairsharing/ordering.go

    def __init__(self, search: PreemptionSearch, candidates: _Queues) -> None:
        self._search, self._tree = search, search.tree
        self._left = {leaf: iter(of_leaf) for leaf, of_leaf in candidates.items()}
        self._first: dict[int, Candidate | None] = {}
        """The first candidate of each ClusterQueue that was asked for it; None: none is left."""
        self._ranks: defaultdict[int, dict[int, _Rank]] = defaultdict(dict)
        """Cohort to those right below it from which something is to be had; of the root, too."""
        for node in {node for leaf in self._left for node in self._tree.path(leaf)}:
            self._note_rank(node)

    def next(self) -> int | None:
        """Return the ClusterQueue whose turn it is; None: there is none left."""
        above = self._tree.parents[self._search.path[-1]]
        while self._ranks[above]:
            leaf = self._descend(above)
            if leaf is not None:
                return leaf
        return None

    def has(self, leaf: int) -> bool:
        return self._peek(leaf) is not None

    def pop(self, leaf: int) -> Candidate:
        first = self._peek(leaf)
        if first is None:
            raise KeyError(leaf)
        del self._first[leaf]
        return first

    def drain(self, leaf: int) -> Iterable[Candidate]:
        """Take nothing more from a ClusterQueue, and return the candidates that it has left."""
        self.drop(leaf)
        return chain([self.pop(leaf)], self._left[leaf])

    def drop(self, node: int) -> None:
        """Take nothing more from a node."""
        self._ranks[self._tree.parents[node]].pop(node, None)

    def release(self, victim: Candidate) -> None:
        """Take a victim's usage out of the tree."""
        self._search.release(victim.holder)
        for node in self._tree.path(victim.holder.leaf):
            # Usage only falls and candidates only get fewer, so who is left out stays out.
            if node in self._ranks[self._tree.parents[node]]:
                self._note_rank(node)

    def ranks(self, leaf: int) -> tuple[_Rank, _Rank]:
        """Return the ranks below the lowest cohort that both share: preemptor's, target's."""
        own_node, node = self._below_common_cohort(leaf)
        return share(self._tree, own_node).rank, share(self._tree, node).rank

    def rank_without(self, candidate: Candidate) -> _Rank:
        """Return the target's rank of ``ranks`` if a candidate there had given its quota back."""
        holder = candidate.holder
        self._search.release(holder)
        _, node = self._below_common_cohort(holder.leaf)
        without = share(self._tree, node)
        self._tree.charge(holder.leaf, holder.taken)
        return without.rank

    def _below_common_cohort(self, leaf: int) -> tuple[int, int]:
        # ``getAlmostLCAs``
        path = self._search.path
        for node, parent in pairwise(self._tree.path(leaf)):
            if parent in path:
                return path[path.index(parent) - 1], node
        raise ValueError(leaf)

    def _descend(self, cohort: int) -> int | None:
        """Return the ClusterQueue to take from in a cohort; None: nodes were left out instead."""
        # ``nextTarget``
        ranks = self._ranks[cohort]
        if not ranks:
            self.drop(cohort)
            return None
        highest = max(ranks.values())
        best = [node for node, rank in ranks.items() if rank == highest]
        # With equal shares, cohorts go before ClusterQueues.
        cohorts = [node for node in best if self._tree.heights[node]]
        if cohorts:
            return self._descend(max(cohorts))
        # Of ClusterQueues, the one whose first candidate goes first.
        firsts = []
        for leaf in best:
            if (first := self._peek(leaf)) is None:
                self.drop(leaf)
            else:
                firsts.append(first)
        return min(firsts).holder.leaf if firsts else None

    def _peek(self, leaf: int) -> Candidate | None:
        if leaf not in self._first:
            self._first[leaf] = next(self._left[leaf], None)
        return self._first[leaf]

    def _note_rank(self, node: int) -> None:
        now = share(self._tree, node)
        if now.borrowed or node in self._search.path:
            self._ranks[self._tree.parents[node]][node] = now.rank
        else:
            self.drop(node)
