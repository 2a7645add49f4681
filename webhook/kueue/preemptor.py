"""Choose the Workloads that Kueue would preempt to make room for another one.

Mirrors Kueue's preemptor and its oracle for the flavor assigner on a ``UsageTree``: first the
search without fair sharing, hierarchical cohorts included; then the one with it, which takes from
the ClusterQueue that borrows most, by its share. Topologies are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain, pairwise
from operator import attrgetter
from typing import TypeAlias

from webhook.kueue.fair_sharing import share
from webhook.kueue.preemption import (
    Candidate,
    CandidateGroup,
    PreemptionReason,
    PreemptionSearch,
    TriedHead,
)
from webhook.kueue.quota import UsageTree
from webhook.model.queues import (
    DEFAULT_STRATEGIES,
    LESS_THAN_INITIAL_SHARE,
    NEVER,
    Preemption,
    QuotaHolder,
)


def classical_victims(search: PreemptionSearch) -> tuple[Candidate, ...]:
    """Return whom to preempt; none: preempting does not help."""
    # ``classicalPreemptions``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L282
    others = _reclaimable(search)
    for borrowing in _attempts(search, others):
        if victims := _attempt(search, others, borrowing=borrowing):
            return victims
    return ()


def _attempts(search: PreemptionSearch, others: Mapping[int, CandidateGroup]) -> tuple[bool, ...]:
    """Return in which order it is tried with (True) and without borrowing."""
    if search.policy.borrow_within_cohort != NEVER:
        # Without others, whoever does not fit by borrowing does not fit without.
        return True, False
    if not _is_under_nominal(search):
        return (True,)
    met = {group for leaf, group in others.items() if any(search.candidates(leaf, group))}
    if CandidateGroup.HIERARCHICAL in met:
        return True, False
    return (False, True) if met else (True,)


def _is_under_nominal(search: PreemptionSearch) -> bool:
    # ``queueUnderNominalInResourcesNeedingPreemption``
    tree, first = search.tree, search.preemptor.leaf * search.tree.width
    return all(tree.used[first + cell] < tree.nominal[first + cell] for cell in search.short)


def _attempt(
    search: PreemptionSearch, others: Mapping[int, CandidateGroup], *, borrowing: bool
) -> tuple[Candidate, ...]:
    victims: list[Candidate] = []
    for candidate in _candidates(search, others, borrowing=borrowing):
        if not _is_valid(search, candidate, borrowing=borrowing):
            continue
        search.release(candidate.holder)
        victims.append(candidate._replace(reason=_reason(search, candidate)))
        if search.fits(borrowing=borrowing):
            return search.minimized(victims, borrowing=borrowing)
    search.restore(victims)
    return ()


def _candidates(
    search: PreemptionSearch, others: Mapping[int, CandidateGroup], *, borrowing: bool
) -> Iterable[Candidate]:
    # ``NewCandidateIterator``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/candidate_generator.go#L78
    own = search.candidates(search.preemptor.leaf, CandidateGroup.SAME_QUEUE)
    is_strict = borrowing and search.policy.borrow_within_cohort == NEVER
    return search.in_order(
        [
            own,
            *(
                search.candidates(leaf, group)
                for leaf, group in others.items()
                # None of these would be valid.
                if not is_strict or group is CandidateGroup.HIERARCHICAL
            ),
        ]
    )


def _reclaimable(search: PreemptionSearch) -> Mapping[int, CandidateGroup]:
    """Return the other ClusterQueues with candidates, and in which group those are."""
    # ``collectCandidatesForHierarchicalReclaim``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L149
    groups = dict(_groups_on_path(search))
    cohorts = {leaf: _common_cohort(search, leaf) for leaf in search.reclaimed()}
    return {leaf: groups[cohort] for leaf, cohort in cohorts.items() if cohort is not None}


def _groups_on_path(search: PreemptionSearch) -> Iterator[tuple[int, CandidateGroup]]:
    """Yield the cohorts above the preemptor with the group of candidates that it meets there."""
    tree, remaining = search.tree, dict(search.preemptor.taken)
    has_advantage = False
    for node in search.path:
        if node != search.preemptor.leaf:
            yield node, CandidateGroup.HIERARCHICAL if has_advantage else CandidateGroup.BY_PRIORITY
        # Where a subtree's own quota suffices, all above it are in debt to it.
        # ``QuantitiesFitInQuota``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go#L233
        has_advantage = has_advantage or tree.owns(node, remaining.items())
        for cell, amount in remaining.items():
            at = node * tree.width + cell
            remaining[cell] = max(0, amount - max(0, tree.local[at] - tree.used[at]))


def _common_cohort(search: PreemptionSearch, leaf: int) -> int | None:
    """Return the lowest cohort that another ClusterQueue shares with the preemptor.

    None: nothing is reclaimed from it, as it, or a cohort between them, is within its quota.
    """
    for node in search.tree.path(leaf):
        if node in search.path:
            return node
        if not search.is_over(node):
            return None
    return None


def _is_valid(search: PreemptionSearch, candidate: Candidate, *, borrowing: bool) -> bool:
    # ``candidateIsValid``
    if candidate.group is CandidateGroup.SAME_QUEUE:
        return True
    if borrowing and not _may_borrow(search, candidate):
        return False
    # Earlier victims may have brought a subtree within its quota.
    return _common_cohort(search, candidate.holder.leaf) is not None


def _may_borrow(search: PreemptionSearch, candidate: Candidate) -> bool:
    """Return whether it is preempted also where the preemptor then borrows."""
    # ``classifyPreemptionVariant``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L81
    if candidate.group is not CandidateGroup.BY_PRIORITY:
        return True
    policy, priority = search.policy, candidate.holder.priority
    if policy.borrow_within_cohort == NEVER or priority >= search.preemptor.priority:
        return False
    return policy.max_priority_threshold is None or priority <= policy.max_priority_threshold


def _reason(search: PreemptionSearch, candidate: Candidate) -> PreemptionReason:
    if candidate.group is CandidateGroup.SAME_QUEUE:
        return PreemptionReason.IN_CLUSTER_QUEUE
    if candidate.group is CandidateGroup.BY_PRIORITY and _may_borrow(search, candidate):
        return PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    return PreemptionReason.IN_COHORT_RECLAMATION


_Queues: TypeAlias = Mapping[int, Iterable[Candidate]]
"""By leaf, each in the order in which they go."""
_Rank: TypeAlias = tuple[bool, float]
"""As ``Share.rank``."""


def fair_victims(search: PreemptionSearch, strategies: Sequence[str]) -> tuple[Candidate, ...]:
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
) -> tuple[list[Candidate], _Queues]:
    """Return the victims, and the candidates that the strategy spares."""
    # ``runFirstFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L382
    own = search.preemptor.leaf
    compares_shares = search.is_over(own)
    order = _TargetOrder(search, candidates)
    victims: list[Candidate] = []
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
        victims.append(passing._replace(reason=reason))
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


def _by_initial_share(search: PreemptionSearch, candidates: _Queues) -> list[Candidate]:
    """Return the victims of the second strategy, at most one of each ClusterQueue."""
    # ``runSecondFsStrategy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L499
    order = _TargetOrder(search, candidates)
    victims: list[Candidate] = []
    while (leaf := order.next()) is not None:
        own_rank, rank = order.ranks(leaf)
        candidate = order.pop(leaf)
        order.drop(leaf)
        if own_rank < rank:
            order.release(candidate)
            victims.append(candidate._replace(reason=PreemptionReason.IN_COHORT_FAIR_SHARING))
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

    @property
    def is_empty(self) -> bool:
        """Whether nobody holds quota, so that nobody can be preempted."""
        return not self._holders

    def targets(self, preemptor: TriedHead, short: Collection[int]) -> tuple[Candidate, ...]:
        """Return whom to preempt; none: preempting does not help.

        *short*: the cells of which quota is short.
        """
        if not self._holders:
            return ()
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

    def possibility(self, preemptor: TriedHead, cell: int, amount: int) -> tuple[Possibility, int]:
        """Return what preempting can do for one cell, and the borrowing height after it."""
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption_oracle.go#L43
        tree, leaf = self._tree, preemptor.leaf
        if not self._holders:
            return Possibility.NO_CANDIDATES, tree.height(leaf, cell, amount)[0]
        victims = self.targets(preemptor._replace(taken=((cell, amount),)), (cell,))
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
