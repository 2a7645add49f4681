"""When Jobs come: written out or generated, all before the replay. Pure; chance comes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from webhook.model.policy.values import seconds
from webhook.simulate.scenario_spec import Arrivals, Burst, Every, Poisson

_RATE_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}

Turns: TypeAlias = Callable[[int], str]
"""Number of an arrival to its Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """A Job comes; ``run_seconds`` where the arrival says how long it runs."""

    at: float
    job: str
    run_seconds: float | None = None


def generate(spec: Arrivals, random: Random) -> Iterator[Coming]:
    """List one entry's arrivals, ascending; files are read elsewhere."""
    if spec.at is not None and spec.job is not None:
        run = None if spec.run_time is None else seconds(spec.run_time)
        yield Coming(at=seconds(spec.at), job=spec.job, run_seconds=run)
    elif spec.every is not None:
        yield from _at_intervals(spec.every, seconds(spec.every.interval), random)
    elif spec.burst is not None:
        yield from _at_intervals(spec.burst, seconds(spec.burst.gap), random)
    elif spec.poisson is not None:
        yield from _poisson(spec.poisson, random)


def per_second(rate: str) -> float:
    """Read a valid rate such as ``120/h``."""
    number, _, unit = rate.partition("/")
    return float(number) / _RATE_SECONDS[unit]


def _at_intervals(spec: Every | Burst, interval: float, random: Random) -> Iterator[Coming]:
    turns, start = _turns(spec.jobs, random), seconds(spec.start)
    for number in range(spec.count):
        yield Coming(at=start + number * interval, job=turns(number))


def _poisson(spec: Poisson, random: Random) -> Iterator[Coming]:
    rate, turns = per_second(spec.rate), _turns(spec.jobs, random)
    start, end = seconds(spec.start), seconds(spec.start) + seconds(spec.duration)
    at, number = start, 0
    while rate and (at := at + random.expovariate(rate)) < end:
        yield Coming(at=at, job=turns(number))
        number += 1


def _turns(jobs: tuple[str, ...] | Mapping[str, float], random: Random) -> Turns:
    if isinstance(jobs, tuple):
        return lambda number: jobs[number % len(jobs)]
    names, weights = list(jobs), list(jobs.values())
    return lambda _: random.choices(names, weights)[0]
