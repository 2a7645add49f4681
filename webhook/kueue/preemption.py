"""Choose the Workloads that Kueue would preempt to make room for another one.

Mirrors Kueue's preemptor, classical (with hierarchical cohorts) and with fair sharing, and its
oracle for the flavor assigner, on a ``UsageTree``. Topologies are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cmp_to_key
from itertools import chain
from math import inf
from typing import NamedTuple, TypeAlias

from webhook.kueue.fair_sharing import Share, share
from webhook.kueue.quota import Taken, UsageTree, tree_names
from webhook.model.queues import Preemption, Snapshot

NEVER = "Never"
LOWER_PRIORITY = "LowerPriority"
LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
ANY = "Any"

LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"
_DEFAULT_STRATEGIES = (LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, LESS_THAN_INITIAL_SHARE)

_USAGES_KEPT = 2
"""In a cycle it is asked at the usage with which it began, and at what its preemptions leave."""

_Order: TypeAlias = tuple[bool, float, float, str, str]


class Possibility(IntEnum):
    """What preempting can do for one cell (``PreemptionPossibility``), from worst to best."""

    NO_CANDIDATES = 0
    PREEMPT = 1
    RECLAIM = 2
    """All targets are in other ClusterQueues."""


class PreemptionReason(StrEnum):
    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaHolder:
    """A Workload that holds quota."""

    key: str
    """``namespace/name``"""
    leaf: int
    """Its ClusterQueue's node in the tree."""
    taken: Taken
    priority: float
    reserved_at: float
    queued_at: float
    """The time by which its queue would order it."""
    is_evicted: bool = False
    uid: str = ""
    local_queue: str = ""
    """As in the usages by which admission fair sharing orders LocalQueues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """A Workload that wants quota, with the flavors that it was assigned."""

    leaf: int
    taken: Taken
    priority: float
    queued_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    holder: QuotaHolder
    reason: PreemptionReason


def satisfies_policy(preemptor: Preemptor, holder: QuotaHolder, policy: str) -> bool:
    """Return whether a policy allows to preempt *holder*."""
    # ``SatisfiesPreemptionPolicy``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/preemption_policy.go#L33
    if policy == ANY:
        return True
    if policy == LOWER_OR_NEWER_EQUAL_PRIORITY and preemptor.priority == holder.priority:
        return preemptor.queued_at < holder.queued_at
    is_by_priority = policy in (LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY)
    return is_by_priority and preemptor.priority > holder.priority


def candidates_in(snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues in which some policy of their tree may preempt a Workload."""
    trees = tree_names(snapshot.cluster_queues, snapshot.cohorts)
    queues = snapshot.cluster_queues.values()
    reclaimed = {
        trees[queue.name] for queue in queues if queue.preemption.reclaim_within_cohort != NEVER
    }
    return frozenset(
        queue.name
        for queue in queues
        if queue.preemption.within_cluster_queue != NEVER
        or (queue.cohort and trees[queue.name] in reclaimed)
    )


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
        self._candidates = _Candidates(tree, queue_usages or {})
        self._reclaim = deque[_ReclaimCandidates](maxlen=_USAGES_KEPT)
        for holder in holders:
            self.add(holder)

    def add(self, holder: QuotaHolder) -> None:
        """Note that a Workload holds quota; the caller charges the tree."""
        self._candidates.add(holder)

    def remove(self, holder: QuotaHolder) -> None:
        self._candidates.remove(holder)

    def order_by_use(self, usages: Mapping[str, float]) -> None:
        """Go by these usages of LocalQueues from now on; they may change later."""
        self._candidates.queue_usages = usages

    def targets(self, preemptor: Preemptor, short: Collection[int]) -> tuple[Victim, ...]:
        """Return whom to preempt; none: preempting does not help.

        *short*: the cells of which quota is short.
        """
        policy = self._policies[preemptor.leaf]
        if not self._candidates.may_have(preemptor, policy):
            return ()
        search = _Search(
            tree=self._tree,
            candidates=self._candidates,
            preemptor=preemptor,
            short=frozenset(short),
            policy=policy,
            path=tuple(self._tree.path(preemptor.leaf)),
        )
        if self._strategies is None:
            return _classical(search, self._reclaimed_now())
        return _fair(search, tuple(self._strategies) or _DEFAULT_STRATEGIES)

    def _reclaimed_now(self) -> _ReclaimCandidates:
        """Return the candidates of others at the usage as it is."""
        for known in self._reclaim:
            if known.is_current():
                return known
        new = _ReclaimCandidates(self._tree, self._candidates)
        self._reclaim.appendleft(new)
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


class _Candidates:
    """The holders of one tree, those of each ClusterQueue in the order in which they go."""

    def __init__(self, tree: UsageTree, queue_usages: Mapping[str, float]) -> None:
        self.queue_usages = queue_usages
        self.version = 0
        """Another one whenever others hold quota."""
        self.children: dict[int, list[int]] = {}
        for node, parent in enumerate(tree.parents):
            self.children.setdefault(parent, []).append(node)
        self._below: dict[int, frozenset[int]] = {}
        self._by_leaf: dict[int, list[tuple[_Order, QuotaHolder]]] = {}
        self._counts: dict[float, int] = {}
        """Priority to the number of holders."""
        self._newest: dict[int, float] = {}
        """By leaf: no holder was queued later than this."""

    def add(self, holder: QuotaHolder) -> None:
        self.version += 1
        insort(self._by_leaf.setdefault(holder.leaf, []), (_order(holder), holder))
        self._counts[holder.priority] = self._counts.get(holder.priority, 0) + 1
        newest = self._newest.get(holder.leaf, holder.queued_at)
        self._newest[holder.leaf] = max(newest, holder.queued_at)

    def remove(self, holder: QuotaHolder) -> None:
        self.version += 1
        entries = self._by_leaf[holder.leaf]
        del entries[bisect_left(entries, (_order(holder),))]
        if not entries:
            del self._by_leaf[holder.leaf], self._newest[holder.leaf]
        self._counts[holder.priority] -= 1
        if not self._counts[holder.priority]:
            del self._counts[holder.priority]

    def may_have(self, preemptor: Preemptor, policy: Preemption) -> bool:
        """Return whether the lowest priority of all leaves it possible that one is preempted."""
        # Forecasts ask for each head in each cycle, and most often the answer is no.
        lowest = min(self._counts, default=None)
        policies = (policy.within_cluster_queue, policy.reclaim_within_cohort)
        if lowest is None or ANY in policies:
            return lowest is not None
        if LOWER_OR_NEWER_EQUAL_PRIORITY in policies:
            return lowest <= preemptor.priority
        return LOWER_PRIORITY in policies and lowest < preemptor.priority

    def leaves(self) -> Collection[int]:
        """Return the ClusterQueues with holders."""
        return self._by_leaf.keys()

    def leaves_below(self, node: int) -> frozenset[int]:
        """Return a node, and all that are below it."""
        below = self._below.get(node)
        if below is None:
            children = map(self.leaves_below, self.children.get(node, ()))
            below = self._below[node] = frozenset([node]).union(*children)
        return below

    def held_in(self, leaf: int) -> Sequence[tuple[_Order, QuotaHolder]]:
        return self._by_leaf[leaf]

    def of(
        self, leaf: int, preemptor: Preemptor, policy: str, short: frozenset[int]
    ) -> Iterator[tuple[_Order, QuotaHolder]]:
        """Yield those of a ClusterQueue that use one of the cells and may be preempted."""
        if policy == NEVER or leaf not in self._by_leaf:
            return
        bound = preemptor.priority
        if policy == LOWER_OR_NEWER_EQUAL_PRIORITY and preemptor.queued_at < self._newest[leaf]:
            bound += 1
        for order, holder in self._by_leaf[leaf]:
            if holder.priority >= bound and policy != ANY and not holder.is_evicted:
                # The others have this priority or a higher one.
                return
            if satisfies_policy(preemptor, holder, policy) and any(
                cell in short for cell, _ in holder.taken
            ):
                yield order, holder


def _order(holder: QuotaHolder) -> _Order:
    # ``CandidatesOrdering``, but for what compares ClusterQueues and LocalQueues:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go#L42
    return not holder.is_evicted, holder.priority, -holder.reserved_at, holder.uid, holder.key


class _ReclaimCandidates:
    """The candidates in ClusterQueues that use more than their quota, at one usage of the tree.

    Many ask at the same usage, the heads of one cycle, and are told apart by little: so candidates
    are merged cohort by cohort, as far as somebody goes through them, and what was found is kept.
    """

    def __init__(self, tree: UsageTree, candidates: _Candidates) -> None:
        self.found: dict[tuple[object, ...] | None, tuple[Victim, ...]] = {}
        """The victims that were found, by all that the search for them depended on."""
        self._tree, self._candidates = tree, candidates
        self._used, self._version = tree.used[:], candidates.version
        self._reached: dict[frozenset[int], dict[int, Sequence[int]]] = {}
        """By what is short: cohort to the ClusterQueues from which others in it may reclaim."""
        self._merged: dict[tuple[int, frozenset[int]], _Merged] = {}

    def is_current(self) -> bool:
        """Return whether the usage and the holders are still the same."""
        return self._version == self._candidates.version and self._used == self._tree.used

    def of(self, cohort: int, short: frozenset[int]) -> Iterable[tuple[_Order, QuotaHolder]]:
        """Return those below a cohort that it does not protect, in the order in which they go."""
        merged = self._merged.get((cohort, short))
        if merged is None:
            if short not in self._reached:
                self._reached[short] = self._reachable(short)
            leaves = self._reached[short].get(cohort, ())
            rows = [self._candidates.held_in(leaf) for leaf in leaves]
            merged = self._merged[cohort, short] = _Merged(heapq.merge(*rows), short)
        return merged

    def _reachable(self, short: frozenset[int]) -> dict[int, Sequence[int]]:
        reached: defaultdict[int, list[int]] = defaultdict(list)
        tree = self._tree
        for leaf in self._candidates.leaves():
            node = leaf
            while tree.parents[node] >= 0 and is_over(tree, node, short):
                node = tree.parents[node]
                reached[node].append(leaf)
        return dict(reached)


class _Merged:
    """Candidates in order, those that use one of the cells, read no further than anybody asked."""

    def __init__(self, rest: Iterable[tuple[_Order, QuotaHolder]], short: frozenset[int]) -> None:
        self._known: list[tuple[_Order, QuotaHolder]] = []
        self._rest = (row for row in rest if any(cell in short for cell, _ in row[1].taken))

    def __iter__(self) -> Iterator[tuple[_Order, QuotaHolder]]:
        known, place = self._known, 0
        while True:
            if place == len(known):
                row = next(self._rest, None)
                if row is None:
                    return
                known.append(row)
            yield known[place]
            place += 1


def is_over(tree: UsageTree, node: int, short: Iterable[int]) -> bool:
    """Return whether a node uses more than its quota of any of the cells that are short."""
    # The opposite of ``IsWithinNominalInResources``.
    used, subtree, first = tree.used, tree.subtree, node * tree.width
    for cell in short:  # noqa: SIM110 - twice as fast as any()
        if used[first + cell] > subtree[first + cell]:
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One question to the preemptor; what it takes out of the tree, it puts back."""

    tree: UsageTree
    candidates: _Candidates
    preemptor: Preemptor
    short: frozenset[int]
    policy: Preemption
    path: tuple[int, ...]
    """The preemptor's ClusterQueue and the cohorts above it."""

    def own(self) -> Iterator[tuple[_Order, QuotaHolder]]:
        policy = self.policy.within_cluster_queue
        return self.candidates.of(self.preemptor.leaf, self.preemptor, policy, self.short)

    def others(self, leaf: int) -> Iterator[tuple[_Order, QuotaHolder]]:
        policy = self.policy.reclaim_within_cohort
        return self.candidates.of(leaf, self.preemptor, policy, self.short)

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield what the preemptor wants of each cell, by its place in the lists of the tree."""
        first = self.preemptor.leaf * self.tree.width
        return ((first + cell, amount) for cell, amount in self.preemptor.taken)

    def reclaims(self) -> bool:
        return len(self.path) > 1 and self.policy.reclaim_within_cohort != NEVER

    def is_over(self, node: int) -> bool:
        return is_over(self.tree, node, self.short)

    def others_over(self) -> set[int]:
        """Return the other ClusterQueues with holders that use more than their quota of a cell."""
        tree, leaves = self.tree, self.candidates.leaves()
        used, subtree, width = tree.used, tree.subtree, tree.width
        over = {
            leaf
            for cell in self.short
            for leaf in leaves
            if used[leaf * width + cell] > subtree[leaf * width + cell]
        }
        return over - {self.preemptor.leaf}

    def is_under_nominal(self) -> bool:
        # ``queueUnderNominalInResourcesNeedingPreemption``
        tree, first = self.tree, self.preemptor.leaf * self.tree.width
        return all(tree.used[first + cell] < tree.nominal[first + cell] for cell in self.short)

    def must_borrow(self) -> bool:
        """Return whether only what may be reclaimed while borrowing is of use, at any priority."""
        return self.policy.borrow_within_cohort == NEVER and not self.is_under_nominal()

    def fits(self, *, borrowing: bool) -> bool:
        # ``workloadFits``
        tree, leaf = self.tree, self.preemptor.leaf
        for cell, amount in self.preemptor.taken:
            at = leaf * tree.width + cell
            if not borrowing and tree.used[at] + amount > tree.nominal[at]:
                return False
            if amount > max(0, tree.available(leaf, cell)):
                return False
        return True

    def fits_when_charged(self) -> bool:
        """Return whether it fits, where the preemptor's own usage is in the tree already."""
        # ``workloadFitsForFairSharing``
        self.tree.charge(self.preemptor.leaf, self.preemptor.taken, -1)
        fits = self.fits(borrowing=True)
        self.tree.charge(self.preemptor.leaf, self.preemptor.taken)
        return fits

    def release(self, holder: QuotaHolder) -> None:
        self.tree.charge(holder.leaf, holder.taken, -1)

    def share_without(self, holder: QuotaHolder, node: int) -> Share:
        """Return what a node's share would be without a holder below it."""
        self.tree.charge(holder.leaf, holder.taken, -1)
        without = share(self.tree, node)
        self.tree.charge(holder.leaf, holder.taken)
        return without

    def restore(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            self.tree.charge(victim.holder.leaf, victim.holder.taken)

    def minimized(self, victims: list[Victim], *, borrowing: bool) -> tuple[Victim, ...]:
        """Spare each victim without whom it fits as well, and put back the usage of all."""
        # ``fillBackWorkloads``; the order in which victims are spared decides who is left:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L339
        for index in reversed(range(len(victims) - 1)):
            self.restore([victims[index]])
            if self.fits(borrowing=borrowing):
                victims[index] = victims[-1]
                victims.pop()
            else:
                self.release(victims[index].holder)
        self.restore(victims)
        return tuple(victims)


class _Group(IntEnum):
    """Whom a ClusterQueue preempts first, apart from those that are evicted already."""

    HIERARCHICAL = 0
    """In subtrees over which its place in the hierarchy gives it an advantage."""
    BY_PRIORITY = 1
    SAME_QUEUE = 2


class _Candidate(NamedTuple):
    is_kept: bool
    """It is not evicted already."""
    group: _Group
    order: _Order
    holder: QuotaHolder


class _Level(NamedTuple):
    """Where others meet the preemptor: in a cohort above it, but not in the node below that."""

    cohort: int
    below: int
    group: _Group


def _classical(search: _Search, reclaim: _ReclaimCandidates) -> tuple[Victim, ...]:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L282
    likeness = _likeness(search)
    if likeness in reclaim.found:
        return reclaim.found[likeness]
    levels = _reclaimable(search, reclaim)
    for number, borrowing in enumerate(_attempts(search, levels)):
        victims = _attempt(search, reclaim, levels, borrowing=borrowing)
        if victims:
            # With another one's own candidates the search would have ended there, too.
            is_alike = all(each.holder.leaf != search.preemptor.leaf for each in victims)
            if likeness and is_alike and not number:
                reclaim.found[likeness] = victims
            return victims
    return ()


def _likeness(search: _Search) -> tuple[object, ...] | None:
    """Return what a search that ends with others depends on; None: on its own ClusterQueue, too.

    Those in its own ClusterQueue go last, but for those that are evicted already.
    """
    tree, preemptor, policy = search.tree, search.preemptor, search.policy
    first = next(search.own(), None)
    is_apart = first is None or first[0][0]
    if not is_apart or search.is_over(preemptor.leaf) or search.candidates.queue_usages:
        return None
    by_age = policy.reclaim_within_cohort == LOWER_OR_NEWER_EQUAL_PRIORITY
    return (
        search.path[1:] if tree.shares_all else search.path,
        all(tree.used[at] + amount <= tree.nominal[at] for at, amount in search.places()),
        search.is_under_nominal(),
        preemptor.taken,
        search.short,
        preemptor.priority,
        preemptor.queued_at if by_age else 0,
        policy,
    )


def _attempts(search: _Search, levels: Sequence[_Level]) -> tuple[bool, ...]:
    """Return in which order it is tried with (True) and without borrowing."""
    if not levels or search.must_borrow():
        return (True,)
    is_by_priority = all(level.group is not _Group.HIERARCHICAL for level in levels)
    if search.policy.borrow_within_cohort == NEVER and is_by_priority:
        return False, True
    return True, False


def _attempt(
    search: _Search, reclaim: _ReclaimCandidates, levels: Sequence[_Level], *, borrowing: bool
) -> tuple[Victim, ...]:
    victims: list[Victim] = []
    for candidate in _in_order(search, reclaim, levels):
        holder = candidate.holder
        may_borrow = _may_borrow(search, candidate)
        # The first one is valid by the usage with which the search begins.
        if (borrowing and not may_borrow) or (victims and not _is_valid(search, holder.leaf)):
            continue
        search.release(holder)
        victims.append(Victim(holder=holder, reason=_reason(candidate.group, may_borrow)))
        if search.fits(borrowing=borrowing):
            return search.minimized(victims, borrowing=borrowing)
    search.restore(victims)
    return ()


def _reclaimable(search: _Search, reclaim: _ReclaimCandidates) -> Sequence[_Level]:
    """Return where there are candidates in other ClusterQueues."""
    # ``collectCandidatesForHierarchicalReclaim``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L149
    if not search.reclaims():
        return ()
    levels = [
        _Level(cohort, below, group)
        for below, (cohort, group) in zip(search.path, _groups_on_path(search), strict=False)
    ]
    if search.must_borrow():
        # Those by priority would all be passed over.
        levels = [level for level in levels if level.group is _Group.HIERARCHICAL]
    return [level for level in levels if next(_met_at(search, reclaim, level), None)]


def _met_at(search: _Search, reclaim: _ReclaimCandidates, level: _Level) -> Iterator[_Candidate]:
    """Yield the candidates that meet the preemptor in a cohort."""
    preemptor, policy = search.preemptor, search.policy.reclaim_within_cohort
    apart = search.candidates.leaves_below(level.below)
    takes_any = policy == ANY
    bound = inf if takes_any else preemptor.priority + (policy == LOWER_OR_NEWER_EQUAL_PRIORITY)
    for order, holder in reclaim.of(level.cohort, search.short):
        if holder.priority >= bound and not holder.is_evicted:
            # The others have this priority or a higher one.
            return
        if holder.leaf not in apart and (takes_any or satisfies_policy(preemptor, holder, policy)):
            yield _Candidate(order[0], level.group, order, holder)


def _groups_on_path(search: _Search) -> Iterator[tuple[int, _Group]]:
    """Yield the cohorts above the preemptor with the group of candidates that it meets there."""
    tree, remaining = search.tree, dict(search.preemptor.taken)
    has_advantage = False
    for node in search.path:
        if node != search.preemptor.leaf:
            yield node, _Group.HIERARCHICAL if has_advantage else _Group.BY_PRIORITY
        # Where a subtree's own quota suffices, all above it are in debt to it.
        # ``QuantitiesFitInQuota``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go#L233
        first = node * tree.width
        has_advantage = has_advantage or all(
            tree.subtree[first + cell] >= tree.used[first + cell] + amount
            for cell, amount in remaining.items()
        )
        for cell, amount in remaining.items():
            kept = max(0, tree.local[first + cell] - tree.used[first + cell])
            remaining[cell] = max(0, amount - kept)


def _common_cohort(search: _Search, leaf: int) -> int | None:
    """Return the lowest cohort that another ClusterQueue shares with the preemptor.

    None: nothing is reclaimed from it, as it, or a cohort between them, is within its quota.
    """
    for node in search.tree.path(leaf):
        if node in search.path:
            return node
        if not search.is_over(node):
            return None
    return None


def _is_valid(search: _Search, leaf: int) -> bool:
    # ``candidateIsValid``: earlier victims may have brought a subtree within its quota.
    return leaf == search.preemptor.leaf or _common_cohort(search, leaf) is not None


def _may_borrow(search: _Search, candidate: _Candidate) -> bool:
    """Return whether it is preempted also where the preemptor then borrows."""
    # ``classifyPreemptionVariant``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L81
    if candidate.group is not _Group.BY_PRIORITY:
        return True
    policy, priority = search.policy, candidate.holder.priority
    if policy.borrow_within_cohort == NEVER or priority >= search.preemptor.priority:
        return False
    return policy.max_priority_threshold is None or priority <= policy.max_priority_threshold


def _reason(group: _Group, may_borrow: bool) -> PreemptionReason:  # noqa: FBT001
    if group is _Group.SAME_QUEUE:
        return PreemptionReason.IN_CLUSTER_QUEUE
    if group is _Group.BY_PRIORITY and may_borrow:
        return PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    return PreemptionReason.IN_COHORT_RECLAMATION


def _in_order(
    search: _Search, reclaim: _ReclaimCandidates, levels: Sequence[_Level]
) -> Iterable[_Candidate]:
    # ``NewCandidateIterator``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/candidate_generator.go#L78
    own = _grouped(search.own(), _Group.SAME_QUEUE)
    if not levels:
        return _by_usage(search, own)
    others = (_met_at(search, reclaim, level) for level in levels)
    return _by_usage(search, heapq.merge(own, *others))


def _grouped(
    candidates: Iterable[tuple[_Order, QuotaHolder]], group: _Group
) -> Iterator[_Candidate]:
    for order, holder in candidates:
        yield _Candidate(is_kept=order[0], group=group, order=order, holder=holder)


def _by_usage(search: _Search, candidates: Iterable[_Candidate]) -> Iterable[_Candidate]:
    """Sort again by the usage of their LocalQueues, where admission fair sharing counts it."""
    usages = search.candidates.queue_usages
    if not usages:
        return candidates

    def compare(left: _Candidate, right: _Candidate) -> int:
        head, other_head = left[:2], right[:2]
        if head != other_head:
            return -1 if head < other_head else 1
        if left.holder.leaf == right.holder.leaf:
            usage = usages.get(left.holder.local_queue)
            other_usage = usages.get(right.holder.local_queue)
            if usage is not None and other_usage is not None and usage != other_usage:
                return -1 if usage > other_usage else 1
        return -1 if left.order < right.order else 1

    return sorted(candidates, key=cmp_to_key(compare))


def _fair(search: _Search, strategies: Sequence[str]) -> tuple[Victim, ...]:
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


def _by_queue(search: _Search) -> _Queues:
    # ``findCandidates``
    queues = {search.preemptor.leaf: search.own()}
    if search.reclaims():
        queues |= {leaf: search.others(leaf) for leaf in search.others_over()}
    return {
        leaf: (
            candidate.holder
            for candidate in _by_usage(search, _grouped(candidates, _Group.SAME_QUEUE))
        )
        for leaf, candidates in queues.items()
    }


def _by_first_strategy(
    search: _Search, order: _TargetOrder, strategy: str
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
    search: _Search, order: _TargetOrder, leaf: int, strategy: str
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


def _by_initial_share(search: _Search, order: _TargetOrder) -> list[Victim]:
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


_Queues: TypeAlias = Mapping[int, Iterable[QuotaHolder]]
"""By leaf."""


class _TargetOrder:
    """The ClusterQueues from which fair sharing preempts, the one that borrows most first.

    After each answer of ``next``, a candidate is popped or the ClusterQueue dropped.
    """

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/fairsharing/ordering.go

    def __init__(self, search: _Search, candidates: _Queues) -> None:
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

    def _first_order(self, leaf: int) -> tuple[bool, bool, _Order]:
        # Of ClusterQueues with equal shares, the one whose first candidate goes first.
        order = _order(self._first[leaf])
        return order[0], leaf == self._search.path[0], order
