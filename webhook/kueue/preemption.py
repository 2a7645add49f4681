"""Who may preempt whom by the policies of ClusterQueues: who wants quota, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from webhook.kueue.quota import Taken, tree_names
from webhook.model.queues import (
    ANY,
    LOWER_OR_NEWER_EQUAL_PRIORITY,
    LOWER_PRIORITY,
    NEVER,
    Preemption,
    Snapshot,
)


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


class Victim(NamedTuple):
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


def preempts_while_borrowing(policy: Preemption, *, fair_sharing: bool) -> bool:
    """Return whether a ClusterQueue may preempt for quota beyond its own."""
    # ``canPreemptWhileBorrowing``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
    by_shares = fair_sharing and policy.reclaim_within_cohort != NEVER
    return by_shares or policy.borrow_within_cohort != NEVER


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
