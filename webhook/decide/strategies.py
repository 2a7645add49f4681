"""Chooses one of a Job's assessed options, or none: a function for each strategy, in one table.

``Threshold`` goes through the policy's rules, ``FinishTime`` compares forecasts, ``Cost`` what they
cost in all. All read assessments alone: they must not know how these came about, nor what is
written on the Job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import hypot, inf
from statistics import NormalDist
from typing import TypeAlias, TypeVar

from webhook.decide import serving
from webhook.decide.applicant import Applicant
from webhook.decide.objective import TIED
from webhook.decide.wishes import Wishes
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.forecasts import SIGMAS_OF_A_SIDE, Basis, Delay, Forecast, RunTime, Start
from webhook.model.policy.fallback_policy import (
    Mode,
    StrategyType,
    ThresholdRule,
    seconds,
)
from webhook.model.policy.rules import SERVICES
from webhook.model.policy.strategy import FinishTime, Gain, LeastCost, Saving
from webhook.model.reasons import Stayed
from webhook.model.words import clip, figure, span

_PassedOver: TypeAlias = Mapping[int, Rejection]
"""Index of an option, in the policy's order, to why it was not taken though it is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    index: int | None
    """Index of the option taken, in the policy's order; None: the Job is left as submitted."""
    sentence: str
    passed_over: _PassedOver = field(default_factory=dict)


def take_option(
    applicant: Applicant,
    assessments: Sequence[Assessment],
    index: int,
    because: Iterable[str],
    passed_over: _PassedOver | None = None,
) -> Choice:
    """Return the choice of one option: ``sent to cpu-lq (cpu): starts now``."""
    taken = assessments[index]
    # In the other modes the Job is left where it is, so the sentence says "would".
    acts = applicant.policy.spec.mode is Mode.ENFORCE
    if taken.queue == applicant.submitted:
        verb = "stays in" if acts else "would stay in"
    else:
        verb = "sent to" if acts else "would be sent to"
    # MultiKueue chooses the cluster; the one named is expected to take the Job.
    reasons = "; ".join(because)
    place = f"{taken.option} on {taken.cluster}" if taken.cluster else taken.option
    sentence = clip(f"{verb} {taken.queue} ({place}): {reasons}")
    return Choice(index=index, sentence=sentence, passed_over=passed_over or {})


def leave(assessments: Sequence[Assessment]) -> Choice:
    """Return the choice of no option, with the reason why each one is refused."""
    # Each refusal has its numbers, so that the user sees what would have to change.
    refusals = [
        f"{assessment.option}: {assessment.rejection.detail}"
        for assessment in assessments
        if assessment.rejection
    ]
    return Choice(index=None, sentence=clip(f"left as submitted: {'; '.join(refusals)}"))


def choose_by_threshold(applicant: Applicant, assessments: Sequence[Assessment]) -> Choice:
    """Choose the option of the first rule that holds; else the first option, or none if refused."""
    places = {assessment.option: index for index, assessment in enumerate(assessments)}
    passed: list[str] = []
    for rule in applicant.policy.spec.strategy.threshold or ():
        index = places.get(rule.option)
        # Validation refuses a policy with such a rule.
        if index is None:
            continue
        because = _because(rule, assessments[index])
        if because is not None:
            reasons = (because, *passed)
            return take_option(applicant, assessments, index, reasons)
        passed.append(_against(rule, assessments[index], assessments))
    if assessments[0].rejection is not None:
        return leave(assessments)
    reasons = ("no threshold holds", *passed)
    return take_option(applicant, assessments, 0, reasons)


def _because(rule: ThresholdRule, option: Assessment) -> str | None:
    """Return why the rule holds; None: it does not."""
    if option.rejection is not None or option.fit is None:
        return None
    reserving, below = option.reserving or 0, rule.and_reserving_below
    # Preemption counts as room: Kueue makes it for the Job. A limit on those that hold quota keeps
    # a queue from being filled by this rule alone.
    if option.fit >= Fit.MAY_PREEMPT and (below is None or reserving < below):
        return _how_it_fits(option)
    pending, limit = option.pending or 0, rule.or_pending_below
    if limit is not None and pending < limit:
        return f"{pending} pending there, fewer than {limit}"
    return None


def _called(option: Assessment, assessments: Sequence[Assessment]) -> str:
    """Return an option's queue; that of several options says nothing of which is meant."""
    queues = [each.queue for each in assessments]
    is_clear = option.queue and queues.count(option.queue) == 1
    return option.queue if is_clear else option.option


def _how_it_fits(option: Assessment) -> str:
    if option.starts_now:
        return "starts now"
    return "may preempt" if option.fit is Fit.MAY_PREEMPT else "has quota free"


def _against(rule: ThresholdRule, option: Assessment, assessments: Sequence[Assessment]) -> str:
    if option.rejection is not None:
        return f"{_called(option, assessments)} refused: {option.rejection.detail}"
    if option.fit is not None and option.fit >= Fit.MAY_PREEMPT:
        return f"{option.queue} has {option.reserving} with quota reserved"
    if rule.or_pending_below is None:
        return f"{option.queue} has no quota free"
    return f"{option.queue} has {option.pending} pending"


NEAR_PART = 0.02
"""A gain is a near tie if it exceeds the minimum by less than this part of the best finish."""
NEAR_SECONDS = 1.0
"""It is one as well if it exceeds the minimum by fewer seconds than this."""
GUESSED_TIMES = 2.0
"""A run that is a guess by the devices' speed must save so many times the minimum."""
_NAMED = 3
"""Other options in the sentence, at most."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An option that is not refused, and in how many seconds the Job would finish there."""

    index: int
    option: Assessment
    forecast: Forecast
    finish: float
    run: RunTime

    @property
    def is_guess(self) -> bool:
        """Whether its cost rests on a guess by the devices' speed."""
        return self.run.basis is Basis.PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """An option that is not refused, in which a service would hold its latency."""

    index: int
    option: Assessment

    @property
    def is_guess(self) -> bool:
        return self.option.service is not None and self.option.service.is_guess


_Priced: TypeAlias = _Known | _Sized
_PricedT = TypeVar("_PricedT", bound=_Priced)


def choose_by_finish_time(applicant: Applicant, assessments: Sequence[Assessment]) -> Choice:
    """Choose the option with the earliest finish; without a forecast, the first one not refused.

    A later option is chosen only where its gain reaches the policy's minimum and is likely enough.
    """
    known = _comparable(applicant, assessments)
    if isinstance(known, Choice):
        return known
    # A Job's own ``max-wait`` comes before the comparison of finishes.
    taken = _within_wait(known, applicant.wishes)
    # FinishTime needs no settings; without them the defaults of its schema hold.
    settings = applicant.policy.spec.strategy.finish_time or FinishTime()
    best, passed = (taken, {}) if taken else _best(known, settings.minimum_gain, applicant)
    extra = _first_in_time(taken, applicant.wishes)
    because = (_said(best), *extra, *_others(known, best, passed), *_refused(assessments))
    return take_option(applicant, assessments, best.index, because, passed)


def choose_by_cost(applicant: Applicant, assessments: Sequence[Assessment]) -> Choice:
    """Choose the option with the least cost; without a forecast, the first one not refused.

    A later option is chosen only where it saves the policy's minimum.
    """
    if applicant.job.kind in SERVICES:
        return _choose_for_service(applicant, assessments)
    known = _comparable(applicant, assessments)
    if isinstance(known, Choice):
        return known
    taken = _within_wait(known, applicant.wishes)
    saving = (applicant.policy.spec.strategy.least_cost or LeastCost()).minimum_saving
    cheapest, passed = (taken, {}) if taken else _cheapest(known, saving, applicant.draw)
    best = taken or _least_fragmenting(known, cheapest)
    rivals = [candidate for candidate in known if candidate is not best]
    # What it is compared with: the first option, or the cheapest of the others.
    rival = rivals[0] if best is not known[0] else min(rivals, key=_total, default=None)
    said = best.option.cost.said if best.option.cost is not None else ()
    because = (
        *_compared(best, rival, applicant.snapshot.costs.currency),
        *(f"{assessments[index].queue}: {why.detail}" for index, why in passed.items()),
        *_first_in_time(taken, applicant.wishes),
        *(("others could use less of it",) if best is not cheapest else ()),
        *_congested(known),
        *said,
        *_refused(assessments),
    )
    return take_option(applicant, assessments, best.index, because, passed)


def _choose_for_service(applicant: Applicant, assessments: Sequence[Assessment]) -> Choice:
    """Choose the option in which an hour costs least; where that is not known, the first one."""
    sized = [
        _Sized(index=index, option=option)
        for index, option in enumerate(assessments)
        if option.rejection is None
    ]
    if not sized:
        return leave(assessments)
    first = sized[0]
    because: Iterable[str]
    if not applicant.is_sized:
        because = ("it says no request-rate, so the first option is kept",)
        return take_option(applicant, assessments, first.index, because)
    if _total(first) == inf:
        because = (*_does(first), "its cost is not known, so the first option is kept")
        return take_option(applicant, assessments, first.index, because)
    saving = (applicant.policy.spec.strategy.least_cost or LeastCost()).minimum_saving
    best, passed = _cheapest(sized, saving, applicant.draw)
    rivals = [candidate for candidate in sized if candidate is not best]
    rival = rivals[0] if best is not first else min(rivals, key=_total, default=None)
    amount, than = _money(best, rival, applicant.snapshot.costs.currency)
    instead = f" instead of {than} in {rival.option.queue}" if rival and than else ""
    because = (
        *_does(best),
        f"{amount} an hour{instead}",
        *(f"{assessments[index].queue}: {why.detail}" for index, why in passed.items()),
        *_congested(sized),
        *(best.option.cost.said if best.option.cost is not None else ()),
        *_refused(assessments),
    )
    return take_option(applicant, assessments, best.index, because, passed)


def _does(sized: _Sized) -> Iterator[str]:
    """Say how a service does in an option."""
    if sized.option.service is not None:
        yield serving.level_words(sized.option.service)
        if sized.option.service.points:
            yield f"learned from {sized.option.service.points} points"
    if sized.is_guess:
        yield "a guess by the devices' speed"


def _comparable(applicant: Applicant, assessments: Sequence[Assessment]) -> list[_Known] | Choice:
    """Return the options whose finishes may be compared, the first one at the front.

    A choice where there is nothing to compare.
    """
    not_refused = [
        index for index, assessment in enumerate(assessments) if assessment.rejection is None
    ]
    if not not_refused:
        return leave(assessments)
    first = not_refused[0]
    finishes = [_known(index, assessments[index]) for index in not_refused]
    # Without a known finish there is no gain to compare, so the first option is kept
    # (decision 0023).
    if finishes[0] is None:
        because = _why_it_stands(assessments[first])
        return take_option(applicant, assessments, first, because)
    # Others stop for a Job where it was submitted to, but none is sent where they would have to.
    return [
        finish
        for finish in finishes
        if finish is not None and (finish.index == first or not finish.forecast.start.preempts)
    ]


def _cheapest(
    known: Sequence[_PricedT], saving: Saving, draw: float
) -> tuple[_PricedT, dict[int, Rejection]]:
    """Return the cheapest option that is worth it, and why those that cost less are not."""
    # Each is compared with the best so far: every step down the policy's list must be worth it.
    best, *later = known
    passed: dict[int, Rejection] = {}
    for candidate in later:
        why = _against_saving(candidate, best, saving, draw)
        if why is None:
            best = candidate
        else:
            passed[candidate.index] = why
    less = {candidate.index for candidate in later if _total(candidate) < _total(best)}
    return best, {index: why for index, why in passed.items() if index in less}


def _least_fragmenting(known: Sequence[_Known], best: _Known) -> _Known:
    """Return what the fewest others could have used, of the options that cost about as much.

    A guess takes the place of no run that is known.
    """
    least = _fragmentation(best)
    if least is None:
        return best
    most = _total(best) * (1 + TIED)
    for candidate in known:
        its = _fragmentation(candidate)
        if (
            candidate.is_guess <= best.is_guess
            and its is not None
            and its < least
            and _total(candidate) <= most
        ):
            best, least = candidate, its
    return best


def _fragmentation(candidate: _Known) -> float | None:
    return candidate.option.cost.fragmentation if candidate.option.cost is not None else None


def _against_saving(
    candidate: _Priced, best: _Priced, saving: Saving, draw: float
) -> Rejection | None:
    """Return why *candidate* does not save enough on *best*, None: it does.

    *draw* decides near ties.
    """
    before = _total(best)
    saved = before - _total(candidate)
    amount, part = float(saving.amount), before * saving.percent / 100
    least = max(amount, part)
    minimum = f"the minimum of {figure(amount) if amount >= part else f'{saving.percent:g} %'}"
    if candidate.is_guess:
        least *= GUESSED_TIMES
        minimum = f"twice {minimum}, as for a guess"
    if saved < least or saved <= 0.0:
        detail = f"saving {figure(saved)} in all is less than {minimum}"
        return Rejection(reason=Stayed.SMALL_GAIN, detail=detail)
    if saved - least < NEAR_PART * before * draw:
        detail = f"saving {figure(saved)} in all is a near tie with {minimum}"
        return Rejection(reason=Stayed.NEAR_TIE, detail=detail)
    return None


def _total(candidate: _Priced) -> float:
    total = candidate.option.cost.total if candidate.option.cost is not None else None
    return inf if total is None else total


def _compared(best: _Known, rival: _Known | None, currency: str) -> Iterator[str]:
    """Say what an option costs and when it is done, each beside the same of another."""
    if best.forecast.start.preempts:
        yield "may preempt"
    elif best.forecast.start.seconds == 0.0:
        yield "starts now"
    amount, than = _money(best, rival, currency)
    yield f"{amount} instead of {than} in {rival.option.queue}" if rival and than else amount
    done = f"done in {span(best.finish)}"
    if rival is not None:
        apart = best.finish - rival.finish
        done += f", {span(abs(apart))} {'later' if apart > 0 else 'sooner'}"
    yield f"{done}{_noted(best.option)}"
    if best.is_guess:
        yield "its run is a guess by the devices' speed"


def _money(best: _Priced, rival: _Priced | None, currency: str) -> tuple[str, str]:
    """Return what an option costs, and what another one does; "": there is none to compare with.

    Money that is really paid if it is known of both, else what all terms come to.
    """
    spent = best.option.cost.spent if best.option.cost is not None else None
    other = rival.option.cost.spent if rival is not None and rival.option.cost is not None else None
    if spent is not None and (rival is None or other is not None):
        unit = f" {currency}" if currency else ""
        return f"{figure(spent)}{unit}", "" if other is None else figure(other)
    than = "" if rival is None else figure(_total(rival))
    return f"cost in all {figure(_total(best))}", than


def _congested(known: Sequence[_Priced]) -> Iterator[str]:
    for candidate in known:
        congestion = candidate.option.cost.congestion if candidate.option.cost is not None else None
        if congestion:
            yield f"congestion adds {figure(congestion)} in {candidate.option.queue}"


def _first_in_time(taken: _Known | None, wishes: Wishes) -> tuple[str, ...]:
    if taken is None or wishes.max_wait is None:
        return ()
    return (f"the first that starts within your max-wait of {span(wishes.max_wait)}",)


def _known(index: int, option: Assessment) -> _Known | None:
    forecast = option.forecast
    if forecast is None or forecast.run is None or forecast.finish in (None, inf):
        return None
    return _Known(index, option, forecast, forecast.finish or 0.0, forecast.run)


def _why_it_stands(option: Assessment) -> tuple[str, ...]:
    if option.starts_now:
        return "starts now", f"{_what_is_unknown(option)}, so the first option is kept"
    if option.fit is Fit.MAY_PREEMPT:
        return ("may preempt",)
    return (f"{_what_is_unknown(option)}, so the first option is kept",)


def _what_is_unknown(option: Assessment) -> str:
    if option.forecast is None:
        return "no forecast of its queue is known yet"
    start = option.forecast.start
    if option.forecast.run is None:
        return "no run time is known yet"
    if start.unseen:
        ahead = "1 Job" if start.unseen == 1 else f"{start.unseen} Jobs"
        return f"nothing is known of how long {ahead} ahead run{'s' * (start.unseen == 1)}"
    if start.unordered:
        return f"who is served next cannot be foreseen ({start.unordered})"
    return "when it would start cannot be foreseen"


def _within_wait(known: Sequence[_Known], wishes: Wishes) -> _Known | None:
    limit = wishes.max_wait
    if limit is None:
        return None
    return next(
        (candidate for candidate in known if candidate.forecast.start.seconds <= limit), None
    )


def _best(
    known: Sequence[_Known], gain: Gain, applicant: Applicant
) -> tuple[_Known, dict[int, Rejection]]:
    """Return the earliest option that is worth it, and why those that are earlier are not."""
    # Each is compared with the best so far: every step down the policy's list must be worth it
    # (decision 0023).
    best, *later = known
    passed: dict[int, Rejection] = {}
    for candidate in later:
        why = _against_gain(candidate, best, gain, applicant.draw)
        why = why or _against_doubt(candidate, best, applicant.probability)
        if why is None:
            best = candidate
        else:
            passed[candidate.index] = why
    sooner = {candidate.index for candidate in later if candidate.finish < best.finish}
    return best, {index: why for index, why in passed.items() if index in sooner}


def _against_gain(candidate: _Known, best: _Known, gain: Gain, draw: float) -> Rejection | None:
    """Return why *candidate* gains too little on *best*; None: it gains enough.

    *draw*, in [0, 1), decides near ties: the closer one is to the minimum, the fewer decisions
    take it.
    """
    # Without a draw, replicas that do not know each other's last placements would all leave, or
    # all stay.
    gained = best.finish - candidate.finish
    time, part = seconds(gain.time), best.finish * gain.percent / 100
    least = max(time, part)
    minimum = f"the minimum of {span(time) if time >= part else f'{gain.percent:g} %'}"
    if gained < least or gained <= 0.0:
        # Rounded, both may read the same.
        just = "just " if span(gained) == span(least) else ""
        detail = f"{span(gained)} sooner is {just}less than {minimum}"
        return Rejection(reason=Stayed.SMALL_GAIN, detail=detail)
    if gained - least < max(NEAR_SECONDS, NEAR_PART * best.finish) * draw:
        detail = f"{span(gained)} sooner is a near tie with {minimum}"
        return Rejection(reason=Stayed.NEAR_TIE, detail=detail)
    return None


def _against_doubt(candidate: _Known, best: _Known, probability: float) -> Rejection | None:
    """Return why *candidate* is not likely enough to finish before *best*; None: it is.

    All times are taken to be normally distributed. Of each range the half counts that speaks
    against leaving: *best* starts early, *candidate* late, independently. Both runs are of the same
    Job: what makes one long or short does so to the other, so they lie at the same end of their
    ranges.
    """
    early = [part.seconds - part.low for part in _before_run(best.forecast)]
    late = [part.high - part.seconds for part in _before_run(candidate.forecast)]
    slower = candidate.run.seconds - best.run.seconds
    if_long = candidate.run.high - best.run.high - slower
    if_short = candidate.run.low - best.run.low - slower
    off = hypot(*early, *late, max(0.0, if_long, if_short))
    gained = best.finish - candidate.finish
    if gained >= margin(off, probability):
        return None
    # Rounded down, so that it does not read like what is needed.
    likely = int(100 * NormalDist().cdf(gained * SIGMAS_OF_A_SIDE / off)) if off else 50
    detail = f"sooner is not likely enough ({likely} %, {100 * probability:.0f} % needed)"
    return Rejection(reason=Stayed.UNSURE_GAIN, detail=detail)


def margin(off: float, probability: float) -> float:
    """Return the least expected gain, in seconds, that is a gain with at least *probability*.

    *off* is the uncertainty, in seconds: from the middle of a normal distribution to either end of
    its middle 80 %.
    """
    return _sigmas(probability) * off / SIGMAS_OF_A_SIDE


def _before_run(forecast: Forecast) -> tuple[Start | Delay, ...]:
    return (forecast.start,) if forecast.delay is None else (forecast.start, forecast.delay)


@lru_cache(maxsize=8)
def _sigmas(probability: float) -> float:
    return NormalDist().inv_cdf(probability)


def _said(candidate: _Known) -> str:
    start, done = candidate.forecast.start, f"done in {span(candidate.finish)}"
    if start.preempts:
        return f"may preempt, {done}{_noted(candidate.option)}"
    return f"starts now, {done}" if start.seconds == 0.0 else f"{done}{_ahead(candidate.option)}"


def _others(known: Sequence[_Known], best: _Known, passed: _PassedOver) -> Iterator[str]:
    """Say when the Job would be done elsewhere; where that is sooner, why it is not taken."""
    others = [candidate for candidate in known if candidate is not best]
    for candidate in others[:_NAMED]:
        done = f"{candidate.option.queue} would be done in {span(candidate.finish)}"
        why = passed.get(candidate.index)
        yield f"{done}{_ahead(candidate.option)}{f': {why.detail}' if why else ''}"


def _ahead(option: Assessment) -> str:
    notes = [f"{option.pending} ahead"] if option.pending and not is_next(option) else []
    return _noted(option, notes)


def _noted(option: Assessment, notes: Sequence[str] = ()) -> str:
    """Put notes on an option's finish in brackets, with how sure it is not to be preempted."""
    number = option.forecast.start.preempted_by if option.forecast is not None else 0
    risk = (f"may be preempted by {number}",) if number else ()
    return f" ({', '.join((*notes, *risk))})" if notes or risk else ""


def is_next(option: Assessment) -> bool:
    """Return whether all Workloads pending in an option's queue would start after the Job."""
    return option.forecast is not None and option.forecast.start.is_next


def _refused(assessments: Sequence[Assessment]) -> tuple[str, ...]:
    return tuple(
        f"{_called(assessment, assessments)} refused: {assessment.rejection.detail}"
        for assessment in assessments
        if assessment.rejection is not None
    )


Strategy: TypeAlias = Callable[[Applicant, Sequence[Assessment]], Choice]

STRATEGIES: Mapping[StrategyType, Strategy] = {
    StrategyType.COST: choose_by_cost,
    StrategyType.FINISH_TIME: choose_by_finish_time,
    StrategyType.THRESHOLD: choose_by_threshold,
}


def choose(applicant: Applicant, assessments: Sequence[Assessment]) -> Choice:
    """Return the choice of the policy's strategy."""
    return STRATEGIES[applicant.policy.spec.strategy.type](applicant, assessments)
