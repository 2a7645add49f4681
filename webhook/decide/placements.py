"""Placements as forecasts see them: what a Job wants of its queue, and for how long."""

from __future__ import annotations

from webhook.decide.demand import demand
from webhook.decide.outlook import Placed
from webhook.decide.remaining import remaining
from webhook.model.fields import FieldError
from webhook.model.queues import Arrival, Snapshot


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
    seconds, spread = (None, 0.0) if arrival.run is None else remaining(arrival.run)
    return Placed(
        cluster_queue=name,
        demand=wanted,
        priority=arrival.priority,
        at=now,
        seconds=seconds,
        spread=spread,
        count=arrival.count,
    )
