"""Who may preempt whom, and the Workloads that Kueue would preempt to make room for another one.

Mirrors Kueue's preemptor and its oracle for the flavor assigner on a ``UsageTree``: first the
search without fair sharing, hierarchical cohorts included; then the one with it, which takes from
the ClusterQueue that borrows most, by its share. Topologies are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cmp_to_key
from itertools import chain, combinations, pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from webhook.kueue.assignment import Level, PreemptionMode
from webhook.kueue.fair_sharing import share
from webhook.kueue.quota import Taken, UsageTree, tree_names
from webhook.model.queues import (
    ANY,
    DEFAULT_STRATEGIES,
    LESS_THAN_INITIAL_SHARE,
    LOWER_OR_NEWER_EQUAL_PRIORITY,
    LOWER_PRIORITY,
    NEVER,
    HolderOrder,
    Preemption,
    QuotaHolder,
)
from webhook.model.snapshot_parts import KueueSetup


class PreemptionReason(StrEnum):
    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"


class TriedHead(NamedTuple):
    """A Workload that is tried in a cycle: who it is, what it was assigned, what came of that."""

    leaf: int
    """Its ClusterQueue's node."""
    priority: float
    queued_at: float
    """Its place by age among those that wait."""
    taken: Taken = ()
    """What it was assigned, or wants."""
    # From here on what is known once it was served.
    height: int = 0
    """As in ``Assignment``."""
    charged: Taken = ()
    """What it takes in this cycle: it starts, or waits for its victims, or is kept quota."""
    leaving: tuple[QuotaHolder, ...] = ()
    """Whom it preempts."""
    starts: bool = False


def satisfies_policy(preemptor: TriedHead, holder: QuotaHolder, policy: str) -> bool:
    """Return whether a policy allows to preempt *holder*."""
    # ``SatisfiesPreemptionPolicy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/preemption_policy.go#L33
    if policy == ANY:
        return True
    if policy == LOWER_OR_NEWER_EQUAL_PRIORITY and preemptor.priority == holder.priority:
        return preemptor.queued_at < holder.queued_at
    is_by_priority = policy in (LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY)
    return is_by_priority and preemptor.priority > holder.priority


def candidates_in(setup: KueueSetup) -> frozenset[str]:
    """Return the ClusterQueues in which some policy of their tree may preempt a Workload."""
    trees = tree_names(setup.cluster_queues, setup.cohorts)
    queues = setup.cluster_queues.values()
    reclaimed = {
        trees[queue.name] for queue in queues if queue.preemption.reclaim_within_cohort != NEVER
    }
    return frozenset(
        queue.name
        for queue in queues
        if queue.preemption.within_cluster_queue != NEVER
        or (queue.cohort and trees[queue.name] in reclaimed)
    )


class CandidateGroup(IntEnum):
    """Whom a ClusterQueue preempts first, apart from those that are evicted already."""

    HIERARCHICAL = 0
    """In subtrees over which its place in the hierarchy gives it an advantage."""
    BY_PRIORITY = 1
    SAME_QUEUE = 2


class Candidate(NamedTuple):
    """Somebody who may be preempted; candidates sort in the order in which they go."""

    is_kept: bool
    """It is not evicted already."""
    group: CandidateGroup
    order: HolderOrder
    holder: QuotaHolder
    reason: PreemptionReason | None = None
    """Why it is preempted; None: it has not been chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionSearch:
    """One question to the preemptor; what it takes out of the tree, it puts back."""

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go

    tree: UsageTree
    holders: Mapping[int, Sequence[QuotaHolder]]
    """By leaf, each in their ``order``."""
    preemptor: TriedHead
    short: frozenset[int]
    """The cells of which quota is short."""
    policy: Preemption
    """That of the preemptor's ClusterQueue."""
    path: tuple[int, ...]
    """The preemptor's ClusterQueue and the cohorts above it."""
    queue_usages: Mapping[str, float]
    """Of the LocalQueues that admission fair sharing orders by usage."""
    drawn: Collection[str]
    """UIDs of those that go first where Kueue's order does not say who does."""

    def candidates(self, leaf: int, group: CandidateGroup) -> Iterator[Candidate]:
        """Yield those of a ClusterQueue that use what is short and that the policy gives up."""
        # ``findCandidatesForPolicy``
        is_own, priority = leaf == self.preemptor.leaf, self.preemptor.priority
        policy = self.policy.within_cluster_queue if is_own else self.policy.reclaim_within_cohort
        for holder in () if policy == NEVER else self.holders.get(leaf, ()):
            if policy != ANY and holder.priority > priority and not holder.is_evicted:
                # So have all that follow.
                return
            if satisfies_policy(self.preemptor, holder, policy) and self._uses_short(holder):
                yield Candidate(not holder.is_evicted, group, holder.order, holder)

    def _uses_short(self, holder: QuotaHolder) -> bool:
        return any(cell in self.short for cell, _ in holder.taken)

    def in_order(self, of_queues: Iterable[Iterable[Candidate]]) -> Iterable[Candidate]:
        """Return the candidates of some ClusterQueues in the order in which they go."""
        # ``CandidatesOrdering``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go#L42
        if not self.queue_usages:
            return heapq.merge(*of_queues)
        ordered = sorted(chain.from_iterable(of_queues), key=cmp_to_key(self._compare))
        if self.drawn and self._is_circular(ordered):
            ordered.sort(key=lambda each: (*each[:2], each.holder.uid not in self.drawn))
        return ordered

    def _compare(self, left: Candidate, right: Candidate) -> int:
        if left[:2] == right[:2] and left.holder.leaf == right.holder.leaf:
            usage = self.queue_usages.get(left.holder.local_queue)
            other_usage = self.queue_usages.get(right.holder.local_queue)
            if usage is not None and other_usage is not None and usage != other_usage:
                return -1 if usage > other_usage else 1
        return -1 if left < right else 1

    def _is_circular(self, ordered: Sequence[Candidate]) -> bool:
        """Return whether a candidate comes before another one that comes before it."""
        # Two of one ClusterQueue are told apart by usage, two of different ones by priority, so
        # this need not be an order. Kueue then sorts as a map of Go happens to list them:
        # ``cq.Workloads``.
        return any(self._compare(left, right) > 0 for left, right in combinations(ordered, 2))

    def reclaimed(self) -> list[int]:
        """Return the other ClusterQueues that use more than their quota of what is short."""
        # ``cqIsBorrowing``
        if self.policy.reclaim_within_cohort == NEVER:
            return []
        own = self.preemptor.leaf
        return [leaf for leaf in self.holders if leaf != own and self.is_over(leaf)]

    def is_over(self, node: int) -> bool:
        """Return whether a node uses more than its quota of any of the cells that are short."""
        # The opposite of ``IsWithinNominalInResources``.
        tree, first = self.tree, node * self.tree.width
        # Each head asks it of each ClusterQueue, and ``any`` takes three times as long.
        for cell in self.short:  # noqa: SIM110
            if tree.used[first + cell] > tree.subtree[first + cell]:
                return True
        return False

    def fits(self, *, borrowing: bool) -> bool:
        # ``workloadFits``
        tree, leaf, taken = self.tree, self.preemptor.leaf, self.preemptor.taken
        return (borrowing or tree.owns(leaf, taken)) and tree.has(leaf, taken)

    def release(self, holder: QuotaHolder) -> None:
        self.tree.charge(holder.leaf, holder.taken, -1)

    def restore(self, victims: Iterable[Candidate]) -> None:
        for victim in victims:
            self.tree.charge(victim.holder.leaf, victim.holder.taken)

    def minimized(self, victims: list[Candidate], *, borrowing: bool) -> tuple[Candidate, ...]:
        """Spare each victim without whom it fits as well, and put back the usage of all."""
        # ``fillBackWorkloads``; the order in which victims are spared decides who is left:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L339
        for index in reversed(range(len(victims) - 1)):
            holder = victims[index].holder
            self.tree.charge(holder.leaf, holder.taken)
            if self.fits(borrowing=borrowing):
                victims[index] = victims[-1]
                victims.pop()
            else:
                self.release(holder)
        self.restore(victims)
        return tuple(victims)


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

    def victims(self, preemptor: TriedHead) -> tuple[Candidate, ...]:
        """Return whom to preempt for all that it was assigned; none: it is no help, or no need."""
        if not self._holders:
            return ()
        available, leaf = self._tree.available, preemptor.leaf
        short = [cell for cell, amount in preemptor.taken if available(leaf, cell) < amount]
        return self.targets(preemptor, short) if short else ()

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

    def possibility(self, preemptor: TriedHead, cell: int, amount: int) -> Level:
        """Return what preempting can do for one cell, as an ``Oracle`` does."""
        # ``PreemptionPossibility``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption_oracle.go#L43
        tree, leaf = self._tree, preemptor.leaf
        if not self._holders:
            return PreemptionMode.NO_CANDIDATES, tree.height(leaf, cell, amount)[0]
        victims = self.targets(preemptor._replace(taken=((cell, amount),)), (cell,))
        for victim in victims:
            tree.charge(victim.holder.leaf, victim.holder.taken, -1)
        height, _ = tree.height(leaf, cell, amount)
        for victim in victims:
            tree.charge(victim.holder.leaf, victim.holder.taken)
        if not victims:
            return PreemptionMode.NO_CANDIDATES, height
        if any(victim.holder.leaf == leaf for victim in victims):
            return PreemptionMode.PREEMPT, height
        return PreemptionMode.RECLAIM, height
