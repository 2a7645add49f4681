"""Adds forecasts to assessed options: start, run and finish; refuses those that take too long.

With prices, what the options cost. It must not know how an option is chosen by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from webhook.cost import terms
from webhook.cost.cluster_prices import in_worker
from webhook.cost.fragmentation import needed_memory, rise
from webhook.decide import objective, remote_options
from webhook.decide.remote_options import Reached
from webhook.decide.wishes import Wishes
from webhook.jobs import BY_NAME
from webhook.kueue.flavor_plan import demand, flavors_with_topology
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import priority_of
from webhook.kueue.tree_forecast import FoundStart
from webhook.learn import expected_runs
from webhook.learn.device_prior import DevicePart, Guess, guess, part_of
from webhook.learn.expected_runs import Expecting, estimate, limits_of
from webhook.learn.placement_prior import GangPlace, as_placed
from webhook.learn.run_records import at_level
from webhook.model.costs.prices import NO_PRICES, Cost, Place
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.forecasts import Basis, Delay, Dispatch, Forecast, JobClass, RunTime, Start
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, seconds
from webhook.model.policy.strategy import LeastCost
from webhook.model.queues import Snapshot
from webhook.model.reasons import Reason
from webhook.model.words import figure, span

PREEMPTION = "preemption"
"""Why a start is not known: Kueue may preempt others for the Job, and then it starts at once."""
_NOW = Start(seconds=0.0, low=0.0, high=0.0)

_Limit: TypeAlias = Callable[["ForecastCase", Option, Forecast], "Rejection | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCase:
    """One Job, with all that its start, run and finish depend on."""

    job: Job
    policy: FallbackPolicy
    occupancy: Occupancy
    job_class: JobClass
    wishes: Wishes
    now: float
    """Seconds on the clock of ``Snapshot.as_of``."""
    unix: float
    """The same instant in seconds since 1970."""
    first: RunTime | None = None
    """Its expected run time in the first option; None: not known."""


def expect(case: ForecastCase, assessments: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Return the options with forecasts; those that take too long for the Job are refused.

    Raises:
        FieldError: a toleration or an affinity term of the Job cannot be read.

    """
    options = case.policy.spec.options
    starts = [
        _placed(case, _begun(case, assessment, option))
        for assessment, option in zip(assessments, options, strict=True)
    ]
    # Run times in other options follow from the first one's, by ``slowdown`` or by learned runs.
    flavors = starts[0].flavors
    expecting = Expecting(
        run_times=case.occupancy.snapshot.run_times,
        start_delays=case.occupancy.snapshot.start_delays,
        job_class=case.job_class,
        policy=case.policy,
        first_flavors=flavors,
        said=case.wishes.run_time,
        slowdowns=tuple(
            (start.flavors, option.slowdown)
            for option, start in zip(options[1:], starts[1:], strict=True)
            if option.slowdown is not None and start.flavors not in ("", flavors)
        ),
    )
    priors = _priors(case, starts)
    runs = [
        _run(expecting if prior is None else replace(expecting, prior=prior), option, start)
        for option, start, prior in zip(options, starts, priors, strict=True)
    ]
    least_cost = case.policy.spec.strategy.least_cost
    if least_cost is not None:
        places = [_gang_place(start) for start in starts]
        runs = as_placed(expecting, runs, places=places, snapshot=case.occupancy.snapshot)
    case = replace(case, first=runs[0])
    with_forecasts = tuple(
        _with_forecast(case, start, option, run)
        for option, start, run in zip(options, starts, runs, strict=True)
    )
    kept = _within_amounts(_by_deadline(with_forecasts, case.wishes), case.wishes)
    return kept if least_cost is None else _weighed(case, kept, starts, least_cost)


def _weighed(
    case: ForecastCase,
    assessments: Sequence[Assessment],
    starts: Sequence[_Begun],
    least_cost: LeastCost,
) -> tuple[Assessment, ...]:
    """Return the options with all terms of their costs."""
    places = [start.place for start in starts]
    stakes = objective.stakes_of(
        least_cost,
        case.wishes,
        objective.first_hour(places, least_cost, case.unix),
        _lateness_weight(case, least_cost),
    )
    weighed = objective.weighed(assessments, places, stakes, case.wishes, case.unix)
    return _with_fragmentation(case, weighed)


def _with_fragmentation(
    case: ForecastCase, assessments: tuple[Assessment, ...]
) -> tuple[Assessment, ...]:
    """Return the options with how much less others could use, where several cost about as much."""
    if len(objective.tied(assessments)) < 2:  # noqa: PLR2004 - one is tied with nobody
        return assessments
    snapshot = case.occupancy.snapshot
    names = dict.fromkeys(assessment.cluster_queue for assessment in assessments)
    devices = snapshot.prices.get("", NO_PRICES).devices
    needed = needed_memory(names, snapshot, devices)
    return tuple(
        assessment
        if assessment.cost is None or assessment.place is None or assessment.cluster
        else replace(
            assessment,
            cost=replace(
                assessment.cost, fragmentation=rise(assessment.place.usage, needed, devices)
            ),
        )
        for assessment in assessments
    )


def _priors(case: ForecastCase, starts: Sequence[_Begun]) -> list[Guess | None]:
    """Return how much longer a run takes in each option than in the first, by their devices.

    None: nothing tells, it is the first option, or costs do not decide.
    """
    if case.policy.spec.strategy.least_cost is None:
        return [None] * len(starts)
    parts = [_part(start) for start in starts]
    use = case.occupancy.snapshot.device_uses.get(case.job_class.key)
    bound = use.bound if use is not None else None
    return [None, *(guess(parts[0], part, bound) for part in parts[1:])]


def _part(start: _Begun) -> DevicePart | None:
    return None if start.place is None else part_of(start.place.usage, start.place.prices.devices)


def _gang_place(start: _Begun) -> GangPlace:
    level = start.item.level if start.there is None else ""
    return GangPlace(flavors=start.flavors, level=level, part=_part(start))


def _lateness_weight(case: ForecastCase, least_cost: LeastCost) -> float:
    """Return how many times the policy's price of lateness counts at present."""
    if least_cost.lateness.adapt is None:
        return 1.0
    current = case.occupancy.snapshot.scarcity.at_moment(case.unix)
    return current.weights.get(case.policy.name, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """An option with its expected start; if it is MultiKueue's, in the worker with the earliest."""

    item: Assessment
    start: Start | None
    found: FoundStart | None = None
    """The reservation of quota that it rests on, where the Job runs here; None: none is forecast,
    or it runs in a worker cluster."""
    flavors: str = ""
    """The flavors assigned at the manager, as ``model.forecasts.Estimates`` names them."""
    there: Reached | None = None
    """The start in a watched worker; None: the Job runs here, or no such start is forecast."""
    dispatch: Delay | None = None
    """How long AdmissionChecks take, if what they wait for is not observed; part of ``start``."""
    transfer: Delay | None = None
    """How long the way to a watched worker takes; not part of ``start``."""
    place: Place | None = None
    """What the Job would use, and what that costs there; None: it is not known."""


def _placed(case: ForecastCase, begun: _Begun) -> _Begun:
    """Return an option with what the Job would use there, and what that costs."""
    snapshot = case.occupancy.snapshot
    is_here = begun.there is None
    reserved = begun.found if is_here else begun.there
    if reserved is None or not reserved.usage:
        return begun
    prices = snapshot.prices.get(begun.item.cluster, NO_PRICES)
    if not is_here:
        there = case.occupancy.clusters[begun.item.cluster].snapshot.flavors
        prices = in_worker(prices, reserved.usage, there, snapshot.accelerator_profiles)
    place = Place(
        usage=reserved.usage,
        prices=terms.metered(prices, snapshot.device_uses.get(case.job_class.key)),
        congestion=snapshot.congestion.get(begun.item.cluster_queue, {}) if is_here else {},
        warm=_warm(case, begun),
        seen=snapshot.interruptions if is_here else {},
    )
    return replace(begun, place=place)


def _begun(case: ForecastCase, assessment: Assessment, option: Option) -> _Begun:
    earliest = _start(case, assessment, option)
    start, flavors = (earliest.start, earliest.names) if earliest is not None else (None, "")
    past = _past(case.occupancy.snapshot, assessment.cluster_queue, flavors)
    if not assessment.cluster or assessment.rejection is not None:
        dispatch = expected_runs.dispatch(past, case.now)
        start = expected_runs.later(start, dispatch) if start is not None else None
        return _Begun(
            item=assessment, start=start, found=earliest, flavors=flavors, dispatch=dispatch
        )
    priority = priority_of(case.job, option, case.occupancy.snapshot)
    assessment, there = remote_options.reach(
        case.occupancy, assessment, now=case.now, priority=priority
    )
    if there is None or start is None:
        return _Begun(item=assessment, start=None, flavors=flavors)
    # The later of both counts: the worker cannot start what the manager has not sent.
    last = _later(_postponed(start, there.asked_after), there.start)
    transfer = expected_runs.transfer(past, option)
    return _Begun(item=assessment, start=last, flavors=flavors, there=there, transfer=transfer)


def _postponed(start: Start, seconds: float) -> Start:
    return replace(
        start, seconds=start.seconds + seconds, low=start.low + seconds, high=start.high + seconds
    )


def _past(snapshot: Snapshot, name: str, flavors: str) -> Dispatch | None:
    """Return how long AdmissionChecks took of late; None: not known, or these flavors have none."""
    queue = snapshot.cluster_queues.get(name)
    if queue is not None and queue.checks and not queue.checks_on(flavors.split(",")):
        return None
    return snapshot.dispatches.get(name)


def _later(first: Start, second: Start) -> Start:
    """Return the later of two starts; it is known only if both are."""
    last = second if second.seconds >= first.seconds else first
    if first.is_known and second.is_known:
        return last
    return replace(
        last,
        unseen=max(first.unseen, second.unseen),
        unordered=first.unordered or second.unordered,
    )


def _run(expecting: Expecting, option: Option, begun: _Begun) -> RunTime | None:
    """Return the expected run time in an option; None: not known.

    Runs that were learned in the very worker cluster come before those of the whole queue.
    """
    if begun.there is not None:
        there = replace(expecting, run_times=begun.there.run_times)
        run = estimate(there, option, begun.there.flavors)
        if run is not None and run.basis is Basis.LEARNED:
            return run
    for place in at_level(begun.flavors, begun.item.level):
        run = estimate(expecting, option, place)
        # How a gang runs where its pods are together, or are not, comes before the mean of both.
        if run is not None and run.basis is Basis.LEARNED:
            return run
    return estimate(expecting, option, begun.flavors)


def _start(
    case: ForecastCase, assessment: Assessment, option: Option, *, run_seconds: float = 0.0
) -> FoundStart | None:
    """Return the start in an option; with *run_seconds* that from which it runs to its end."""
    if not assessment.needs:
        return None
    snapshot = case.occupancy.snapshot
    return case.occupancy.start_times.start_of(
        assessment.cluster_queue,
        demand(assessment.needs, snapshot.cluster_queues[assessment.cluster_queue], snapshot),
        now=case.now,
        priority=priority_of(case.job, option, snapshot),
        local_queue=f"{case.job.namespace}/{assessment.queue}",
        run_seconds=run_seconds,
        needs=assessment.needs,
    )


def _with_forecast(
    case: ForecastCase, begun: _Begun, option: Option, run: RunTime | None
) -> Assessment:
    assessment = begun.item
    if assessment.rejection is not None:
        return assessment
    if assessment.starts_now:
        # The counts are newer than the forecast that the start was read from (decision 0010).
        start = _NOW
    elif begun.start is None:
        return assessment
    else:
        start = begun.start
    # A start that depends on rules of Kueue that are not modelled is not known, so no Job is sent
    # to an option for it.
    if unmodelled := _unmodelled_rule(case.occupancy.snapshot, assessment, start):
        start = replace(start, unordered=unmodelled)
    elif run is not None:
        start = _last(case, begun, option, run, start)
    forecast = forecast_of(start, run, begun.dispatch, _delay(case, begun, option, run))
    assessment = replace(assessment, forecast=forecast, place=begun.place)
    for limit in _LIMITS:
        rejection = limit(case, option, forecast)
        if rejection is not None:
            return replace(assessment, cost=_cost(case, begun, forecast), rejection=rejection)
    if rejection := _on_trial(case, assessment, option, run):
        return replace(assessment, cost=_cost(case, begun, forecast), rejection=rejection)
    return _priced(case, begun, assessment, forecast)


def _on_trial(
    case: ForecastCase, assessment: Assessment, option: Option, run: RunTime | None
) -> Rejection | None:
    """Refuse an option whose run is a guess, while others are there whose end would tell more."""
    least_cost = case.policy.spec.strategy.least_cost
    if least_cost is None or run is None or run.basis is not Basis.PROFILE:
        return None
    key = case.policy.name, option.name, case.job_class.key
    count = case.occupancy.held(assessment.cluster_queue).trials.get(key, 0)
    if count < least_cost.trial and BY_NAME[case.job.kind].carries_marks:
        return None
    detail = f"its run is a guess by the devices' speed, and {count} of its class are there"
    detail = f"{detail} already (at most {least_cost.trial} on trial)"
    return Rejection(reason=Reason.ON_TRIAL, detail=detail)


def _priced(
    case: ForecastCase, begun: _Begun, assessment: Assessment, forecast: Forecast
) -> Assessment:
    """Return an option with its cost; refused where it would be interrupted too often."""
    place = begun.place
    if case.policy.spec.strategy.least_cost is None or place is None:
        return replace(assessment, cost=_cost(case, begun, forecast))
    factor = objective.interruptions(forecast, place, case.wishes)
    if rejection := objective.interrupted(factor, place):
        return replace(assessment, rejection=rejection)
    return replace(assessment, cost=_cost(case, begun, forecast, factor))


def _warm(case: ForecastCase, begun: _Begun) -> float:
    """Return how often runs of the Job's class there began soon after another's end; 0: unknown."""
    known, flavors = (
        (case.occupancy.snapshot.run_times, begun.flavors)
        if begun.there is None
        else (begun.there.run_times, begun.there.flavors)
    )
    learned = known.get((case.job_class.key, flavors))
    return learned.warm if learned is not None else 0.0


def _cost(
    case: ForecastCase, begun: _Begun, forecast: Forecast, factor: float = 1.0
) -> Cost | None:
    """Return what the Job would cost in an option; None: no prices, no start or no run is known.

    *factor*: how many times as long as undisturbed it would run.
    """
    place, span = begun.place, terms.span_of(forecast, case.unix, factor)
    if place is None or place.prices is NO_PRICES or span is None:
        return None
    return terms.cost_of(place.usage, place.prices, span)


def _last(case: ForecastCase, begun: _Begun, option: Option, run: RunTime, start: Start) -> Start:
    """Return the start from which a Job runs to its end, though others may preempt it."""
    if begun.found is None:
        return start
    found = _start(case, begun.item, option, run_seconds=run.seconds)
    if found is None or not found.start.preempted_by:
        return start
    return expected_runs.later(found.start, begun.dispatch)


def _unmodelled_rule(snapshot: Snapshot, assessment: Assessment, start: Start) -> str:
    """Return what makes Kueue's admissions in an option's queue unpredictable; empty: nothing."""
    queue = snapshot.cluster_queues[assessment.cluster_queue]
    flavors = demand(assessment.needs, queue, snapshot).flavors
    reasons = {
        # By the counts it preempts, so by the forecast it must, too, and in this cycle.
        PREEMPTION: assessment.fit is Fit.MAY_PREEMPT
        and not (assessment.preempts and start.preempts and not start.preempts_later),
        # Each Job whose flavors have a topology needs a domain with room, whether it asks or not.
        "topology": assessment.starts_now
        and not assessment.is_placed
        and not flavors.isdisjoint(flavors_with_topology(queue, snapshot)),
        "dispatcher": bool(assessment.clusters) and snapshot.kueue.external_dispatcher,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _delay(case: ForecastCase, begun: _Begun, option: Option, run: RunTime | None) -> Delay | None:
    """Return the expected time between start and run that neither contains; None: none."""
    there, starts = begun.there, case.occupancy.snapshot.start_delays
    started = (
        expected_runs.start_up(starts, case.job_class, begun.flavors)
        if there is None
        else expected_runs.start_up(there.start_delays, case.job_class, there.flavors)
    )
    on_way = begun.transfer or begun.dispatch
    # ``startDelay`` covers dispatch and start-up together: what is learned of it is taken off
    # (decision 0017).
    left = expected_runs.before_run(option, run, on_way=on_way, started=started)
    return expected_runs.added(begun.transfer, left)


def forecast_of(
    start: Start, run: RunTime | None, dispatch: Delay | None, delay: Delay | None
) -> Forecast:
    """Return the forecast with its finish: start, delay and run added, varying independently.

    Without a known start and run there is no finish.
    """
    if run is None or not start.is_known:
        return Forecast(start=start, dispatch=dispatch, delay=delay, run=run)
    finish = expected_runs.later(expected_runs.later(start, delay), run)
    return Forecast(
        start=start,
        dispatch=dispatch,
        delay=delay,
        run=run,
        finish=finish.seconds,
        finish_low=finish.low,
        finish_high=finish.high,
    )


def _starts_too_late(_case: ForecastCase, option: Option, forecast: Forecast) -> Rejection | None:
    start = forecast.start
    if option.max_wait is None or not start.is_known:
        return None
    limit = seconds(option.max_wait)
    if start.seconds <= limit:
        return None
    when = "never" if start.seconds == inf else f"in {span(start.seconds)}"
    detail = f"would start {when}, and the option's maxWait is {span(limit)}"
    return Rejection(reason=Reason.STARTS_TOO_LATE, detail=detail)


def _outlasts_its_limit(
    case: ForecastCase, _option: Option, forecast: Forecast
) -> Rejection | None:
    """Refuse an option in which Kubernetes or Kueue would end the Job before it has finished."""
    run, job = forecast.run, case.job
    if run is None:
        return None
    for name, limit in limits_of(job):
        if run.seconds > limit:
            detail = f"would run {span(run.seconds)}, longer than {name} {limit}"
            return Rejection(reason=Reason.TOO_LONG, detail=detail)
    return None


def _is_slower_than_allowed(
    case: ForecastCase, option: Option, forecast: Forecast
) -> Rejection | None:
    limit, run, first = case.wishes.max_slowdown, forecast.run, case.first
    if limit is None or run is None or first is None or option is case.policy.spec.options[0]:
        return None
    # Compared without the wait, as the Job says how much slower it may run, not finish.
    slowdown = run.seconds / first.seconds
    if slowdown <= limit:
        return None
    detail = f"would run {slowdown:.3g} times as long as in {case.policy.spec.options[0].name}"
    return Rejection(
        reason=Reason.TOO_SLOW, detail=f"{detail}; the Job allows at most {limit:.3g} times"
    )


_LIMITS: tuple[_Limit, ...] = (_starts_too_late, _outlasts_its_limit, _is_slower_than_allowed)


def _by_deadline(assessments: tuple[Assessment, ...], wishes: Wishes) -> tuple[Assessment, ...]:
    """Refuse the options that would miss the deadline, if any option meets it."""
    # If none does, the earliest finish is still the best there is (decision 0010).
    limit = wishes.deadline
    if limit is None or not any(_is_in_time(assessment, limit) for assessment in assessments):
        return assessments
    return tuple(_late(assessment, limit) for assessment in assessments)


def _is_in_time(assessment: Assessment, limit: float) -> bool:
    finish = assessment.forecast.finish if assessment.forecast is not None else None
    return assessment.rejection is None and finish is not None and finish <= limit


def _within_amounts(assessments: tuple[Assessment, ...], wishes: Wishes) -> tuple[Assessment, ...]:
    """Refuse the options that exceed the Job's budget or its CO2, if any option does not."""
    limits = (
        (wishes.budget, _paid, Reason.OVER_BUDGET, "would cost {}, and the Job's budget is {}"),
        (
            wishes.max_carbon,
            _kilograms,
            Reason.OVER_CARBON,
            "would emit {} kg of CO2, and the Job allows {} kg",
        ),
    )
    for limit, amount_of, reason, text in limits:
        amounts = [amount_of(assessment) for assessment in assessments]
        if limit is None or not any(amount is not None and amount <= limit for amount in amounts):
            continue
        # An option of which it is not known is not refused: it may be within it.
        assessments = tuple(
            assessment
            if amount is None or amount <= limit
            else _refused(assessment, reason, text.format(figure(amount), figure(limit)))
            for assessment, amount in zip(assessments, amounts, strict=True)
        )
    return assessments


def _refused(assessment: Assessment, reason: Reason, detail: str) -> Assessment:
    return replace(assessment, rejection=Rejection(reason=reason, detail=detail))


def _paid(assessment: Assessment) -> float | None:
    """Return the money that an option takes; None: it is refused, or nothing is known of it."""
    cost = assessment.cost if assessment.rejection is None else None
    return cost.paid if cost is not None else None


def _kilograms(assessment: Assessment) -> float | None:
    cost = assessment.cost if assessment.rejection is None else None
    return cost.kilograms if cost is not None else None


def _late(assessment: Assessment, limit: float) -> Assessment:
    forecast = assessment.forecast
    # An option whose finish is not known is not refused: it may be in time.
    if assessment.rejection is not None or forecast is None or forecast.finish is None:
        return assessment
    if forecast.finish <= limit:
        return assessment
    when = "never" if forecast.finish == inf else f"in {span(forecast.finish)}"
    detail = f"would be done {when}, and the deadline is in {span(limit)}"
    return _refused(assessment, Reason.MISSES_DEADLINE, detail)
