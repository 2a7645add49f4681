"""What running Jobs would save in another option, if they went on there from a checkpoint.

Only of Jobs that say by their annotation ``checkpoint`` that they can, whose policy decides by cost
and enforces. It advises: it moves nothing, and what a Job has done since its last checkpoint is
its owner's to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.cost import terms
from webhook.decide import expectations, match, objective
from webhook.decide.wishes import ALLOW, CHECKPOINT, Wishes
from webhook.kueue.durations import remaining
from webhook.kueue.requests import unmodelled
from webhook.model.costs.prices import Stakes
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.forecasts import Forecast, RunTime, Start
from webhook.model.job import MOVE_TO, Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.policy.strategy import LeastCost
from webhook.model.queues import Stage
from webhook.model.reasons import Obstacle
from webhook.model.words import figure, span
from webhook.reconsider.offers import (
    AlikeNumbers,
    MoveOptions,
    MoveQuestion,
    ReconsiderInput,
    least_times,
)
from webhook.state.occupancy import Occupancy
from webhook.state.workload import Workload

TIMES_MINIMUM: Final = 2.0
"""A running Job is advised to leave for so many times the saving that a decision asks for."""
_NOW: Final = Start(seconds=0.0, low=0.0, high=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One running Job, and the option in which what is left of it would cost least."""

    job: Pending
    workload: str
    """The name of its Workload."""
    here: Assessment
    """Where it runs, with the forecast and the cost of what is left of it."""
    there: Assessment
    """The same where it would go on, with the wait for it and the start of its pods."""
    saves: float
    """Money, as the policy weighs it."""
    obstacle: Obstacle | None = None
    """Why it cannot be moved in place; None: it can."""

    @property
    def recipe(self) -> tuple[str, ...]:
        """Return the commands that let it go on there, to be run once it has a checkpoint."""
        return _recreated(self) if self.obstacle is not None else _moved(self)

    def sentence(self, currency: str = "") -> str:
        """Say what is left costs here and there, and when it would be done."""
        costs = [assessment.cost for assessment in (self.here, self.there)]
        here, there = (figure((cost.total if cost else None) or 0.0) for cost in costs)
        unit = f" {currency}" if currency else ""
        ends = [each.forecast.finish if each.forecast else None for each in (self.here, self.there)]
        apart = (ends[1] or 0.0) - (ends[0] or 0.0)
        than = "later" if apart > 0 else "sooner"
        return (
            f"what is left of it would cost {there}{unit} instead of {here} in {self.there.queue} "
            f"({self.there.option}), done in {span(ends[1] or 0.0)}, {span(abs(apart))} {than}"
        )


def is_advised(policy: FallbackPolicy) -> bool:
    """Tell whether running Jobs of a policy may be advised to go elsewhere."""
    spec = policy.spec
    decides = spec.strategy.least_cost is not None and len(spec.options) > 1
    return decides and spec.mode is Mode.ENFORCE and not policy.restrained


def can_resume(annotations: Mapping[str, str]) -> bool:
    """Tell whether a Job says that it can go on from a checkpoint."""
    return CHECKPOINT in annotations


def advise(
    jobs: Iterable[Pending], world: ReconsiderInput, occupancy: Occupancy
) -> tuple[Advice, ...]:
    """Return the running Jobs that would save enough elsewhere, those that save most first.

    *occupancy* is that of the world's snapshot, with forecasts of all queues that policies name.
    """
    catalog = MoveOptions(world, occupancy)
    found = [
        advice
        for question in _questions(jobs, world)
        if (advice := _of_job(question, world, catalog)) is not None
    ]
    return tuple(sorted(found, key=lambda advice: (-advice.saves, advice.job.key)))


def _questions(jobs: Iterable[Pending], world: ReconsiderInput) -> Iterator[MoveQuestion]:
    policies = {
        policy.name: policy for policy in world.snapshot.fallback.policies if is_advised(policy)
    }
    numbers = AlikeNumbers()
    for job in jobs:
        policy, workload = policies.get(job.policy), _running(world.workloads.get(job.key, ()))
        if policy is None or workload is None or not can_resume(job.job.annotations):
            continue
        if job.option not in [option.name for option in policy.spec.options]:
            continue
        if match.skip(job.job, world.snapshot) is None:
            yield MoveQuestion(
                pending=job,
                policy=policy,
                option=job.option,
                # It is moved once it is stopped.
                workload=workload._replace(obstacle=Obstacle.DEACTIVATED),
                alike=numbers.of(job.job),
            )


def _running(workloads: Sequence[Workload]) -> Workload | None:
    """Return a Job's only Workload, if it was admitted and nothing takes its quota; else None."""
    if len(workloads) != 1:
        return None
    (workload,) = workloads
    is_running = workload.stage is Stage.RESERVING and workload.admitted > 0
    # Of a variant or an elastic Job another Workload takes over.
    is_plain = not (workload.is_variant or workload.parent or workload.replaces)
    return workload if is_running and is_plain and not workload.is_evicted else None


def _of_job(question: MoveQuestion, world: ReconsiderInput, catalog: MoveOptions) -> Advice | None:
    """Return the advice for one Job; None: it is best where it is, or that cannot be known."""
    try:
        if unmodelled(
            question.pending.job,
            question.pending.queue,
            world.snapshot.setup,
            world.snapshot.cluster,
        ):
            return None
        applicant, assessments = catalog.assessed(question)
    except FieldError:
        return None
    here = next(found for found in assessments if found.option == question.option)
    wishes = applicant.wishes
    left = _left_of(here, question.workload, world.unix)
    costs = (found.cost for found in assessments)
    stakes = next((cost.stakes for cost in costs if cost is not None and cost.stakes), None)
    if left is None or stakes is None or wishes.checkpoint is None:
        return None
    here, part = left
    others = [found for found in assessments if found.option != here.option and _may(found)]
    others = [_going_on(found, part) for found in others]
    priced = _priced([here, *others], stakes, wishes, world.unix)
    return _best(question, priced, catalog)


def _left_of(here: Assessment, workload: Workload, unix: float) -> tuple[Assessment, float] | None:
    """Return where a Job runs with what is left of its run, and which part of a run that is.

    None: how long it runs, or what it uses, is not known.
    """
    run = here.forecast.run if here.forecast is not None else None
    if run is None or here.place is None:
        return None
    elapsed = max(0.0, unix - workload.admitted)
    part = remaining(run, elapsed)[0] / remaining(run)[0]
    # Data that it reads is there, and its flavors are those that Kueue has given it.
    place = replace(here.place, usage=dict(workload.charge) or here.place.usage, warm=1.0)
    forecast = expectations.forecast_of(_NOW, _part_of(run, part), None, None)
    return replace(here, forecast=forecast, place=place, rejection=None), part


def _may(assessment: Assessment) -> bool:
    """Tell whether a Job may go on in an option: it is not refused, and nobody stops for it."""
    forecast = assessment.forecast
    if assessment.rejection is not None or assessment.place is None or assessment.job is None:
        return False
    if forecast is None or forecast.run is None:
        return False
    return forecast.start.is_known and not forecast.start.preempts


def _going_on(assessment: Assessment, part: float) -> Assessment:
    """Return an option with only so much of a run left, after the whole wait and start."""
    before = assessment.forecast or Forecast(start=_NOW)
    run = _part_of(before.run, part) if before.run is not None else None
    forecast = expectations.forecast_of(before.start, run, before.dispatch, before.delay)
    return replace(assessment, forecast=forecast)


def _part_of(run: RunTime, part: float) -> RunTime:
    return replace(run, seconds=run.seconds * part, low=run.low * part, high=run.high * part)


def _priced(
    assessments: Sequence[Assessment], stakes: Stakes, wishes: Wishes, unix: float
) -> tuple[Assessment, ...]:
    """Return options with what that which is left of a run costs there, in all terms."""
    spent = tuple(_spent(found, wishes, unix) for found in assessments)
    objective.weigh(spent, stakes, wishes, unix)
    return spent


def _spent(assessment: Assessment, wishes: Wishes, unix: float) -> Assessment:
    place, forecast = assessment.place, assessment.forecast
    if place is None or forecast is None:
        return assessment
    factor = objective.interruptions(forecast, place, wishes)
    span = terms.span_of(forecast, unix, factor)
    cost = None if span is None else terms.cost_of(place.usage, place.prices, span)
    return replace(assessment, cost=cost)


def _best(
    question: MoveQuestion, priced: Sequence[Assessment], catalog: MoveOptions
) -> Advice | None:
    here, *others = priced
    before = _total(here)
    if before is None:
        return None
    rules = question.policy.spec.strategy.least_cost or LeastCost()
    saving = rules.minimum_saving
    least = TIMES_MINIMUM * max(float(saving.amount), before * saving.percent / 100)
    found: list[tuple[float, Assessment]] = []
    for other in others:
        total = _total(other)
        if total is not None and before - total >= least * least_times(other) and before > total:
            found.append((before - total, other))
    if not found:
        return None
    saves, there = max(found, key=lambda pair: pair[0])
    return Advice(
        job=question.pending,
        workload=question.workload.name,
        here=here,
        there=there,
        saves=saves,
        obstacle=_obstacle(question, here, there, catalog),
    )


def _total(assessment: Assessment) -> float | None:
    return assessment.cost.total if assessment.cost is not None else None


def _obstacle(
    question: MoveQuestion, here: Assessment, there: Assessment, catalog: MoveOptions
) -> Obstacle | None:
    """Return why a Job cannot be moved in place, once its Workload is deactivated; None: it can."""
    job = question.pending
    if job.obstacle not in (None, Obstacle.NOT_SUSPENDED):
        return job.obstacle
    return catalog.against(question, here.job or job.job, there)


def _moved(advice: Advice) -> tuple[str, ...]:
    job, there = advice.job.job, advice.there
    workload = f"workload {advice.workload} -n {job.namespace}"
    name = f"{job.kind.lower()} {job.name} -n {job.namespace}"
    set_active = f'kubectl patch {workload} --type merge -p \'{{"spec":{{"active":%s}}}}\''
    return (
        set_active % "false",
        f"kubectl wait {workload} --for=condition=QuotaReserved=false --timeout=10m",
        f"kubectl annotate {name} {MOVE_TO}={there.option}",
        f"kubectl wait {workload} --for=jsonpath='{{.spec.queueName}}'={there.queue} --timeout=1m",
        set_active % "true",
    )


def _recreated(advice: Advice) -> tuple[str, ...]:
    job = advice.job.job
    return (
        f"kubectl delete {job.kind.lower()} {job.name} -n {job.namespace}",
        f"# It cannot be moved in place: {advice.obstacle.meaning if advice.obstacle else ''}.",
        f"# Create it again from its manifest with the annotation {ALLOW}: {advice.there.option}",
    )
