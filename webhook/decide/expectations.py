"""Adds forecasts to assessed options: start, run and finish; refuses those that take too long.

With prices, what the options cost. It must not know how an option is chosen by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from webhook.cost import terms
from webhook.cost.cluster_prices import in_worker
from webhook.cost.slice_geometry import needed_memory, rise
from webhook.decide import objective, remote_options
from webhook.decide.applicant import Applicant
from webhook.decide.wishes import Wishes
from webhook.jobs import BY_NAME
from webhook.kueue import multikueue
from webhook.kueue.flavor_plan import demand, flavors_with_topology
from webhook.kueue.newcomer import FoundStart
from webhook.kueue.requests import priority_of
from webhook.learn import expected_runs
from webhook.learn.device_runs import guess, part_of
from webhook.learn.expected_runs import Expecting, GangPlace, as_placed, estimate, limits_of
from webhook.learn.run_records import at_level
from webhook.model.costs.prices import NO_PRICES, Cost, Place, Prices
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.forecasts import Basis, Delay, Dispatch, Forecast, RunTime, Start
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, seconds
from webhook.model.policy.strategy import LeastCost
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.reasons import Reason
from webhook.model.words import figure, span
from webhook.state.snapshot import Snapshot

PREEMPTION: Final = "preemption"
"""Why a start is not known: Kueue may preempt others for the Job, and then it starts at once."""
_NOW: Final = Start(seconds=0.0, low=0.0, high=0.0)


def expect(applicant: Applicant, assessments: Sequence[Assessment]) -> None:
    """Fill in what is forecast of each option; refuse those that take too long for the Job.

    Raises:
        FieldError: a toleration or an affinity term of the Job cannot be read.

    """
    options = applicant.policy.spec.options
    begun = [
        _begun(applicant, assessment, option)
        for assessment, option in zip(assessments, options, strict=True)
    ]
    for assessment, start in zip(assessments, begun, strict=True):
        assessment.place = _place(applicant, assessment, start)
    runs = _runs(applicant, assessments, begun)
    for assessment, start, option, run in zip(assessments, begun, options, runs, strict=True):
        if assessment.rejection is None and (start.start is not None or assessment.starts_now):
            _forecast(applicant, assessment, start, option, run)
            _judge(applicant, assessment, option, runs[0])
    refuse_by_limits(assessments, applicant.wishes)
    if applicant.policy.spec.strategy.least_cost is not None:
        _weigh(applicant, assessments, applicant.policy.spec.strategy.least_cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """An option's expected start; if it is MultiKueue's, in the worker with the earliest."""

    start: Start | None
    found: FoundStart | None = None
    """The reservation of quota that it rests on, here or in *there*; None: none is forecast."""
    flavors: str = ""
    """The flavors assigned at the manager, as ``model.forecasts.Estimates`` names them."""
    there: Snapshot | None = None
    """The watched worker; None: the Job runs here, or no start in a worker is forecast."""
    dispatch: Delay | None = None
    """How long AdmissionChecks take, if what they wait for is not observed; part of ``start``."""
    transfer: Delay | None = None
    """How long the way to a watched worker takes; not part of ``start``."""

    @property
    def names(self) -> str:
        """The flavors where the Job runs."""
        return self.flavors if self.there is None or self.found is None else self.found.names


def _begun(applicant: Applicant, assessment: Assessment, option: Option) -> _Begun:
    snapshot, now = applicant.snapshot, applicant.moment.now
    earliest = _start(applicant, assessment, option)
    start, flavors = (earliest.start, earliest.names) if earliest is not None else (None, "")
    past = _past(snapshot, assessment.cluster_queue, flavors)
    if not assessment.cluster or assessment.rejection is not None:
        dispatch = expected_runs.dispatch(past, now)
        start = expected_runs.later(start, dispatch) if start is not None else None
        return _Begun(start=start, found=earliest, flavors=flavors, dispatch=dispatch)
    priority = priority_of(applicant.job, option, snapshot.cluster)
    found = remote_options.reach(applicant.occupancy, assessment, now=now, priority=priority)
    if found is None or start is None:
        return _Begun(start=None, flavors=flavors)
    queue = snapshot.setup.cluster_queues[assessment.cluster_queue]
    # The later of both counts: the worker cannot start what the manager has not sent.
    sent = _postponed(start, multikueue.asked_after(assessment.cluster, queue, snapshot.setup))
    return _Begun(
        start=_later(sent, found.start),
        found=found,
        flavors=flavors,
        there=applicant.occupancy.clusters[assessment.cluster].snapshot,
        transfer=expected_runs.transfer(past, option),
    )


def _start(
    applicant: Applicant, assessment: Assessment, option: Option, *, run_seconds: float = 0.0
) -> FoundStart | None:
    """Return the start in an option; with *run_seconds* that from which it runs to its end."""
    if not assessment.needs:
        return None
    snapshot = applicant.snapshot
    return applicant.occupancy.start_times.start_of(
        assessment.cluster_queue,
        demand(
            assessment.needs,
            snapshot.setup.cluster_queues[assessment.cluster_queue],
            snapshot.setup,
        ),
        now=applicant.moment.now,
        priority=priority_of(applicant.job, option, snapshot.cluster),
        local_queue=f"{applicant.job.namespace}/{assessment.queue}",
        run_seconds=run_seconds,
        needs=assessment.needs,
    )


def _past(snapshot: Snapshot, name: str, flavors: str) -> Dispatch | None:
    """Return how long AdmissionChecks took of late; None: not known, or these flavors have none."""
    queue = snapshot.setup.cluster_queues.get(name)
    if queue is not None and queue.checks and not queue.checks_on(flavors.split(",")):
        return None
    return snapshot.learned.dispatches.get(name)


def _postponed(start: Start, seconds: float) -> Start:
    return replace(
        start, seconds=start.seconds + seconds, low=start.low + seconds, high=start.high + seconds
    )


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


def _place(applicant: Applicant, assessment: Assessment, begun: _Begun) -> Place | None:
    """Return what the Job would use in an option, and what that costs; None: it is not known."""
    there = begun.there
    if begun.found is None or not begun.found.usage:
        return None
    place = place_of(applicant, assessment, begun.found.usage, there)
    # How often runs of the Job's class there began soon after another's end; 0: unknown.
    learned = (there or applicant.snapshot).learned.run_times.get(
        (applicant.job_class.key, begun.names)
    )
    return replace(place, warm=learned.warm) if learned is not None else place


def place_of(
    applicant: Applicant, assessment: Assessment, usage: Amounts, there: Snapshot | None = None
) -> Place:
    """Return what *usage* costs in an option; *there*: the worker, if it is watched."""
    snapshot = applicant.snapshot
    prices = _prices(applicant, assessment, usage, there)
    is_here = not assessment.clusters
    return Place(
        usage=usage,
        prices=terms.metered(prices, snapshot.learned.device_uses.get(applicant.job_class.key)),
        congestion=_congestion(snapshot, assessment, there),
        seen=snapshot.learned.interruptions if is_here else {},
    )


def _congestion(
    snapshot: Snapshot, assessment: Assessment, there: Snapshot | None
) -> Mapping[FlavorResource, float]:
    """Return what is scarce where a Job would run; *there*: the worker, if it is watched."""
    if not assessment.clusters:
        return snapshot.costs.congestion.get(assessment.cluster_queue, {})
    if there is None:
        return {}
    queues = {each.cluster: each.cluster_queue for each in assessment.clusters}
    return there.costs.congestion.get(queues[assessment.cluster], {})


def _prices(
    applicant: Applicant, assessment: Assessment, usage: Amounts, there: Snapshot | None
) -> Prices:
    """Return the prices where a Job would run in an option; *there*: the worker, if it is watched.

    What runs in a worker cluster is never priced by the manager's Tariff. Of several that are not
    watched nobody knows which one takes it, so their prices count only if they are the same.
    """
    snapshot = applicant.snapshot
    by_cluster, profiles = snapshot.costs.prices, snapshot.costs.accelerator_profiles
    if assessment.cluster or not assessment.clusters:
        prices = by_cluster.get(assessment.cluster, NO_PRICES)
    else:
        possible = [each.cluster for each in assessment.clusters if each.rejection is None]
        first, *others = [by_cluster.get(name, NO_PRICES) for name in possible] or [NO_PRICES]
        prices = first if all(other == first for other in others) else NO_PRICES
    if not assessment.clusters or prices is NO_PRICES:
        return prices
    # Without its own, a worker's flavors are taken to be those of the same names here.
    return in_worker(prices, usage, (there or snapshot).setup.flavors, profiles)


def _runs(
    applicant: Applicant, assessments: Sequence[Assessment], begun: Sequence[_Begun]
) -> Sequence[RunTime | None]:
    """Return the expected run time in each option; None: not known."""
    snapshot, options = applicant.snapshot, applicant.policy.spec.options
    # Run times in other options follow from the first one's, by ``slowdown`` or by learned runs.
    flavors = begun[0].flavors
    expecting = Expecting(
        run_times=snapshot.learned.run_times,
        start_delays=snapshot.learned.start_delays,
        job_class=applicant.job_class,
        policy=applicant.policy,
        first_flavors=flavors,
        said=applicant.wishes.run_time,
        slowdowns=tuple(
            (start.flavors, option.slowdown)
            for option, start in zip(options[1:], begun[1:], strict=True)
            if option.slowdown is not None and start.flavors not in ("", flavors)
        ),
    )
    if applicant.policy.spec.strategy.least_cost is None:
        return [
            _run(expecting, option, assessment, start)
            for option, assessment, start in zip(options, assessments, begun, strict=True)
        ]
    parts = [
        part_of(place.usage, place.prices.devices) if place is not None else None
        for place in (assessment.place for assessment in assessments)
    ]
    # By their devices a run takes so much longer in each option than in the first.
    use = snapshot.learned.device_uses.get(applicant.job_class.key)
    bound = use.bound if use is not None else None
    priors = [None, *(guess(parts[0], part, bound) for part in parts[1:])]
    runs = [
        _run(replace(expecting, prior=prior), option, assessment, start)
        for option, assessment, start, prior in zip(
            options, assessments, begun, priors, strict=True
        )
    ]
    places = [
        GangPlace(
            flavors=start.flavors, level=assessment.level if start.there is None else "", part=part
        )
        for assessment, start, part in zip(assessments, begun, parts, strict=True)
    ]
    return as_placed(expecting, runs, places=places, setup=snapshot.setup)


def _run(
    expecting: Expecting, option: Option, assessment: Assessment, begun: _Begun
) -> RunTime | None:
    """Return the expected run time in an option; None: not known.

    Runs that were learned in the very worker cluster come before those of the whole queue.
    """
    if begun.there is not None:
        there = replace(expecting, run_times=begun.there.learned.run_times)
        run = estimate(there, option, begun.names)
        if run is not None and run.basis is Basis.LEARNED:
            return run
    for place in at_level(begun.flavors, assessment.level):
        run = estimate(expecting, option, place)
        # How a gang runs where its pods are together, or are not, comes before the mean of both.
        if run is not None and run.basis is Basis.LEARNED:
            return run
    return estimate(expecting, option, begun.flavors)


def _forecast(
    applicant: Applicant, assessment: Assessment, begun: _Begun, option: Option, run: RunTime | None
) -> None:
    # The counts are newer than the forecast that the start was read from (decision 0010).
    start = _NOW if assessment.starts_now or begun.start is None else begun.start
    # A start that depends on rules of Kueue that are not modelled is not known, so no Job is sent
    # to an option for it.
    if unmodelled := _unmodelled_rule(applicant.snapshot, assessment, start):
        start = replace(start, unordered=unmodelled)
    elif run is not None and begun.found is not None and begun.there is None:
        # It runs to its end from a later start, where others may preempt it.
        last = _start(applicant, assessment, option, run_seconds=run.seconds)
        if last is not None and last.start.preempted_by:
            start = expected_runs.later(last.start, begun.dispatch)
    delay = _delay(applicant, begun, option, run)
    assessment.forecast = forecast_of(start, run, begun.dispatch, delay)


def _unmodelled_rule(snapshot: Snapshot, assessment: Assessment, start: Start) -> str:
    """Return what makes Kueue's admissions in an option's queue unpredictable; empty: nothing."""
    queue = snapshot.setup.cluster_queues[assessment.cluster_queue]
    flavors = demand(assessment.needs, queue, snapshot.setup).flavors
    reasons = {
        # By the counts it preempts, so by the forecast it must, too, and in this cycle.
        PREEMPTION: assessment.fit is Fit.MAY_PREEMPT
        and not (assessment.preempts and start.preempts and not start.preempts_later),
        # Each Job whose flavors have a topology needs a domain with room, whether it asks or not.
        "topology": assessment.starts_now
        and not assessment.is_placed
        and not flavors.isdisjoint(flavors_with_topology(queue, snapshot.setup)),
        "dispatcher": bool(assessment.clusters) and snapshot.setup.kueue.external_dispatcher,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _delay(
    applicant: Applicant, begun: _Begun, option: Option, run: RunTime | None
) -> Delay | None:
    """Return the expected time between start and run that neither contains; None: none."""
    starts = (begun.there or applicant.snapshot).learned.start_delays
    started = expected_runs.start_up(starts, applicant.job_class, begun.names)
    on_way = begun.transfer or begun.dispatch
    # ``startDelay`` covers dispatch and start-up together: what is learned of it is taken off
    # (decision 0009).
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


def _judge(
    applicant: Applicant, assessment: Assessment, option: Option, first: RunTime | None
) -> None:
    """Refuse an option by its forecast, or say what it would cost."""
    forecast, place = assessment.forecast, assessment.place
    if forecast is None:
        return
    run, least_cost = forecast.run, applicant.policy.spec.strategy.least_cost
    assessment.rejection = (
        _starts_too_late(option, forecast.start)
        or _outlasts_its_limit(applicant.job, run)
        or _is_slower_than_allowed(applicant, option, run, first)
        or _on_trial(applicant, assessment, option, run)
    )
    factor = 1.0
    if assessment.rejection is None and least_cost is not None and place is not None:
        factor = objective.interruptions(forecast, place, applicant.wishes)
        assessment.rejection = objective.interrupted(factor, place)
        if assessment.rejection is not None:
            return
    assessment.cost = cost_in(place, forecast, applicant.moment.unix, factor)


def cost_in(place: Place | None, forecast: Forecast, unix: float, factor: float) -> Cost | None:
    """Return what the Job would cost in an option; None: no prices, no start or no run is known.

    *factor*: how many times as long as undisturbed it would run.
    """
    span = terms.span_of(forecast, unix, factor)
    if place is None or place.prices is NO_PRICES or span is None:
        return None
    return terms.cost_of(place.usage, place.prices, span)


def _starts_too_late(option: Option, start: Start) -> Rejection | None:
    if option.max_wait is None or not start.is_known:
        return None
    limit = seconds(option.max_wait)
    if start.seconds <= limit:
        return None
    when = "never" if start.seconds == inf else f"in {span(start.seconds)}"
    detail = f"would start {when}, and the option's maxWait is {span(limit)}"
    return Rejection(reason=Reason.STARTS_TOO_LATE, detail=detail)


def _outlasts_its_limit(job: Job, run: RunTime | None) -> Rejection | None:
    """Refuse an option in which Kubernetes or Kueue would end the Job before it has finished."""
    if run is None:
        return None
    for name, limit in limits_of(job):
        if run.seconds > limit:
            detail = f"would run {span(run.seconds)}, longer than {name} {limit}"
            return Rejection(reason=Reason.TOO_LONG, detail=detail)
    return None


def _is_slower_than_allowed(
    applicant: Applicant, option: Option, run: RunTime | None, first: RunTime | None
) -> Rejection | None:
    limit, preferred = applicant.wishes.max_slowdown, applicant.policy.spec.options[0]
    if limit is None or run is None or first is None or option is preferred:
        return None
    # Compared without the wait, as the Job says how much slower it may run, not finish.
    slowdown = run.seconds / first.seconds
    if slowdown <= limit:
        return None
    detail = f"would run {slowdown:.3g} times as long as in {preferred.name}"
    return Rejection(
        reason=Reason.TOO_SLOW, detail=f"{detail}; the Job allows at most {limit:.3g} times"
    )


def _on_trial(
    applicant: Applicant, assessment: Assessment, option: Option, run: RunTime | None
) -> Rejection | None:
    """Refuse an option whose run is a guess, while others are there whose end would tell more."""
    least_cost = applicant.policy.spec.strategy.least_cost
    if least_cost is None or run is None or run.basis is not Basis.PROFILE:
        return None
    key = applicant.policy.name, option.name, applicant.job_class.key
    count = applicant.occupancy.held(assessment.cluster_queue).trials.get(key, 0)
    if count < least_cost.trial and BY_NAME[applicant.job.kind].carries_marks:
        return None
    detail = f"its run is a guess by the devices' speed, and {count} of its class are there"
    detail = f"{detail} already (at most {least_cost.trial} on trial)"
    return Rejection(reason=Reason.ON_TRIAL, detail=detail)


def refuse_by_limits(assessments: Sequence[Assessment], wishes: Wishes) -> None:
    """Refuse the options that exceed a limit that the Job sets, where another keeps it."""
    # What others meet is asked of all; where none does, nothing is refused for it.
    _refuse_late(assessments, wishes)
    _refuse_excessive(assessments, wishes)


def _refuse_late(assessments: Sequence[Assessment], wishes: Wishes) -> None:
    """Refuse the options that would miss the deadline, if any option meets it."""
    limit = wishes.deadline
    if limit is None:
        return
    # An option whose finish is not known is not refused: it may be in time.
    finishes = [
        (assessment, assessment.forecast.finish)
        for assessment in assessments
        if assessment.rejection is None
        and assessment.forecast is not None
        and assessment.forecast.finish is not None
    ]
    # If none does, the earliest finish is still the best there is (decision 0010).
    if not any(finish <= limit for _, finish in finishes):
        return
    for assessment, finish in finishes:
        if finish > limit:
            when = "never" if finish == inf else f"in {span(finish)}"
            detail = f"would be done {when}, and the deadline is in {span(limit)}"
            assessment.rejection = Rejection(reason=Reason.MISSES_DEADLINE, detail=detail)


def _refuse_excessive(assessments: Sequence[Assessment], wishes: Wishes) -> None:
    """Refuse the options that exceed the Job's budget or its CO2, if any option does not."""
    for limit, term, reason, text in (
        (wishes.budget, "paid", Reason.OVER_BUDGET, "would cost {}, and the Job's budget is {}"),
        (
            wishes.max_carbon,
            "kilograms",
            Reason.OVER_CARBON,
            "would emit {} kg of CO2, and the Job allows {} kg",
        ),
    ):
        if limit is None:
            continue
        # An option of which it is not known is not refused: it may be within it.
        amounts = [
            (assessment, getattr(assessment.cost, term))
            for assessment in assessments
            if assessment.rejection is None and assessment.cost is not None
        ]
        known = [(assessment, amount) for assessment, amount in amounts if amount is not None]
        if any(amount <= limit for _, amount in known):
            for assessment, amount in known:
                if amount > limit:
                    detail = text.format(figure(amount), figure(limit))
                    assessment.rejection = Rejection(reason=reason, detail=detail)


def _weigh(applicant: Applicant, assessments: Sequence[Assessment], least_cost: LeastCost) -> None:
    """Fill in all terms of the options' costs."""
    unix = applicant.moment.unix
    weight = weight_of_lateness(applicant.policy, least_cost, applicant.snapshot, unix)
    places = [assessment.place for assessment in assessments]
    stakes = objective.stakes_of(
        least_cost, applicant.wishes, objective.first_hour(places, least_cost, unix), weight
    )
    objective.weigh(assessments, stakes, applicant.wishes, unix)
    _add_fragmentation(assessments, applicant.snapshot)


def weight_of_lateness(
    policy: FallbackPolicy, least_cost: LeastCost, snapshot: Snapshot, unix: float
) -> float:
    """Return how many times the policy's price of lateness counts at present."""
    if least_cost.lateness.adapt is None:
        return 1.0
    return snapshot.costs.scarcity.at_moment(unix).weights.get(policy.name, 1.0)


def _add_fragmentation(assessments: Sequence[Assessment], snapshot: Snapshot) -> None:
    """Say how much less others could use, where several options cost about as much."""
    if len(objective.tied(assessments)) < 2:  # noqa: PLR2004 - one is tied with nobody
        return
    names = dict.fromkeys(assessment.cluster_queue for assessment in assessments)
    devices = snapshot.costs.prices.get("", NO_PRICES).devices
    needed = needed_memory(names, snapshot.setup, snapshot.workloads, devices)
    for assessment in assessments:
        cost, place = assessment.cost, assessment.place
        if cost is not None and place is not None and not assessment.cluster:
            rises = rise(place.usage, needed, devices)
            assessment.cost = replace(cost, fragmentation=rises)
