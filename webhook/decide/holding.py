"""Whether a Job that may wait is held from admission until a cheaper hour, and until which.

Where no later hour is much cheaper it is held until its queue has room, if it would wait there
anyway: those who may not wait come first. Only what is known counts: a run time that was learned or
said, prices of that time, and a deadline or the Job's own word. What time is worth is not counted,
as the Job says that it may wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.decide.applicant import Applicant
from webhook.model.costs.prices import Place
from webhook.model.decision import Assessment
from webhook.model.forecasts import Basis, Forecast
from webhook.model.holds import SLOT_SECONDS, Hold
from webhook.model.job import PLAIN
from webhook.model.kueue_support import is_on
from webhook.model.namespace_shares import share_of
from webhook.model.policy.fallback_policy import Mode, seconds
from webhook.model.policy.strategy import HoldRules

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


def hold_or_why_not(applicant: Applicant, taken: Assessment) -> Held:
    """Return the hold of a Job in the option that it takes, or why it is not held though it may."""
    least_cost, wishes = applicant.policy.spec.strategy.least_cost, applicant.wishes
    may_wait = wishes.hold if wishes.hold is not None else wishes.deadline
    if least_cost is None or least_cost.hold is None or not may_wait or may_wait < 0:
        return None
    if applicant.policy.spec.mode is not Mode.ENFORCE or taken.rejection is not None:
        return None
    if taken.place is None or taken.forecast is None or taken.cost is None:
        return "not held: what it would cost is not known"
    if why := _refusal(applicant, taken, taken.forecast, least_cost.hold):
        return f"not held: {why}"
    return hold_of(
        applicant,
        taken.forecast,
        taken.place,
        rules=least_cost.hold,
        carbon_price=float(least_cost.carbon_price),
    )


def _refusal(applicant: Applicant, taken: Assessment, forecast: Forecast, rules: HoldRules) -> str:
    """Say what keeps a Job from being held; empty: nothing."""
    job, snapshot = applicant.job, applicant.snapshot
    elsewhere = taken.cluster or taken.clusters or job.managed_by is not None
    if job.kind != PLAIN or elsewhere:
        return "only Jobs of batch/v1 that run in this cluster are"
    if not snapshot.setup.kueue.is_read:
        return "Kueue's configuration is not known"
    if not is_on(_GATE_NAME, snapshot.setup.kueue.gates, snapshot.setup.kueue.release):
        return f"Kueue's feature gate {_GATE_NAME} is off"
    if forecast.run is None or forecast.run.basis not in _KNOWN:
        return "its run time is neither learned nor said"
    on_hold = snapshot.workloads.jobs_on_hold
    share = share_of(job.namespace, on_hold, rules.jobs)
    if not share:
        return f"{sum(on_hold.values())} are held, of at most {rules.jobs}"
    if (own := on_hold.get(job.namespace, 0)) >= share:
        return f"{own} of its namespace are held, whose share is {share} of at most {rules.jobs}"
    return ""


def hold_of(
    applicant: Applicant,
    forecast: Forecast,
    place: Place,
    *,
    rules: HoldRules,
    carbon_price: float,
) -> Hold | None:
    """Return the hold until the cheapest start, or, if none saves enough, until there is room.

    None: it saves nothing, and the Job need not wait for room.
    """
    unix = applicant.moment.unix
    run, span = forecast.run, terms.span_of(forecast, unix)
    latest = latest_start(applicant, forecast, rules)
    if run is None or span is None or latest <= unix:
        return None
    now = terms.cost_of(place.usage, place.prices, span)
    base = now.paid_with(carbon_price)
    if base is None:
        return None
    best, until, then = base, unix, now
    for start in _starts(unix, latest):
        cost = terms.cost_of(place.usage, place.prices, _later(span, start))
        amount = cost.paid_with(carbon_price)
        if amount is not None and amount < best:
            best, until, then = amount, start, cost
    saves, least = base - best, rules.minimum_saving
    if saves <= 0 or saves < max(float(least.amount), base * least.percent / 100):
        # A Job that would wait in its queue, though not until its latest start, lets others by.
        if not (forecast.start.seconds > 0 and unix + forecast.start.high < latest):
            return None
        saves, until, then = 0.0, unix, now
    known = now.carbon_grams is not None and then.carbon_grams is not None
    return Hold(
        until=until,
        latest=latest,
        saves=saves,
        of=base,
        grams=(now.carbon_grams or 0.0) - (then.carbon_grams or 0.0) if known else None,
        of_grams=now.carbon_grams,
        seconds=span.end - span.reserved,
        usage=place.usage,
        job_class=applicant.job_class.key,
    )


def latest_start(applicant: Applicant, forecast: Forecast, rules: HoldRules) -> float:
    """Return the latest moment at which a Job is released so that it ends in time."""
    wishes = applicant.wishes
    limits = [seconds(rules.longest)]
    if wishes.hold is not None:
        limits.append(wishes.hold)
    if wishes.deadline is not None and forecast.run is not None:
        delay = forecast.delay.high if forecast.delay is not None else 0.0
        reserve = max(_LEAST_RESERVE, _RESERVE_PART * forecast.run.high)
        limits.append(wishes.deadline - forecast.run.high - delay - reserve)
    return applicant.moment.unix + min(limits)


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
