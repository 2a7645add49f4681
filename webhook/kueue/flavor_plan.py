"""What the flavors of a ClusterQueue are for a pod set, whatever is used of them: worked out once.

Taints, selectors and what is covered depend on the template and the ClusterQueue alone, and equal
templates share what they need; so only quota is looked at for each Job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from webhook.kueue.flavor_match import asks_for_topology, mismatch
from webhook.model import quantity
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.queues import Amounts, ClusterQueue, PodSetNeeds, ResourceGroup, Snapshot
from webhook.model.refusals import Reason

_PODS = "pods"
_KEPT = 256
"""ClusterQueues for which a pod set's plan is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """One flavor for one pod set."""

    amounts: Amounts
    """What would be charged to it."""
    refusal: str | None = None
    """Why it can never serve."""
    unreadable: FieldError | None = None
    """The template cannot be held against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    groups: tuple[tuple[Flavor, ...], ...] = ()
    """Of each resource group that something is asked of, the flavors in order."""
    rejection: Rejection | None = None
    """Why the ClusterQueue can never take it."""


def of(pod_set: PodSetNeeds, cluster_queue: ClusterQueue, snapshot: Snapshot) -> Plan:
    """Recall the plan; what it depends on is told apart by which objects it is."""
    depends_on = cluster_queue, snapshot.flavors, snapshot.kueue
    key = id(cluster_queue), id(snapshot.flavors), id(snapshot.kueue)
    found = pod_set.known.get(key)
    if found is None:
        if len(pod_set.known) >= _KEPT:
            pod_set.known.clear()
        # They stay with their ids, so that no other object can get one of these.
        found = pod_set.known[key] = depends_on, _plan(pod_set, cluster_queue, snapshot)
    return cast("Plan", found[1])


def _plan(pod_set: PodSetNeeds, cluster_queue: ClusterQueue, snapshot: Snapshot) -> Plan:
    total = pod_set.total
    rejection = _uncovered(total, cluster_queue, snapshot)
    if rejection is not None:
        return Plan(rejection=rejection)
    groups = []
    for group in cluster_queue.groups:
        wanted = _wanted(pod_set, total, group)
        if wanted:
            flavors = (
                _flavor(pod_set, name, wanted, cluster_queue, snapshot) for name in group.flavors
            )
            groups.append(tuple(flavors))
    return Plan(groups=tuple(groups))


def _uncovered(
    total: Mapping[str, int], cluster_queue: ClusterQueue, snapshot: Snapshot
) -> Rejection | None:
    if snapshot.kueue.ignore_undeclared:
        return None
    covered = {resource for group in cluster_queue.groups for resource in group.resources}
    missing = [name for name, amount in total.items() if amount and name not in covered]
    if not missing:
        return None
    text = f"{min(missing)} {quantity.render(total[min(missing)], resource=min(missing))}"
    detail = f"asks for {text}, which ClusterQueue {cluster_queue.name} does not cover"
    return Rejection(reason=Reason.NOT_COVERED, detail=detail)


def _wanted(pod_set: PodSetNeeds, total: Mapping[str, int], group: ResourceGroup) -> dict[str, int]:
    wanted = {name: total[name] for name in total if name in group.resources}
    if _PODS in group.resources:
        wanted[_PODS] = pod_set.count
    return wanted


def _flavor(
    pod_set: PodSetNeeds,
    name: str,
    wanted: Mapping[str, int],
    cluster_queue: ClusterQueue,
    snapshot: Snapshot,
) -> Flavor:
    amounts = {(name, resource): amount for resource, amount in wanted.items()}
    try:
        refusal = _refusal(pod_set, name, cluster_queue, snapshot)
    except FieldError as error:
        return Flavor(amounts=amounts, unreadable=error)
    return Flavor(amounts=amounts, refusal=refusal)


def _refusal(
    pod_set: PodSetNeeds, name: str, cluster_queue: ClusterQueue, snapshot: Snapshot
) -> str | None:
    flavor = snapshot.flavors.get(name)
    if flavor is None:
        return f"ResourceFlavor {name} not found"
    if asks_for_topology(pod_set.template):
        if not flavor.topology:
            return f"flavor {name} has no topology"
    elif flavor.topology and not _only_topologies(cluster_queue, snapshot):
        return f"flavor {name} serves only Jobs that ask for a topology"
    return mismatch(pod_set.template, flavor)


def _only_topologies(cluster_queue: ClusterQueue, snapshot: Snapshot) -> bool:
    """Tell whether Kueue takes every Job of this ClusterQueue to ask for a topology."""
    names = [name for group in cluster_queue.groups for name in group.flavors]
    flavors = snapshot.flavors
    return all(name in flavors and flavors[name].topology for name in names)
