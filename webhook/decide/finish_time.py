"""Strategy FinishTime: the earliest expected finish that is worth leaving a preferred option for.

A finish is a start, by the forecast of the option's queue, the option's start delay, and a run. The
options are walked in the policy's order: a later one takes the place of the best so far when it
gains at least ``minimumGain`` (both its time, and its part of what the best so far takes), and more
where its start may be late and its run time is not learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from webhook.decide.choice import UNASKED, Asking, Choice, leave, take
from webhook.decide.wishes import Wishes
from webhook.model.decision import Assessment
from webhook.model.forecasts import Basis, Forecast
from webhook.model.policy import FallbackPolicy
from webhook.model.policy_spec import FinishTime, Gain
from webhook.model.policy_values import seconds

NEAR_PART = 0.02
"""Gains that exceed the minimum by less than this part of a finish are near ties,"""
NEAR_SECONDS = 1.0
"""or by less than this. Of those a part is taken, as each decision's own draw falls."""
UNSURE_PART = 0.25
"""Of the time by which an option's start may be late, what it must gain on top of the minimum as
long as its run time is believed: others wait there on the same belief."""
_NAMED = 3
"""Other options in the sentence, at most."""
_MINUTES_FROM, _HOURS_FROM = 600.0, 36_000.0


@dataclass(frozen=True, slots=True)
class _Known:
    """An option that is not refused, and when it would be done."""

    index: int
    option: Assessment
    forecast: Forecast
    finish: float


def choose(
    policy: FallbackPolicy, assessments: Sequence[Assessment], asking: Asking = UNASKED
) -> Choice:
    """Take the option that is done first; without a forecast, the first that is not refused."""
    standing = [index for index, item in enumerate(assessments) if item.rejection is None]
    if not standing:
        return leave(assessments)
    first = standing[0]
    known = [_known(index, assessments[index]) for index in standing]
    found = [each for each in known if each is not None]
    if known[0] is None:
        starts = ("starts now",) if assessments[first].starts_now else ()
        because = (*starts, f"{_what_is_unknown(assessments[first])}, so the first option stands")
        return take(policy, assessments, first, submitted=asking.submitted, because=because)
    taken, waits = _within_wait(found, asking.wishes), asking.wishes.max_wait
    extra: tuple[str, ...] = ()
    if taken is not None and waits is not None:
        extra = (f"the first to start within {spoken(waits)}",)
    best = taken or _best(found, _gain(policy), asking.draw)
    because = (_said(best), *extra, *_others(found, best), *_refused(assessments))
    return take(policy, assessments, best.index, submitted=asking.submitted, because=because)


def _known(index: int, option: Assessment) -> _Known | None:
    forecast = option.forecast
    if forecast is None or forecast.finish is None or forecast.finish == inf:
        return None
    return _Known(index, option, forecast, forecast.finish)


def _what_is_unknown(option: Assessment) -> str:
    if option.forecast is None:
        return "no forecast of its queue is known yet"
    if option.forecast.run is None:
        return "no run time is known yet"
    return "when it would start cannot be foreseen"


def _gain(policy: FallbackPolicy) -> Gain:
    return (policy.spec.strategy.finish_time or FinishTime()).minimum_gain


def _within_wait(found: Sequence[_Known], wishes: Wishes) -> _Known | None:
    limit = wishes.max_wait
    if limit is None:
        return None
    return next((each for each in found if each.forecast.start.seconds <= limit), None)


def _best(found: Sequence[_Known], gain: Gain, draw: float) -> _Known:
    best, *later = found
    for each in later:
        if _is_worth(each, best, gain, draw):
            best = each
    return best


def _is_worth(each: _Known, best: _Known, gain: Gain, draw: float) -> bool:
    """Tell whether the gain is enough, and for near ties whether this decision takes it.

    Replicas that do not see each other's last placements would else all leave, or all stay.
    """
    gained, start = best.finish - each.finish, each.forecast.start
    least = max(seconds(gain.time), best.finish * gain.percent / 100)
    run = each.forecast.run
    if run is None or run.basis is not Basis.LEARNED:
        least += UNSURE_PART * (start.high - start.seconds)
    if gained < least or gained <= 0.0:
        return False
    near = max(NEAR_SECONDS, NEAR_PART * best.finish)
    return gained - least >= near * draw


def _said(each: _Known) -> str:
    starts = "starts now" if each.forecast.start.seconds == 0.0 else ""
    done = f"done in {spoken(each.finish)}"
    return f"{starts}, {done}" if starts else f"{done}{_ahead(each.option)}"


def _others(found: Sequence[_Known], best: _Known) -> tuple[str, ...]:
    others = [each for each in found if each is not best][:_NAMED]
    return tuple(
        f"{each.option.queue} would be done in {spoken(each.finish)}{_ahead(each.option)}"
        for each in others
    )


def _ahead(option: Assessment) -> str:
    return f" ({option.pending} ahead)" if option.pending else ""


def _refused(assessments: Sequence[Assessment]) -> tuple[str, ...]:
    return tuple(
        f"{item.queue or item.option} refused: {item.rejection.detail}"
        for item in assessments
        if item.rejection is not None
    )


def spoken(amount: float) -> str:
    """Say a time for people: ``70 s``, ``12 min``, ``30.5 h``."""
    if amount < _MINUTES_FROM:
        return f"{amount:.0f} s"
    if amount < _HOURS_FROM:
        return f"{amount / 60:.0f} min"
    return f"{amount / 3600:.1f} h"
