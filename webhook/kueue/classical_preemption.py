"""Whom Kueue preempts without fair sharing, hierarchical cohorts included.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from webhook.kueue.pooled_preemption import PooledSearch
from webhook.kueue.preemption import PreemptionReason, Victim, satisfies_policy
from webhook.kueue.preemption_candidates import (
    Candidate,
    CandidateGroup,
    ReclaimCandidates,
    grouped,
)
from webhook.kueue.preemption_search import PreemptionSearch, by_usage
from webhook.model.queues import ANY, LOWER_OR_NEWER_EQUAL_PRIORITY, NEVER


class _Level(NamedTuple):
    """Where others meet the preemptor: in a cohort above it, but not in the node below that."""

    cohort: int
    below: int
    group: CandidateGroup


def classical_victims(search: PreemptionSearch, reclaim: ReclaimCandidates) -> tuple[Victim, ...]:
    """Return whom to preempt; none: preempting does not help."""
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


def _likeness(search: PreemptionSearch) -> tuple[object, ...] | None:
    """Return what a search that ends with others depends on; None: on its own ClusterQueue, too.

    Those in its own ClusterQueue go last, but for those that are evicted already.
    """
    tree, preemptor, policy = search.tree, search.preemptor, search.policy
    if search.is_over(preemptor.leaf) or search.candidates.queue_usages:
        return None
    if search.candidates.is_evicting(preemptor.leaf):
        return None
    takes_any = policy.reclaim_within_cohort == ANY and policy.borrow_within_cohort == NEVER
    by_age = policy.reclaim_within_cohort == LOWER_OR_NEWER_EQUAL_PRIORITY
    return (
        search.path[1:] if tree.shares_all else search.path,
        all(tree.used[at] + amount <= tree.nominal[at] for at, amount in search.places()),
        search.is_under_nominal(),
        preemptor.taken,
        search.short,
        0 if takes_any else preemptor.priority,
        preemptor.queued_at if by_age else 0,
        policy,
    )


def _attempts(search: PreemptionSearch, levels: Sequence[_Level]) -> tuple[bool, ...]:
    """Return in which order it is tried with (True) and without borrowing."""
    if not levels or search.must_borrow():
        return (True,)
    is_by_priority = all(level.group is not CandidateGroup.HIERARCHICAL for level in levels)
    if search.policy.borrow_within_cohort == NEVER and is_by_priority:
        return False, True
    return True, False


def _attempt(
    search: PreemptionSearch,
    reclaim: ReclaimCandidates,
    levels: Sequence[_Level],
    *,
    borrowing: bool,
) -> tuple[Victim, ...]:
    if borrowing:
        levels = [level for level in levels if _may_be_while_borrowing(search, level)]
    within_quota: set[int] = set()
    candidates: Iterable[Candidate] = _in_order(search, reclaim, levels, within_quota)
    if borrowing:
        candidates = (each for each in candidates if _may_borrow(search, each))
    if search.tree.shares_all:
        found = PooledSearch(search, borrowing=borrowing).victims(candidates, within_quota)
        return tuple(_victim(search, candidate) for candidate in found)
    return _victims(search, candidates, within_quota, borrowing=borrowing)


def _victims(
    search: PreemptionSearch,
    candidates: Iterable[Candidate],
    within_quota: set[int],
    *,
    borrowing: bool,
) -> tuple[Victim, ...]:
    """Return whom to preempt of these candidates, which go in this order.

    The ClusterQueues from which nothing may be reclaimed any more are added to *within_quota*.
    """
    victims: list[Victim] = []
    for candidate in candidates:
        holder = candidate.holder
        if holder.leaf in within_quota:
            continue
        # The first one is valid by the usage with which the search begins.
        if victims and not _is_valid(search, holder.leaf):
            # Until the search ends, usage only falls.
            within_quota.add(holder.leaf)
            continue
        search.release(holder)
        victims.append(_victim(search, candidate))
        if search.fits(borrowing=borrowing):
            return search.minimized(victims, borrowing=borrowing)
    search.restore(victims)
    return ()


def _reclaimable(search: PreemptionSearch, reclaim: ReclaimCandidates) -> Sequence[_Level]:
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
        levels = [level for level in levels if _may_be_while_borrowing(search, level)]
    return [level for level in levels if next(_met_at(search, reclaim, level, ()), None)]


def _may_be_while_borrowing(search: PreemptionSearch, level: _Level) -> bool:
    """Return whether not all candidates of a level are passed over where the preemptor borrows."""
    is_by_priority = level.group is CandidateGroup.BY_PRIORITY
    return not is_by_priority or search.policy.borrow_within_cohort != NEVER


def _met_at(
    search: PreemptionSearch,
    reclaim: ReclaimCandidates,
    level: _Level,
    within_quota: Collection[int],
) -> Iterator[Candidate]:
    """Yield the candidates that meet the preemptor in a cohort.

    Those of ClusterQueues that are known to be *within_quota* by now are left out.
    """
    preemptor, policy = search.preemptor, search.policy.reclaim_within_cohort
    apart = search.candidates.leaves_below(level.below)
    if apart.issuperset(reclaim.leaves(level.cohort, search.short)):
        return
    takes_any = policy == ANY
    bound = inf if takes_any else preemptor.priority + (policy == LOWER_OR_NEWER_EQUAL_PRIORITY)
    for candidate in reclaim.of(level.cohort, search.short, level.group):
        holder = candidate.holder
        if holder.priority >= bound and not holder.is_evicted:
            # The others have this priority or a higher one.
            return
        if holder.leaf in apart or holder.leaf in within_quota:
            continue
        if takes_any or satisfies_policy(preemptor, holder, policy):
            yield candidate


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
        for cell, amount in remaining.items() if tree.keeps else ():
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


def _is_valid(search: PreemptionSearch, leaf: int) -> bool:
    # ``candidateIsValid``: earlier victims may have brought a subtree within its quota.
    return leaf == search.preemptor.leaf or _common_cohort(search, leaf) is not None


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


def _victim(search: PreemptionSearch, candidate: Candidate) -> Victim:
    reason = PreemptionReason.IN_COHORT_RECLAMATION
    if candidate.group is CandidateGroup.SAME_QUEUE:
        reason = PreemptionReason.IN_CLUSTER_QUEUE
    elif candidate.group is CandidateGroup.BY_PRIORITY and _may_borrow(search, candidate):
        reason = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    return Victim(holder=candidate.holder, reason=reason)


def _in_order(
    search: PreemptionSearch,
    reclaim: ReclaimCandidates,
    levels: Sequence[_Level],
    within_quota: Collection[int],
) -> Iterable[Candidate]:
    # ``NewCandidateIterator``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/candidate_generator.go#L78
    own = grouped(search.own(), CandidateGroup.SAME_QUEUE)
    others = [_met_at(search, reclaim, level, within_quota) for level in levels]
    if search.candidates.is_evicting(search.preemptor.leaf):
        return by_usage(search, heapq.merge(own, *others))
    # Unless some of its own are evicted already, they come last.
    return by_usage(search, chain(others[0] if len(others) == 1 else heapq.merge(*others), own))
