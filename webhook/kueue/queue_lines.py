"""The pending Workloads of a ClusterQueue, in lines, and which flavors and quota a head would get.

Under StrictFIFO a ClusterQueue has one line, which nothing overtakes. Under BestEffortFIFO it has
one for each shape and priority that is pending: equal Workloads wait for the same quota, so where
the oldest of them does not fit, none does. Time and the order among queues are left to the caller.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/queue/cluster_queue.go
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.kueue.assignment import (
    Assignment,
    Claimant,
    Parts,
    assign,
    is_served,
    search,
)
from webhook.kueue.flavor_plan import NOWHERE, Demand, FewerPods, most_that_fit
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import Arrival, ClusterQueue, PodSetNeeds, Queueing

_Choices: TypeAlias = tuple[tuple[str, Taken], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup:
    """Equal Workloads that are pending and are admitted one by one.

    A sequence of groups is in the order in which Kueue tries them. Those of *count* 0 do not
    compete, but their run time helps to estimate unknown ones.
    """

    cluster_queue: str = ""
    """Empty: the caller has it beside them."""
    key: str = ""
    """A name by which the caller finds what comes of them again; need not be unique."""
    uid: str = ""
    """As in ``QuotaHolders.hold``, for one Workload by itself."""
    local_queue: str = ""
    """``namespace/name``"""
    count: int = 1
    created: int = 0
    """The time by which Kueue orders the first, in seconds since 1970."""
    policy: str = ""
    """The one that decided; empty: none did."""
    needs: tuple[PodSetNeeds, ...] = ()
    """What its pods ask for; in a Simulation, of the domains of Topologies."""
    priority: float = 0
    """A whole number but of those who are not there yet; see ``tree_workloads.LATER``."""
    at: float = 0.0
    """When it begins to compete for quota: the end of a backoff. On the clock of *now*, and in a
    Simulation in seconds since its beginning; 0: at once."""
    is_variant: bool = False
    """One of several Workloads of one Job, of which Kueue admits only the first that fits."""
    # From here on what their run time is worked out from, ...
    job_class: str = ""
    limit_seconds: int = 0
    """The time limit of their runs; 0: there is none."""
    # ... and from here on what a Simulation has to know.
    demand: Demand = NOWHERE
    seconds: float = 0.0
    """Expected run time."""
    spread: float = 0.0
    """Standard deviation of the expected run time, in seconds."""
    by_flavors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Flavors (sorted, unique, joined by commas) to (seconds, spread); empty: the same on all."""

    @property
    def namespace(self) -> str:
        return self.local_queue.partition("/")[0]


def pending_group(arrival: Arrival, *, job_class: str = "", at: float = 0.0) -> PendingGroup:
    """Return the Workloads of an arrival as they wait."""
    return PendingGroup(
        key=arrival.key,
        local_queue=arrival.local_queue_key,
        policy=arrival.policy,
        needs=arrival.needs,
        priority=arrival.priority,
        count=arrival.count,
        created=arrival.created,
        at=at,
        job_class=job_class,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A Demand in the tree's own indices, without flavors too small even when all is idle."""

    parts: tuple[_Choices, ...]
    only: Taken | None
    """All that it takes, where each part has exactly one flavor; None: there is a choice, or one
    part asks for a written 0, which decides from where the Workload borrows."""
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
class ClusterQueueHeads:
    """Pending groups of one ClusterQueue of which only the first may be admitted."""

    queue: ClusterQueue
    leaf: int
    is_strict: bool
    entries: list[tuple[float, float, QueueEntry]] = field(default_factory=list)
    """A heap of (negated priority, age, group): the highest priority first, then the oldest."""

    @property
    def first(self) -> QueueEntry:
        """The group that is tried next."""
        return self.entries[0][2]

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
                possible.append((choice.name, taken))
        parts.append(tuple(possible))
    only = None if demand.fewer else _only(parts)
    return Shape(
        parts=tuple(parts),
        only=only,
        fewer=FewerPods(
            len(demand.fewer), lambda missing: shape_of(tree, leaf, demand.fewer[missing - 1])
        )
        if demand.fewer
        else (),
    )


def _only(parts: list[_Choices]) -> Taken | None:
    if any(len(choices) != 1 for choices in parts):
        return None
    usage: dict[int, int] = {}
    for ((_, taken),) in parts:
        for cell, amount in taken:
            usage[cell] = usage.get(cell, 0) + amount
    return tuple(usage.items()) if all(usage.values()) else None


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


def assigned_this_cycle(
    shape: Shape, claimant: Claimant, *, after: Sequence[str] = ()
) -> Assignment:
    """Return what a head gets in one cycle of its search for flavors; *after* as for ``assign``."""
    return _whole_or_fewer(shape, claimant, lambda parts: assign(parts, claimant, after=after))


def assigned(shape: Shape, claimant: Claimant) -> Assignment:
    """Return what a head gets in all cycles of its search for flavors, as if they were one."""

    def in_all_cycles(parts: Parts) -> Assignment:
        return search(parts, claimant, lambda found: is_served(found, claimant))

    return _whole_or_fewer(shape, claimant, in_all_cycles)


def _whole_or_fewer(
    shape: Shape, claimant: Claimant, assigned_to: Callable[[Parts], Assignment]
) -> Assignment:
    """Return what all its pods are assigned, or as many of them as are served."""
    whole = assigned_to(shape.parts)
    if not shape.fewer or is_served(whole, claimant):
        return whole

    def fit(missing: int) -> Assignment | None:
        part = assigned_to(shape.fewer[missing - 1].parts)
        return part if is_served(part, claimant) else None

    # ``getInitialAssignments`` in Kueue's ``scheduler.go``.
    return most_that_fit(len(shape.fewer), fit) or whole


def alike(tree: UsageTree, heads: ClusterQueueHeads, found: Assignment) -> int:
    """Count the Workloads of the first group that are admitted one after the other as its first.

    Nobody else is tried in between.
    """
    entry = heads.first
    if entry.count == 1 or entry.shape.fewer:
        return 1
    if entry.shape.only is None:
        # As long as nothing is borrowed, the first flavor that fits stays the first that fits.
        return max(1, min(entry.count, tree.own_room(heads.leaf, found.taken)))
    return max(1, min(entry.count, tree.room(heads.leaf, found.taken)))
