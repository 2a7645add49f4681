"""What runs tell about the next one: an expected run time and the range that most runs keep to.

Computed on logarithms, as run times are skewed. Recent runs weigh more; runs far from the others
weigh nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from webhook.learn.run_records import Run
from webhook.model.forecasts import Basis, RunTime

HALF_LIFE = 9.0
"""Runs after which one weighs half; when run times change, a few more than that show it."""
PRIOR_SIGMA = 0.6
"""Spread of the logarithms of one class' run times, before any of them were seen."""
PRIOR_RUNS = 4.0
"""How many runs that guess counts for, beside a few;"""
FEW_RUNS = 5.0
"""beside more than so many it fades with their cube, as they tell enough of themselves."""
TENTH = 1.2816
"""Sigmas from the middle of a normal distribution to its tenth and its ninetieth percent."""

_TUNING = 4.685
"""Sigmas from the middle beyond which a run weighs nothing (Tukey's biweight: 95 % efficient)."""
_MAD_TO_SIGMA = 1.4826
_LEAST_SIGMA = 0.02
_STEPS = 12
_CLOSE = 1e-3
"""In logarithms: a thousandth of the run time."""
_SHORTEST_SECONDS = 0.5
"""What a run counts for that began and ended within one second of the API server's clock."""

_Weighted = Sequence[tuple[float, float]]
"""(value, weight), values ascending."""


def learned(runs: Iterable[Run], *, prior_sigma: float = PRIOR_SIGMA) -> RunTime | None:
    """Estimate from successful runs, the oldest first; None: there are none.

    *prior_sigma*: the spread of logarithms to expect of runs like these, until enough were seen.
    """
    weighted = _weighted(runs)
    if not weighted:
        return None
    middle = _middle(weighted)
    below, above = _sigmas(weighted, middle, prior_sigma)
    # The middle itself is off by as much as the mean of so many runs.
    error = math.sqrt(1 + 1 / _effective_runs(weighted))
    return RunTime(
        seconds=math.exp(middle),
        low=math.exp(middle - TENTH * below * error),
        high=math.exp(middle + TENTH * above * error),
        basis=Basis.LEARNED,
        runs=len(weighted),
    )


def spread_of(elsewhere: Iterable[Iterable[Run]]) -> float:
    """Return the spread of logarithms that a class' runs had in other places.

    What makes one run of a class longer than another, its data and its steps, does so on every
    flavor: so few runs here, beside many there, are no reason to know nothing of their spread.
    Without runs elsewhere it is ``PRIOR_SIGMA``.
    """
    squares, total = 0.0, 0.0
    for runs in elsewhere:
        weighted = _weighted(runs)
        if weighted:
            below, above = _sigmas(weighted, _middle(weighted), PRIOR_SIGMA)
            count = _effective_runs(weighted)
            squares += count * (below * below + above * above) / 2
            total += count
    return math.sqrt(squares / total) if total else PRIOR_SIGMA


def _weighted(runs: Iterable[Run]) -> _Weighted:
    logs = [math.log(max(run.seconds, _SHORTEST_SECONDS)) for run in runs]
    return sorted(zip(reversed(logs), _weights(len(logs)), strict=True))


@lru_cache
def _weights(count: int) -> tuple[float, ...]:
    """Weigh so many runs, the newest first."""
    return tuple(0.5 ** (age / HALF_LIFE) for age in range(count))


def _middle(weighted: _Weighted) -> float:
    """Find the M-estimate with Tukey's biweight, from the weighted median on.

    Huber & Ronchetti, Robust Statistics, 2nd edition, 4.8; the scale stays at that of the median.
    """
    middle = _quantile(weighted, 0.5)
    distances = sorted((abs(value - middle), weight) for value, weight in weighted)
    reach = _TUNING * max(_MAD_TO_SIGMA * _quantile(distances, 0.5), _LEAST_SIGMA)
    for _ in range(_STEPS):
        pulls = [
            (value, weight * (1 - part * part) ** 2)
            for value, weight in weighted
            if -1 < (part := (value - middle) / reach) < 1
        ]
        total = sum(pull for _, pull in pulls)
        step = sum(value * pull for value, pull in pulls) / total - middle if total else 0.0
        middle += step
        if abs(step) < _CLOSE:
            break
    return middle


def _sigmas(weighted: _Weighted, middle: float, prior_sigma: float) -> tuple[float, float]:
    """Find the spread below and above the middle, with the guess in as long as runs are few."""
    runs = _effective_runs(weighted)
    telling = runs - 1  # one run alone tells nothing of spread
    guessed = PRIOR_RUNS * min(1.0, (FEW_RUNS / runs) ** 3)

    def sigma(seen: float) -> float:
        known = guessed * prior_sigma**2 + telling * seen**2
        return math.sqrt(known / (guessed + telling))

    below = max(0.0, middle - _quantile(weighted, 0.1)) / TENTH
    above = max(0.0, _quantile(weighted, 0.9) - middle) / TENTH
    return sigma(below), sigma(above)


def _effective_runs(weighted: _Weighted) -> float:
    """Count how many runs of equal weight would tell as much (Kish)."""
    total = sum(weight for _, weight in weighted)
    return total * total / sum(weight * weight for _, weight in weighted)


def _quantile(weighted: _Weighted, part: float) -> float:
    """Interpolate between the middles of the weights."""
    total = sum(weight for _, weight in weighted)
    wanted, passed, before = part * total, 0.0, weighted[0]
    reached = 0.0
    for value, weight in weighted:
        centre = passed + weight / 2
        if centre >= wanted:
            if passed == 0.0:
                return value
            return before[0] + (value - before[0]) * (wanted - reached) / (centre - reached)
        before, reached, passed = (value, weight), centre, passed + weight
    return before[0]
