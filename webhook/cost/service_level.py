"""How many replicas hold a service's latency: an M/M/c queue.

Requests come at random (Poisson), each replica answers one at a time, and those that find all busy
wait in one line. The probability of waiting is Erlang's C formula (A. K. Erlang, 1917; D. Gross et
al., Fundamentals of Queueing Theory, section 2.3), and who waits longer than t is
``C * exp(-(c * mu - lambda) * t)``. The percentile of the wait is added to that of a request that
does not wait, which is an upper estimate of the percentile of their sum in all but odd cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

from webhook.model.costs.service import ServiceLevel

__all__ = [
    "MOST_REPLICAS",
    "PERCENTILE",
    "ReplicaSpeed",
    "ServiceLevel",
    "erlang_c",
    "level_at",
    "most_rate",
    "replicas_for",
    "requests_each",
]

PERCENTILE: Final = 0.95
"""Of requests that are answered within the latency."""
MOST_REPLICAS: Final = 10_000
"""A service that needs more is taken for one whose rate nothing holds."""
_HALVINGS: Final = 40
"""They find a rate to twelve digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpeed:
    """What one replica of a service does on a device."""

    per_second: float
    """The most requests a second that it can answer; above 0."""
    latency: float
    """Seconds that a request takes that does not wait, as the percentile."""


def level_at(rate: float, replicas: int, per_replica: ReplicaSpeed) -> ServiceLevel:
    """Return how a service does that gets *rate* requests a second."""
    utilisation = rate / (replicas * per_replica.per_second) if replicas else inf
    wait = inf
    if utilisation < 1:
        waiting = erlang_c(rate / per_replica.per_second, replicas)
        free = replicas * per_replica.per_second - rate
        late = waiting / (1 - PERCENTILE)
        wait = log(late) / free if late > 1 else 0.0
    return ServiceLevel(
        replicas=replicas, utilisation=utilisation, latency=per_replica.latency + wait
    )


def replicas_for(rate: float, target: float, per_replica: ReplicaSpeed) -> ServiceLevel | None:
    """Return the level with the fewest replicas that hold *target* seconds; None: no number does.

    More replicas never make a request wait longer, so the number is found by halving.
    """
    load = rate / per_replica.per_second
    if per_replica.latency > target or load >= MOST_REPLICAS:
        return None
    low, high = int(load) + 1, MOST_REPLICAS
    while low < high:
        middle = min((low + high) // 2, 2 * low)
        if level_at(rate, middle, per_replica).latency <= target:
            high = middle
        else:
            low = middle + 1
    level = level_at(rate, low, per_replica)
    return level if level.latency <= target else None


def most_rate(target: float, replicas: int, per_replica: ReplicaSpeed) -> float:
    """Return the most requests a second with which so many replicas hold *target* seconds.

    It is 0 where a request takes longer than that even if it does not wait.
    """
    low, high = 0.0, replicas * per_replica.per_second
    if per_replica.latency > target:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if level_at(middle, replicas, per_replica).latency <= target:
            low = middle
        else:
            high = middle
    return low


def requests_each(rate: float, replicas: int, per_replica: ReplicaSpeed) -> float:
    """Return how many requests a replica has on average, answered or waiting (Little's law).

    It is an upper estimate, as the time of one that does not wait is given as a percentile.
    """
    free = replicas * per_replica.per_second - rate
    wait = erlang_c(rate / per_replica.per_second, replicas) / free
    return rate * (per_replica.latency + wait) / replicas


def erlang_c(load: float, replicas: int) -> float:
    """Return the probability that a request waits; *load* is in replicas, below their number."""
    # By Erlang's B, whose recursion neither overflows nor cancels.
    blocked = 1.0
    for count in range(1, replicas + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1 - (load / replicas) * (1 - blocked))
