"""Whether a Job that may wait is held from admission until a cheaper hour, and until which.

Where no later hour is much cheaper it is held until its queue has room, if it would wait there
anyway: those who may not wait come first. Only what is known counts: a run time that was learned or
said, prices of that time, and a deadline or the Job's own word. What time is worth is not counted,
as the Job says that it may wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.decide import match
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import Cost, Place
from webhook.model.decision import Assessment
from webhook.model.forecasts import Basis, Forecast
from webhook.model.holds import SLOT_SECONDS, Hold
from webhook.model.job import PLAIN, Job
from webhook.model.kueue_support import is_on
from webhook.model.namespace_shares import share_of
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode, seconds
from webhook.model.policy.strategy import HoldRules
from webhook.model.queues import Snapshot

MOST_SLOTS: Final = 96
"""Starts that are compared: those of a day."""
_LEAST_SLOTS: Final = 12
_LEAST_RESERVE: Final = 600.0
_RESERVE_PART: Final = 0.1
"""Kept free before the deadline, of the run time, and at least ten minutes."""
_GATE_NAME: Final = "AdmissionGatedBy"
_KNOWN: Final = frozenset({Basis.LEARNED, Basis.ANNOTATION})

Held: TypeAlias = "Hold | str | None"
"""The hold; why a Job that may wait is not held; or None: nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A Job that may wait, where it would run, and by which rules it may be held."""

    rules: HoldRules
    carbon_price: float
    wishes: Wishes
    forecast: Forecast
    place: Place
    unix: float
    """The moment of the decision, in seconds since 1970."""
    job_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldCase:
    """A Job at its decision, by which policy, and what it asks for."""

    job: Job
    policy: FallbackPolicy
    snapshot: Snapshot
    wishes: Wishes
    unix: float
    """The moment, in seconds since 1970."""


def held(case: HoldCase, assessment: Assessment) -> Held:
    """Return the hold of a Job in the option that it takes, or why it is not held though it may."""
    least_cost, wishes = case.policy.spec.strategy.least_cost, case.wishes
    rules = least_cost.hold if least_cost is not None else None
    may_wait = wishes.hold if wishes.hold is not None else wishes.deadline
    if least_cost is None or rules is None or not may_wait or may_wait < 0:
        return None
    if case.policy.spec.mode is not Mode.ENFORCE or assessment.rejection is not None:
        return None
    forecast, place = assessment.forecast, assessment.place
    if place is None or forecast is None or assessment.cost is None:
        return "not held: what it would cost is not known"
    if why := _refusal(case, assessment, forecast, rules):
        return f"not held: {why}"
    return hold_of(
        Waiting(
            rules=rules,
            carbon_price=float(least_cost.carbon_price),
            wishes=wishes,
            forecast=forecast,
            place=place,
            unix=case.unix,
            job_class=match.class_of(case.job, case.policy, case.snapshot).key,
        )
    )


def _refusal(case: HoldCase, assessment: Assessment, forecast: Forecast, rules: HoldRules) -> str:
    """Say what keeps a Job from being held; empty: nothing."""
    job, snapshot = case.job, case.snapshot
    elsewhere = assessment.cluster or assessment.clusters or job.managed_by is not None
    if job.kind != PLAIN or elsewhere:
        return "only Jobs of batch/v1 that run in this cluster are"
    if not snapshot.kueue.is_read:
        return "Kueue's configuration is not known"
    if not is_on(_GATE_NAME, snapshot.kueue.gates, snapshot.kueue.release):
        return f"Kueue's feature gate {_GATE_NAME} is off"
    if forecast.run is None or forecast.run.basis not in _KNOWN:
        return "its run time is neither learned nor said"
    on_hold = snapshot.jobs_on_hold
    share = share_of(job.namespace, on_hold, rules.jobs)
    if not share:
        return f"{sum(on_hold.values())} are held, of at most {rules.jobs}"
    if (own := on_hold.get(job.namespace, 0)) >= share:
        return f"{own} of its namespace are held, whose share is {share} of at most {rules.jobs}"
    return ""


def hold_of(waiting: Waiting) -> Hold | None:
    """Return the hold until the cheapest start, or, if none saves enough, until there is room.

    None: it saves nothing, and the Job need not wait for room.
    """
    run, span = waiting.forecast.run, terms.span_of(waiting.forecast, waiting.unix)
    latest = latest_start(waiting)
    if run is None or span is None or latest <= waiting.unix:
        return None
    now = _cost(waiting, span)
    base = now.paid_with(waiting.carbon_price)
    if base is None:
        return None
    best, until, then = base, waiting.unix, now
    for start in _starts(waiting.unix, latest):
        cost = _cost(waiting, _later(span, start))
        amount = cost.paid_with(waiting.carbon_price)
        if amount is not None and amount < best:
            best, until, then = amount, start, cost
    saves, least = base - best, waiting.rules.minimum_saving
    if saves <= 0 or saves < max(float(least.amount), base * least.percent / 100):
        if not _lets_others_through(waiting, latest):
            return None
        saves, until, then = 0.0, waiting.unix, now
    known = now.carbon_grams is not None and then.carbon_grams is not None
    return Hold(
        until=until,
        latest=latest,
        saves=saves,
        of=base,
        grams=(now.carbon_grams or 0.0) - (then.carbon_grams or 0.0) if known else None,
        of_grams=now.carbon_grams,
        seconds=span.end - span.reserved,
        usage=waiting.place.usage,
        job_class=waiting.job_class,
    )


def _lets_others_through(waiting: Waiting, latest: float) -> bool:
    """Tell whether a Job would wait in its queue, though not until its latest start."""
    start = waiting.forecast.start
    return start.seconds > 0 and waiting.unix + start.high < latest


def latest_start(waiting: Waiting) -> float:
    """Return the latest moment at which a Job is released so that it ends in time."""
    wishes, forecast = waiting.wishes, waiting.forecast
    limits = [seconds(waiting.rules.longest)]
    if wishes.hold is not None:
        limits.append(wishes.hold)
    if wishes.deadline is not None and forecast.run is not None:
        delay = forecast.delay.high if forecast.delay is not None else 0.0
        reserve = max(_LEAST_RESERVE, _RESERVE_PART * forecast.run.high)
        limits.append(wishes.deadline - forecast.run.high - delay - reserve)
    return waiting.unix + min(limits)


def _starts(unix: float, latest: float) -> Iterator[float]:
    """Yield the starts that are compared: each quarter of an hour, of a short hold some more."""
    step = min(SLOT_SECONDS, (latest - unix) / _LEAST_SLOTS)
    for number in range(1, MOST_SLOTS + 1):
        start = unix + number * step
        if start > latest:
            return
        yield start


def _later(span: Span, start: float) -> Span:
    """Return when a Job runs that is released at *start*; it starts no sooner than it would now."""
    shift = max(0.0, start - span.reserved)
    return Span(reserved=span.reserved + shift, begun=span.begun + shift, end=span.end + shift)


def _cost(waiting: Waiting, span: Span) -> Cost:
    return terms.cost_of(waiting.place.usage, waiting.place.prices, span)
