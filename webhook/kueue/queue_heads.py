"""The heads of ClusterQueues in one cohort tree, and which flavors and quota a head would get.

Under StrictFIFO a ClusterQueue has one head, which nothing overtakes. Under BestEffortFIFO it has
one head for each shape that is pending: equal Workloads wait for the same quota, so where the
oldest of them does not fit, none does. Time and the order among queues are left to the caller.
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
"""Order of heads, the least first: borrows (0, 1), negated priority, age, a serial number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup:
    """Equal Workloads that are pending in one ClusterQueue and are admitted one by one."""

    cluster_queue: str
    demand: Demand
    seconds: float
    """Expected run time."""
    spread: float = 0.0
    """Standard deviation of ``seconds``, in seconds."""
    by_flavors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Flavors (sorted, unique, joined by commas) to (seconds, spread); empty: the same on all."""
    priority: int = 0
    count: int = 1
    at: float = 0.0
    """When it begins to compete for quota, in seconds since the beginning of the schedule."""
    key: str = ""
    """A name by which the caller finds its start again; need not be unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The flavors and quota that one Workload gets, or would get if there were room."""

    fits: bool
    """False: it has to wait, and the rest says what it waits for."""
    taken: Taken
    flavors: tuple[str, ...]
    """One for each part of the demand."""
    height: int = 0
    """Levels of cohorts above the ClusterQueue that it borrows from; 0: it does not borrow."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A Demand in the tree's own indices, without flavors too small even when all is idle."""

    parts: tuple[_Choices, ...]
    only: Taken | None
    """All that it takes, where each part has exactly one flavor; None: there is a choice."""
    outcomes: tuple[Fitting, Fitting, Fitting] | None
    """For ``only``: it fits, it fits by borrowing, it does not fit. None: there is a choice."""

    @property
    def is_possible(self) -> bool:
        """Whether each part has a flavor that could hold it if the tree were idle."""
        return all(self.parts)


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A group of equal Workloads in a queue, and how many of them are still pending."""

    shape: Shape
    waiting: PendingGroup
    count: int


@dataclass(slots=True, kw_only=True, eq=False)
class FullQueues:
    """Queues whose heads can be passed over together when one node has too little free quota."""

    node: int
    wanted: Taken | None = None
    """What the head of each queue needs free at the node; None: it differs from head to head."""
    heap: list[tuple[Key, ClusterQueueHeads]] = field(default_factory=list)

    def top(self) -> Key | None:
        """Return the key of the first head, dropping outdated ones; None: there is no head."""
        # A queue that moves to another key is not searched for here: its old key is left in the
        # heap, and is recognized by not being the one in ``stored``.
        heap = self.heap
        while heap:
            key, line = heap[0]
            if line.stored is key:
                return key
            heapq.heappop(heap)
        return None


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterQueueHeads:
    """Pending groups of one ClusterQueue of which only the first may be admitted."""

    queue: ClusterQueue
    leaf: int
    is_strict: bool
    bucket: FullQueues | None = None
    entries: list[tuple[int, int, QueueEntry]] = field(default_factory=list)
    """A heap of (negated priority, age, group): the highest priority first, then the oldest."""
    stored: Key | None = None
    """Its key in ``bucket``; None: out of the heap until its ClusterQueue releases quota."""

    def add(self, entry: QueueEntry, order: int) -> None:
        """Queue a group; the least *order* is the oldest."""
        heapq.heappush(self.entries, (-entry.waiting.priority, order, entry))

    def take(self, count: int) -> None:
        """Remove *count* Workloads of the first group."""
        entry = self.entries[0][2]
        entry.count -= count
        if not entry.count:
            heapq.heappop(self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlavorTry:
    """What one flavor would mean for one part of a demand."""

    level: Level
    """That of the resource with the worst one."""
    height: int
    """The greatest of all resources: one may borrow while another has the worst mode."""
    flavor: str
    taken: Taken


_NOTHING = _FlavorTry(level=(PreemptionMode.EXCEEDS, 0), height=0, flavor="", taken=())


class Claims:
    """Priorities of the Workloads that hold quota, which preemption could take back."""

    def __init__(self, *, fair_sharing: bool) -> None:
        self.fair_sharing = fair_sharing
        self._holding: defaultdict[int, Counter[int | None]] = defaultdict(Counter)
        """ClusterQueue's node to priority to the number of Workloads that hold quota."""

    def hold(self, leaf: int, priority: int | None, count: int) -> None:
        """Count *count* more Workloads as holding quota (below 0: fewer).

        A *priority* of None is an unknown one.
        """
        holding = self._holding[leaf]
        holding[priority] += count
        if not holding[priority]:
            del holding[priority]

    def lower_runs(self, leaf: int, priority: int) -> bool:
        """Tell whether a Workload of a lower or unknown priority holds quota in a ClusterQueue."""
        # A Workload of unknown priority might be a candidate for Kueue's preemption.
        holding = self._holding.get(leaf, ())
        return any(running is None or running < priority for running in holding)


def is_strict(queue: ClusterQueue) -> bool:
    return queue.queueing is Queueing.STRICT


def shape_of(tree: UsageTree, leaf: int, demand: Demand) -> Shape:
    """Translate a demand into the tree's indices; a part without choices can never be admitted."""
    parts: list[_Choices] = []
    for choices in demand.parts:
        possible = []
        for choice in choices:
            usage = [(cell, amount) for cell, amount in choice.usage if amount]
            if any(cell not in tree.indices for cell, _ in usage):
                continue
            taken = tuple((tree.indices[cell], amount) for cell, amount in usage)
            first = leaf * tree.width
            # Kueue goes on to the next flavor where the amount exceeds the potential capacity.
            if all(tree.potentials[first + cell] >= amount for cell, amount in taken):
                possible.append((choice.flavor, taken))
        parts.append(tuple(possible))
    only = _only(parts)
    return Shape(parts=tuple(parts), only=only, outcomes=_outcomes(parts, only))


def _outcomes(parts: list[_Choices], only: Taken | None) -> tuple[Fitting, Fitting, Fitting] | None:
    """Prepare the three possible answers, so that a cycle need not build one for each head."""
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
    """Return what the cohort must have free for a Workload of one ClusterQueue.

    That is its usage less what the ClusterQueue has free of the quota that it lends to nobody.
    """
    # ``lendingLimit`` keeps a part of the nominal quota out of the cohort's reach.
    first = leaf * tree.width
    return tuple(
        (cell, amount - min(amount, max(0, tree.local[first + cell] - tree.used[first + cell])))
        for cell, amount in only
    )


def owns(tree: UsageTree, leaf: int, only: Taken) -> bool:
    """Tell whether a ClusterQueue's unused nominal quota covers *only*, so that none is borrowed.

    Others may have borrowed that quota: see ``has``.
    """
    first = leaf * tree.width
    subtree, used = tree.subtree, tree.used
    for cell, amount in only:  # noqa: SIM110 - twice as fast as all()
        if subtree[first + cell] - used[first + cell] < amount:
            return False
    return True


def has(tree: UsageTree, node: int, taken: Taken) -> bool:
    """Tell whether a node has that much free, borrowing included."""
    available = tree.available
    for cell, amount in taken:  # noqa: SIM110 - twice as fast as all()
        if available(node, cell) < amount:
            return False
    return True


def has_room(tree: UsageTree, node: int, shape: Shape) -> bool:
    """Tell whether a Workload may fit at a node; certain where it has no choice of flavors."""
    if shape.only is not None:
        return has(tree, node, shape.only)
    # Parts are checked one by one here; together they may still need more than there is.
    return all(any(has(tree, node, taken) for _, taken in choices) for choices in shape.parts)


def fitting(
    tree: UsageTree, line: ClusterQueueHeads, claims: Claims, *, exact_height: bool
) -> Fitting:
    """Return the flavors and quota that a queue's head gets, or waits for, at the present usage.

    What the earlier parts of its demand take is not free for the later ones. Without
    *exact_height* a height of 1 may stand for any above 0.
    """
    shape = line.entries[0][2].shape
    # Without a choice of flavors, fungibility decides nothing, and one check of quota is enough.
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
    """Return the flavor that Kueue's fungibility chooses, by the rules of ``kueue.assignment``."""
    best = _NOTHING
    for flavor, taken in choices:
        wanted = tuple((cell, amount + usage.get(cell, 0)) for cell, amount in taken)
        level, height = _level(tree, line, wanted, claims)
        attempt = _FlavorTry(level=level, height=height, flavor=flavor, taken=taken)
        if not assignment.tries_next(level, line.queue):
            return attempt
        if assignment.is_better(level, best.level):
            best = attempt
    return best


def _level(
    tree: UsageTree, line: ClusterQueueHeads, wanted: Taken, claims: Claims
) -> tuple[Level, int]:
    """Return the worst level of a flavor's resources, and the greatest height of any of them."""
    worst, height = (PreemptionMode.FITS, 0), 0
    for cell, amount in wanted:
        above, reclaims = tree.height(line.leaf, cell, amount)
        mode = PreemptionMode.FITS
        # Kueue judges each resource by itself; the worst of a flavor's resources decides.
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
    """Return the mode of a resource of which too little is free."""
    preemption = line.queue.preemption
    if not assignment.may_claim(preemption, fair_sharing=claims.fair_sharing, has_right=has_right):
        return PreemptionMode.WAITS
    return assignment.when_claimed(
        preemption,
        lower_runs=claims.lower_runs(line.leaf, line.entries[0][2].waiting.priority),
        others_borrow=lambda: tree.others_borrow(line.leaf, cell),
    )


def _has(tree: UsageTree, line: ClusterQueueHeads, cell: int, amount: int) -> bool:
    """Tell whether the ClusterQueue's nominal quota covers *amount*, ignoring all usage."""
    return tree.nominal[line.leaf * tree.width + cell] >= amount


def _may_claim(tree: UsageTree, line: ClusterQueueHeads, wanted: Taken, claims: Claims) -> bool:
    """Tell whether preemption could bring every resource of which too little is free."""
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
    """Count the Workloads of the first group that can be admitted together with its first one.

    Admitted one by one they would get the same flavors; with *keeps_height* they would also all
    borrow, or none of them.
    """
    entry = line.entries[0][2]
    if entry.count == 1:
        return 1
    if entry.shape.only is None:
        # As long as nothing is borrowed, the first flavor that fits stays the first that fits.
        return max(1, min(entry.count, tree.own_room(line.leaf, found.taken)))
    if keeps_height and found.height == 0:
        return min(entry.count, tree.own_room(line.leaf, found.taken))
    return min(entry.count, tree.room(line.leaf, found.taken))


def set_aside(tree: UsageTree, line: ClusterQueueHeads, found: Fitting, claims: Claims) -> Taken:
    """Return what Kueue keeps free for a StrictFIFO head that does not fit; empty: nothing.

    Quota is kept only where the head could get it by preemption, and where its ClusterQueue cannot
    always reclaim it.
    """
    is_possible = line.entries[0][2].shape.is_possible
    # Who may always reclaim needs nothing kept: ``CanAlwaysReclaim`` in Kueue's ``scheduler.go``.
    if line.queue.preemption.reclaim_within_cohort == "Any" or not is_possible:
        return ()
    if not _may_claim(tree, line, found.taken, claims):
        return ()
    kept: list[tuple[int, int]] = []
    # As ``quotaResourcesToReserve`` does, no more is kept than the ClusterQueue's own limits let
    # it use: its nominal quota, plus the borrowing limit where it borrows.
    for cell, amount in found.taken:
        ceiling = tree.ceiling(line.leaf, cell, borrows=found.height > 0)
        kept.append((cell, amount if ceiling is None else min(amount, ceiling)))
    return tuple((cell, amount) for cell, amount in kept if amount > 0)
