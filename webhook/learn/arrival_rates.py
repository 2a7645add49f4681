"""How often Workloads come to a ClusterQueue, by priority, from when the known ones were created.

Workloads tell it themselves, the finished ones too as long as they are there, so nothing is kept
for it: a restart reads them again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import median_low
from typing import Final, NamedTuple, TypeAlias

from webhook.model.forecasts import JobClass
from webhook.model.quantity import FlavorResource

MOST_ARRIVED: Final = 256
"""Workloads kept of one ClusterQueue, the newest: some hundred bytes each."""
MOST_QUEUES: Final = 1024
"""ClusterQueues of which Workloads are kept."""
FEWEST: Final = 6
"""Arrivals that it takes to tell a rate."""
_PARTS: Final = 4
_Charge: TypeAlias = tuple[tuple[FlavorResource, int], ...]
_created = attrgetter("created")


class Arrived(NamedTuple):
    """One Workload that got quota in a ClusterQueue: when it came, and what it asked for."""

    created: int
    """Seconds since 1970."""
    priority: int
    charge: _Charge
    job_class: JobClass | None
    policy: str
    option: str
    limit_seconds: int
    said: int = 0
    """As in ``Mark``."""


class ArrivedWorkloads:
    """The newest Workloads of each ClusterQueue, whether they are still there or not."""

    def __init__(self) -> None:
        self._of_queue: dict[str, list[Arrived]] = {}

    def note(self, cluster_queue: str, arrived: Arrived) -> None:
        newest = self._of_queue.pop(cluster_queue, [])
        insort(newest, arrived, key=_created)
        del newest[:-MOST_ARRIVED]
        # The queue to which one came last stands last.
        self._of_queue[cluster_queue] = newest
        if len(self._of_queue) > MOST_QUEUES:
            del self._of_queue[next(iter(self._of_queue))]

    def of(self, cluster_queue: str) -> tuple[Arrived, ...]:
        """Return what is known of a ClusterQueue, the oldest first."""
        return tuple(self._of_queue.get(cluster_queue, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRate:
    """How often Workloads have come, and for how long they have."""

    per_second: float
    seen_seconds: float


def steady_rate(created: Iterable[float], now: float) -> ArrivalRate | None:
    """Return the rate at which Workloads come that were created at these times, in seconds.

    None: they are too few, or they came all at once, and nobody knows whether any more will.
    """
    times = sorted(time for time in created if time <= now)
    if len(times) < FEWEST or now <= times[0]:
        return None
    seen = now - times[0]
    # The time is counted from the first one on, so that one itself tells nothing of the rate. A
    # burst lies in one part of the time, and the middle of the parts knows nothing of it.
    counts = _in_parts(times[1:], times[0], seen)
    middle = median_low(counts)
    if not middle:
        return None
    return ArrivalRate(per_second=middle * _PARTS / seen, seen_seconds=seen)


def _in_parts(times: Sequence[float], since: float, seconds: float) -> list[int]:
    """Count the times in each of some equal parts of a span."""
    ends = [since + seconds * part / _PARTS for part in range(1, _PARTS)]
    places = [0, *(bisect_left(times, end) for end in ends), len(times)]
    return [after - before for before, after in pairwise(places)]
