"""What goes by between the reservation of quota and the run, as far as it is learned.

AdmissionChecks come first: behind MultiKueue, until a worker cluster has reserved quota. Then nodes
and images come. A learned run time begins at the admission, so it contains the latter. What a
policy says (``startDelay``) stands for both, until they are learned.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import hypot, inf
from typing import TypeAlias

from webhook.learn.learning import PRIOR_SIGMA, TENTH
from webhook.model.forecasts import (
    ENOUGH_RUNS,
    Basis,
    Delay,
    Dispatch,
    Estimates,
    Forecast,
    RunTime,
    Start,
)
from webhook.model.policy.fallback_policy import Option
from webhook.model.policy.values import seconds
from webhook.model.run_keys import JobClass
from webhook.model.words import spoken

_Ranged: TypeAlias = Start | Delay | RunTime
_OF_ALL = ""
_UNSURE = math.exp(TENTH * PRIOR_SIGMA)
"""How many times as long as somebody has waited the wait may well become."""


def dispatch(found: Dispatch | None, now: float) -> Delay | None:
    """Expect how long AdmissionChecks take; None: nobody has passed or waited for them yet.

    Who waits at *now*, on the clock of ``Snapshot.as_of``, has not been dispatched: it takes at
    least as long as that.
    """
    if found is None:
        return None
    waited = 0.0 if found.waiting_since is None else max(0.0, now - found.waiting_since)
    known = found.learned
    if known is None:
        by = f"one has waited {spoken(waited)} to be dispatched"
        return Delay(seconds=waited, low=waited, high=waited * _UNSURE, by=by)
    by = f"dispatched in {spoken(known.seconds)}, from {known.runs} of late"
    if waited <= known.seconds:
        return Delay(seconds=known.seconds, low=known.low, high=known.high, by=by)
    high = max(known.high, waited * _UNSURE)
    by = f"{by}, but one has waited {spoken(waited)}"
    return Delay(seconds=waited, low=max(known.low, waited), high=high, by=by)


def transfer(found: Dispatch | None, option: Option) -> Delay | None:
    """Expect how long the way to a worker cluster takes of which it is known who waits there.

    No longer than the option's ``startDelay``: a dispatch lasts until the worker has quota, so
    after a burst even the shortest one of late has waited there.
    """
    if found is None or found.learned is None:
        return None
    least = min(float(found.least), seconds(option.start_delay))
    if least <= 0.0:
        return None
    by = f"dispatched in {spoken(least)} at best"
    return Delay(seconds=least, low=least, high=least, by=by)


def later(start: Start, lasts: Delay | RunTime | None) -> Start:
    """Tell when it is over, if it lasts so long from a start on; both vary independently."""
    if lasts is None or start.seconds == inf:
        return start
    middle, low, high = _added(start, lasts)
    # Not by replace(): this is on the way of reviews.
    return Start(
        seconds=middle,
        low=low,
        high=high,
        uncertain=start.uncertain,
        unseen=start.unseen,
        unordered=start.unordered,
        is_next=start.is_next,
    )


def start_up(starts: Estimates, job_class: JobClass, flavors: str) -> Delay | None:
    """Expect how long pods take to be ready: of the class, or of all; None: too few were seen."""
    for key in (job_class.key, job_class.coarse, _OF_ALL):
        found = starts.get((key, flavors))
        if found is not None and found.runs >= ENOUGH_RUNS:
            by = f"pods ready in {spoken(found.seconds)}, from {found.runs} of late"
            return Delay(seconds=found.seconds, low=found.low, high=found.high, by=by)
    return None


def before_run(
    option: Option, run: RunTime | None, *, on_way: Delay | None, started: Delay | None
) -> Delay | None:
    """Tell what comes on top of AdmissionChecks, or of the way to a cluster, before the run.

    The option's ``startDelay`` is that and *on_way* together, until either is learned.
    """
    if run is not None and run.basis is Basis.LEARNED:
        return None
    if started is not None:
        return started
    said = seconds(option.start_delay) - (on_way.seconds if on_way is not None else 0.0)
    if said <= 0.0:
        return None
    return Delay(seconds=said, low=said, high=said, by=f"{spoken(said)} by the policy's startDelay")


def together(one: Delay | None, other: Delay | None) -> Delay | None:
    if one is None or other is None:
        return one or other
    middle, low, high = _added(one, other)
    return Delay(seconds=middle, low=low, high=high, by=f"{one.by}; {other.by}")


def lasting(forecast: Forecast | None) -> RunTime | None:
    """Expect how long quota is held: the run, and all that goes by before it."""
    if forecast is None or forecast.run is None:
        return None
    return after(together(forecast.dispatch, forecast.delay), forecast.run)


def after(before: Delay | None, run: RunTime) -> RunTime:
    if before is None:
        return run
    middle, low, high = _added(before, run)
    return replace(run, seconds=middle, low=low, high=high)


def _added(one: _Ranged, other: _Ranged) -> tuple[float, float, float]:
    """Add middles and ranges of what varies independently."""
    middle = one.seconds + other.seconds
    earlier = hypot(one.seconds - one.low, other.seconds - other.low)
    after = hypot(one.high - one.seconds, other.high - other.seconds)
    return middle, max(0.0, middle - earlier), middle + after
