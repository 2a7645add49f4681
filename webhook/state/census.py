"""All Workloads of a ClusterQueue, one by one, for whoever forecasts it.

Lists are copied here and nothing is worked out: the reader may do so in a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from webhook.model.queues import Arrival
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True)
class Group:
    """Pending Workloads that differ in nothing but name, class and age."""

    arrival: Arrival
    """The oldest of them."""
    members: tuple[Workload, ...]
    """In no order."""
    competes: bool = True
    """False: they stand back for a while after an eviction."""


@dataclass(frozen=True, slots=True)
class Census:
    holding: tuple[Workload, ...] = ()
    """Those with quota reserved."""
    waiting: tuple[Group, ...] = ()
