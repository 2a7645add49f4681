"""How long a run takes that is interrupted now and then, as what runs on spot capacity is.

The Job begins again where it is, with the quota that it holds: from its last checkpoint, or anew.
Interruptions come independently, and what is drawn depends on the Job and its run alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from webhook.model.costs.prices import HOUR, Prices
from webhook.simulate.scenario import Submission

_MOST: Final = 1_000
"""After so many a run is not interrupted any more: it would never end."""


class InterruptedRun(NamedTuple):
    seconds: float
    """With all that was run again."""
    interruptions: int


def interrupted(
    submission: Submission, prices: Prices, checkpoint: float | None, seed: int
) -> Submission:
    """Return a submission whose true run times have its interruptions in them.

    *prices* say how many an hour come on each flavor; *checkpoint* is in seconds, None: the Job
    makes none.
    """
    runs = {
        key: lengthened(
            run,
            per_hour=prices.interrupted(key.split(",")),
            checkpoint=checkpoint,
            random=Random(f"{seed}/{submission.name}/{key}"),  # noqa: S311 - no secret
        )
        for key, run in submission.run_seconds.items()
    }
    return replace(
        submission,
        run_seconds={key: run.seconds for key, run in runs.items()},
        interruptions={key: run.interruptions for key, run in runs.items() if run.interruptions},
    )


def lengthened(
    run: float, *, per_hour: float, checkpoint: float | None, random: Random
) -> InterruptedRun:
    """Return how long a run of so many seconds takes with its interruptions."""
    done, passed, count = 0.0, 0.0, 0
    while per_hour > 0 and count < _MOST:
        until = random.expovariate(per_hour / HOUR)
        if until >= run - done:
            break
        passed, count = passed + until, count + 1
        done = (done + until) // checkpoint * checkpoint if checkpoint else 0.0
    return InterruptedRun(passed + run - done, count)


def by_flavor(prices: Mapping[str, Prices]) -> Prices:
    """Return the interruptions of all clusters together, each flavor with the most of any."""
    rates: dict[str, float] = {}
    for cluster in prices.values():
        for flavor, rate in cluster.interruptions.items():
            rates[flavor] = max(rate, rates.get(flavor, 0.0))
    return Prices(interruptions=rates)
