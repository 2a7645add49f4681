"""Fold a snapshot's pending Workloads into its counts once, where the snapshot is made.

The observer does this, so that the server finds them counted: its reviews cost the same with one
pending Workload and with twenty thousand. Cohort trees do not touch one another, so only those in
which something changed are folded again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from webhook.decide import occupancy
from webhook.model.queues import Arrival, Held, Snapshot

_UNTIL_ROOT = 64
"""Cohorts above a ClusterQueue at most; a cycle of parents must not loop."""


class Settler:
    """Remembers the last snapshot's trees, and what they came to."""

    def __init__(self) -> None:
        self._topology: tuple[object, ...] = ()
        self._roots: Mapping[str, str] = {}
        self._trees: dict[str, tuple[tuple[object, ...], Mapping[str, Held]]] = {}
        self._settled: Mapping[str, Held] = {}

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot without arrivals, counted as Kueue would take them."""
        self._note_topology(snapshot)
        arrivals = self._arrivals_by_root(snapshot)
        base = occupancy.build(replace(snapshot, arrivals=()))
        changed = False
        for root, names in self._names_by_root(snapshot).items():
            mine = arrivals.get(root, ())
            inputs = (*(snapshot.held.get(name) for name in names), *mine)
            known = self._trees.get(root)
            if known is not None and _same(known[0], inputs):
                continue
            self._trees[root] = inputs, _fold(base, names, mine)
            changed = True
        if changed:
            self._settled = {
                name: held for _, found in self._trees.values() for name, held in found.items()
            }
        return replace(snapshot, held=self._settled, arrivals=())

    def _note_topology(self, snapshot: Snapshot) -> None:
        """Forget everything when more than counts has changed."""
        topology = (
            snapshot.cluster_queues,
            snapshot.local_queues,
            snapshot.cohorts,
            snapshot.flavors,
            snapshot.namespaces,
            snapshot.kueue,
        )
        if _same(self._topology, topology):
            return
        self._topology = topology
        self._trees.clear()
        self._settled = {}
        parents = {name: cohort.parent for name, cohort in snapshot.cohorts.items()}
        self._roots = {
            name: _root(queue.cohort, parents) if queue.cohort else f"queue {name}"
            for name, queue in snapshot.cluster_queues.items()
        }

    def _names_by_root(self, snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for name in (*snapshot.cluster_queues, *snapshot.held.keys() - self._roots.keys()):
            found[self._root_of(name)] += (name,)
        return found

    def _arrivals_by_root(self, snapshot: Snapshot) -> Mapping[str, tuple[Arrival, ...]]:
        found: defaultdict[str, list[Arrival]] = defaultdict(list)
        for arrival in snapshot.arrivals:
            queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
            if queue is not None:
                found[self._root_of(queue.cluster_queue)].append(arrival)
        return {root: tuple(arrivals) for root, arrivals in found.items()}

    def _root_of(self, cluster_queue: str) -> str:
        return self._roots.get(cluster_queue, f"queue {cluster_queue}")


def _fold(
    base: occupancy.Occupancy, names: Iterable[str], arrivals: Iterable[Arrival]
) -> Mapping[str, Held]:
    for arrival in arrivals:
        base = occupancy.with_arrival(base, arrival)
    return {name: base.holdings[name] for name in names if name in base.holdings}


def _root(cohort: str, parents: Mapping[str, str]) -> str:
    for _ in range(_UNTIL_ROOT):
        above = parents.get(cohort)
        if not above:
            break
        cohort = above
    return f"cohort {cohort}"


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return len(before) == len(after) and all(
        one is other for one, other in zip(before, after, strict=True)
    )
