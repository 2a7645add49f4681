"""Assign flavors to a Workload by quota, and its pods to domains of their Topologies.

Mirrors the part of Kueue's ``assignFlavors`` that asks for topology assignments once quota fits.
Where it is not known what the domains have left, quota alone decides, and that is said.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L860
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.kueue import flavor_plan, topology_placement
from webhook.kueue.assignment import (
    Assignment,
    Claimant,
    Parts,
    PreemptionMode,
    assign,
    has_its_turn,
    search,
)
from webhook.kueue.topology_placement import FlavorDomains, Given, OccupiedDomains
from webhook.kueue.topology_requests import asks_for_topology
from webhook.model.fields import FieldError
from webhook.model.queues import MULTIKUEUE, ClusterQueue, PodSetNeeds, Snapshot
from webhook.model.topologies import PODS, PlacedPods

_DELAYING: Final = frozenset({MULTIKUEUE, "kueue.x-k8s.io/provisioning-request"})
"""Controllers of AdmissionChecks behind which Kueue places pods only later, or elsewhere."""
_OF_OTHERS: Final = ("cpu", "memory", "ephemeral-storage", PODS)
"""What pods that Kueue has not placed, such as those of DaemonSets, take of Nodes as well."""
_LEFT_TO_OTHERS: Final = 10
"""A tenth of that may be theirs."""


def assign_placed(
    needs: Sequence[PodSetNeeds],
    parts: Parts,
    claimant: Claimant,
    snapshot: Snapshot,
    occupied: OccupiedDomains,
) -> Assignment:
    """Assign flavors as ``assign`` does, of those in whose domains the pods have room.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    first = assigned = search(parts, claimant, lambda one: has_its_turn(one, claimant))
    if not snapshot.topologies:
        return first
    while assigned.fits:
        wanted = _wanted(needs, assigned, claimant.queue, snapshot)
        placed = None if wanted is None else _placed(wanted, occupied)
        if placed is None or placed.has_room:
            is_placed = placed is not None and placed.is_sure
            return replace(assigned, placed=placed.pods if placed else (), is_placed=is_placed)
        if not any(assigned.unfinished):
            break
        # Kueue goes on with the next flavor in its next cycle.
        assigned = assign(parts, claimant, after=assigned.unfinished)
    if not first.fits or assigned.mode in (PreemptionMode.PREEMPT, PreemptionMode.RECLAIM):
        return assigned
    return replace(first, mode=PreemptionMode.NO_CANDIDATES, fits=False, is_placed=True)


class DomainsInUse:
    """What is in use in the domains of Topologies, as Workloads come and go."""

    def __init__(self, snapshot: Snapshot, occupied: OccupiedDomains) -> None:
        self.occupied = occupied
        self._snapshot = snapshot

    def assigned(
        self, needs: Sequence[PodSetNeeds], parts: Parts, claimant: Claimant
    ) -> Assignment:
        """As ``assign_placed``; who cannot be read is not placed, and does not fit."""
        try:
            return assign_placed(needs, parts, claimant, self._snapshot, self.occupied)
        except FieldError:
            return Assignment(mode=PreemptionMode.WAITS)

    def shift(self, pods: Sequence[PlacedPods], step: int) -> None:
        """Let pods come (1) or go (-1)."""
        self.occupied = shifted(self.occupied, pods, step)


def held_elsewhere(snapshot: Snapshot, queues: Container[str]) -> OccupiedDomains:
    """Return what the Workloads of other ClusterQueues than these hold in domains."""
    occupied: OccupiedDomains = {}
    for name, held in snapshot.held.items():
        if name not in queues:
            occupied = shifted(occupied, held.placed, 1)
    return occupied


def _wanted(
    needs: Sequence[PodSetNeeds], assigned: Assignment, queue: ClusterQueue, snapshot: Snapshot
) -> Mapping[str, tuple[FlavorDomains, list[PodSetNeeds]]] | None:
    """Return the pod sets to place by flavor; None: that, or where they have room, is not known."""
    with_topology = flavor_plan.flavors_with_topology(queue, snapshot)
    if not with_topology or _is_delayed(assigned, queue, snapshot):
        return None
    found: dict[str, tuple[FlavorDomains, list[PodSetNeeds]]] = {}
    for need, flavors in _flavors(needs, assigned, queue, snapshot):
        names = with_topology & flavors
        if not (names or asks_for_topology(need.template)) or not need.count:
            continue
        domains = topology_placement.domains_of(next(iter(names), ""), snapshot)
        if domains is None or len(names) > 1:
            return None
        found.setdefault(domains.flavor.name, (domains, []))[1].append(need)
    return found


def _flavors(
    needs: Sequence[PodSetNeeds], assigned: Assignment, queue: ClusterQueue, snapshot: Snapshot
) -> Iterator[tuple[PodSetNeeds, frozenset[str]]]:
    """Yield each pod set with the flavors of its resource groups."""
    plans = [flavor_plan.of(need, queue, snapshot) for need in needs]
    of_pod_set: list[set[str]] = [set() for _ in needs]
    owners = flavor_plan.owners(needs, plans)
    for flavor, numbers in zip(assigned.flavors, owners, strict=True):
        for number in numbers:
            of_pod_set[number].add(flavor)
    return ((need, frozenset(of_pod_set[number])) for number, need in enumerate(needs))


def _is_delayed(assigned: Assignment, queue: ClusterQueue, snapshot: Snapshot) -> bool:
    checks = (snapshot.checks.get(name) for name in queue.checks_on(assigned.flavors))
    return any(check is not None and check.controller in _DELAYING for check in checks)


class _Placed:
    """Where pods would go, and whether that holds with other pods on the Nodes."""

    def __init__(self) -> None:
        self.pods: tuple[PlacedPods, ...] = ()
        self.has_room, self.is_sure = True, True


def _placed(
    wanted: Mapping[str, tuple[FlavorDomains, list[PodSetNeeds]]], occupied: OccupiedDomains
) -> _Placed:
    """Place pods flavor by flavor, as flavors may have Nodes in common."""
    result = _Placed()
    for name in sorted(wanted):
        domains, needs = wanted[name]
        free = topology_placement.free_of(domains, shifted(occupied, result.pods, 1))
        found = topology_placement.placed(needs, domains, free)
        if found is None:
            result.has_room = False
            return result
        result.is_sure &= _fits_beside_others(needs, domains, free)
        result.pods += tuple(pods_of(needs, domains, found))
    return result


def _fits_beside_others(
    needs: Sequence[PodSetNeeds], domains: FlavorDomains, free: Sequence[Mapping[str, int]]
) -> bool:
    left = [
        topology_placement.minus(
            of_leaf,
            {name: capacity.get(name, 0) // _LEFT_TO_OTHERS for name in _OF_OTHERS},
        )
        for of_leaf, capacity in zip(free, domains.tree.capacity, strict=True)
    ]
    return topology_placement.placed(needs, domains, left) is not None


def pods_of(
    needs: Sequence[PodSetNeeds],
    domains: FlavorDomains,
    found: Sequence[Given],
) -> Iterator[PlacedPods]:
    """Yield the pods of each domain, where pod sets are placed so."""
    names = {leaf: domain for domain, leaf in domains.tree.leaves.items()}
    flavor = "" if domains.tree.is_by_node else domains.flavor.name
    for need, given in zip(needs, found, strict=True):
        for leaf, count in given:
            amounts = tuple(topology_placement.of_pods(need, count).items())
            yield PlacedPods(flavor=flavor, domain=names[leaf], amounts=amounts)


def shifted(occupied: OccupiedDomains, pods: Sequence[PlacedPods], step: int) -> OccupiedDomains:
    """Return what is in use with *step* times some pods more."""
    if not pods:
        return occupied
    changed = dict(occupied)
    for flavor, domain, amounts in pods:
        used = dict(changed.get((flavor, domain), {}))
        for name, amount in amounts:
            used[name] = used.get(name, 0) + step * amount
        changed[flavor, domain] = used
    return changed
