"""The assignment of a Workload with the names and words that people read.

What is assigned is decided in ``kueue.assignment``; here it is said which flavors that are, and
what stands in the way where it does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from webhook.kueue import flavor_plan
from webhook.kueue.assignment import Assignment, Choice, Claimant, PreemptionMode, victims_of
from webhook.kueue.flavor_plan import Flavor
from webhook.kueue.placed_assignment import assign_placed
from webhook.kueue.quota import UsageTree
from webhook.kueue.topology_placement import NOTHING_PLACED, OccupiedDomains
from webhook.model import quantity
from webhook.model.decision import Fit, Rejection
from webhook.model.fields import FieldError
from webhook.model.queues import Amounts, FlavorResource, PodSetNeeds, Snapshot
from webhook.model.reasons import Reason

_NOT_LOOKED_AT = "; its topology is not looked at"
NOWHERE = Assignment(mode=PreemptionMode.EXCEEDS)
"""That of a Workload that the ClusterQueue can never take, whatever its quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAssignment:
    """How one ClusterQueue would take a Workload; amounts are as in ``model.quantity``."""

    fit: Fit
    usage: Amounts = field(default_factory=dict)
    """The quota that it would be charged. Empty unless it fits."""
    detail: str = ""
    """The amounts behind ``fit``, for people."""
    rejection: Rejection | None = None
    """Why it can never fit; None: it can."""
    assignment: Assignment = NOWHERE
    preempts: int = 0
    """How many Workloads Kueue would preempt for it, where that is known."""


def explained(
    needs: Sequence[PodSetNeeds],
    claimant: Claimant,
    snapshot: Snapshot,
    occupied: OccupiedDomains = NOTHING_PLACED,
) -> ExplainedAssignment:
    """Assign a flavor to each resource group of each pod set.

    *occupied* is what is in use in the domains of Topologies.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    plans = [flavor_plan.of(pod_set, claimant.queue, snapshot) for pod_set in needs]
    for plan in plans:
        if plan.rejection is not None:
            return refused(plan.rejection)
    groups = flavor_plan.parts(needs, plans)
    choices = _choices(groups, claimant.tree)
    assigned = assign_placed(needs, choices, claimant, snapshot, occupied)
    if assigned.mode is PreemptionMode.EXCEEDS:
        return refused(_rejection(assigned, groups, claimant))
    if assigned.mode is PreemptionMode.FITS:
        usage = claimant.tree.amounts(assigned.taken)
        detail = _taken(usage, snapshot, is_placed=assigned.is_placed)
        return ExplainedAssignment(fit=Fit.FITS, usage=usage, detail=detail, assignment=assigned)
    if assigned.is_placed:
        detail = f"no domain of flavor {_names(assigned.flavors)} has room"
        return ExplainedAssignment(fit=Fit.WAITS, detail=detail, assignment=assigned)
    detail = _lacking(assigned, groups, claimant)
    # The flavors were chosen resource by resource; the targets must free all of them at once.
    victims = victims_of(assigned, claimant)
    fit = Fit.WAITS if victims == 0 else Fit.MAY_PREEMPT
    return ExplainedAssignment(fit=fit, detail=detail, assignment=assigned, preempts=victims or 0)


def as_waiting(found: ExplainedAssignment) -> ExplainedAssignment:
    """Return an assignment for which nobody is preempted, because another Workload is tried."""
    return replace(found, fit=Fit.WAITS, preempts=0)


def as_unplaced(found: ExplainedAssignment) -> ExplainedAssignment:
    """Return an assignment of which it is not known any more that domains have room for it."""
    if not found.assignment.is_placed:
        return found
    unplaced = replace(found.assignment, is_placed=False)
    return replace(found, assignment=unplaced, detail=f"{found.detail}{_NOT_LOOKED_AT}")


def refused(rejection: Rejection) -> ExplainedAssignment:
    return ExplainedAssignment(fit=Fit.NEVER, detail=rejection.detail, rejection=rejection)


def parts_of(
    needs: Sequence[PodSetNeeds], claimant: Claimant, snapshot: Snapshot
) -> Sequence[Sequence[Choice]]:
    """Translate needs into the indices of a tree, without the flavors that can never serve."""
    plans = [flavor_plan.of(pod_set, claimant.queue, snapshot) for pod_set in needs]
    if any(plan.rejection is not None for plan in plans):
        return ((),)
    return _choices(flavor_plan.parts(needs, plans), claimant.tree)


def _choices(groups: Iterable[Iterable[Flavor]], tree: UsageTree) -> Sequence[Sequence[Choice]]:
    return [
        [_choice(flavor, tree) for flavor in flavors if flavor.refusal is None]
        for flavors in groups
    ]


def _choice(flavor: Flavor, tree: UsageTree) -> Choice:
    return flavor.name, tree.taken(flavor.amounts) if flavor.unreadable is None else None


def _rejection(
    assigned: Assignment, groups: Sequence[Sequence[Flavor]], claimant: Claimant
) -> Rejection:
    """Return why none of a group's flavors can ever serve."""
    # A flavor with too little quota came closer than one whose taints or labels do not match.
    if assigned.lacking is None:
        refusals = next(
            [flavor.refusal for flavor in flavors]
            for flavors in groups
            if all(flavor.refusal is not None for flavor in flavors)
        )
        nothing = Rejection(reason=Reason.NO_FLAVOR, detail="it has no flavors")
        return next(iter(refusals), None) or nothing
    at, amount = assigned.lacking
    cell = claimant.tree.cells[at]
    most = quantity.render(claimant.tree.potential(claimant.leaf, at), resource=cell[1])
    detail = f"asks for {_amount(cell, amount)}; ClusterQueue {claimant.queue.name} can never have "
    return Rejection(reason=Reason.EXCEEDS_MAXIMUM, detail=f"{detail}more than {most}")


def _lacking(assigned: Assignment, groups: Sequence[Sequence[Flavor]], claimant: Claimant) -> str:
    """Return how much is needed and how much is free of the resource that decides.

    Raises:
        FieldError: the template cannot be checked against a flavor, and that decides.

    """
    if assigned.lacking is None:
        # Raised only here, as Kueue also does not check flavors that it does not get to.
        faults = (flavor.unreadable for flavors in groups for flavor in flavors)
        fault = next(fault for fault in faults if fault is not None)
        raise FieldError(fault.path, fault.message)
    at, amount = assigned.lacking
    cell = claimant.tree.cells[at]
    free = max(0, claimant.tree.available(claimant.leaf, at))
    return f"needs {_amount(cell, amount)}, {quantity.render(free, resource=cell[1])} free"


def _amount(cell: FlavorResource, amount: int) -> str:
    flavor, resource = cell
    return f"{resource} {quantity.render(amount, resource=resource)} (flavor {flavor})"


def _names(flavors: Iterable[str]) -> str:
    return ", ".join(sorted(set(flavors)))


def _taken(usage: Amounts, snapshot: Snapshot, *, is_placed: bool) -> str:
    names = {flavor for flavor, _ in usage}
    text = f"flavor {_names(names)}" if names else "asks for nothing"
    if not is_placed and any(snapshot.flavors[name].topology for name in names):
        text += _NOT_LOOKED_AT
    return text
