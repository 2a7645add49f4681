"""Place the pods of a pod set into the domains of a Topology, as Kueue does.

Mirrors ``findTopologyAssignment`` with the profiles BestFit and, for pods that may be anywhere,
LeastFreeCapacity. Whose pods they are, and what else wants the room, is not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from webhook.kueue.topology_domains import DomainTree

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
