"""Which flavors of a ClusterQueue a pod set may use, and what each of them would be charged.

Taints, selectors and covered resources depend on the template and the ClusterQueue alone, so a plan
is made once for equal templates. ``demand`` turns the plans of a Workload into the choices that
forecasts try, with fewer pods where it does with fewer, as Kueue's ``PodSetReducer`` takes them
from all pod sets alike. What is used or free is not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/podset_reducer.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from operator import attrgetter
from typing import Generic, TypeVar, overload

from webhook.kueue.flavor_match import mismatch
from webhook.kueue.topology_placement import could_hold, domains_of
from webhook.kueue.topology_requests import Placing, TopologyRequest, asks_for_topology, requested
from webhook.model import quantity
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import ClusterQueue, PodSetNeeds, ResourceFlavor, ResourceGroup
from webhook.model.reasons import Reason
from webhook.model.snapshot_parts import KueueSetup

T = TypeVar("T")
_Fitting = TypeVar("_Fitting")
AskedT = TypeVar("AskedT")
_PODS = "pods"
_group = attrgetter("group")
_REFUSED = Rejection(
    reason=Reason.WOULD_BE_INVALID,
    detail="a LimitRange forbids what its pods ask for, or that is more than their limits",
)
_KEPT = 256
"""How many plans and demands of a pod set are cached; beyond that the cache is emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """One flavor of a resource group, as one pod set, or a group of them, would use it."""

    usage: tuple[tuple[FlavorResource, int], ...]
    """What all pods of the set would be charged in it; units are those of ``model.quantity``."""
    refusal: Rejection | None = None
    """Why it can never serve; None: it can."""
    unreadable: FieldError | None = None
    """Why the template could not be checked against it; None: it could."""

    @property
    def name(self) -> str:
        # All amounts are of the same flavor, so any of them names it.
        return self.usage[0][0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The flavors of a ClusterQueue for one pod set."""

    groups: tuple[tuple[Flavor, ...], ...] = ()
    """For each resource group that the pod set asks something of, its flavors in order."""
    rejection: Rejection | None = None
    """Why the ClusterQueue can never take the pod set; None: it can, as far as is known here."""


def plan_flavors(pod_set: PodSetNeeds, cluster_queue: ClusterQueue, setup: KueueSetup) -> Plan:
    """Return the plan of a pod set, cached by the identity of the objects that it depends on."""
    return _recalled(_plan, pod_set, cluster_queue, setup)


def _recalled(
    work: Callable[[PodSetNeeds, ClusterQueue, KueueSetup], T],
    pod_set: PodSetNeeds,
    cluster_queue: ClusterQueue,
    setup: KueueSetup,
) -> T:
    """Return the result of *work*, which may use only what a ``Plan`` depends on."""
    depends_on = (
        work,
        cluster_queue,
        setup.flavors,
        setup.kueue,
        setup.topologies,
    )
    key = tuple(map(id, depends_on))
    cached = pod_set.known.get(key)
    if cached is None:
        if len(pod_set.known) >= _KEPT:
            pod_set.known.clear()
        # The cache keeps these objects alive, so that no other object can get one of their ids.
        cached = pod_set.known[key] = depends_on, work(pod_set, cluster_queue, setup)
    worked_out: T = cached[1]
    return worked_out


def parts(needs: Sequence[PodSetNeeds], plans: Iterable[Plan]) -> list[tuple[Flavor, ...]]:
    """Return the flavors of each part of a Workload, where *plans* are those of its pod sets.

    A part is what a pod set, or a group of them, asks of one resource group.
    """
    # ``groupedRequests`` in ``assignFlavors``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L741
    if not any(map(_group, needs)):
        return [flavors for plan in plans for flavors in plan.groups]
    found: dict[tuple[str | int, tuple[str, ...]], tuple[Flavor, ...]] = {}
    for number, (pod_set, plan) in enumerate(zip(needs, plans, strict=True)):
        for flavors in plan.groups:
            key = pod_set.group or number, tuple(flavor.name for flavor in flavors)
            alone = key not in found
            found[key] = flavors if alone else tuple(map(_together, found[key], flavors))
    return list(found.values())


def owners(needs: Sequence[PodSetNeeds], plans: Iterable[Plan]) -> list[list[int]]:
    """Return the numbers of the pod sets that each of the ``parts`` belongs to."""
    found: dict[tuple[str | int, tuple[str, ...]], list[int]] = {}
    for number, (pod_set, plan) in enumerate(zip(needs, plans, strict=True)):
        for flavors in plan.groups:
            key = pod_set.group or number, tuple(flavor.name for flavor in flavors)
            found.setdefault(key, []).append(number)
    return list(found.values())


def _together(left: Flavor, right: Flavor) -> Flavor:
    """Return a flavor as two pod sets of a group would use it."""
    amounts = Counter(dict(left.usage))
    amounts.update(dict(right.usage))
    return Flavor(
        usage=tuple(amounts.items()),
        refusal=left.refusal or right.refusal,
        unreadable=left.unreadable or right.unreadable,
    )


def _plan(pod_set: PodSetNeeds, cluster_queue: ClusterQueue, setup: KueueSetup) -> Plan:
    if pod_set.is_refused:
        return Plan(rejection=_REFUSED)
    total = pod_set.total
    rejection = _uncovered(total, cluster_queue, setup)
    if rejection is not None:
        return Plan(rejection=rejection)
    groups = []
    for group in cluster_queue.groups:
        wanted = _wanted(pod_set, total, group)
        if wanted:
            flavors = (
                _flavor(pod_set, name, wanted, cluster_queue, setup) for name in group.flavors
            )
            groups.append(tuple(flavors))
    return Plan(groups=tuple(groups))


def _uncovered(
    total: Mapping[str, int], cluster_queue: ClusterQueue, setup: KueueSetup
) -> Rejection | None:
    """Reject a pod set that asks for a resource which no group covers; None: all are covered."""
    # The setting lets Kueue leave out what no resource group covers.
    if setup.kueue.ignore_undeclared:
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
    # Kueue counts the pods themselves where a ClusterQueue has quota for the resource ``pods``.
    if _PODS in group.resources:
        wanted[_PODS] = pod_set.count
    return wanted


def _flavor(
    pod_set: PodSetNeeds,
    name: str,
    wanted: Mapping[str, int],
    cluster_queue: ClusterQueue,
    setup: KueueSetup,
) -> Flavor:
    usage = tuple(
        # Of a pod set in which a slice shrinks, the rest is free only once it has replaced another.
        ((name, resource), max(0, amount - pod_set.held.get((name, resource), 0)))
        for resource, amount in wanted.items()
    )
    try:
        refusal = (
            _unlike(_other_flavor(pod_set, name, wanted))
            or _outside_topology(pod_set, name, cluster_queue, setup)
            or _unlike(_unmatched(pod_set, name, setup))
        )
    except FieldError as error:
        return Flavor(usage=usage, unreadable=error)
    return Flavor(usage=usage, refusal=refusal)


def _other_flavor(pod_set: PodSetNeeds, name: str, wanted: Iterable[str]) -> str | None:
    """Return why a slice may not get this flavor: it keeps those of the slice that it replaces."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L1123
    if not pod_set.held or all((name, resource) in pod_set.held for resource in wanted):
        return None
    kept = ", ".join(sorted({flavor for flavor, _ in pod_set.held}))
    return f"the slice that it replaces has flavor {kept}, not {name}"


def _unlike(detail: str | None) -> Rejection | None:
    return Rejection(reason=Reason.NO_FLAVOR, detail=detail) if detail else None


def _unmatched(pod_set: PodSetNeeds, name: str, setup: KueueSetup) -> str | None:
    flavor = setup.flavors.get(name)
    return None if flavor is None else mismatch(pod_set.template, flavor)


def _outside_topology(
    pod_set: PodSetNeeds, name: str, cluster_queue: ClusterQueue, setup: KueueSetup
) -> Rejection | None:
    """Return why Kueue would not consider a flavor by its Topology, or the lack of it."""
    # The rule of Kueue's ``checkPodSetAndFlavorMatchForTAS``.
    flavor = setup.flavors.get(name)
    if flavor is None:
        return _unlike(f"ResourceFlavor {name} not found")
    if not asks_for_topology(pod_set.template):
        if not flavor.topology or _only_topologies(cluster_queue, setup):
            return None
        detail = f"flavor {name} serves only Jobs that ask for a topology"
        return Rejection(reason=Reason.TOPOLOGY_NEEDED, detail=detail)
    if not flavor.topology:
        detail = f"flavor {name} has no topology"
        return Rejection(reason=Reason.TOPOLOGY_LEVEL_MISSING, detail=detail)
    topology, asked = setup.topologies.get(flavor.topology), requested(pod_set.template)
    if topology is None or asked is None:
        return None
    missing = next((level for level in asked.levels if level not in topology.levels), "")
    if not missing:
        return _too_large(pod_set, asked, flavor, setup)
    detail = f"Topology {topology.name} of flavor {name} has no level {missing}"
    return Rejection(reason=Reason.TOPOLOGY_LEVEL_MISSING, detail=detail)


def _too_large(
    pod_set: PodSetNeeds, asked: TopologyRequest, flavor: ResourceFlavor, setup: KueueSetup
) -> Rejection | None:
    """Refuse a pod set that no domain could ever hold, as far as Nodes are known."""
    if asked.placing is not Placing.REQUIRED:
        return None
    domains = domains_of(flavor.name, setup)
    if domains is None or could_hold(pod_set, domains):
        return None
    detail = f"no domain of {asked.level} in flavor {flavor.name} could ever hold"
    return Rejection(reason=Reason.EXCEEDS_DOMAIN, detail=f"{detail} {pod_set.count} pods")


def flavors_with_topology(cluster_queue: ClusterQueue, setup: KueueSetup) -> frozenset[str]:
    """Return the flavors of a ClusterQueue that have a topology."""
    flavors = setup.flavors
    names = (name for group in cluster_queue.groups for name in group.flavors)
    return frozenset(name for name in names if name in flavors and flavors[name].topology)


def _only_topologies(cluster_queue: ClusterQueue, setup: KueueSetup) -> bool:
    """Return whether every flavor of a ClusterQueue has a topology.

    Kueue then treats each Workload there as if it asked for one (``isTASImplied``).
    """
    names = {name for group in cluster_queue.groups for name in group.flavors}
    return names == flavors_with_topology(cluster_queue, setup)


_COMBINATIONS = 16
"""How many combinations of flavors are listed; the run time of each is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a Workload asks of a ClusterQueue, with the flavors that each part may get.

    A part is what one pod set asks of one resource group.
    """

    parts: tuple[tuple[Flavor, ...], ...]
    """Each part's flavors in the order in which Kueue tries them, but for those that can
    never serve it."""
    combinations: tuple[str, ...]
    """The sets of flavors that the Workload may get, named as in ``model.forecasts.Estimates``;
    Kueue's first choice is the first. At most ``_COMBINATIONS``."""
    fewer: Sequence[Demand] = ()
    """The same with ever fewer pods, if it does with fewer."""

    @property
    def is_possible(self) -> bool:
        """Return whether each part has a flavor that can serve it."""
        return all(self.parts)

    @property
    def flavors(self) -> frozenset[str]:
        """Return every flavor that some part may get."""
        return frozenset(flavor.name for part in self.parts for flavor in part)

    @property
    def cells(self) -> frozenset[FlavorResource]:
        """Return every flavor and resource that the Workload may use."""
        parts = (flavor.usage for part in self.parts for flavor in part)
        return frozenset(cell for usage in parts for cell, amount in usage if amount)


NOWHERE = Demand(parts=((),), combinations=())
"""The demand of a Workload that the ClusterQueue can never admit."""


def demand(needs: Sequence[PodSetNeeds], cluster_queue: ClusterQueue, setup: KueueSetup) -> Demand:
    """Return the flavors that each pod set may get; ``NOWHERE`` if one can never be admitted.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    # The demand with fewer pods is worked out when it is asked for, and needs all of the setup.
    if len(needs) == 1 and needs[0].min_count is None:
        return _recalled(_demand_of_one, needs[0], cluster_queue, setup)
    return _demand(needs, cluster_queue, setup)


def _demand_of_one(pod_set: PodSetNeeds, cluster_queue: ClusterQueue, setup: KueueSetup) -> Demand:
    return _demand((pod_set,), cluster_queue, setup)


def _demand(needs: Sequence[PodSetNeeds], cluster_queue: ClusterQueue, setup: KueueSetup) -> Demand:
    plans = [plan_flavors(pod_set, cluster_queue, setup) for pod_set in needs]
    if any(plan.rejection is not None for plan in plans):
        return NOWHERE
    choices = tuple(tuple(_choices(flavors)) for flavors in parts(needs, plans))
    most = most_missing(needs)

    def without(missing: int) -> Demand:
        fewer = with_missing(needs, missing)
        return demand([replace(need, min_count=None) for need in fewer], cluster_queue, setup)

    return Demand(
        parts=choices,
        combinations=_combinations(choices),
        fewer=FewerPods(most, without) if most else (),
    )


def demand_of(usage: Amounts, count: int = 1) -> Demand:
    """Return as what Workloads wait that had this much together, for the same flavors again."""
    by_flavor: dict[str, list[tuple[FlavorResource, int]]] = {}
    for cell, amount in usage.items():
        by_flavor.setdefault(cell[0], []).append((cell, amount // count))
    parts = tuple((Flavor(usage=tuple(amounts)),) for amounts in by_flavor.values())
    return Demand(parts=parts, combinations=(",".join(sorted(by_flavor)),))


def _choices(flavors: Sequence[Flavor]) -> Iterator[Flavor]:
    for flavor in flavors:
        if flavor.unreadable is not None:
            raise FieldError(flavor.unreadable.path, flavor.unreadable.message)
        if flavor.refusal is None:
            yield flavor


def _combinations(parts: Sequence[tuple[Flavor, ...]]) -> tuple[str, ...]:
    # ``product`` begins with the first choice of every part, which Kueue tries first.
    names = product(*([flavor.name for flavor in part] for part in parts))
    unique = {",".join(sorted(set(flavors))): None for flavors in islice(names, _COMBINATIONS)}
    return tuple(unique)


def most_missing(needs: Sequence[PodSetNeeds]) -> int:
    """Return without how many of its pods Kueue may admit a Workload at the most."""
    return sum(need.count - fewest(need) for need in needs)


def fewest(need: PodSetNeeds) -> int:
    """Return the fewest pods with which Kueue may admit a pod set."""
    return need.count if need.min_count is None else min(need.min_count, need.count)


def with_missing(needs: Sequence[PodSetNeeds], missing: int) -> tuple[PodSetNeeds, ...]:
    """Return the needs without *missing* pods, which are taken from each pod set in proportion."""
    most = most_missing(needs)
    return tuple(
        replace(need, count=need.count - (need.count - fewest(need)) * missing // most, known={})
        for need in needs
    )


def most_that_fit(most: int, fit: Callable[[int], _Fitting | None]) -> _Fitting | None:
    """Return what *fit* returns for the least number of missing pods that fits; None: none does.

    *most* may be missing; that all are there was tried before. *fit* returns None where the others
    do not fit.
    """
    least, unknown = 0, most + 1
    found: _Fitting | None = None
    while most and least < unknown:
        middle = (least + unknown) // 2
        if (fitting := fit(middle)) is None:
            least = middle + 1
        else:
            unknown, found = middle, fitting
    return found


class FewerPods(Sequence[AskedT], Generic[AskedT]):
    """What a Workload asks for without one of its pods, without two, and so on.

    Each is worked out when it is first looked at: there may be thousands, of which few are tried.
    """

    def __init__(self, most: int, without: Callable[[int], AskedT]) -> None:
        self._most, self._without = most, without
        self._known: dict[int, AskedT] = {}

    def __len__(self) -> int:
        return self._most

    @overload
    def __getitem__(self, index: int) -> AskedT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AskedT]: ...
    def __getitem__(self, index: int | slice) -> AskedT | Sequence[AskedT]:
        if isinstance(index, slice):
            return [self[place] for place in range(self._most)[index]]
        missing = range(1, self._most + 1)[index]
        if missing not in self._known:
            self._known[missing] = self._without(missing)
        return self._known[missing]
