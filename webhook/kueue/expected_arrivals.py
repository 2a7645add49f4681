"""Workloads that are not there yet, but are expected to come to a cohort tree."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from webhook.kueue.flavor_plan import demand_of
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.tree_workloads import PreparedWorkloads, TreeContents
from webhook.model.queues import Amounts, Arrival, Queueing, Snapshot

LATER = 0.5
"""How much lower those rank that are expected to come: behind newcomers of the same priority,
before all lower ones, as priorities are whole numbers."""
_MOST_EXPECTED = 256
"""Most Workloads that are expected to come to a tree; each may cost a scheduling cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedKind:
    """One of the Workloads that have come, as which others are expected to come."""

    asks: Arrival | Amounts
    """What it asks for, or what it has got of which flavors."""
    job_class: str = ""
    limit_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedArrivals:
    """Workloads of one priority that are expected to come to a ClusterQueue from *now* on."""

    cluster_queue: str
    priority: int
    per_second: float
    seconds: float
    """For how long they go on coming: as long again as they have."""
    kinds: tuple[ExpectedKind, ...]
    """They come in turn."""


def expected_groups(
    expected: Sequence[ExpectedArrivals],
    contents: TreeContents,
    prepared: PreparedWorkloads,
    *,
    snapshot: Snapshot,
    horizon: float,
) -> Iterator[PendingGroup]:
    """Yield the Workloads that are expected to come to a tree, by time, at even intervals."""
    rows = heapq.merge(
        *(
            _row(arrivals, prepared, horizon)
            for arrivals in expected
            if arrivals.cluster_queue in contents.tree.leaves and _may_overtake(arrivals, snapshot)
        ),
        key=attrgetter("at"),
    )
    yield from islice(rows, _MOST_EXPECTED)


def _may_overtake(arrivals: ExpectedArrivals, snapshot: Snapshot) -> bool:
    """Return whether those who come later may come before anybody who is there."""
    # Under StrictFIFO nobody overtakes those of his own priority, however wide they are.
    queue = snapshot.cluster_queues[arrivals.cluster_queue]
    return queue.queueing is not Queueing.STRICT or arrivals.priority > min(
        newcomer_priorities(snapshot)
    )


def _row(
    arrivals: ExpectedArrivals, prepared: PreparedWorkloads, horizon: float
) -> Iterator[PendingGroup]:
    name, known = arrivals.cluster_queue, {}
    for number in range(int(min(horizon, arrivals.seconds) * arrivals.per_second)):
        kind = arrivals.kinds[number % len(arrivals.kinds)]
        if id(kind) not in known:
            known[id(kind)] = _expected_group(name, arrivals.priority, kind, prepared)
        group = known[id(kind)]
        if group is not None:
            yield replace(group, at=(number + 1) / arrivals.per_second)


def _expected_group(
    name: str, priority: int, kind: ExpectedKind, prepared: PreparedWorkloads
) -> PendingGroup | None:
    """Return a Workload that is expected to come; None: how long it would run is not known."""
    arrival, shape = None, None
    if isinstance(kind.asks, Arrival):
        arrival = kind.asks
        shape = prepared.demands.of(name, arrival)
    else:
        shape = demand_of(kind.asks)
    run_times = prepared.run_times
    if shape is None or not shape.is_possible:
        return None
    if not all(run_times.knows(name, kind.job_class, flavors) for flavors in shape.combinations):
        return None
    runs = run_times.whole_by_flavors(
        name, kind.job_class, shape.combinations, limit=kind.limit_seconds
    )
    seconds, spread = next(iter(runs.values()))
    return PendingGroup(
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        priority=priority - LATER,
        local_queue=arrival.local_queue_key if arrival else "",
    )


def newcomer_priorities(snapshot: Snapshot) -> Collection[int]:
    """Return the priorities that a newcomer may have: those of all priority classes, and 0."""
    classes = snapshot.priority_classes.values(), snapshot.pod_priorities.values()
    return {0, snapshot.default_priority}.union(*classes)
