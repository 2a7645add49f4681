"""An ``Occupancy`` that is kept up to date as snapshots and placements come and go.

Cohort trees share no quota, so only those in which something changed are counted again, and
placements of one shape are counted in one step: many placements and events then delay no review
(docs/decisions/0001). Where snapshots come from is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from webhook.kueue import quota
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.topology_requests import ANNOTATIONS
from webhook.kueue.tree_forecast import StartTimes
from webhook.model.queues import Arrival, Held, PodSetNeeds, in_order
from webhook.state import counted_arrivals
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import beside
from webhook.state.snapshot import Snapshot, updated

_RUNS_IN_ORDER = 16
"""With so many runs in a tree, a placement joins any earlier run of its shape: as with Workloads
that have been pending for long, their exact order matters only at the margin."""
_Shape: TypeAlias = tuple[object, ...]
_NOTHING = occupancy_of(Snapshot())


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """Placements of one shape in a tree, which are counted in one step."""

    root: str
    """The name of the tree."""
    shape: _Shape
    first: Arrival
    count: int = 0

    def arrival(self) -> Arrival:
        return replace(self.first, count=self.count)


class LiveOccupancy:
    """Keeps ``occupancy``: the snapshot with its own arrivals, then the placements, in order."""

    def __init__(self) -> None:
        self.occupancy = _NOTHING
        self._roots: Mapping[str, str] = {}
        """ClusterQueue to the name of its tree."""
        self._members: Mapping[str, tuple[str, ...]] = {}
        """Tree to its ClusterQueues."""
        self._runs: defaultdict[str, list[_Run]] = defaultdict(list)
        self._placed: dict[str, _Run] = {}
        """Key of each placement to the run that it is part of."""
        self._topological: set[str] = set()
        """Trees in which some flavor has a Topology."""
        self._stale: set[str] = set()
        """Trees that have to be counted again."""

    def adopt(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, and count again the trees that it or ``drop`` has changed."""
        before = self.occupancy.snapshot
        start_times = beside(self.occupancy.start_times, snapshot)
        self.occupancy = replace(self.occupancy, snapshot=snapshot, start_times=start_times)
        if not _same_topology(before, snapshot):
            self._plant(snapshot)
        else:
            self._note(before.workloads.held, snapshot.workloads.held)
            self._note(before.workloads.competing, snapshot.workloads.competing)
        if not self._stale.isdisjoint(self._topological):
            # Trees share no quota, but may share Nodes.
            self._stale |= self._topological
        for root in self._stale:
            self._rebuild(root)
        self._stale.clear()

    def add(self, placement: Arrival) -> None:
        """Add a placement as the newest; it replaces one of the same key."""
        replaced = self._placed.get(placement.key)
        self.drop((placement,))
        root = self._root_of(placement)
        self._join(root, _shape(placement), placement, placement.key)
        # What is new comes last, so it can be counted on top where the tree is up to date.
        if replaced is None and root not in self._stale:
            self.occupancy = counted_arrivals.with_arrival(self.occupancy, placement)
        else:
            self._stale.add(root)
            self.adopt(self.occupancy.snapshot)

    def foresee(self, placement: Arrival, now: float) -> bool:
        """Add a placement to the forecasts until ``forget``; return False if it cannot be.

        It cannot be where its queue has no forecast or its template cannot be read. *now*: seconds
        on the clock of ``Snapshot.as_of``.
        """
        start_times = self.occupancy.start_times.drop((placement.key,)).add(placement, now)
        self._adopt_start_times(start_times)
        return placement.key in start_times.placed

    def forget(self, gone: Iterable[Arrival]) -> None:
        """Take placements out of the forecasts.

        Either newer forecasts contain their Workloads, or these were never created.
        """
        # Forecasts are older than the counts, so ``drop`` and ``forget`` come at different times
        # (docs/decisions/0010).
        keys = (placement.key for placement in gone)
        self._adopt_start_times(self.occupancy.start_times.drop(keys))

    def _adopt_start_times(self, start_times: StartTimes) -> None:
        if start_times is not self.occupancy.start_times:
            self.occupancy = replace(self.occupancy, start_times=start_times)

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Remove placements from the counts; this takes effect with the next ``adopt``."""
        for placement in placements:
            run = self._placed.pop(placement.key, None)
            if run is not None:
                run.count -= run.first.count
                self._stale.add(run.root)

    def _join(self, root: str, shape: _Shape, placement: Arrival, key: str) -> None:
        """Add a placement to the last run of its tree if it has the same shape, else to a new one.

        From ``_RUNS_IN_ORDER`` runs on, any run of the same shape will do.
        """
        runs = self._runs[root]
        near = runs[-1:] if len(runs) < _RUNS_IN_ORDER else runs
        for run in near:
            if run.shape == shape:
                break
        else:
            run = _Run(root=root, shape=shape, first=placement)
            runs.append(run)
        run.count += run.first.count
        self._placed[key] = run

    def _rebuild(self, root: str) -> None:
        """Count a tree again: what it holds, its pending Workloads, then its placements."""
        runs = self._runs[root] = [run for run in self._runs[root] if run.count]
        names = self._members.get(root) or (root,)
        held = counted_arrivals.as_held(self.occupancy, names)
        competing = held.snapshot.workloads.competing
        waiting = in_order(competing[name] for name in sorted(names) if name in competing)
        # Placements come last: their Workloads are younger than all that have been observed.
        served = counted_arrivals.with_pending(held, waiting)
        self.occupancy = counted_arrivals.with_arrivals(served, (run.arrival() for run in runs))

    def _plant(self, snapshot: Snapshot) -> None:
        """Build all trees again, because more than the counts has changed."""
        start_times = self.occupancy.start_times
        self.occupancy = replace(counted_arrivals.idle(snapshot), start_times=start_times)
        self._roots = quota.tree_names(snapshot.setup.cluster_queues, snapshot.setup.cohorts)
        members: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for name in {
            **snapshot.setup.cluster_queues,
            **snapshot.workloads.held,
            **snapshot.workloads.competing,
        }:
            members[self._root_of_queue(name)] += (name,)
        self._members = dict(members)
        self._topological = {
            self._root_of_queue(name)
            for name, queue in snapshot.setup.cluster_queues.items()
            if flavors_with_topology(queue, snapshot.setup)
        }
        self._stale = set(members)
        # Placements are added one by one, in the order in which they were made, because those of
        # two trees that are now one may alternate. There may be thousands, so the tree is found
        # once for each run.
        roots = {run: self._root_of(run.first) for run in dict.fromkeys(self._placed.values())}
        before, self._placed = self._placed, {}
        self._runs.clear()
        for key, run in before.items():
            self._join(roots[run], run.shape, run.first, key)

    def _note(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """Mark the trees to be counted again in which a ClusterQueue's value differs."""
        if after is before:
            return
        for name in {**before, **after}:
            old, new = before.get(name), after.get(name)
            # Identity is compared first, because it is much cheaper than equality.
            if old is not new and old != new:
                self._stale.add(self._root_of_queue(name))

    def _root_of(self, arrival: Arrival) -> str:
        """Return the name of an arrival's tree; without a LocalQueue, any name would do."""
        place = arrival.namespace, arrival.local_queue
        queue = self.occupancy.snapshot.setup.local_queues.get(place)
        return self._root_of_queue(queue.cluster_queue if queue is not None else "")

    def _root_of_queue(self, cluster_queue: str) -> str:
        return self._roots.get(cluster_queue, cluster_queue)


def _shape(arrival: Arrival) -> _Shape:
    """Return all that decides how a placement is counted in."""
    return (
        arrival.namespace,
        arrival.local_queue,
        arrival.priority,
        arrival.policy,
        arrival.option,
        arrival.count,
        *map(_shape_of_pods, arrival.needs),
    )


def _shape_of_pods(needs: PodSetNeeds) -> _Shape:
    template = needs.template
    # The fields of a template that decide which flavors it may get; see ``flavor_plan``.
    return (
        needs.count,
        needs.per_pod,
        template.node_selector,
        template.tolerations,
        template.affinity,
        {name: text for name, text in template.annotations.items() if name in ANNOTATIONS},
    )


def _same_topology(before: Snapshot, after: Snapshot) -> bool:
    """Return whether two snapshots differ in counts alone."""
    # Identity is enough: equal objects that are not the same only cost a needless recount.
    return (
        before.setup.cluster_queues is after.setup.cluster_queues
        and before.setup.local_queues is after.setup.local_queues
        and before.setup.cohorts is after.setup.cohorts
        and before.setup.flavors is after.setup.flavors
        and before.setup.topologies is after.setup.topologies
        and before.cluster.namespaces is after.cluster.namespaces
        and before.setup.kueue is after.setup.kueue
    )


_NOBODY: Mapping[str, tuple[Arrival, ...]] = {}
_NONE_ADMITTED: Mapping[str, Held] = {}
"""Always the same objects, so that comparing by identity finds no change."""


class OccupancyOfSnapshots:
    """Counts the pending Workloads of each snapshot, at the cost of what changed since the last."""

    def __init__(self) -> None:
        self._live = LiveOccupancy()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with ``competing`` counted into ``held`` as Kueue would decide."""
        self._live.adopt(snapshot)
        return updated(
            snapshot,
            held=self._live.occupancy.holdings,
            admitted=_NONE_ADMITTED,
            competing=_NOBODY,
        )
