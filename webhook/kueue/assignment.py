"""Assign ResourceFlavors to a Workload in one ClusterQueue, and say whether it fits.

Mirrors Kueue's flavor assigner for one scheduling attempt of a new Workload. Preemption is not
simulated, only judged possible or not; of topologies, only the quota of their flavors is compared.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
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
    """What it takes to get quota for one resource in one flavor, from worst to best."""

    # EXCEEDS and WAITS are both ``noFit`` in Kueue, but only EXCEEDS is final.
    EXCEEDS = 0
    WAITS = 1
    NO_CANDIDATES = 2
    """The preemption policies allow preemption, but there is no Workload to preempt."""
    # Kueue ranks ``reclaim`` above ``preempt``; here both are one mode.
    MAY_PREEMPT = 3
    FITS = 4


Level: TypeAlias = tuple[PreemptionMode, int]
"""The mode, and the height of the subtree whose quota is used; 0: the ClusterQueue's own."""


def may_claim(preemption: Preemption, *, fair_sharing: bool, has_right: bool) -> bool:
    """Return whether a Workload may preempt for the quota that it lacks.

    *has_right*: the ClusterQueue's nominal quota would cover it, or the quota of a cohort for which
    it may reclaim.
    """
    # ``canPreemptWhileBorrowing`` in Kueue.
    borrows = preemption.borrow_within_cohort != NEVER or (
        fair_sharing and preemption.reclaim_within_cohort != NEVER
    )
    return has_right or borrows


def when_claimed(
    preemption: Preemption, *, lower_runs: bool, others_borrow: Callable[[], bool]
) -> PreemptionMode:
    """Return MAY_PREEMPT if there may be a Workload to preempt, else NO_CANDIDATES.

    *lower_runs*: a Workload of lower priority holds quota in the same ClusterQueue. *others_borrow*
    returns whether another ClusterQueue of the tree uses more than its nominal quota; it is called
    only where its answer matters.
    """
    # Kueue simulates the preemption; the counts of a snapshot only show that it is possible.
    within = preemption.within_cluster_queue != NEVER and lower_runs
    reclaims = preemption.reclaim_within_cohort != NEVER
    may = within or (reclaims and others_borrow())
    return PreemptionMode.MAY_PREEMPT if may else PreemptionMode.NO_CANDIDATES


def tries_next(level: Level, cluster_queue: ClusterQueue) -> bool:
    """Return whether Kueue also tries the next flavor of the group (``flavorFungibility``)."""
    # ``shouldTryNextFlavor`` in Kueue.
    mode, borrowed_from = level
    if mode < PreemptionMode.MAY_PREEMPT:
        return True
    if mode is PreemptionMode.MAY_PREEMPT and cluster_queue.when_can_preempt == TRY_NEXT:
        return True
    return borrowed_from > 0 and cluster_queue.when_can_borrow == TRY_NEXT


def is_better(left: Level, right: Level) -> bool:
    """Return whether *left* has the better mode or, with equal modes, the lower height."""
    # ``isPreferred`` in Kueue with its default, BorrowingOverPreemption; the other preference of
    # ``flavorFungibility`` is not modelled.
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
    """How one ClusterQueue would take a Workload; amounts are as in ``model.quantity``."""

    fit: Fit
    usage: Amounts = field(default_factory=dict)
    """The quota that it would be charged. Empty unless it fits."""
    height: int = 0
    """The height of the subtree from which it borrows, or would borrow; 0: it does not borrow."""
    set_aside: Amounts = field(default_factory=dict)
    """The quota that Kueue keeps free for it in each cycle while it heads a StrictFIFO queue."""
    detail: str = ""
    """The amounts behind ``fit``, for people."""
    rejection: Rejection | None = None
    """Why it can never fit; None: it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundQueue:
    """One ClusterQueue with everything that an assignment depends on."""

    cluster_queue: ClusterQueue
    snapshot: Snapshot
    quotas: Quotas
    held: Held
    priority: int = 0
    """The priority of the Workload that is to be assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """The outcome of trying one flavor, or of the best flavor of a resource group."""

    level: Level
    """The worst level of all resources."""
    height: int = 0
    """The largest height of all resources: one may borrow while another waits."""
    usage: Amounts = field(default_factory=dict)
    detail: str = ""
    reason: Reason | None = None
    """Why it can never fit; None: it can."""


_OWN_QUOTA = _Try(level=(PreemptionMode.FITS, 0))
"""It fits without borrowing."""


def assign(needs: Sequence[PodSetNeeds], place: FoundQueue) -> Assignment:
    """Assign a flavor to each resource group of each pod set.

    Each pod set counts what the pod sets before it would take.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    # A ClusterQueue under a cycle of cohorts is in no tree, and Kueue leaves it out of its cycles.
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
            attempt = _best_flavor(flavors, usage, place)
            if attempt.reason is not None:
                # One group that can never be served rules out the whole Workload.
                return _refused(Rejection(reason=attempt.reason, detail=attempt.detail))
            tries.append(attempt)
            for resource, amount in attempt.usage.items():
                usage[resource] = usage.get(resource, 0) + amount
    return _summed(tries, usage, place)


def _summed(tries: Sequence[_Try], usage: Amounts, place: FoundQueue) -> Assignment:
    """Combine the groups' outcomes: the worst mode and the largest height count."""
    worst = min(tries, key=lambda attempt: attempt.level[0])
    mode, height = worst.level[0], max(attempt.height for attempt in tries)
    fit = _FIT_OF[mode]
    if fit is Fit.FITS:
        return Assignment(fit=fit, usage=usage, height=height, detail=_taken(usage, place))
    # Kueue keeps quota free only for a Workload that it has assigned the mode Preempt.
    set_aside = _set_aside(usage, height, place) if mode > PreemptionMode.WAITS else {}
    return Assignment(fit=fit, height=height, set_aside=set_aside, detail=worst.detail)


def _set_aside(usage: Amounts, height: int, place: FoundQueue) -> Amounts:
    """Return the quota that Kueue keeps free for a Workload that could fit only by preemption.

    Empty where the ClusterQueue can always reclaim its quota (``CanAlwaysReclaim``): then nobody
    needs to be kept from it.
    """
    # ``quotaResourcesToReserve`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go
    if place.cluster_queue.preemption.reclaim_within_cohort == "Any":
        return {}
    kept: dict[FlavorResource, int] = {}
    for cell, amount in usage.items():
        ceiling = quota.ceiling(place.quotas, place.cluster_queue.name, cell, borrows=height > 0)
        kept[cell] = amount if ceiling is None else min(amount, ceiling)
    return {cell: amount for cell, amount in kept.items() if amount > 0}


def _refused(rejection: Rejection) -> Assignment:
    return Assignment(fit=Fit.NEVER, detail=rejection.detail, rejection=rejection)


def _best_flavor(flavors: Sequence[Flavor], taken: Amounts, place: FoundQueue) -> _Try:
    """Try a group's flavors in order, and stop where ``flavorFungibility`` says so."""
    best: _Try | None = None
    refusals: list[_Try] = []
    for flavor in flavors:
        attempt = _try_flavor(flavor, taken, place)
        if attempt.reason is not None:
            refusals.append(attempt)
            continue
        if not tries_next(attempt.level, place.cluster_queue):
            return attempt
        if best is None or is_better(attempt.level, best.level):
            best = attempt
    return best or _least_refusal(refusals)


def _least_refusal(refusals: Sequence[_Try]) -> _Try:
    """Return the refusal of the flavor that came closest, where none of a group can ever serve."""
    # A flavor with too little quota came closer than one whose taints or labels do not match.
    for refusal in refusals:
        if refusal.reason is Reason.EXCEEDS_MAXIMUM:
            return refusal
    if refusals:
        return refusals[0]
    return _Try(
        level=(PreemptionMode.EXCEEDS, 0), reason=Reason.NO_FLAVOR, detail="it has no flavors"
    )


def _try_flavor(flavor: Flavor, taken: Amounts, place: FoundQueue) -> _Try:
    """Check every resource of a flavor against quota; the worst outcome is the flavor's.

    Raises:
        FieldError: the template cannot be checked against this flavor.

    """
    # Raised only here, as Kueue also does not check flavors that it does not get to.
    if flavor.unreadable is not None:
        raise FieldError(flavor.unreadable.path, flavor.unreadable.message)
    if flavor.refusal is not None:
        return _Try(
            level=(PreemptionMode.EXCEEDS, 0), reason=Reason.NO_FLAVOR, detail=flavor.refusal
        )
    worst, height = _OWN_QUOTA, 0
    for cell, amount in flavor.amounts.items():
        attempt = _try_quota(cell, amount + taken.get(cell, 0), place)
        height = max(height, attempt.level[1])
        if not is_better(attempt.level, worst.level):
            worst = attempt
        if attempt.reason is not None:
            return attempt
    return _Try(level=worst.level, height=height, usage=flavor.amounts, detail=worst.detail)


def _try_quota(cell: FlavorResource, amount: int, place: FoundQueue) -> _Try:
    """Check one resource of one flavor; *amount* includes what earlier pod sets take."""
    # The order is that of ``fitsResourceQuota`` in Kueue: the maximum, what is free, preemption.
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
    """Return the mode of a resource that lacks quota: whether preemption could help."""
    preemption, queue, held = place.cluster_queue.preemption, place.cluster_queue.name, place.held
    has_right = quota.nominal(place.quotas, queue, cell) >= amount or reclaims
    fair_sharing = place.snapshot.kueue.fair_sharing
    if not may_claim(preemption, fair_sharing=fair_sharing, has_right=has_right):
        return PreemptionMode.WAITS
    # Where the lowest priority is unknown, preemption cannot be ruled out.
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
