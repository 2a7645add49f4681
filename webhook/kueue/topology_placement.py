"""Where the pods of a pod set would go in the domains of a ResourceFlavor's Topology.

Mirrors ``findTopologyAssignment`` with the profiles BestFit and, for pods that may be anywhere,
LeastFreeCapacity, and the ``topologyTree`` that it goes through. Quota is not known here, nor what
else wants the room.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_topology_tree.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from webhook.kueue.flavor_match import required_terms, untolerated
from webhook.kueue.topology_requests import Placing, TopologyRequest, asks_for_topology, requested
from webhook.model.fields import EMPTY
from webhook.model.kueue_support import is_on
from webhook.model.pods import PodTemplate
from webhook.model.queues import PodSetNeeds, ResourceFlavor
from webhook.model.snapshot_parts import KueueSetup
from webhook.model.topologies import HOSTNAME, PODS, Domain, PlacedPods, Topology, TopologyNode


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTree:
    """Domains by number: leaves first, each parent behind its children."""

    levels: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    """Of each domain those of the levels down to its own."""
    children: tuple[tuple[int, ...], ...]
    by_level: tuple[tuple[int, ...], ...]
    """The domains of each level, from the highest down."""
    capacity: tuple[Mapping[str, int], ...]
    """Of each leaf what its Nodes offer."""
    nodes: tuple[TopologyNode, ...]
    """Of each leaf its Node; empty where the lowest level is not the Node's name."""
    leaves: Mapping[Domain, int]
    """By the names that Workloads' assignments have."""

    @property
    def is_by_node(self) -> bool:
        """Return whether the lowest level is a single Node."""
        return self.levels[-1] == HOSTNAME

    def domain_at(self, leaf: int, level: int) -> tuple[str, ...]:
        """Return the values that name the domain of a *level* in which a leaf is."""
        return self.values[leaf][: level + 1]


def tree_of(flavor: ResourceFlavor, setup: KueueSetup) -> DomainTree | None:
    """Return the domains of a flavor, kept beside its Topology.

    None: its Topology is not known, or it has no Nodes, or Nodes are not watched.
    """
    topology = setup.topologies.get(flavor.topology)
    if topology is None or not topology.nodes:
        return None
    key = tuple(sorted(flavor.node_labels.items()))
    if key not in topology.known:
        topology.known[key] = _built(topology, flavor.node_labels)
    return cast("DomainTree | None", topology.known[key])


def _built(topology: Topology, node_labels: Mapping[str, str]) -> DomainTree | None:
    by_node = topology.levels[-1] == HOSTNAME
    found: dict[tuple[str, ...], list[TopologyNode]] = {}
    for node in topology.nodes:
        if all(node.labels.get(key) == text for key, text in node_labels.items()):
            name = tuple(node.labels[level] for level in topology.levels)
            found.setdefault(name, []).append(node)
    if not found:
        return None
    names = sorted(found)
    values = list(names)
    children: list[tuple[int, ...]] = [()] * len(names)
    by_level = [tuple(range(len(names)))]
    for depth in range(len(topology.levels) - 1, 0, -1):
        by_level.append(_parents(by_level[-1], depth, values, children))
    return DomainTree(
        levels=topology.levels,
        values=tuple(values),
        children=tuple(children),
        by_level=tuple(reversed(by_level)),
        capacity=tuple(_sum(node.allocatable for node in found[name]) for name in names),
        nodes=tuple(found[name][0] for name in names) if by_node else (),
        leaves={name[-1:] if by_node else name: leaf for leaf, name in enumerate(names)},
    )


def _parents(
    domains: Sequence[int],
    depth: int,
    values: list[tuple[str, ...]],
    children: list[tuple[int, ...]],
) -> tuple[int, ...]:
    """Add the domains of the level above some, named by *depth* values; return their numbers."""
    within: dict[tuple[str, ...], list[int]] = {}
    for domain in domains:
        within.setdefault(values[domain][:depth], []).append(domain)
    first = len(values)
    values.extend(within)
    children.extend(tuple(each) for each in within.values())
    return tuple(range(first, len(values)))


def _sum(amounts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    several = list(amounts)
    if len(several) == 1:
        return several[0]
    total: dict[str, int] = {}
    for each in several:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount
    return total or EMPTY


_UNLIMITED: Final = (1 << 31) - 1
Given: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a leaf and the number of pods there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsToPlace:
    """Pods of one shape, and perhaps one of another that leads them, with where they may go."""

    count: int
    per_pod: Mapping[str, int]
    """The pod itself among it (``PODS``)."""
    leader: Mapping[str, int] | None = None
    level: int = 0
    """The number of the level asked for."""
    slice_level: int
    slice_size: int = 1
    inner_sizes: Mapping[int, int] = field(default_factory=dict)
    """Of slices within slices: level to the number of pods that come together there."""
    is_required: bool = False
    is_unconstrained: bool = False
    takes_fullest: bool = False
    """LeastFreeCapacity: domains with the least room come first."""

    @property
    def leaders(self) -> int:
        return int(self.leader is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    pods: Given
    leader: Given = ()


def place(
    tree: DomainTree,
    free: Sequence[Mapping[str, int]],
    feasible: Sequence[bool],
    asked: PodsToPlace,
) -> Placement | None:
    """Return where Kueue would place pods; None: there is no room.

    *free* is what each leaf has left, and *feasible* whether its Node takes these pods at all.
    """
    search = _DomainCounts(tree, asked)
    search.count(free, feasible)
    found = search.fit(asked.level)
    if found is None:
        return None
    level, domains = found
    return search.descend(level, domains)


def _fitting(asked: Mapping[str, int], free: Mapping[str, int]) -> int:
    """Return how many times something fits."""
    times = [free.get(name, 0) // amount for name, amount in asked.items() if amount]
    return max(0, min(times, default=_UNLIMITED))


class _DomainCounts:
    """One search, with what each domain could hold, and later holds."""

    def __init__(self, tree: DomainTree, asked: PodsToPlace) -> None:
        self._tree, self._asked = tree, asked
        number = len(tree.values)
        self._pods, self._slices = [0] * number, [0] * number
        self._pods_led, self._slices_led = [0] * number, [0] * number
        """The same beside a leader."""
        self._leaders = [0] * number

    def count(self, free: Sequence[Mapping[str, int]], feasible: Sequence[bool]) -> None:
        """Count what fits in each domain (``fillInCounts``)."""
        asked, lowest = self._asked, len(self._tree.levels) - 1
        for leaf, is_feasible in enumerate(feasible):
            if is_feasible:
                self._count_leaf(leaf, free[leaf])
            if lowest == asked.slice_level:
                self._slices[leaf] = self._pods[leaf] // asked.slice_size
                self._slices_led[leaf] = self._pods_led[leaf] // asked.slice_size
        for level in range(lowest - 1, -1, -1):
            for domain in self._tree.by_level[level]:
                self._count_parent(domain, level)

    def _count_leaf(self, leaf: int, free: Mapping[str, int]) -> None:
        leader = self._asked.leader
        self._pods[leaf] = _fitting(self._asked.per_pod, free)
        if leader is not None and _fitting(leader, free):
            self._leaders[leaf] = 1
            free = {name: free.get(name, 0) - leader.get(name, 0) for name in {*free, *leader}}
        self._pods_led[leaf] = _fitting(self._asked.per_pod, free)

    def _count_parent(self, domain: int, level: int) -> None:
        """Sum the children; a leader costs what it costs in the child that loses least by it."""
        asked, inner = self._asked, self._asked.inner_sizes.get(level + 1, 1)
        pods, slices, leaders = 0, 0, 0
        lost: list[int] = []
        slices_lost: list[int] = []
        for child in self._tree.children[domain]:
            alone = self._pods[child] // inner * inner
            pods += alone
            slices += self._slices[child]
            leaders = max(leaders, self._leaders[child])
            if not asked.leaders or self._leaders[child]:
                lost.append(alone - self._pods_led[child] // inner * inner)
                slices_lost.append(self._slices[child] - self._slices_led[child])
        self._pods[domain], self._leaders[domain] = pods, leaders
        self._pods_led[domain] = pods - min(lost) if lost else 0
        slices_led = slices - min(slices_lost) if slices_lost else 0
        if level == asked.slice_level:
            slices = pods // asked.slice_size
            slices_led = self._pods_led[domain] // asked.slice_size
        self._slices[domain], self._slices_led[domain] = slices, slices_led

    def fit(self, level: int) -> tuple[int, list[int]] | None:
        """Return the level and domains that hold all pods (``findLevelWithFitDomains``)."""
        asked = self._asked
        ordered = self._ordered_with_leader(self._tree.by_level[level])
        slices = asked.count // asked.slice_size
        if asked.takes_fullest:
            for domain in ordered:
                if self._holds(domain, slices):
                    return level, [domain]
        top = ordered[0]
        if self._holds_led(top, slices):
            return level, [top if asked.takes_fullest else self._best(ordered, slices)]
        if asked.is_required:
            return None
        if level > 0 and not asked.is_unconstrained:
            return self.fit(level - 1)
        several = self._several(ordered, slices)
        return None if several is None else (level, several)

    def _holds(self, domain: int, slices: int) -> bool:
        if self._asked.leaders:
            return bool(self._leaders[domain]) and self._slices_led[domain] >= slices
        return self._slices[domain] >= slices

    def _holds_led(self, domain: int, slices: int) -> bool:
        return self._slices_led[domain] >= slices and self._leaders[domain] >= self._asked.leaders

    def _several(self, ordered: list[int], slices: int) -> list[int] | None:
        """Return domains that hold all pods together, in order; None: all together do not."""
        left, leaders = slices, self._asked.leaders
        ordered = self._with_leader_first(ordered, self._asked.count, leaders, in_slices=True)
        chosen: list[int] = []
        after = 0
        for first, rest in _tails(ordered):
            if leaders <= 0 or not self._leaders[first]:
                break
            is_enough = not self._asked.takes_fullest and self._slices_led[first] >= left
            domain = self._best(rest, left, leaders=leaders) if is_enough else first
            chosen.append(domain)
            leaders -= self._leaders[domain]
            left -= self._slices_led[domain]
            after += 1
        if leaders > 0:
            return None
        for first, rest in _tails(self._ordered(ordered[after:])):
            if left <= 0:
                break
            domain = self._last(first, rest, left, leaders=0)
            chosen.append(domain)
            left -= self._slices[domain]
        return chosen if left <= 0 else None

    def _best(
        self,
        domains: Sequence[int],
        needed: int,
        *,
        leaders: int | None = None,
        in_slices: bool = True,
    ) -> int:
        """Return the first of the domains with the least room that is enough (BestFit)."""
        leaders = self._asked.leaders if leaders is None else leaders
        counts = self._counts(in_slices=in_slices, led=leaders > 0)
        enough = [
            domain
            for domain in domains
            if counts[domain] >= needed and self._leaders[domain] >= leaders
        ]
        return min(enough, key=counts.__getitem__, default=domains[0])

    def _counts(self, *, in_slices: bool, led: bool) -> list[int]:
        if in_slices:
            return self._slices_led if led else self._slices
        return self._pods_led if led else self._pods

    def _ordered_with_leader(self, domains: Iterable[int]) -> list[int]:
        sign = 1 if self._asked.takes_fullest else -1

        def rank(domain: int) -> tuple[int, int, int, tuple[str, ...]]:
            slices = sign * self._slices_led[domain]
            values = self._tree.values[domain]
            return -self._leaders[domain], slices, self._pods_led[domain], values

        return sorted(domains, key=rank)

    def _ordered(self, domains: Iterable[int]) -> list[int]:
        sign = 1 if self._asked.takes_fullest else -1

        def rank(domain: int) -> tuple[int, int, tuple[str, ...]]:
            return sign * self._slices[domain], self._pods[domain], self._tree.values[domain]

        return sorted(domains, key=rank)

    def _with_leader_first(
        self, domains: list[int], count: int, leaders: int, *, in_slices: bool, size: int = 0
    ) -> list[int]:
        """Move the first domain that can spare room for the leader to the front."""
        # ``prioritizeLeaderDomain``
        if not leaders:
            return domains
        alone = self._counts(in_slices=in_slices, led=False)
        led = self._counts(in_slices=in_slices, led=True)
        needed = count // (size or self._asked.slice_size) if in_slices else count
        spare = sum(alone[domain] for domain in domains) - needed
        for number, domain in enumerate(domains):
            if self._leaders[domain] >= leaders and alone[domain] - led[domain] <= spare:
                return [domain, *domains[:number], *domains[number + 1 :]]
        return domains

    def descend(self, level: int, domains: list[int]) -> Placement | None:
        """Give the pods to domains level by level, to as few as possible, down to the leaves."""
        asked, lowest = self._asked, len(self._tree.levels) - 1
        shared = self._share(domains, asked.count, asked.leaders, asked.slice_size)
        while shared is not None and level < min(lowest, asked.slice_level):
            below = [child for domain in shared for child in self._tree.children[domain]]
            ordered = self._ordered(below)
            shared = self._share(ordered, asked.count, asked.leaders, asked.slice_size)
            level += 1
        while shared is not None and level < lowest:
            shared = self._share_within(shared, level)
            level += 1
        if shared is None:
            return None
        leading = tuple((leaf, self._leaders[leaf]) for leaf in shared if self._leaders[leaf])
        return Placement(
            pods=tuple((leaf, self._pods[leaf]) for leaf in shared if self._pods[leaf]),
            leader=leading if asked.leaders else (),
        )

    def _share_within(self, parents: list[int], level: int) -> list[int] | None:
        """Give what each domain has to its children."""
        size = self._asked.inner_sizes.get(level + 1, 1)
        given: list[int] = []
        for parent in parents:
            below = self._ordered(self._tree.children[parent])
            if size > 1:
                for child in below:
                    self._slices[child] = self._pods[child] // size
                    self._slices_led[child] = self._pods_led[child] // size
            pods, leaders = self._pods[parent], self._leaders[parent]
            shared = self._share(below, pods, leaders, size, in_slices=size > 1)
            if shared is None:
                return None
            given += shared
        return given

    def _share(
        self, domains: list[int], count: int, leaders: int, size: int, *, in_slices: bool = True
    ) -> list[int] | None:
        """Give pods to domains in order; None: they do not hold all (that should not happen)."""
        # ``updateCountsToMinimumGeneric``
        left = count // size if in_slices else count
        domains = self._with_leader_first(domains, count, leaders, in_slices=in_slices, size=size)
        taken: list[int] = []
        for first, rest in _tails(domains):
            counts = self._counts(in_slices=in_slices, led=leaders > 0)
            domain = self._last(first, rest, left, leaders=leaders, in_slices=in_slices)
            is_last = counts[domain] >= left and self._leaders[domain] >= leaders
            given = min(counts[domain], left)
            self._leaders[domain] = min(self._leaders[domain], leaders)
            self._pods[domain] = given * size if in_slices else given
            if in_slices:
                self._slices[domain] = given
            leaders -= self._leaders[domain]
            left -= given
            taken.append(domain)
            if is_last:
                return taken
        return None

    def _last(
        self, first: int, rest: Sequence[int], left: int, *, leaders: int, in_slices: bool = True
    ) -> int:
        """Return *first*, or where it holds all that is left, the one that fits that best."""
        counts = self._counts(in_slices=in_slices, led=leaders > 0)
        if self._asked.takes_fullest or counts[first] < left or self._leaders[first] < leaders:
            return first
        return self._best(rest, left, leaders=leaders, in_slices=in_slices)


def _tails(domains: Sequence[int]) -> Iterable[tuple[int, Sequence[int]]]:
    """Yield each domain with those from it on."""
    return ((domain, domains[number:]) for number, domain in enumerate(domains))


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


def domains_of(name: str, setup: KueueSetup) -> FlavorDomains | None:
    """Return the domains of a flavor; None: they are not known, or not how Kueue uses them."""
    flavor, kueue = setup.flavors.get(name), setup.kueue
    tree = tree_of(flavor, setup) if flavor is not None and flavor.topology else None
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


def level_of(placed: Sequence[PlacedPods], flavors: Iterable[str], setup: KueueSetup) -> str:
    """Return the lowest level of which one domain has all of several pods; ``SPREAD``: none has.

    Empty: that is not known, or it is one pod alone.
    """
    if sum(dict(pods.amounts).get(PODS, 0) for pods in placed) < _SEVERAL:
        return ""
    for name in flavors:
        flavor = setup.flavors.get(name)
        tree = tree_of(flavor, setup) if flavor is not None and flavor.topology else None
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
