"""Whether a resource may have a flavor now, by preemption, or later, and which flavor is taken.

The rule is that of ``fitsResourceQuota``, ``isPreferred`` and ``shouldTryNextFlavor`` in Kueue's
``flavorassigner.go``. Who would be preempted is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from webhook.model.queues import ClusterQueue, Preemption

NEVER = "Never"
TRY_NEXT = "TryNextFlavor"


class PreemptionMode(IntEnum):
    """How a resource gets its flavor, from worst to best."""

    EXCEEDS = 0
    WAITS = 1
    NO_CANDIDATES = 2
    """Preemption is allowed, and nobody is there to preempt."""
    MAY_PREEMPT = 3
    FITS = 4


Level: TypeAlias = tuple[PreemptionMode, int]
"""The mode, and the height in the tree from which quota is borrowed (0: its own)."""


def may_claim(preemption: Preemption, *, fair_sharing: bool, has_right: bool) -> bool:
    """Tell whether what is short may be had by preemption.

    *has_right*: its nominal quota is enough, or that of a cohort which it reclaims for.
    """
    borrows = preemption.borrow_within_cohort != NEVER or (
        fair_sharing and preemption.reclaim_within_cohort != NEVER
    )
    return has_right or borrows


def when_claimed(
    preemption: Preemption, *, lower_runs: bool, others_borrow: Callable[[], bool]
) -> PreemptionMode:
    """Tell whether anybody could be preempted.

    *lower_runs*: of its own ClusterQueue; *others_borrow* tells whether they use more than is
    theirs, and is asked where it matters only.
    """
    within = preemption.within_cluster_queue != NEVER and lower_runs
    reclaims = preemption.reclaim_within_cohort != NEVER
    may = within or (reclaims and others_borrow())
    return PreemptionMode.MAY_PREEMPT if may else PreemptionMode.NO_CANDIDATES


def tries_next(level: Level, cluster_queue: ClusterQueue) -> bool:
    """Tell whether the next flavor is looked at too."""
    mode, borrowed_from = level
    if mode < PreemptionMode.MAY_PREEMPT:
        return True
    if mode is PreemptionMode.MAY_PREEMPT and cluster_queue.when_can_preempt == TRY_NEXT:
        return True
    return borrowed_from > 0 and cluster_queue.when_can_borrow == TRY_NEXT


def is_better(left: Level, right: Level) -> bool:
    """Prefer the better mode, then the quota that is borrowed from nearer by."""
    return left[0] > right[0] or (left[0] == right[0] and left[1] < right[1])
