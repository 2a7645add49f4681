"""When the pending Workloads of a cohort tree start, with ranges, by its simulation.

The log is of the same simulation, so a newcomer and those who wait before it are told the same.
What the Workloads are called is not known here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TypeAlias

from webhook.kueue.flavor_plan import Demand
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.tree_forecast import TreeForecast, overtaken, pending_start
from webhook.kueue.tree_workloads import PreparedWorkloads, QueuedGroup, TreeContents
from webhook.model.forecasts import Start
from webhook.model.queues import FlavorResource


def starts_in_tree(
    contents: TreeContents,
    prepared: PreparedWorkloads,
    forecast: TreeForecast,
    begun: Iterable[StartedWorkloads],
    begun_later: Iterable[StartedWorkloads],
) -> dict[str, tuple[Start, ...]]:
    """Return the starts of each group, by its key; the first is that of the first in order.

    *begun*: all starts of the event loop; *begun_later*: those with Workloads that are expected to
    come. Who is preempted starts again: the first start counts.
    """
    now, later = _by_key(begun), _by_key(begun_later)
    unseen = _unseen_before(contents, prepared)
    starts = {}
    for name, group in contents.queued:
        key, count = group.arrival.key, group.arrival.count
        before, is_unseen = unseen.get(id(group), (0, False))
        moments = zip(_first(now, key, count), _first(later, key, count), strict=True)
        starts[key] = tuple(
            _start(
                forecast,
                name,
                (at, after),
                priority=group.arrival.priority,
                unseen=before + number * is_unseen,
            )
            for number, (at, after) in enumerate(moments)
        )
    return starts


_Moment: TypeAlias = "tuple[float, float]"
"""When a Workload starts, in seconds, and the standard deviation of that."""


def _by_key(begun: Iterable[StartedWorkloads]) -> Mapping[str, Sequence[_Moment]]:
    moments: defaultdict[str, list[_Moment]] = defaultdict(list)
    for started in begun:
        moments[started.key] += [(started.at, started.spread)] * started.count
    return {key: sorted(of_key) for key, of_key in moments.items()}


def _first(by_key: Mapping[str, Sequence[_Moment]], key: str, count: int) -> Sequence[_Moment]:
    """Return the first *count* starts; inf for those who never start."""
    known = by_key.get(key, ())[:count]
    return (*known, *((inf, 0.0),) * (count - len(known)))


def _start(
    forecast: TreeForecast,
    name: str,
    moments: tuple[_Moment, _Moment],
    *,
    priority: int,
    unseen: int,
) -> Start:
    outlook = forecast.queues[name]
    at, after = moments
    start = pending_start(outlook, *at, priority=priority)
    # Who starts at once waits for nobody, so nothing about others can be wrong.
    if start.seconds == 0.0:
        return start
    if forecast.later is not None and start.seconds < inf:
        delayed = pending_start(outlook, *after, priority=priority)
        start = overtaken(start, delayed, forecast.expected_per_second)
    return replace(start, unseen=unseen, unordered=outlook.unordered)


def _unseen_before(
    contents: TreeContents, prepared: PreparedWorkloads
) -> Mapping[int, tuple[int, bool]]:
    """Return by the id of a group for how many it waits of whose run times it knows nothing.

    Also whether it is itself one of those.
    """
    ahead: Counter[tuple[frozenset[FlavorResource], frozenset[str]]] = Counter()
    for jobs in prepared.unseen:
        if jobs.priority is None:
            ahead[jobs.cells, jobs.known_in] += jobs.count
    before = {}
    # Of equal priorities the order is that of ``queued``.
    for name, group in sorted(contents.queued, key=lambda placed: -placed[1].arrival.priority):
        shape = prepared.demands.of(name, group.arrival)
        if shape is None:
            continue
        namespace = group.arrival.namespace
        is_unseen = _is_unseen(name, group, shape, prepared)
        known_in = prepared.run_times.known_in(name, group.job_class, shape.combinations)
        shared = (
            count
            for (cells, knowing), count in ahead.items()
            if namespace not in knowing and not shape.cells.isdisjoint(cells)
        )
        before[id(group)] = sum(shared), is_unseen and namespace not in known_in
        if is_unseen:
            ahead[shape.cells, known_in] += group.arrival.count
    return before


def _is_unseen(name: str, group: QueuedGroup, shape: Demand, prepared: PreparedWorkloads) -> bool:
    return not group.limit_seconds and not all(
        prepared.run_times.knows(name, group.job_class, flavors) for flavors in shape.combinations
    )
