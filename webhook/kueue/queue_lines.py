"""Pending Workloads of one tree in lines: those of one line wait for the very same quota.

Under BestEffortFIFO a line holds one shape of one ClusterQueue, so when its first does not fit none
does; under StrictFIFO it holds the whole ClusterQueue, and nobody overtakes.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.kueue import assignment
from webhook.kueue.assignment import Level, PreemptionMode
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ClusterQueue, Queueing

_Choices: TypeAlias = tuple[tuple[str, Taken], ...]
Key: TypeAlias = tuple[int, int, int, int]
"""What stands in front: own quota before borrowed (0, 1), priority down, age, a serial number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup:
    """Equal Workloads that want quota, one after another."""

    cluster_queue: str
    demand: Demand
    seconds: float
    """Expected run time."""
    spread: float = 0.0
    """One sigma of ``seconds``."""
    by_flavors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Flavors, joined by commas, to seconds and spread where they differ."""
    priority: int = 0
    count: int = 1
    at: float = 0.0
    """When it begins to compete."""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """How a Workload fits, or would once there is room (then ``fits`` is False)."""

    fits: bool
    taken: Taken
    flavors: tuple[str, ...]
    height: int = 0
    """How far up the cohorts it borrows from; 0: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A Demand in a tree's own indices, without flavors that have too little even when idle."""

    parts: tuple[_Choices, ...]
    only: Taken | None
    """What it takes where there is nothing to choose."""
    outcomes: tuple[Fitting, Fitting, Fitting] | None
    """Where there is nothing to choose: it fits, it fits with borrowing, it does not fit."""

    @property
    def is_possible(self) -> bool:
        return all(self.parts)


@dataclass(slots=True, eq=False)
class QueueEntry:
    """Equal Workloads in a row, and how many of them are left."""

    shape: Shape
    waiting: PendingGroup
    count: int


@dataclass(slots=True, kw_only=True, eq=False)
class FullQueues:
    """Lines that one look at a node tells to have no room."""

    node: int
    wanted: Taken | None = None
    """What the first of each line must find free there; None: to be found out line by line."""
    heap: list[tuple[Key, ClusterQueueHeads]] = field(default_factory=list)

    def top(self) -> Key | None:
        """Return the key of the first line; what is out of date is thrown away."""
        heap = self.heap
        while heap:
            key, line = heap[0]
            if line.stored is key:
                return key
            heapq.heappop(heap)
        return None


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterQueueHeads:
    queue: ClusterQueue
    leaf: int
    is_strict: bool
    bucket: FullQueues | None = None
    entries: list[tuple[int, int, QueueEntry]] = field(default_factory=list)
    """A heap: the highest priority, then the oldest."""
    stored: Key | None = None
    """Under which it stands in its bucket; None: only a release of its own may bring it back."""

    def add(self, entry: QueueEntry, order: int) -> None:
        heapq.heappush(self.entries, (-entry.waiting.priority, order, entry))

    def take(self, count: int) -> None:
        entry = self.entries[0][2]
        entry.count -= count
        if not entry.count:
            heapq.heappop(self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlavorTry:
    """What comes of one flavor."""

    level: Level
    """Of the resource that fares worst."""
    height: int
    """The largest of all its resources: one may borrow while another waits."""
    flavor: str
    taken: Taken


_NOTHING = _FlavorTry(level=(PreemptionMode.EXCEEDS, 0), height=0, flavor="", taken=())


class Claims:
    """Whose quota could be taken back by preemption: who holds some, of which priority."""

    def __init__(self, *, fair_sharing: bool) -> None:
        self.fair_sharing = fair_sharing
        self._holding: defaultdict[int, Counter[int | None]] = defaultdict(Counter)

    def hold(self, leaf: int, priority: int | None, count: int) -> None:
        """Let so many hold quota, or below 0 give it back; None: of an unknown priority."""
        holding = self._holding[leaf]
        holding[priority] += count
        if not holding[priority]:
            del holding[priority]

    def lower_runs(self, leaf: int, priority: int) -> bool:
        """Tell whether one of a lower priority may run there."""
        holding = self._holding.get(leaf, ())
        return any(each is None or each < priority for each in holding)


def is_strict(queue: ClusterQueue) -> bool:
    return queue.queueing is Queueing.STRICT


def shape_of(tree: UsageTree, leaf: int, demand: Demand) -> Shape:
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
    only = _only(parts)
    return Shape(parts=tuple(parts), only=only, outcomes=_outcomes(parts, only))


def _outcomes(parts: list[_Choices], only: Taken | None) -> tuple[Fitting, Fitting, Fitting] | None:
    if only is None:
        return None
    flavors = tuple(choices[0][0] for choices in parts)
    fits, borrows, waits = (
        Fitting(fits=fits, taken=only, flavors=flavors, height=height)
        for fits, height in ((True, 0), (True, 1), (False, 1))
    )
    return fits, borrows, waits


def _only(parts: list[_Choices]) -> Taken | None:
    if any(len(choices) != 1 for choices in parts):
        return None
    usage: dict[int, int] = {}
    for ((_, taken),) in parts:
        for cell, amount in taken:
            usage[cell] = usage.get(cell, 0) + amount
    return tuple(usage.items())


def wanted_above(tree: UsageTree, leaf: int, only: Taken) -> Taken:
    """Say what the cohort must have free: less what the ClusterQueue lends to nobody and has."""
    first = leaf * tree.width
    return tuple(
        (cell, amount - min(amount, max(0, tree.local[first + cell] - tree.used[first + cell])))
        for cell, amount in only
    )


def owns(tree: UsageTree, leaf: int, only: Taken) -> bool:
    """Tell whether it would not borrow."""
    first = leaf * tree.width
    subtree, used = tree.subtree, tree.used
    for cell, amount in only:  # noqa: SIM110 - twice as fast as all()
        if subtree[first + cell] - used[first + cell] < amount:
            return False
    return True


def has(tree: UsageTree, node: int, taken: Taken) -> bool:
    available = tree.available
    for cell, amount in taken:  # noqa: SIM110 - twice as fast as all()
        if available(node, cell) < amount:
            return False
    return True


def has_room(tree: UsageTree, node: int, shape: Shape) -> bool:
    """Tell whether it may fit there; where nothing is to choose, whether it fits."""
    if shape.only is not None:
        return has(tree, node, shape.only)
    return all(any(has(tree, node, taken) for _, taken in choices) for choices in shape.parts)


def fitting(
    tree: UsageTree, line: ClusterQueueHeads, claims: Claims, *, exact_height: bool
) -> Fitting:
    """See how the first of a line fits; later parts see what earlier ones take.

    Without *exact_height* 1 may stand for any height above 0.
    """
    shape = line.entries[0][2].shape
    if shape.only is not None and shape.outcomes is not None and not exact_height:
        if not has(tree, line.leaf, shape.only):
            return shape.outcomes[2]
        return shape.outcomes[0 if owns(tree, line.leaf, shape.only) else 1]
    fits, height = True, 0
    usage: dict[int, int] = {}
    flavors: list[str] = []
    for choices in shape.parts:
        best = _best(tree, line, choices, usage, claims)
        fits, height = fits and best.level[0] is PreemptionMode.FITS, max(height, best.height)
        flavors.append(best.flavor)
        for cell, amount in best.taken:
            usage[cell] = usage.get(cell, 0) + amount
    return Fitting(fits=fits, taken=tuple(usage.items()), flavors=tuple(flavors), height=height)


def _best(
    tree: UsageTree,
    line: ClusterQueueHeads,
    choices: _Choices,
    usage: Mapping[int, int],
    claims: Claims,
) -> _FlavorTry:
    """Find the flavor that Kueue's fungibility takes, as ``kueue.assignment`` does."""
    best = _NOTHING
    for flavor, taken in choices:
        wanted = tuple((cell, amount + usage.get(cell, 0)) for cell, amount in taken)
        level, height = _level(tree, line, wanted, claims)
        found = _FlavorTry(level=level, height=height, flavor=flavor, taken=taken)
        if not assignment.tries_next(level, line.queue):
            return found
        if assignment.is_better(level, best.level):
            best = found
    return best


def _level(
    tree: UsageTree, line: ClusterQueueHeads, wanted: Taken, claims: Claims
) -> tuple[Level, int]:
    """Weigh the resources of one flavor: how the worst fares, and how far up any borrows from."""
    worst, height = (PreemptionMode.FITS, 0), 0
    for cell, amount in wanted:
        above, reclaims = tree.height(line.leaf, cell, amount)
        mode = PreemptionMode.FITS
        if tree.available(line.leaf, cell) < amount:
            mode = _short(
                tree, line, cell, claims, has_right=reclaims or _has(tree, line, cell, amount)
            )
        height = max(height, above)
        if not assignment.is_better((mode, above), worst):
            worst = mode, above
    return worst, height


def _short(
    tree: UsageTree, line: ClusterQueueHeads, cell: int, claims: Claims, *, has_right: bool
) -> PreemptionMode:
    preemption = line.queue.preemption
    if not assignment.may_claim(preemption, fair_sharing=claims.fair_sharing, has_right=has_right):
        return PreemptionMode.WAITS
    return assignment.when_claimed(
        preemption,
        lower_runs=claims.lower_runs(line.leaf, line.entries[0][2].waiting.priority),
        others_borrow=lambda: tree.others_borrow(line.leaf, cell),
    )


def _has(tree: UsageTree, line: ClusterQueueHeads, cell: int, amount: int) -> bool:
    """Tell whether its nominal quota is enough, whoever uses it."""
    return tree.nominal[line.leaf * tree.width + cell] >= amount


def _may_claim(tree: UsageTree, line: ClusterQueueHeads, wanted: Taken, claims: Claims) -> bool:
    """Tell whether all that is short is quota that it has a right to and that others hold."""
    return all(
        tree.available(line.leaf, cell) >= amount
        or assignment.may_claim(
            line.queue.preemption,
            fair_sharing=claims.fair_sharing,
            has_right=_has(tree, line, cell, amount) or tree.height(line.leaf, cell, amount)[1],
        )
        for cell, amount in wanted
    )


def alike(tree: UsageTree, line: ClusterQueueHeads, found: Fitting, *, keeps_height: bool) -> int:
    """Count how many of the first entry get the same flavors, and borrow alike, one by one.

    As long as nothing is borrowed, the first flavor that fits stays the first that fits.
    """
    entry = line.entries[0][2]
    if entry.count == 1:
        return 1
    if entry.shape.only is None:
        return max(1, min(entry.count, tree.own_room(line.leaf, found.taken)))
    if keeps_height and found.height == 0:
        return min(entry.count, tree.own_room(line.leaf, found.taken))
    return min(entry.count, tree.room(line.leaf, found.taken))


def set_aside(tree: UsageTree, line: ClusterQueueHeads, found: Fitting, claims: Claims) -> Taken:
    """Say what Kueue keeps free for a StrictFIFO head; see ``kueue.assignment``.

    Only where it has a right to quota that others hold, and may not take it back by preemption.
    """
    is_possible = line.entries[0][2].shape.is_possible
    if line.queue.preemption.reclaim_within_cohort == "Any" or not is_possible:
        return ()
    if not _may_claim(tree, line, found.taken, claims):
        return ()
    kept: list[tuple[int, int]] = []
    for cell, amount in found.taken:
        ceiling = tree.ceiling(line.leaf, cell, borrows=found.height > 0)
        kept.append((cell, amount if ceiling is None else min(amount, ceiling)))
    return tuple((cell, amount) for cell, amount in kept if amount > 0)
