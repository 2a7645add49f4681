"""An Occupancy that is kept up to date: what changes costs, and what does not change costs nothing.

Cohort trees do not touch one another, so only those in which something changed are folded again;
and placements of one shape are folded in one step. So a long ledger beside many events delays no
review.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from webhook.kueue import occupancy
from webhook.kueue.flavor_plan import TOPOLOGY
from webhook.kueue.outlook import PlacedJob, StartTimes, placed
from webhook.model.queues import Arrival, PodSetNeeds, Snapshot, in_order

_UNTIL_ROOT = 64
"""Cohorts above a ClusterQueue at most; a cycle of parents must not loop."""
_RUNS_IN_ORDER = 16
"""Beyond so many in a tree, placements join an earlier run of their shape: as with Workloads that
have been pending for long, what stands between them matters only at the margin."""
_ALONE = "queue "
_Shape: TypeAlias = tuple[object, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """Placements of one shape in a tree, folded in one step."""

    root: str
    """The name of the tree."""
    shape: _Shape
    first: Arrival
    count: int = 0

    def arrival(self) -> Arrival:
        return replace(self.first, count=self.count)


class LiveOccupancy:
    """``occupancy`` is the snapshot with its own arrivals, then the placements, folded in order."""

    def __init__(self) -> None:
        self.occupancy = occupancy.build(Snapshot())
        self._roots: Mapping[str, str] = {}
        """ClusterQueue to the name of its tree."""
        self._members: Mapping[str, tuple[str, ...]] = {}
        self._runs: defaultdict[str, list[_Run]] = defaultdict(list)
        self._placed: dict[str, _Run] = {}
        """Key of each placement to its run."""
        self._foreseen: dict[str, PlacedJob] = {}
        """Key to each placement that counts in forecasts."""
        self._stale: set[str] = set()
        """Trees that have to be folded again."""

    def adopt(self, snapshot: Snapshot) -> None:
        """Take over a snapshot, and what was dropped since the last one."""
        before = self.occupancy.snapshot
        outlook = self.occupancy.outlook.adopt(snapshot)
        self.occupancy = replace(self.occupancy, snapshot=snapshot, outlook=outlook)
        if not _same_topology(before, snapshot):
            self._plant(snapshot)
        else:
            self._note(before.held, snapshot.held)
            self._note(before.competing, snapshot.competing)
        for root in self._stale:
            self._fold_again(root)
        self._stale.clear()

    def add(self, placement: Arrival) -> None:
        """Add a placement as the newest; one of the same key is replaced."""
        replaced = self._placed.get(placement.key)
        self.drop((placement,))
        root = self._root_of(placement)
        self._append(root, placement)
        if replaced is None and root not in self._stale:
            self.occupancy = occupancy.with_arrival(self.occupancy, placement)
        else:
            self._stale.add(root)
            self.adopt(self.occupancy.snapshot)

    def foresee(self, placement: Arrival, now: float) -> bool:
        """Let a placement count in forecasts until ``forget``; *now* is on the snapshot's clock.

        False: it goes to a queue that is not forecast.
        """
        self.forget((placement,))
        found = placed(placement, self.occupancy.snapshot, now)
        if found is None:
            return False
        self._foreseen[placement.key] = found
        self._look_ahead(self.occupancy.outlook.add(found))
        return True

    def forget(self, gone: Iterable[Arrival]) -> None:
        """Take placements out of the forecasts: these contain them by now, or they never came."""
        found = (self._foreseen.pop(placement.key, None) for placement in gone)
        known = [each for each in found if each is not None]
        if known:
            self._look_ahead(self.occupancy.outlook.drop(known))

    def _look_ahead(self, outlook: StartTimes) -> None:
        self.occupancy = replace(self.occupancy, outlook=outlook)

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Forget placements; it takes effect with the next ``adopt``."""
        for placement in placements:
            run = self._placed.pop(placement.key, None)
            if run is not None:
                run.count -= 1
                self._stale.add(run.root)

    def _append(self, root: str, placement: Arrival) -> None:
        self._join(root, _shape(placement), placement, placement.key)

    def _join(self, root: str, shape: _Shape, placement: Arrival, key: str) -> None:
        """Let a placement join the last run of its tree, where that is of its shape."""
        runs = self._runs[root]
        near = runs[-1:] if len(runs) < _RUNS_IN_ORDER else runs
        run = next((each for each in near if each.shape == shape), None)
        if run is None:
            run = _Run(root=root, shape=shape, first=placement)
            runs.append(run)
        run.count += 1
        self._placed[key] = run

    def _fold_again(self, root: str) -> None:
        runs = self._runs[root] = [run for run in self._runs[root] if run.count]
        names = self._members.get(root) or (root.removeprefix(_ALONE),)
        found = occupancy.as_held(self.occupancy, names)
        competing = found.snapshot.competing
        waiting = in_order(competing[name] for name in sorted(names) if name in competing)
        self.occupancy = occupancy.with_arrivals(
            found, (*waiting, *(run.arrival() for run in runs))
        )

    def _plant(self, snapshot: Snapshot) -> None:
        """Begin anew where more than counts has changed."""
        outlook = self.occupancy.outlook
        self.occupancy = replace(occupancy.idle(snapshot), outlook=outlook)
        parents = {name: cohort.parent for name, cohort in snapshot.cohorts.items()}
        self._roots = {
            name: _root(queue.cohort, parents) if queue.cohort else f"{_ALONE}{name}"
            for name, queue in snapshot.cluster_queues.items()
        }
        members: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for name in {**snapshot.cluster_queues, **snapshot.held, **snapshot.competing}:
            members[self._root_of_queue(name)] += (name,)
        self._members = dict(members)
        self._stale = set(members)
        # One by one, in the order in which they were made: those of two trees that become one may
        # have come in turn. The tree is found once a run, as there may be thousands.
        roots = {run: self._root_of(run.first) for run in dict.fromkeys(self._placed.values())}
        before, self._placed = self._placed, {}
        self._runs.clear()
        for key, run in before.items():
            self._join(roots[run], run.shape, run.first, key)

    def _note(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """Find the trees in which something about a ClusterQueue has changed."""
        if after is before:
            return
        for name in {**before, **after}:
            old, new = before.get(name), after.get(name)
            if old is not new and old != new:
                self._stale.add(self._root_of_queue(name))

    def _root_of(self, arrival: Arrival) -> str:
        """Name its tree; what names no queue changes nothing, in whatever tree it is."""
        place = arrival.namespace, arrival.local_queue
        queue = self.occupancy.snapshot.local_queues.get(place)
        return self._root_of_queue(queue.cluster_queue if queue is not None else "")

    def _root_of_queue(self, cluster_queue: str) -> str:
        return self._roots.get(cluster_queue, f"{_ALONE}{cluster_queue}")


def _shape(arrival: Arrival) -> _Shape:
    """Name everything about a placement that folding looks at."""
    return (
        arrival.namespace,
        arrival.local_queue,
        arrival.priority,
        arrival.policy,
        arrival.option,
        *map(_shape_of_pods, arrival.needs),
    )


def _shape_of_pods(needs: PodSetNeeds) -> _Shape:
    template = needs.template
    return (
        needs.count,
        needs.per_pod,
        template.node_selector,
        template.tolerations,
        template.affinity,
        [name for name in template.annotations if name in TOPOLOGY],
    )


def _root(cohort: str, parents: Mapping[str, str]) -> str:
    for _ in range(_UNTIL_ROOT):
        above = parents.get(cohort)
        if not above:
            break
        cohort = above
    return f"cohort {cohort}"


def _same_topology(before: Snapshot, after: Snapshot) -> bool:
    """Tell whether folding differs by counts alone."""
    return (
        before.cluster_queues is after.cluster_queues
        and before.local_queues is after.local_queues
        and before.cohorts is after.cohorts
        and before.flavors is after.flavors
        and before.namespaces is after.namespaces
        and before.kueue is after.kueue
    )


_NOBODY: Mapping[str, tuple[Arrival, ...]] = {}
"""One value, so that it is seen not to change."""


class OccupancyOfSnapshots:
    """Remembers what the last snapshot came to, so that the next one costs what has changed."""

    def __init__(self) -> None:
        self._fold = LiveOccupancy()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot in which nobody competes, counted as Kueue would take them."""
        self._fold.adopt(snapshot)
        return replace(snapshot, held=self._fold.occupancy.holdings, competing=_NOBODY)
