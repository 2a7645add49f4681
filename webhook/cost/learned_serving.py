"""What one replica of a service does, learned from how fast the service was at which load. Pure.

The formula by which services are sized (``service_level``) is fitted to what was observed. Of
speeds that fit about equally well the slowest is taken, with the latency of the best: others may be
mere extrapolation, and so a service gets rather too many replicas than too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf, sqrt
from typing import Final, NamedTuple

from webhook.cost.service_level import ReplicaSpeed, level_at
from webhook.learn.service_points import ServicePoint, unpack_points
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.queues import ClusterQueue
from webhook.model.snapshot_parts import LearnedRuns

ENOUGH_POINTS: Final = 12
"""Three hours of one service."""
LEAST_RANGE: Final = 2.0
"""The highest load of a replica by its lowest: at one load alone, a slow replica that never lets a
request wait looks as a quick one does that always does."""
MOST_BEYOND: Final = 2.0
"""What a replica is believed to answer at most, by the highest load at which it was seen."""
_STEP: Final = 1.05
_STEPS: Final = 64
"""They reach 22 times the highest load; there nothing waits any more."""
_ALIKE: Final = 1.1
_NOISE: Final = 0.05
"""Errors, as parts of a latency: what buckets of histograms and five minutes leave open, and what
is no worse than others."""
_SHORTEST: Final = 1e-6
_MOST_ERROR: Final = 0.3
"""Where the formula is further off than this, it does not describe the service."""


def learned_serving(
    learned: LearnedRuns, job_class: str, queue: ClusterQueue, option: str
) -> LearnedServing | None:
    """Return what a replica of a class does in an option; None: that was not learned."""
    return learned.served.get((job_class, place_of(queue, option)))


def place_of(queue: ClusterQueue, option: str) -> str:
    """Return where a service is that an option sends to *queue*: its device, and the option.

    The option says which part of the device it gets. Empty: the queue has several devices, so it
    is not known on which of them a service is.
    """
    groups = [(group.resources, group.flavors) for group in queue.groups]
    devices = {
        flavor
        for resources, flavors in groups
        for flavor in flavors
        if any("/" in resource for resource in resources)
    }
    flavors = devices or {flavor for _, of_group in groups for flavor in of_group}
    return f"{next(iter(flavors))}/{option}" if len(flavors) == 1 else ""


def fitted_all(
    points: Mapping[tuple[str, str], bytes],
) -> Mapping[tuple[str, str], LearnedServing]:
    """Return what replicas do by (class, place), where that can be told."""
    found = {place: fitted(packed) for place, packed in points.items()}
    return {place: serving for place, serving in found.items() if serving is not None}


@lru_cache(maxsize=4096)
def fitted(packed: bytes) -> LearnedServing | None:
    """Fit what one replica does to packed points; None: they are too few, or do not tell."""
    points = [point for point in unpack_points(packed) if _is_sound(point)]
    loads = [point.rate / point.replicas for point in points]
    if len(points) < ENOUGH_POINTS or max(loads) < LEAST_RANGE * min(loads):
        return None
    fits = tuple(_fits(points, max(loads)))
    best = min(fits, default=None)
    if best is None or best.error >= _MOST_ERROR:
        return None
    alike = _ALIKE * max(best.error, _NOISE)
    slowest = next(each.per_second for each in fits if each.error <= alike)
    return LearnedServing(
        per_second=min(slowest, MOST_BEYOND * max(loads)),
        latency=best.latency,
        points=len(points),
    )


class _Fit(NamedTuple):
    error: float
    """As a part of the latencies, in the root of the mean of squares."""
    per_second: float
    latency: float


def _is_sound(point: ServicePoint) -> bool:
    return point.replicas > 0 and 0 < point.rate < inf and _SHORTEST <= point.latency < inf


def _fits(points: Sequence[ServicePoint], highest: float) -> Iterator[_Fit]:
    """Yield how far off each speed is, the slowest first, with the latency that fits it best."""
    for step in range(1, _STEPS + 1):
        per_second = highest * _STEP**step
        alone = ReplicaSpeed(per_second=per_second, latency=0.0)
        waits = [level_at(point.rate, point.replicas, alone).latency for point in points]
        seen = [
            (point.latency, point.latency - wait) for point, wait in zip(points, waits, strict=True)
        ]
        latency = _ratio(seen)
        if latency > 0:
            error = sqrt(sum(((latency - own) / all_) ** 2 for all_, own in seen) / len(seen))
            yield _Fit(error, per_second, latency)


def _ratio(seen: Iterable[tuple[float, float]]) -> float:
    """Return the latency without waiting whose errors, as parts of the whole, are the least."""
    pairs = tuple(seen)
    return sum(own / all_**2 for all_, own in pairs) / sum(1 / all_**2 for all_, _ in pairs)
