"""How much longer a run is expected to take, from what it was expected to take in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import exp, log, sqrt
from statistics import NormalDist, median
from typing import TypeAlias

from webhook.model.forecasts import ENOUGH_RUNS, Basis, Estimates, RunTime
from webhook.model.run_keys import JobClass, home_of, of_queue

_SIGMAS_OF_80_PERCENT = 2.5631
"""The width of the middle 80 % of a normal distribution, in standard deviations."""
_RUNS_TO_TRUST_THE_SKEW = 10
_LEAST_PART_OF_ELAPSED = 0.05
_LEAST_SECONDS = 1.0
_NORMAL = NormalDist()
_SIGMAS_OF_AN_EVEN_CHANCE = sqrt(12.0)
"""The width of a uniform distribution, in standard deviations."""
_UNKNOWN_FACTOR = 4.0
"""How far off an unknown run time may be, either way."""

RunTimeOf: TypeAlias = Callable[[str, str], RunTime | None]
"""(job class, or ``of_queue``; flavors) to the expected run time; as ``Estimates`` names them."""


class Durations:
    """Run times by class and flavors; the unknown ones go by the known ones of their queue."""

    def __init__(self, run_time_of: RunTimeOf, fallback: float) -> None:
        self._run_time_of = run_time_of
        self._fallback = fallback
        self._known: dict[tuple[str, str], RunTime | None] = {}
        """By class, or for all classes of a queue."""
        self._of_queue: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._whole: dict[tuple[str, str, str, int], tuple[float, float]] = {}
        self.unknown: set[str] = set()
        """ClusterQueues in which somebody's run time is not known."""

    def learn(self, cluster_queue: str, job_class: str, flavors: str) -> bool:
        """Look one up, and tell whether anything is known.

        All of a queue are looked up before the first is asked for.
        """
        self._of_queue[cluster_queue].add((job_class, flavors))
        is_known = self._expected(cluster_queue, job_class, flavors) is not None
        if not is_known:
            self.unknown.add(cluster_queue)
        return is_known

    def whole(
        self, cluster_queue: str, job_class: str, flavors: str, *, limit: int = 0
    ) -> tuple[float, float]:
        """Return the mean of a whole run, and its standard deviation."""
        key = cluster_queue, job_class, flavors, limit
        if key not in self._whole:
            self._whole[key] = self.left(
                cluster_queue, job_class, flavors, elapsed=0.0, limit=limit
            )
        return self._whole[key]

    def left(
        self, cluster_queue: str, job_class: str, flavors: str, *, elapsed: float, limit: int = 0
    ) -> tuple[float, float]:
        """Return the mean of what is left of a run, and its standard deviation.

        *limit*: it is ended after so many seconds; 0: it is not.
        """
        run = self._expected(cluster_queue, job_class, flavors)
        if not limit:
            return remaining(run or self._unknown(cluster_queue), elapsed)
        most = max(0.0, limit - elapsed)
        if run is None:
            return most / 2, most / _SIGMAS_OF_AN_EVEN_CHANCE
        seconds, spread = remaining(run, elapsed)
        return (seconds, spread) if seconds <= most else (most, 0.0)

    def _expected(self, cluster_queue: str, job_class: str, flavors: str) -> RunTime | None:
        """Expect what its class takes on these flavors, or what any class took in its queue."""
        found = self._known_by(job_class, flavors)
        if found is not None:
            return found
        return self._known_by(of_queue(cluster_queue, home_of(job_class)), flavors)

    def _known_by(self, name: str, flavors: str) -> RunTime | None:
        key = name, flavors
        if key not in self._known:
            self._known[key] = self._run_time_of(name, flavors)
        return self._known[key]

    def unknown_seconds(self, cluster_queue: str) -> float:
        """Return what a run of a queue is taken to last whose run time is not known."""
        return self._unknown(cluster_queue).seconds

    def _unknown(self, cluster_queue: str) -> RunTime:
        runs = (self._expected(cluster_queue, *key) for key in self._of_queue[cluster_queue])
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


def learned_on(run_times: Estimates, job_class: JobClass, flavors: str) -> RunTime | None:
    """Tell what is learned of a class on given flavors, or of its coarse class."""
    return run_times.get((job_class.key, flavors)) or run_times.get((job_class.coarse, flavors))


def of_any_class(run_times: Estimates, known_by: str, flavors: str) -> RunTime | None:
    """Tell what Jobs of any class took in a ClusterQueue; None: too few were seen there.

    *known_by* is as ``of_queue`` names it.
    """
    found = run_times.get((known_by, flavors))
    return found if found is not None and found.runs >= ENOUGH_RUNS else None
