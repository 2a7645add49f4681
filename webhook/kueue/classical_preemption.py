"""Whom Kueue preempts without fair sharing, hierarchical cohorts included.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from webhook.kueue.preemption import (
    Candidate,
    CandidateGroup,
    PreemptionReason,
    PreemptionSearch,
    Victim,
)
from webhook.model.queues import NEVER


def classical_victims(search: PreemptionSearch) -> tuple[Victim, ...]:
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
) -> tuple[Victim, ...]:
    victims: list[Victim] = []
    for candidate in _candidates(search, others, borrowing=borrowing):
        if not _is_valid(search, candidate, borrowing=borrowing):
            continue
        search.release(candidate.holder)
        victims.append(Victim(holder=candidate.holder, reason=_reason(search, candidate)))
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
