"""What the flavors of a ClusterQueue are for a pod set, whatever is used of them: worked out once.

Taints, selectors and what is covered depend on the template and the ClusterQueue alone, and equal
templates share what they need; so only quota is looked at for each Job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, cast

from webhook.model import fields, quantity
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.pods import PodTemplate
from webhook.model.queues import (
    Amounts,
    ClusterQueue,
    FlavorResource,
    PodSetNeeds,
    ResourceFlavor,
    ResourceGroup,
    Snapshot,
)
from webhook.model.reasons import Reason
from webhook.model.selector import Expression, Taint, read_expressions, read_toleration

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
TOPOLOGY = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
_AFFINITY = "spec.template.spec.affinity.nodeAffinity"


def asks_for_topology(template: PodTemplate) -> bool:
    return any(name in template.annotations for name in TOPOLOGY)


def mismatch(template: PodTemplate, flavor: ResourceFlavor) -> str | None:
    """Say why *flavor* is not for this pod; None: it is.

    Raises:
        FieldError: a toleration or an affinity term cannot be read.

    """
    taint = _untolerated(template, flavor)
    if taint is not None:
        return f"flavor {flavor.name} has the taint {_written(taint)}, which is not tolerated"
    for key, value in template.node_selector.items():
        if key in flavor.node_labels and flavor.node_labels[key] != value:
            has = flavor.node_labels[key]
            return f"flavor {flavor.name} has {key}={has}, the node selector asks for {value}"
    if not _affinity_matches(template, flavor):
        return f"flavor {flavor.name} does not match the required node affinity"
    return None


def _untolerated(template: PodTemplate, flavor: ResourceFlavor) -> Taint | None:
    taints = [taint for taint in flavor.taints if taint.effect in _KEEPS_OUT]
    if not taints:
        return None
    tolerations = [
        read_toleration(item, f"spec.template.spec.tolerations[{index}]")
        for index, item in enumerate(template.tolerations)
    ]
    tolerations += flavor.tolerations
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def _affinity_matches(template: PodTemplate, flavor: ResourceFlavor) -> bool:
    """Tell whether one term matches; a term that names none of the flavor's labels matches."""
    terms = _required_terms(template)
    if not terms:
        return True
    for term in terms:
        relevant = [item for item in term if item.key in flavor.node_labels]
        if all(expression.matches(flavor.node_labels) for expression in relevant):
            return True
    return False


def _required_terms(template: PodTemplate) -> list[tuple[Expression, ...]]:
    if template.affinity is None:
        return []
    affinity: Mapping[str, Any] = template.affinity
    path = fields.child(_AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution")
    node = fields.mapping(affinity, "nodeAffinity", "spec.template.spec.affinity")
    required = fields.mapping(node, "requiredDuringSchedulingIgnoredDuringExecution", _AFFINITY)
    return [
        read_expressions(term, "matchExpressions", here)
        for term, here in fields.objects(required, "nodeSelectorTerms", path)
    ]


def _written(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


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


_COMBINATIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorChoice:
    """One flavor that a part of a Workload may get, and what it would use of it."""

    flavor: str
    usage: tuple[tuple[FlavorResource, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Parts of a Workload, each with its choices in the order in which Kueue tries them."""

    parts: tuple[tuple[FlavorChoice, ...], ...]

    combinations: tuple[str, ...]
    """The flavors that a Workload may get, as ``model.forecasts.Estimates`` names them; Kueue's
    first choice is the first. At most so many that looking each up is cheap."""

    @property
    def is_possible(self) -> bool:
        """Tell whether some flavor is there for each part."""
        return all(self.parts)

    @property
    def cells(self) -> frozenset[FlavorResource]:
        """List what it may use."""
        parts = (choice.usage for part in self.parts for choice in part)
        return frozenset(cell for usage in parts for cell, amount in usage if amount)


NOWHERE = Demand(parts=((),), combinations=())
"""That of a Workload that can only wait."""


def demand(needs: Sequence[PodSetNeeds], cluster_queue: ClusterQueue, snapshot: Snapshot) -> Demand:
    """Find the flavors that each pod set may get from each group of resources.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    parts: list[tuple[FlavorChoice, ...]] = []
    for pod_set in needs:
        plan = of(pod_set, cluster_queue, snapshot)
        if plan.rejection is not None:
            return NOWHERE
        parts += [tuple(_choices(flavors)) for flavors in plan.groups]
    return Demand(parts=tuple(parts), combinations=_combinations(parts))


def _choices(flavors: Sequence[Flavor]) -> Iterator[FlavorChoice]:
    for flavor in flavors:
        if flavor.unreadable is not None:
            raise FieldError(flavor.unreadable.path, flavor.unreadable.message)
        if flavor.refusal is None:
            (name, _), *_ = flavor.amounts
            yield FlavorChoice(flavor=name, usage=tuple(flavor.amounts.items()))


def _combinations(parts: Sequence[tuple[FlavorChoice, ...]]) -> tuple[str, ...]:
    names = product(*([choice.flavor for choice in part] for part in parts))
    found = {",".join(sorted(set(each))): None for each in islice(names, _COMBINATIONS)}
    return tuple(found)
