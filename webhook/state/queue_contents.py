"""The Workloads of one ClusterQueue, as forecasts and the console take them from the state.

It must not know how they are counted, nor when they will start.
"""

from __future__ import annotations

from dataclasses import dataclass

from webhook.learn.arrival_rates import Arrived
from webhook.model.queues import Arrival
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True)
class QueueContents:
    holding: tuple[Workload, ...] = ()
    """Those with quota reserved."""
    waiting: tuple[Group, ...] = ()
    arrived: tuple[Arrived, ...] = ()
    """Those that got quota, the newest of them whether they are still there or not."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pending Workloads that differ in nothing but name, class and age."""

    arrival: Arrival
    """The oldest of them."""
    members: tuple[Workload, ...]
    """In no order."""
    competes: bool = True
    """False: they are in backoff after an eviction."""
