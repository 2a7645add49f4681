"""Placements as forecasts see them: what a Job wants of its queue, and for how long."""

from __future__ import annotations

from webhook.kueue.demand import Demand, demand
from webhook.kueue.durations import learned_on, of_any_class, remaining
from webhook.kueue.outlook import Placed
from webhook.model.fields import FieldError
from webhook.model.forecasts import RunTime
from webhook.model.queues import Arrival, Snapshot
from webhook.model.run_keys import home_of, of_queue


def placed(arrival: Arrival, snapshot: Snapshot, now: float) -> Placed | None:
    """Find what a placement, made at *now*, will use; None: nothing, or it cannot be told."""
    local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
    name = local_queue.cluster_queue if local_queue is not None else ""
    queue = snapshot.cluster_queues.get(name)
    if queue is None or name not in snapshot.profiles:
        return None
    try:
        wanted = demand(arrival.needs, queue, snapshot)
    except FieldError:
        return None
    run = arrival.run
    if run is None or arrival.job_class is not None:
        run = _expected(arrival, name, wanted, snapshot) or run
    seconds, spread = (None, 0.0) if run is None else remaining(run)
    return Placed(
        cluster_queue=name,
        demand=wanted,
        priority=arrival.priority,
        at=now,
        seconds=seconds,
        spread=spread,
        count=arrival.count,
    )


def _expected(
    arrival: Arrival, cluster_queue: str, wanted: Demand, snapshot: Snapshot
) -> RunTime | None:
    """Expect what its class took on the flavors it gets first, or what any class took there."""
    for flavors in wanted.combinations[:1]:
        found = arrival.job_class
        known = found and learned_on(snapshot.run_times, found, flavors)
        home = home_of(found.key) if found else arrival.namespace
        return known or of_any_class(snapshot.run_times, of_queue(cluster_queue, home), flavors)
    return None
