"""Pending Workloads of one tree in lines: those of one line wait for the very same quota.

Under BestEffortFIFO a line holds one shape of one ClusterQueue, so when its first does not fit none
does; under StrictFIFO it holds the whole ClusterQueue, and nobody overtakes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.decide.demand import Demand
from webhook.decide.tree import Taken, Tree
from webhook.model.queues import ClusterQueue, Queueing

_TRY_NEXT = "TryNextFlavor"
_NEVER = "Never"
_Choices: TypeAlias = tuple[tuple[str, Taken], ...]
Parts: TypeAlias = tuple[_Choices, ...]
"""A Demand in a tree's own indices, without flavors that have too little for it even when idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """How a Workload fits, or would once there is room (then ``fits`` is False)."""

    fits: bool
    taken: Taken
    flavors: tuple[str, ...]
    height: int = 0
    """How far up the cohorts it borrows from; 0: not at all."""
    is_only: bool = False
    """No other flavors are possible."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """Equal Workloads in a row."""

    parts: Parts
    count: int
    seconds: float
    variance: float
    priority: int
    at: float
    """When it begins to compete."""
    by_flavors: Mapping[str, tuple[float, float]]
    key: str


@dataclass(slots=True, kw_only=True)
class Line:
    queue: ClusterQueue
    leaf: int
    entries: list[tuple[int, int, Entry]] = field(default_factory=list)
    """A heap: the highest priority, then the oldest."""

    @property
    def is_strict(self) -> bool:
        return self.queue.queueing is Queueing.STRICT

    def add(self, entry: Entry, order: int) -> None:
        heapq.heappush(self.entries, (-entry.priority, order, entry))

    def first(self) -> Entry:
        return self.entries[0][2]

    def take(self, count: int) -> None:
        entry = self.entries[0][2]
        entry.count -= count
        if not entry.count:
            heapq.heappop(self.entries)


def parts_of(tree: Tree, leaf: int, demand: Demand) -> Parts:
    """Translate; a part without choices can never be served."""
    parts: list[_Choices] = []
    for choices in demand.parts:
        found = []
        for choice in choices:
            usage = [(cell, amount) for cell, amount in choice.usage if amount]
            if any(cell not in tree.indices for cell, _ in usage):
                continue
            taken = tuple((tree.indices[cell], amount) for cell, amount in usage)
            first = leaf * tree.width
            if all(tree.potentials[first + cell] >= amount for cell, amount in taken):
                found.append((choice.flavor, taken))
        parts.append(tuple(found))
    return tuple(parts)


def fitting(tree: Tree, line: Line) -> Fitting | None:
    """See how the first of a line fits; None: it never can.

    Later parts see what earlier ones take, as in ``decide.flavors``.
    """
    fits, height, is_only = True, 0, True
    usage: dict[int, int] = {}
    flavors: list[str] = []
    for choices in line.first().parts:
        if not choices:
            return None
        best = _best(tree, line, choices, usage)
        fits, height = fits and best[0], max(height, best[1])
        is_only = is_only and len(choices) == 1
        flavors.append(best[2])
        for cell, amount in best[3]:
            usage[cell] = usage.get(cell, 0) + amount
    return Fitting(
        fits=fits,
        taken=tuple(usage.items()),
        flavors=tuple(flavors),
        height=height,
        is_only=is_only,
    )


def _best(
    tree: Tree, line: Line, choices: _Choices, usage: dict[int, int]
) -> tuple[bool, int, str, Taken]:
    """Find the first flavor that fits, or the one that comes closest: (fits, height, name, …)."""
    tries_next = line.queue.when_can_borrow == _TRY_NEXT
    best: tuple[bool, int, str, Taken] | None = None
    for flavor, taken in choices:
        fits, height = True, 0
        for cell, amount in taken:
            wanted = amount + usage.get(cell, 0)
            fits = fits and tree.available(line.leaf, cell) >= wanted
            height = max(height, tree.height(line.leaf, cell, wanted)[0])
        found = fits, height, flavor, taken
        if fits and not (height and tries_next):
            return found
        if best is None or (fits, -height) > (best[0], -best[1]):
            best = found
    return best or (True, 0, "", ())


def has_room(tree: Tree, line: Line) -> bool:
    """Tell whether the first of a line may fit: cheap, and right where it says no."""
    for choices in line.first().parts:
        for _, taken in choices:
            if all(tree.available(line.leaf, cell) >= amount for cell, amount in taken):
                break
        else:
            return False
    return True


def alike(tree: Tree, line: Line, found: Fitting, *, keeps_height: bool) -> int:
    """Count how many of the first entry get the same flavors, and borrow alike, one by one."""
    count = line.first().count
    if found.is_only:
        count = min(count, tree.room(line.leaf, found.taken))
    if (keeps_height or not found.is_only) and found.height == 0:
        return max(1, min(count, tree.own_room(line.leaf, found.taken)))
    return max(1, count) if found.is_only else 1


def set_aside(tree: Tree, line: Line, found: Fitting, *, fair_sharing: bool) -> Taken:
    """Say what Kueue keeps free for a StrictFIFO head; see ``decide.flavors``.

    Only where it has a right to quota that others hold, and may not take it back by preemption.
    """
    preemption, first = line.queue.preemption, line.leaf * tree.width
    if preemption.reclaim_within_cohort == "Any":
        return ()
    borrows = preemption.borrow_within_cohort != _NEVER or (
        fair_sharing and preemption.reclaim_within_cohort != _NEVER
    )
    kept: list[tuple[int, int]] = []
    for cell, amount in found.taken:
        short = tree.available(line.leaf, cell) < amount
        if short and not (
            borrows
            or tree.nominal[first + cell] >= amount
            or tree.height(line.leaf, cell, amount)[1]
        ):
            return ()
        ceiling = tree.ceiling(line.leaf, cell, borrows=found.height > 0)
        kept.append((cell, amount if ceiling is None else min(amount, ceiling)))
    return tuple((cell, amount) for cell, amount in kept if amount > 0)
