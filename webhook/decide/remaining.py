"""How much longer a run is expected to take, from what it was expected to take in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import exp, log, sqrt
from statistics import NormalDist, median
from typing import TypeAlias

from webhook.model.forecasts import Basis, RunTime

_SIGMAS_OF_80_PERCENT = 2.5631
"""The width of the middle 80 % of a normal distribution, in standard deviations."""
_RUNS_TO_TRUST_THE_SKEW = 10
_LEAST_PART_OF_ELAPSED = 0.05
_LEAST_SECONDS = 1.0
_NORMAL = NormalDist()
_UNKNOWN_FACTOR = 4.0
"""How far off an unknown run time may be, either way."""

RunTimeOf: TypeAlias = Callable[[str, str], RunTime | None]
"""(job class, flavors) to the expected run time; flavors as in ``model.forecasts.Estimates``."""


class Durations:
    """Run times by class and flavors; the unknown ones go by the known ones of their queue."""

    def __init__(self, run_time_of: RunTimeOf, fallback: float) -> None:
        self._run_time_of = run_time_of
        self._fallback = fallback
        self._known: dict[tuple[str, str], RunTime | None] = {}
        self._of_queue: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._whole: dict[tuple[str, str, str], tuple[float, float]] = {}
        self.unknown: set[str] = set()
        """ClusterQueues in which somebody's run time is not known."""

    def learn(self, cluster_queue: str, job_class: str, flavors: str) -> None:
        """Look one up; all of a queue are, before the first is asked for."""
        key = job_class, flavors
        if key not in self._known:
            self._known[key] = self._run_time_of(job_class, flavors)
        if self._known[key] is None:
            self.unknown.add(cluster_queue)
        self._of_queue[cluster_queue].add(key)

    def whole(self, cluster_queue: str, job_class: str, flavors: str) -> tuple[float, float]:
        """Return the mean of a whole run, and its standard deviation."""
        key = cluster_queue, job_class, flavors
        if key not in self._whole:
            self._whole[key] = self.left(cluster_queue, job_class, flavors, elapsed=0.0)
        return self._whole[key]

    def left(
        self, cluster_queue: str, job_class: str, flavors: str, *, elapsed: float
    ) -> tuple[float, float]:
        """Return the mean of what is left of a run, and its standard deviation."""
        run = self._known.get((job_class, flavors))
        return remaining(run or self._unknown(cluster_queue), elapsed)

    def unknown_seconds(self, cluster_queue: str) -> float:
        """Return what a run of a queue is taken to last whose run time is not known."""
        return self._unknown(cluster_queue).seconds

    def _unknown(self, cluster_queue: str) -> RunTime:
        runs = (self._known[key] for key in self._of_queue[cluster_queue])
        known = [run.seconds for run in runs if run is not None]
        seconds = median(known) if known else self._fallback
        return RunTime(
            seconds=seconds,
            low=seconds / _UNKNOWN_FACTOR,
            high=seconds * _UNKNOWN_FACTOR,
            basis=Basis.POLICY,
        )


def remaining(run: RunTime, elapsed: float = 0.0) -> tuple[float, float]:
    """Return the mean of what is left after *elapsed* seconds, and its standard deviation.

    Run times are taken to be lognormal: E[X - e | X > e]. It never comes to nothing: what has
    outlasted every expectation is expected to go on for a part of the time it took so far.
    """
    least = max(_LEAST_SECONDS, _LEAST_PART_OF_ELAPSED * elapsed) if elapsed > 0 else 0.0
    sigma = _log_sigma(run)
    if sigma == 0.0 or run.seconds <= 0.0:
        left = run.seconds - elapsed
        return (left, 0.0) if left > least else (least, least)
    middle = log(run.seconds) - (0.0 if _is_skewed(run) else sigma * sigma / 2)
    if elapsed <= 0.0:
        return _moments(middle, sigma)
    left, spread = _moments_after(middle, sigma, elapsed)
    return (left, spread) if left > least else (least, least)


def _log_sigma(run: RunTime) -> float:
    if run.low <= 0.0 or run.high <= run.low:
        return 0.0
    return log(run.high / run.low) / _SIGMAS_OF_80_PERCENT


def _is_skewed(run: RunTime) -> bool:
    """Tell whether ``seconds`` is the middle of many runs, which lies below their mean."""
    return run.basis is Basis.LEARNED and run.runs >= _RUNS_TO_TRUST_THE_SKEW


def _moments(middle: float, sigma: float) -> tuple[float, float]:
    mean = exp(middle + sigma * sigma / 2)
    return mean, mean * sqrt(exp(sigma * sigma) - 1)


def _moments_after(middle: float, sigma: float, elapsed: float) -> tuple[float, float]:
    """Use the partial moments of the lognormal, E[X^k; X > e] = exp(k m + k² s²/2) N(k s - z)."""
    z = (log(elapsed) - middle) / sigma
    survives = _NORMAL.cdf(-z)
    if survives <= 0.0:
        return 0.0, 0.0
    mean = exp(middle + sigma * sigma / 2) * _NORMAL.cdf(sigma - z) / survives
    square = exp(2 * middle + 2 * sigma * sigma) * _NORMAL.cdf(2 * sigma - z) / survives
    return mean - elapsed, sqrt(max(0.0, square - mean * mean))
