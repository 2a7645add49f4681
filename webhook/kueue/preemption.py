"""Who may preempt whom by the policies of ClusterQueues, in which order, and when that is enough.

Whom a ``PreemptionSearch`` chooses is in ``preemptor``.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cmp_to_key
from itertools import chain, combinations
from typing import NamedTuple

from webhook.kueue.quota import Taken, UsageTree, tree_names
from webhook.model.queues import (
    ANY,
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


def preempts_while_borrowing(policy: Preemption, *, fair_sharing: bool) -> bool:
    """Return whether a ClusterQueue may preempt for quota beyond its own."""
    # ``canPreemptWhileBorrowing``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
    by_shares = fair_sharing and policy.reclaim_within_cohort != NEVER
    return by_shares or policy.borrow_within_cohort != NEVER


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
