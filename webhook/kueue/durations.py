"""Expected run times, and how much of a run is left after some time.

Turns what was learned of classes and ClusterQueues into a mean and a standard deviation, in
seconds. Run times are taken to be lognormal. Where they were learned from is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import NormalDist, median
from typing import TypeAlias, TypeGuard

from webhook.model.forecasts import (
    ENOUGH_RUNS,
    SIGMAS_OF_A_SIDE,
    Basis,
    Estimates,
    JobClass,
    RunTime,
    home_of,
    of_queue,
)

_RUNS_TO_TRUST_THE_SKEW = 10
"""From so many learned runs on, their middle is taken for a median, which is below the mean."""
_LEAST_PART_OF_ELAPSED = 0.05
"""What is left of a run at least, as a part of the time that it has taken."""
_OVERDUE_FACTOR = 2.0
"""Beyond so many times the upper end of what was expected a run is overdue: nothing was known of
it, and it is taken to last as long again as it has, as for a run of any length."""
_STATED_RUNS = 1
"""As how many runs a run time counts that is stated or assumed."""
_LEAST_SECONDS = 1.0
"""What is left at least of a run that has begun, in seconds."""
_NORMAL = NormalDist()
_SIGMAS_OF_AN_EVEN_CHANCE = sqrt(12.0)
"""The width of a uniform distribution, in standard deviations."""
_UNKNOWN_FACTOR = 4.0
"""A run time that is not known lies within the assumed one divided and multiplied by this."""

RunTimeOf: TypeAlias = Callable[[str, str], RunTime | None]
"""Look a run time up by (job class or ``of_queue``, flavors), as ``Estimates`` names them; None:
it is not known."""


class Durations:
    """Run times by class and flavors; an unknown one is estimated from its ClusterQueue's others.

    *fallback*: seconds of a run in a ClusterQueue of which no run time is known.
    """

    def __init__(self, run_time_of: RunTimeOf, fallback: float) -> None:
        self._run_time_of = run_time_of
        self._fallback = fallback
        self._known: dict[tuple[str, str], RunTime | None] = {}
        """What was looked up before, by class or by ``of_queue``, and flavors."""
        self._of_queue: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._overdue: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        """Class and flavors to how long its overdue runs have lasted so far."""
        self._whole: dict[tuple[str, str, str, int], tuple[float, float]] = {}
        self._by_flavors: dict[
            tuple[str, str, tuple[str, ...], int], Mapping[str, tuple[float, float]]
        ] = {}
        self.unknown: set[str] = set()
        """ClusterQueues with a Workload whose run time is not known."""

    def learn(self, cluster_queue: str, job_class: str, flavors: str) -> bool:
        """Look up the run time of a class on some flavors; return whether everybody knows it.

        Call it for all Workloads of a ClusterQueue before asking for any of their run times.
        """
        self._of_queue[cluster_queue].add((job_class, flavors))
        expected = self._expected(cluster_queue, job_class, flavors)
        if expected is None:
            self.unknown.add(cluster_queue)
        return _is_for_all(expected)

    def observe(
        self, cluster_queue: str, job_class: str, flavors: str, *, elapsed: float, count: int
    ) -> None:
        """Count *count* runs that have lasted for *elapsed* seconds, if they are overdue.

        Each is then one more run of its class: a censored one, of which is known only that it
        takes at least so long, and which is expected to take twice that (``remaining``). What has
        not begun is expected to take the mean of the class's learned runs and of these. Call it
        before asking for any run time.
        """
        run = self._expected(cluster_queue, job_class, flavors) or self._unknown(cluster_queue)
        if _is_overdue(run, elapsed):
            self._overdue[job_class, flavors] += [elapsed] * count

    def is_settled(self, cluster_queue: str, job_class: str, flavors: str) -> bool:
        """Return whether learning this run time, too, would leave all others as they are."""
        is_new = (job_class, flavors) not in self._of_queue[cluster_queue]
        if not is_new:
            return True
        if cluster_queue in self.unknown:
            return False
        return self.knows(cluster_queue, job_class, flavors)

    def knows(self, cluster_queue: str, job_class: str, flavors: str) -> bool:
        """Return whether everybody knows a run time, whether it was asked for before or not."""
        return _is_for_all(self._expected(cluster_queue, job_class, flavors))

    def known_in(
        self, cluster_queue: str, job_class: str, combinations: Iterable[str]
    ) -> frozenset[str]:
        """Return the namespaces that know those of the run times that not everybody knows."""
        runs = [self._expected(cluster_queue, job_class, flavors) for flavors in combinations]
        stated = [
            (run.known_in if run is not None else None) or frozenset[str]()
            for run in runs
            if not _is_for_all(run)
        ]
        return frozenset.intersection(*stated) if stated else frozenset()

    def whole(
        self, cluster_queue: str, job_class: str, flavors: str, *, limit: int = 0
    ) -> tuple[float, float]:
        """Return the mean and the standard deviation of a whole run, in seconds.

        *limit*: seconds after which the run is ended; 0: never.
        """
        key = cluster_queue, job_class, flavors, limit
        if key not in self._whole:
            self._whole[key] = self.left(
                cluster_queue, job_class, flavors, elapsed=0.0, limit=limit
            )
        return self._whole[key]

    def whole_by_flavors(
        self, cluster_queue: str, job_class: str, combinations: tuple[str, ...], *, limit: int = 0
    ) -> Mapping[str, tuple[float, float]]:
        """Return the same for each combination of flavors, in their order."""
        key = cluster_queue, job_class, combinations, limit
        if key not in self._by_flavors:
            self._by_flavors[key] = {
                flavors: self.whole(cluster_queue, job_class, flavors, limit=limit)
                for flavors in combinations
            }
        return self._by_flavors[key]

    def left(
        self, cluster_queue: str, job_class: str, flavors: str, *, elapsed: float, limit: int = 0
    ) -> tuple[float, float]:
        """Return the mean and the standard deviation of what is left of a run, in seconds.

        *elapsed*: seconds that it has taken. *limit*: seconds after which it is ended; 0: never.
        """
        expected = self._expected(cluster_queue, job_class, flavors)
        run = expected or self._unknown(cluster_queue)
        # What has begun shows by itself how long it takes.
        if not elapsed:
            run = _with_overdue(run, self._overdue.get((job_class, flavors), ()))
        if not limit:
            return remaining(run, elapsed)
        most = max(0.0, limit - elapsed)
        if not _is_for_all(expected):
            # Of an unknown run only its limit is known: any end before that is equally likely.
            # The limit counts for everybody, so it comes before what is said to a few.
            return most / 2, most / _SIGMAS_OF_AN_EVEN_CHANCE
        seconds, spread = remaining(run, elapsed)
        return (seconds, spread) if seconds <= most else (most, 0.0)

    def _expected(self, cluster_queue: str, job_class: str, flavors: str) -> RunTime | None:
        """Return the run time of a class on some flavors, else that of its ClusterQueue there.

        None: neither is known. What is said of runs comes after what was learned of either, unless
        everybody believes it.
        """
        own = self._known_by(job_class, flavors)
        if _is_for_all(own):
            return own
        return self._known_by(of_queue(cluster_queue, home_of(job_class)), flavors) or own

    def _known_by(self, name: str, flavors: str) -> RunTime | None:
        key = name, flavors
        # A lookup that found nothing is cached as well.
        if key not in self._known:
            self._known[key] = self._run_time_of(name, flavors)
        return self._known[key]

    def unknown_seconds(self, cluster_queue: str) -> float:
        """Return the seconds assumed for a run in a ClusterQueue whose run time is not known."""
        return self._unknown(cluster_queue).seconds

    def _unknown(self, cluster_queue: str) -> RunTime:
        runs = (self._expected(cluster_queue, *key) for key in self._of_queue[cluster_queue])
        # What some say of their own runs says nothing of others'.
        known = [run.seconds for run in runs if _is_for_all(run)]
        # Workloads of one ClusterQueue tend to be alike, so the known ones are the best guess.
        seconds = median(known) if known else self._fallback
        return RunTime(
            seconds=seconds,
            low=seconds / _UNKNOWN_FACTOR,
            high=seconds * _UNKNOWN_FACTOR,
            basis=Basis.POLICY,
        )


def _is_for_all(run: RunTime | None) -> TypeGuard[RunTime]:
    """Return whether everybody may count on a run time."""
    return run is not None and run.known_in is None


def remaining(run: RunTime, elapsed: float = 0.0) -> tuple[float, float]:
    """Return the mean and the standard deviation of what is left of a run, in seconds.

    For a lognormal run time X and *elapsed* e, the mean is E[X - e | X > e]. Of a run that
    has begun, a part of the time that it has taken is always left, however long it has lasted; of
    one that is overdue, at least as much as it has taken.
    """
    least = _least_left(run, elapsed) if elapsed > 0.0 else 0.0
    sigma = _log_sigma(run)
    if sigma == 0.0 or run.seconds <= 0.0:
        left = run.seconds - elapsed
        return (left, 0.0) if left > least else (least, least)
    # exp(middle) is the median of a lognormal, and exp(middle + sigma²/2) its mean.
    middle = log(run.seconds) - (0.0 if _is_skewed(run) else sigma * sigma / 2)
    if elapsed <= 0.0:
        return _moments(middle, sigma)
    left, spread = _moments_after(middle, sigma, elapsed)
    return (left, spread) if left > least else (least, least)


def _least_left(run: RunTime, elapsed: float) -> float:
    if _is_overdue(run, elapsed):
        return elapsed
    return max(_LEAST_SECONDS, _LEAST_PART_OF_ELAPSED * elapsed)


def _is_overdue(run: RunTime, elapsed: float) -> bool:
    # Of a run of no seconds nothing is expected: it may end at any moment.
    return run.seconds > 0.0 and elapsed > _OVERDUE_FACTOR * max(run.seconds, run.high)


def _with_overdue(run: RunTime, overdue: Sequence[float]) -> RunTime:
    """Return the run time of a class of which some runs are overdue: the mean of all its runs."""
    if not overdue:
        return run
    known = max(_STATED_RUNS, run.runs)
    seconds = (known * run.seconds + 2 * sum(overdue)) / (known + len(overdue))
    factor = seconds / run.seconds
    return replace(run, seconds=seconds, low=run.low * factor, high=run.high * factor)


def _log_sigma(run: RunTime) -> float:
    if run.low <= 0.0 or run.high <= run.low:
        return 0.0
    return log(run.high / run.low) / (2 * SIGMAS_OF_A_SIDE)


def _is_skewed(run: RunTime) -> bool:
    """Return whether ``seconds`` is taken for the median of a lognormal, and not for its mean."""
    # What is learned is the middle of the logarithms, but of few runs the skew is not known.
    return run.basis is Basis.LEARNED and run.runs >= _RUNS_TO_TRUST_THE_SKEW


def _moments(middle: float, sigma: float) -> tuple[float, float]:
    mean = exp(middle + sigma * sigma / 2)
    return mean, mean * sqrt(exp(sigma * sigma) - 1)


def _moments_after(middle: float, sigma: float, elapsed: float) -> tuple[float, float]:
    """Return the mean and the standard deviation of what is left after *elapsed* seconds.

    They follow from the partial moments E[X^k; X > e] = exp(k m + k² s²/2) N(k s - z).
    """
    z = (log(elapsed) - middle) / sigma
    survives = _NORMAL.cdf(-z)
    # So far out in the tail, the probability of lasting longer is below the smallest float.
    if survives <= 0.0:
        return 0.0, 0.0
    mean = exp(middle + sigma * sigma / 2) * _NORMAL.cdf(sigma - z) / survives
    square = exp(2 * middle + 2 * sigma * sigma) * _NORMAL.cdf(2 * sigma - z) / survives
    return mean - elapsed, sqrt(max(0.0, square - mean * mean))


def learned_on(run_times: Estimates, job_class: JobClass, flavors: str) -> RunTime | None:
    """Return the learned run time of a class on some flavors, else of its coarse class.

    None: nothing is learned of either.
    """
    # The coarse class leaves out numbers among the arguments, so more runs fall into it.
    return run_times.get((job_class.key, flavors)) or run_times.get((job_class.coarse, flavors))


def of_any_class(run_times: Estimates, known_by: str, flavors: str) -> RunTime | None:
    """Return the run time of Jobs of any class in a ClusterQueue; None: too few were observed.

    *known_by*: the ClusterQueue, as ``of_queue`` names it.
    """
    run_time = run_times.get((known_by, flavors))
    return run_time if run_time is not None and run_time.runs >= ENOUGH_RUNS else None
