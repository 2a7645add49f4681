"""The heads of ClusterQueues in one cohort tree, and which flavors and quota a head would get.

Under StrictFIFO a ClusterQueue has one head, which nothing overtakes. Under BestEffortFIFO it has
one head for each shape that is pending: equal Workloads wait for the same quota, so where the
oldest of them does not fit, none does. Time and the order among queues are left to the caller.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.kueue import assignment
from webhook.kueue.assignment import (
    Assignment,
    Claimant,
    Oracle,
    Parts,
    PreemptionMode,
    assign,
    oracle_by_counts,
    search,
)
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.partial_admission import FewerPods, most_that_fit
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ClusterQueue, KueueConfig, Queueing

_Choices: TypeAlias = tuple[tuple[str, Taken], ...]
Key: TypeAlias = tuple[int, int, float, float, int]
"""Order of heads, the least first: place in the ClusterQueue, height from which it borrows, negated
priority, age, a serial number. In a bucket that heads share, the height is 1 for all above 0."""


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
    priority: float = 0
    """A whole number but of those who are not there yet; see ``kueue.profile.LATER``."""
    count: int = 1
    at: float = 0.0
    """When it begins to compete for quota, in seconds since the beginning of the schedule."""
    key: str = ""
    """A name by which the caller finds its start again; need not be unique."""
    uid: str = ""
    """As in ``RunningGroup``, for one Workload by itself."""
    local_queue: str = ""
    """``namespace/name``, for ClusterQueues that order their LocalQueues by usage."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A Demand in the tree's own indices, without flavors too small even when all is idle."""

    parts: tuple[_Choices, ...]
    only: Taken | None
    """All that it takes, where each part has exactly one flavor; None: there is a choice, or one
    part asks for a written 0, which decides from where the Workload borrows."""
    outcomes: tuple[Assignment, Assignment, Assignment] | None
    """For ``only``: it fits, it fits by borrowing, it does not fit. None: there is a choice."""
    fewer: Sequence[Shape] = ()
    """The same with ever fewer pods, if it does with fewer; how many is a choice, too."""

    @property
    def least(self) -> Shape:
        """The same with the fewest pods."""
        return self.fewer[-1] if self.fewer else self

    @property
    def is_possible(self) -> bool:
        """Whether each part has a flavor that could hold it if the tree were idle."""
        return all(self.least.parts)


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A group of equal Workloads in a queue, and how many of them are still pending."""

    shape: Shape
    waiting: PendingGroup
    count: int

    def __lt__(self, other: QueueEntry) -> bool:
        """Order two entries of one priority and age by UID, as Kueue does, where both are known."""
        return self.waiting.uid < other.waiting.uid


@dataclass(slots=True, kw_only=True, eq=False)
class FullQueues:
    """Queues whose heads can be passed over together when one node has too little free quota."""

    node: int
    wanted: Taken | None = None
    """What the head of each queue needs free at the node; None: it differs from head to head."""
    heap: list[tuple[Key, ClusterQueueHeads]] = field(default_factory=list)
    due: tuple[Key, Key] | None = None
    """When a head is served in the present moment, and the head's key, where that is planned."""

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
    shared: FullQueues | None = None
    """The bucket that is always its own one but for *claim*; None: it depends on its head, or on
    usage."""
    claim: FullQueues | None = None
    """Its own bucket in a cycle in which it may preempt."""
    entries: list[tuple[float, float, QueueEntry]] = field(default_factory=list)
    """A heap of (negated priority, age, group): the highest priority first, then the oldest."""
    place: int = 0
    """How many heads of its ClusterQueue come before it."""
    stored: Key | None = None
    """Its key in ``bucket``; None: out of the heap until its ClusterQueue releases quota."""

    def add(self, entry: QueueEntry, order: float) -> None:
        """Queue a group; the least *order* is the oldest."""
        heapq.heappush(self.entries, (-entry.waiting.priority, order, entry))

    def take(self, count: int) -> None:
        """Remove *count* Workloads of the first group."""
        entry = self.entries[0][2]
        entry.count -= count
        if not entry.count:
            heapq.heappop(self.entries)


class FlavorSearches:
    """Where heads go on with their search for flavors in the next cycle of a moment.

    Kueue keeps that for one cycle with a Workload which it tries again (``LastAssignment``), and
    longer where nothing of its ClusterQueue changes meanwhile (``lastAssignmentOutdated``).
    """

    def __init__(self) -> None:
        self._behind: dict[QueueEntry, Sequence[str]] = {}
        self._kept_in: dict[QueueEntry, int] = {}
        """The cycle in which each was last kept open."""
        self._changed: set[QueueEntry] = set()
        """In whose ClusterQueue a Workload got or lost quota since."""
        self._cycle = 0
        self._seen: set[tuple[tuple[QueueEntry, Sequence[str]], ...]] = {()}
        """Searches from which cycles of this moment went on: they may go round for ever."""

    def begin(self) -> None:
        """Begin a moment: each search begins anew."""
        # Kueue's cycles come one after the other as long as some head is tried in vain, so nobody
        # knows how far such a search is by then.
        self._behind.clear()
        self._kept_in.clear()
        self._changed.clear()
        self._seen = {()}

    def note_changes(self, queues: Collection[str]) -> None:
        """Tell in which ClusterQueues a Workload got or lost quota since the last cycle.

        A search there goes on in the cycle after the one in which it was kept open; if it is tried
        only later, it begins anew.
        """
        self._changed.update(
            entry for entry in self._behind if entry.waiting.cluster_queue in queues
        )
        for entry in [one for one in self._changed if self._kept_in[one] < self._cycle]:
            self._changed.discard(entry)
            self._behind.pop(entry, None)

    @property
    def is_any_open(self) -> bool:
        """Whether the next cycle goes on with some search."""
        return bool(self._behind)

    def resume(self, heads: ClusterQueueHeads) -> Sequence[str]:
        """Return the flavors, as for ``assign``, behind which a head's search goes on now.

        Unless it is kept open again, it begins anew in the cycle after.
        """
        return self._behind.pop(heads.entries[0][2], ()) if self._behind else ()

    def keep_open(self, heads: ClusterQueueHeads, found: Assignment) -> None:
        """Let a head's search go on in the next cycle behind what it was assigned in this one."""
        if any(found.unfinished):
            entry = heads.entries[0][2]
            self._behind[entry], self._kept_in[entry] = found.unfinished, self._cycle + 1
            self._changed.discard(entry)

    def go_on(self, *, has_changed: bool) -> bool:
        """Return whether the next cycle is another one than all before it at this moment.

        *has_changed*: this cycle has changed who is tried, or what is free.
        """
        search = tuple(self._behind.items())
        is_new = has_changed or search not in self._seen
        if has_changed:
            self._seen.clear()
        self._seen.add(search)
        self._cycle += 1
        return is_new


class Claims:
    """What heads may preempt."""

    def __init__(self, kueue: KueueConfig) -> None:
        self.fair_sharing = kueue.fair_sharing
        self.release = kueue.release
        self.oracle_of: Callable[[ClusterQueueHeads], Oracle] | None = None
        """Says whom a queue's head may preempt; None: no policy of the tree allows it."""
        self.finds_victims: Callable[[ClusterQueueHeads, Assignment], bool] | None = None
        """Says whether Kueue would preempt for all of an assignment; None likewise."""

    def oracle(self, tree: UsageTree, line: ClusterQueueHeads) -> Oracle:
        """Return what a queue's head may preempt."""
        if self.oracle_of is not None:
            return self.oracle_of(line)
        return oracle_by_counts(tree, line.leaf, line.queue, lower_holds=lambda: False)

    def is_served(self, line: ClusterQueueHeads, assigned: Assignment) -> bool:
        """Return whether a queue's head fits as assigned, or Kueue would preempt for it."""
        if assignment.asks_for_victims(assigned.mode) and self.finds_victims is not None:
            return self.finds_victims(line, assigned)
        return assigned.fits


def is_strict(queue: ClusterQueue) -> bool:
    return queue.queueing is Queueing.STRICT


def shape_of(tree: UsageTree, leaf: int, demand: Demand) -> Shape:
    """Translate a demand into the tree's indices; a part without choices can never be admitted."""
    parts: list[_Choices] = []
    for choices in demand.parts:
        possible = []
        for choice in choices:
            taken = tuple((tree.indices[cell], amount) for cell, amount in choice.usage)
            # Kueue goes on to the next flavor where the amount exceeds the potential capacity.
            if all(tree.potential(leaf, cell) >= amount for cell, amount in taken):
                possible.append((choice.flavor, taken))
        parts.append(tuple(possible))
    only = None if demand.fewer else _only(parts)
    return Shape(
        parts=tuple(parts),
        only=only,
        outcomes=_outcomes(parts, only),
        fewer=FewerPods(
            len(demand.fewer), lambda missing: shape_of(tree, leaf, demand.fewer[missing - 1])
        )
        if demand.fewer
        else (),
    )


def _outcomes(
    parts: list[_Choices], only: Taken | None
) -> tuple[Assignment, Assignment, Assignment] | None:
    """Prepare the three possible answers, so that a cycle need not build one for each head."""
    if only is None:
        return None
    flavors = tuple(choices[0][0] for choices in parts)
    fits, borrows, waits = (
        Assignment(mode=mode, fits=fits, taken=only, flavors=flavors, height=height)
        for mode, fits, height in (
            (PreemptionMode.FITS, True, 0),
            (PreemptionMode.FITS, True, 1),
            (PreemptionMode.WAITS, False, 1),
        )
    )
    return fits, borrows, waits


def _only(parts: list[_Choices]) -> Taken | None:
    if any(len(choices) != 1 for choices in parts):
        return None
    usage: dict[int, int] = {}
    for ((_, taken),) in parts:
        for cell, amount in taken:
            usage[cell] = usage.get(cell, 0) + amount
    return tuple(usage.items()) if all(usage.values()) else None


def wanted_above(tree: UsageTree, leaf: int, only: Taken) -> Taken:
    """Return what the cohort must have free for a Workload of one ClusterQueue.

    That is its usage less what the ClusterQueue has free of the quota that it lends to nobody.
    """
    # ``lendingLimit`` keeps a part of the nominal quota out of the cohort's reach.
    first, local, used = leaf * tree.width, tree.local, tree.used
    wanted = []
    for cell, amount in only:
        kept = local[first + cell] - used[first + cell]
        wanted.append((cell, amount if kept <= 0 else max(0, amount - kept)))
    return tuple(wanted)


def has_room(tree: UsageTree, node: int, shape: Shape) -> bool:
    """Return whether a Workload may fit at a node; certain where it has no choice of flavors."""
    if shape.only is not None:
        return tree.has(node, shape.only)
    # Parts are checked one by one here; together they may still need more than there is.
    return all(
        any(
            all(tree.available(node, cell) >= amount for cell, amount in taken if amount)
            for _, taken in choices
        )
        for choices in shape.least.parts
    )


def fitting(
    tree: UsageTree,
    line: ClusterQueueHeads,
    claims: Claims,
    *,
    exact_height: bool,
    after: Sequence[str] = (),
    is_kept_out: Callable[[Assignment], bool] | None = None,
) -> Assignment:
    """Return the flavors and quota that a queue's head gets, or waits for, at the present usage.

    All the cycles of its search are as one. Without *exact_height* a height of 1 may stand for any
    above 0, and WAITS for any mode in which it does not fit. *after* as for ``assign``.
    *is_kept_out* as for ``Claimant``; None: by nobody.
    """
    shape = line.entries[0][2].shape
    # Without a choice of flavors, fungibility decides nothing, and one check of quota is enough.
    if shape.only is not None and shape.outcomes is not None and not exact_height:
        if not tree.has(line.leaf, shape.only):
            return shape.outcomes[2]
        return shape.outcomes[0 if tree.owns(line.leaf, shape.only) else 1]
    claimant = _claimant(tree, line, claims)

    def is_served(found: Assignment) -> bool:
        if is_kept_out is not None and is_kept_out(found):
            return False
        return claims.is_served(line, found)

    def assigned(parts: Parts) -> Assignment:
        return search(parts, claimant, is_served, after=after)

    return _whole_or_fewer(shape, assigned, is_served)


def fitting_this_cycle(
    tree: UsageTree, line: ClusterQueueHeads, claims: Claims, *, after: Sequence[str]
) -> Assignment:
    """Return what a queue's head gets in one cycle of its search; *after* as for ``assign``."""
    claimant = _claimant(tree, line, claims)

    def assigned(parts: Parts) -> Assignment:
        return assign(parts, claimant, after=after)

    def is_served(found: Assignment) -> bool:
        return claims.is_served(line, found)

    return _whole_or_fewer(line.entries[0][2].shape, assigned, is_served)


def _whole_or_fewer(
    shape: Shape,
    assigned: Callable[[Parts], Assignment],
    is_served: Callable[[Assignment], bool],
) -> Assignment:
    """Return what all its pods are assigned, or as many of them as are served."""
    whole = assigned(shape.parts)
    if not shape.fewer or is_served(whole):
        return whole

    def fit(missing: int) -> Assignment | None:
        part = assigned(shape.fewer[missing - 1].parts)
        return part if is_served(part) else None

    # ``getInitialAssignments`` in Kueue's ``scheduler.go``.
    return most_that_fit(len(shape.fewer), fit) or whole


def _claimant(tree: UsageTree, line: ClusterQueueHeads, claims: Claims) -> Claimant:
    return Claimant(
        tree=tree,
        leaf=line.leaf,
        queue=line.queue,
        oracle=claims.oracle(tree, line),
        fair_sharing=claims.fair_sharing,
        release=claims.release,
    )


def alike(
    tree: UsageTree, line: ClusterQueueHeads, found: Assignment, *, keeps_height: bool
) -> int:
    """Count the Workloads of the first group that can be admitted together with its first one.

    Admitted one by one they would get the same flavors; with *keeps_height* they would also all
    borrow, or none of them.
    """
    entry = line.entries[0][2]
    if entry.count == 1 or entry.shape.fewer:
        return 1
    if entry.shape.only is None:
        # As long as nothing is borrowed, the first flavor that fits stays the first that fits.
        return max(1, min(entry.count, tree.own_room(line.leaf, found.taken)))
    if keeps_height and found.height == 0:
        return max(1, min(entry.count, tree.own_room(line.leaf, found.taken)))
    return max(1, min(entry.count, tree.room(line.leaf, found.taken)))


def set_aside(
    tree: UsageTree, line: ClusterQueueHeads, assigned: Assignment, claims: Claims
) -> Taken:
    """Return what Kueue keeps free for a StrictFIFO head that does not fit; empty: nothing."""
    return assignment.set_aside(assigned, _claimant(tree, line, claims))
