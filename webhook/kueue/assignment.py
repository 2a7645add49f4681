"""Which ResourceFlavor each resource of a Job gets in a ClusterQueue, and so whether it fits.

The rule is that of Kueue's ``flavorassigner.go``, for one scheduling attempt of a new Workload.
Topologies are not modelled: a Job that asks for one is refused, of the rest the detail says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from webhook.kueue import flavor_plan, quota
from webhook.kueue.flavor_plan import Flavor
from webhook.kueue.quota import Quotas
from webhook.model import quantity
from webhook.model.decision import Fit, Rejection
from webhook.model.fields import FieldError
from webhook.model.queues import (
    Amounts,
    ClusterQueue,
    FlavorResource,
    Held,
    PodSetNeeds,
    Preemption,
    Snapshot,
)
from webhook.model.reasons import Reason

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


_FIT_OF = {
    PreemptionMode.EXCEEDS: Fit.NEVER,
    PreemptionMode.WAITS: Fit.WAITS,
    PreemptionMode.NO_CANDIDATES: Fit.WAITS,
    PreemptionMode.MAY_PREEMPT: Fit.MAY_PREEMPT,
    PreemptionMode.FITS: Fit.FITS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    fit: Fit
    usage: Amounts = field(default_factory=dict)
    """What it would charge. Empty unless it fits."""
    height: int = 0
    """How far up the cohorts it borrows, or would borrow, from; 0: not at all."""
    set_aside: Amounts = field(default_factory=dict)
    """What Kueue keeps free for it at each look while it is the head of a StrictFIFO queue."""
    detail: str = ""
    """The numbers behind ``fit``, for people."""
    rejection: Rejection | None = None
    """Given where it can never fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundQueue:
    """A ClusterQueue as a Job finds it."""

    cluster_queue: ClusterQueue
    snapshot: Snapshot
    quotas: Quotas
    held: Held
    priority: int = 0
    """The Job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """What came of one flavor, or of the best one of a group."""

    level: Level
    """Of the resource that fares worst."""
    height: int = 0
    """The largest of all its resources: one may borrow while another waits."""
    usage: Amounts = field(default_factory=dict)
    detail: str = ""
    reason: Reason | None = None
    """Why it can never be; None: it can."""


_OWN_QUOTA = _Try(level=(PreemptionMode.FITS, 0))
"""It fits, and nothing is borrowed."""


def assign(needs: Sequence[PodSetNeeds], place: FoundQueue) -> Assignment:
    """Find flavors for all pod sets; later ones see what earlier ones take.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    if not place.quotas.holds(place.cluster_queue.name):
        detail = f"the cohorts of ClusterQueue {place.cluster_queue.name} form a cycle"
        return _refused(Rejection(reason=Reason.INACTIVE, detail=detail))
    usage: dict[FlavorResource, int] = {}
    tries: list[_Try] = [_OWN_QUOTA]
    for pod_set in needs:
        plan = flavor_plan.of(pod_set, place.cluster_queue, place.snapshot)
        if plan.rejection is not None:
            return _refused(plan.rejection)
        for flavors in plan.groups:
            found = _best_flavor(flavors, usage, place)
            if found.reason is not None:
                return _refused(Rejection(reason=found.reason, detail=found.detail))
            tries.append(found)
            for resource, amount in found.usage.items():
                usage[resource] = usage.get(resource, 0) + amount
    return _summed(tries, usage, place)


def _summed(tries: Sequence[_Try], usage: Amounts, place: FoundQueue) -> Assignment:
    worst = min(tries, key=lambda found: found.level[0])
    mode, height = worst.level[0], max(found.height for found in tries)
    fit = _FIT_OF[mode]
    if fit is Fit.FITS:
        return Assignment(fit=fit, usage=usage, height=height, detail=_taken(usage, place))
    set_aside = _set_aside(usage, height, place) if mode > PreemptionMode.WAITS else {}
    return Assignment(fit=fit, height=height, set_aside=set_aside, detail=worst.detail)


def _set_aside(usage: Amounts, height: int, place: FoundQueue) -> Amounts:
    """Say what Kueue keeps free for a Workload that has a right to quota which others hold.

    Not where the ClusterQueue may always take its quota back (``CanAlwaysReclaim``): then nobody
    needs to be kept from it (``quotaResourcesToReserve`` in Kueue's ``scheduler.go``).
    """
    if place.cluster_queue.preemption.reclaim_within_cohort == "Any":
        return {}
    found: dict[FlavorResource, int] = {}
    for cell, amount in usage.items():
        ceiling = quota.ceiling(place.quotas, place.cluster_queue.name, cell, borrows=height > 0)
        found[cell] = amount if ceiling is None else min(amount, ceiling)
    return {cell: amount for cell, amount in found.items() if amount > 0}


def _refused(rejection: Rejection) -> Assignment:
    return Assignment(fit=Fit.NEVER, detail=rejection.detail, rejection=rejection)


def _best_flavor(flavors: Sequence[Flavor], taken: Amounts, place: FoundQueue) -> _Try:
    """Try a group's flavors in order, and stop where the ClusterQueue's fungibility says."""
    best: _Try | None = None
    refusals: list[_Try] = []
    for flavor in flavors:
        found = _try_flavor(flavor, taken, place)
        if found.reason is not None:
            refusals.append(found)
            continue
        if not tries_next(found.level, place.cluster_queue):
            return found
        if best is None or is_better(found.level, best.level):
            best = found
    return best or _least_refusal(refusals)


def _least_refusal(refusals: Sequence[_Try]) -> _Try:
    """Of several flavors that can never serve, say the one that came closest."""
    for refusal in refusals:
        if refusal.reason is Reason.EXCEEDS_MAXIMUM:
            return refusal
    if refusals:
        return refusals[0]
    return _Try(
        level=(PreemptionMode.EXCEEDS, 0), reason=Reason.NO_FLAVOR, detail="it has no flavors"
    )


def _try_flavor(flavor: Flavor, taken: Amounts, place: FoundQueue) -> _Try:
    if flavor.unreadable is not None:
        raise FieldError(flavor.unreadable.path, flavor.unreadable.message)
    if flavor.refusal is not None:
        return _Try(
            level=(PreemptionMode.EXCEEDS, 0), reason=Reason.NO_FLAVOR, detail=flavor.refusal
        )
    worst, height = _OWN_QUOTA, 0
    for cell, amount in flavor.amounts.items():
        found = _try_quota(cell, amount + taken.get(cell, 0), place)
        height = max(height, found.level[1])
        if not is_better(found.level, worst.level):
            worst = found
        if found.reason is not None:
            return found
    return _Try(level=worst.level, height=height, usage=flavor.amounts, detail=worst.detail)


def _try_quota(cell: FlavorResource, amount: int, place: FoundQueue) -> _Try:
    """Weigh one resource of one flavor; *amount* includes what earlier pod sets take."""
    queue = place.cluster_queue.name
    most = quota.potential(place.quotas, queue, cell)
    if amount > most:
        detail = f"asks for {_amount(cell, amount)}; ClusterQueue {queue} can never have more than "
        detail += quantity.render(most, resource=cell[1])
        return _Try(level=(PreemptionMode.EXCEEDS, 0), reason=Reason.EXCEEDS_MAXIMUM, detail=detail)
    height, reclaims = quota.borrowing_height(place.quotas, queue, cell, amount)
    free = quota.available(place.quotas, queue, cell)
    if amount <= free:
        return _Try(level=(PreemptionMode.FITS, height)) if height else _OWN_QUOTA
    free_text = quantity.render(free, resource=cell[1])
    detail = f"needs {_amount(cell, amount)}, {free_text} free"
    return _Try(
        level=(_short_of_quota(cell, amount, place, reclaims=reclaims), height), detail=detail
    )


def _short_of_quota(
    cell: FlavorResource, amount: int, place: FoundQueue, *, reclaims: bool
) -> PreemptionMode:
    """Say whether preemption could help."""
    preemption, queue, held = place.cluster_queue.preemption, place.cluster_queue.name, place.held
    has_right = quota.nominal(place.quotas, queue, cell) >= amount or reclaims
    fair_sharing = place.snapshot.kueue.fair_sharing
    if not may_claim(preemption, fair_sharing=fair_sharing, has_right=has_right):
        return PreemptionMode.WAITS
    lower = held.lowest_priority is None or held.lowest_priority < place.priority
    return when_claimed(
        preemption,
        lower_runs=held.reserving > 0 and lower,
        others_borrow=lambda: quota.over_nominal(place.quotas, queue, cell),
    )


def _amount(cell: FlavorResource, amount: int) -> str:
    flavor, resource = cell
    return f"{resource} {quantity.render(amount, resource=resource)} (flavor {flavor})"


def _taken(usage: Amounts, place: FoundQueue) -> str:
    names = sorted({flavor for flavor, _ in usage})
    text = f"flavor {', '.join(names)}" if names else "asks for nothing"
    if any(place.snapshot.flavors[name].topology for name in names):
        text += "; its topology is not looked at"
    return text
