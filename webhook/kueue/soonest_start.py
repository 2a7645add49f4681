"""The soonest that a pending Workload could start: a bound that costs no event loop.

Quota comes free no sooner than those that hold it are expected to finish, whoever else waits for
it. Who would get it is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import TypeAlias

from webhook.kueue import quota
from webhook.kueue.durations import Durations, RunTimeOf
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.queue_heads import Shape, has_room, shape_of
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.tree_workloads import GRAIN, Occupant, left_of
from webhook.model.queues import NEVER, ClusterQueue, Snapshot

_Release: TypeAlias = tuple[float, int, Taken]
"""When quota is released, in seconds from now, by which node, and how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldTree:
    """One cohort tree with all that holds quota charged."""

    tree: UsageTree
    releases: Sequence[_Release]
    """Ascending."""


class IdleTrees:
    """The cohort trees of a snapshot with nothing used, and what was asked of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._made_of = snapshot.cluster_queues, snapshot.cohorts
        self.forest = quota.plant(*self._made_of)
        self._shapes: dict[tuple[str, Demand], Shape] = {}

    def of(self, snapshot: Snapshot) -> IdleTrees:
        """Return these trees if they are those of another snapshot too, else its own."""
        queues, cohorts = self._made_of
        is_same = queues is snapshot.cluster_queues and cohorts is snapshot.cohorts
        return self if is_same else IdleTrees(snapshot)

    def shape(self, cluster_queue: str, demand: Demand) -> Shape:
        """Return a demand in the indices of a ClusterQueue's tree."""
        key = cluster_queue, demand
        if key not in self._shapes:
            tree = self.forest[cluster_queue]
            self._shapes[key] = shape_of(tree, tree.leaves[cluster_queue], demand)
        return self._shapes[key]


class SoonestStarts:
    """Soonest starts in the trees of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        running: Sequence[Occupant],
        run_time_of: RunTimeOf,
        now: float,
        *,
        idle: IdleTrees | None = None,
    ) -> None:
        """*idle*: trees of an earlier snapshot, which may be those of this one."""
        self._snapshot, self._now = snapshot, now
        self.run_time_of = run_time_of
        # A run of which nothing is known may end at any moment.
        self._durations = Durations(run_time_of, 0.0)
        self._idle = IdleTrees(snapshot) if idle is None else idle.of(snapshot)
        self._forest = self._idle.forest
        self._running: defaultdict[int, list[Occupant]] = defaultdict(list)
        for occupant in running:
            place = self._forest.places.get(occupant.cluster_queue)
            if place is not None:
                self._running[place].append(occupant)
        self._trees: dict[int, _HeldTree | None] = {}
        self._known: dict[tuple[str, Demand, int], float] = {}

    def of(self, cluster_queue: str, demand: Demand, *, ahead: int = 0) -> float:
        """Return when a Workload could start there at the soonest, in seconds from now.

        *ahead*: so many that ask for the same hold quota there by then, too.
        """
        key = cluster_queue, demand, ahead
        if key not in self._known:
            self._known[key] = self._find(cluster_queue, demand, ahead)
        return self._known[key]

    def _find(self, cluster_queue: str, demand: Demand, ahead: int) -> float:
        place = self._forest.places.get(cluster_queue)
        held = None if place is None else self._tree(place)
        if held is None:
            return 0.0
        tree = held.tree
        leaf = tree.leaves[cluster_queue]
        shape = self._idle.shape(cluster_queue, demand)
        released: list[_Release] = []
        soonest, placed = 0.0, 0
        # Of those ahead that have a choice of flavors, it is not known where they are.
        ahead = 0 if shape.only is None else ahead
        for release in (*held.releases, (inf, leaf, ())):
            while placed <= ahead and has_room(tree, leaf, shape):
                tree.charge(leaf, shape.only or ())
                placed += 1
            if placed > ahead:
                break
            soonest = release[0]
            tree.charge(*release[1:], -1)
            released.append(release)
        for _ in range(placed):
            tree.charge(leaf, shape.only or (), -1)
        for release in released:
            tree.charge(*release[1:])
        # A start has the mean time of the releases within the grain before it.
        return soonest / (1 + GRAIN)

    def _tree(self, place: int) -> _HeldTree | None:
        """Return a tree; None: a Workload may get its quota by preemption, at any moment."""
        if place not in self._trees:
            self._trees[place] = self._charged(place)
        return self._trees[place]

    def _charged(self, place: int) -> _HeldTree | None:
        tree = self._forest.trees[place].copy()
        if any(_preempts(self._snapshot.cluster_queues[name]) for name in tree.leaves):
            return None
        releases = []
        for occupant in self._running[place]:
            taken = tree.taken(occupant.usage)
            leaf = tree.leaves[occupant.cluster_queue]
            tree.charge(leaf, taken)
            left, _ = left_of(occupant, self._now, self._durations)
            releases.append((left, leaf, taken))
        return _HeldTree(tree=tree, releases=sorted(releases, key=itemgetter(0)))


def _preempts(queue: ClusterQueue) -> bool:
    preemption = queue.preemption
    return (preemption.within_cluster_queue, preemption.reclaim_within_cohort) != (NEVER, NEVER)
