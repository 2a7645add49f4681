"""Whether the domains of a ResourceFlavor have room for a pod set, and where its pods would go.

Turns what a pod set asks for into what ``topology_placement`` places. Quota is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.kueue.flavor_match import required_terms, untolerated
from webhook.kueue.topology_domains import DomainTree, tree_of
from webhook.kueue.topology_placement import Given, Placement, PodsToPlace, place
from webhook.kueue.topology_requests import Placing, TopologyRequest, asks_for_topology, requested
from webhook.model.kueue_support import is_on
from webhook.model.pods import PodTemplate
from webhook.model.queues import PodSetNeeds, ResourceFlavor, Snapshot
from webhook.model.topologies import PODS, Domain, PlacedPods

OccupiedDomains: TypeAlias = Mapping[tuple[str, Domain], Mapping[str, int]]
"""Of flavor and domain what is in use there; the flavor is empty where domains are Nodes, which
flavors share."""
SPREAD: Final = "spread"
"""In place of a level: pods that are in several domains of the highest one."""
_SEVERAL: Final = 2
NOTHING_PLACED: Final[OccupiedDomains] = {}
IMPLIED: Final = TopologyRequest(placing=Placing.UNCONSTRAINED)
"""Of a pod set that asks for nothing where every flavor has a Topology."""
_UNMODELLED: Final = ("TASBalancedPlacement", "TASRespectNodeAffinityPreferred")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorDomains:
    """A flavor with its domains; how Kueue places there is known."""

    flavor: ResourceFlavor
    tree: DomainTree
    takes_fullest: bool
    """Pods that may be anywhere go where the least room is (``TASProfileMixed``)."""


def domains_of(name: str, snapshot: Snapshot) -> FlavorDomains | None:
    """Return the domains of a flavor; None: they are not known, or not how Kueue uses them."""
    flavor, kueue = snapshot.flavors.get(name), snapshot.kueue
    tree = tree_of(flavor, snapshot) if flavor is not None and flavor.topology else None
    if flavor is None or tree is None:
        return None
    if any(is_on(gate, kueue.gates, kueue.release) for gate in _UNMODELLED):
        return None
    takes_fullest = is_on("TASProfileMixed", kueue.gates, kueue.release)
    return FlavorDomains(flavor=flavor, tree=tree, takes_fullest=takes_fullest)


def free_of(domains: FlavorDomains, occupied: OccupiedDomains) -> list[Mapping[str, int]]:
    """Return what each leaf has left."""
    tree = domains.tree
    name = "" if tree.is_by_node else domains.flavor.name
    free = list(tree.capacity)
    for domain, leaf in tree.leaves.items():
        if used := occupied.get((name, domain)):
            free[leaf] = minus(free[leaf], used)
    return free


def minus(amounts: Mapping[str, int], taken: Mapping[str, int]) -> Mapping[str, int]:
    return {**amounts, **{name: amounts.get(name, 0) - amount for name, amount in taken.items()}}


def placed(
    needs: Sequence[PodSetNeeds], domains: FlavorDomains, free: Sequence[Mapping[str, int]]
) -> list[Given] | None:
    """Return of each pod set where Kueue would place it; None: there is no room for all of them.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    # ``FindTopologyAssignmentsForFlavor``
    left = list(free)
    found: dict[int, Given] = {}
    for numbers in _groups(needs):
        workers, leader = _led(numbers, needs)
        together = _placed(needs[workers], domains, left, None if leader is None else needs[leader])
        if together is None:
            return None
        found[workers] = together.pods
        _take(left, needs[workers], together.pods)
        if leader is not None:
            found[leader] = together.leader
            _take(left, needs[leader], together.leader)
    return [found[number] for number in range(len(needs))]


def _groups(needs: Sequence[PodSetNeeds]) -> Iterable[Sequence[int]]:
    groups: dict[str | int, list[int]] = {}
    for number, need in enumerate(needs):
        groups.setdefault(need.group or number, []).append(number)
    return groups.values()


def _led(numbers: Sequence[int], needs: Sequence[PodSetNeeds]) -> tuple[int, int | None]:
    """Return the pod set of a group with more pods, and the one that leads it."""
    if len(numbers) == 1:
        return numbers[0], None
    first, second = numbers[:2]
    return (second, first) if needs[second].count > needs[first].count else (first, second)


def _take(left: list[Mapping[str, int]], need: PodSetNeeds, given: Given) -> None:
    for leaf, count in given:
        left[leaf] = minus(left[leaf], of_pods(need, count))


def level_of(placed: Sequence[PlacedPods], flavors: Iterable[str], snapshot: Snapshot) -> str:
    """Return the lowest level of which one domain has all of several pods; ``SPREAD``: none has.

    Empty: that is not known, or it is one pod alone.
    """
    if sum(dict(pods.amounts).get(PODS, 0) for pods in placed) < _SEVERAL:
        return ""
    for name in flavors:
        flavor = snapshot.flavors.get(name)
        tree = tree_of(flavor, snapshot) if flavor is not None and flavor.topology else None
        if tree is not None:
            leaves = {tree.leaves.get(pods.domain) for pods in placed}
            return _common_level([leaf for leaf in leaves if leaf is not None], tree, len(leaves))
    return ""


def _common_level(leaves: Sequence[int], tree: DomainTree, number: int) -> str:
    if len(leaves) < number:
        return ""
    for level in range(len(tree.levels) - 1, -1, -1):
        if len({tree.domain_at(leaf, level) for leaf in leaves}) == 1:
            return tree.levels[level]
    return SPREAD


def of_pods(need: PodSetNeeds, count: int) -> Mapping[str, int]:
    """Return what some pods of a pod set take of Nodes, themselves among it."""
    return {name: amount * count for name, amount in _with_itself(need.of_node).items()}


def _placed(
    pod_set: PodSetNeeds,
    domains: FlavorDomains,
    free: Sequence[Mapping[str, int]],
    leader: PodSetNeeds | None,
) -> Placement | None:
    asked = _asked(pod_set, domains, leader)
    if asked is None:
        return None
    return place(domains.tree, free, _feasible(pod_set.template, domains), asked)


def could_hold(pod_set: PodSetNeeds, domains: FlavorDomains) -> bool:
    """Return whether a pod set would have room if nothing else were there.

    Raises:
        FieldError: as for ``placed``.

    """
    return _placed(pod_set, domains, domains.tree.capacity, None) is not None


def _with_itself(per_pod: Mapping[str, int]) -> Mapping[str, int]:
    return {**per_pod, PODS: per_pod.get(PODS, 0) + 1}


def _asked(
    pod_set: PodSetNeeds, domains: FlavorDomains, leader: PodSetNeeds | None
) -> PodsToPlace | None:
    """Return None where the Topology does not have the levels, or not in that order."""
    levels = domains.tree.levels
    wanted = requested(pod_set.template)
    if wanted is None:
        if asks_for_topology(pod_set.template):
            return None
        wanted = IMPLIED
    if not set(wanted.levels) <= set(levels):
        return None
    lowest = len(levels) - 1
    slice_level = levels.index(wanted.slices[0][0]) if wanted.slices else lowest
    inner = _inner_sizes(wanted, levels)
    level = _level(wanted, levels)
    if inner is None or level > slice_level:
        return None
    is_unconstrained = wanted.placing in (Placing.UNCONSTRAINED, Placing.SLICES)
    return PodsToPlace(
        count=pod_set.count,
        per_pod=_with_itself(pod_set.of_node),
        leader=None if leader is None else _with_itself(leader.of_node),
        level=level,
        slice_level=slice_level,
        slice_size=wanted.slices[0][1] if wanted.slices else 1,
        inner_sizes=inner,
        is_required=wanted.placing is Placing.REQUIRED,
        is_unconstrained=is_unconstrained,
        takes_fullest=is_unconstrained and domains.takes_fullest,
    )


def _level(wanted: TopologyRequest, levels: Sequence[str]) -> int:
    if wanted.placing is Placing.SLICES:
        return 0
    return levels.index(wanted.level) if wanted.level else len(levels) - 1


def _inner_sizes(wanted: TopologyRequest, levels: Sequence[str]) -> Mapping[int, int] | None:
    """Return the sizes of slices within slices by level; None: they do not go into one another."""
    # ``buildSliceSizeAtLevel``
    sizes: dict[int, int] = {}
    for (outer, outer_size), (inner, inner_size) in zip(
        wanted.slices, wanted.slices[1:], strict=False
    ):
        above, below = levels.index(outer), levels.index(inner)
        if below <= above or outer_size % inner_size:
            return None
        sizes |= dict.fromkeys(range(above + 1, below + 1), inner_size)
    return sizes


def _feasible(template: PodTemplate, domains: FlavorDomains) -> list[bool]:
    """Return of each leaf whether its Node takes these pods; where leaves are no Nodes, all do."""
    tree = domains.tree
    if not tree.is_by_node:
        return [True] * len(tree.leaves)
    terms = required_terms(template)
    return [
        template.node_selector.items() <= node.labels.items()
        and untolerated(template, node.taints, domains.flavor) is None
        and (
            not terms
            or any(term and all(each.matches(node.labels) for each in term) for term in terms)
        )
        for node in tree.nodes
    ]
