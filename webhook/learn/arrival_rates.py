"""How often Workloads come to a ClusterQueue, by priority, from when the known ones were created.

Workloads tell it themselves, the finished ones too as long as they are there, so nothing is kept
for it: a restart reads them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Final

FEWEST: Final = 6
"""Arrivals that it takes to tell a rate."""
_PARTS: Final = 4


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
