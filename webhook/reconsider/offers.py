"""The options of its policy that a pending Job could be moved to, or the obstacle if there is none.

They are assessed as at the Job's creation, and once for all Jobs that differ only in name and age.
Whether a move is worth making is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf
from typing import Final

from webhook.decide import expectations, match, options, wishes
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.decide.objective import late_cost, sigma_of
from webhook.decide.strategies import GUESSED_TIMES, margin
from webhook.decide.wishes import Wishes
from webhook.jobs import BY_NAME
from webhook.kueue.requests import priority_of, unmodelled
from webhook.learn import expected_runs
from webhook.model import marks
from webhook.model.costs.prices import HOUR, Stakes
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.forecasts import Basis
from webhook.model.job import Job, Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Reconsider, seconds
from webhook.model.policy.strategy import MoveSaving
from webhook.model.queues import Arrival
from webhook.model.reasons import Obstacle
from webhook.reconsider.plan import CostOf, MoveCandidate, Rank, Way
from webhook.state import forecast_input
from webhook.state.occupancy import Occupancy
from webhook.state.queue_counts import QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconsiderInput:
    """All that a reconsideration of pending Jobs depends on, at one instant."""

    snapshot: Snapshot
    contents: Mapping[str, QueueContents]
    """ClusterQueue to its contents, for those that ``choose.trees`` names."""
    workloads: Mapping[str, Sequence[Workload]]
    """``namespace/name`` of a Job to its Workloads."""
    now: float
    """In seconds, on the clock of ``Snapshot.as_of``."""
    unix: float
    """The same instant, in seconds since 1970."""
    own_namespace: str = ""
    changes_resources: bool = True
    """Whether a suspended Job's resources may change: from Kubernetes 1.36 on."""
    min_gain_probability: float = 0.8
    """The least probability with which a move must be a gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveQuestion:
    """A pending Job that its policy lets be moved, if there is an option to move it to."""

    pending: Pending
    policy: FallbackPolicy
    option: str
    """The option that it is in."""
    workload: Workload
    alike: int
    """Its number by the ``AlikeNumbers`` of all that are asked together."""

    @property
    def rank(self) -> Rank:
        """Return the Job's rank, with the priority that its Workload has now."""
        return Rank(self.policy.name, self.pending.job.namespace, self.workload.priority)


class AlikeNumbers:
    """Gives Jobs that differ only in name and age one number, so that they are judged once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, int]] = {}

    def of(self, job: Job) -> int:
        """Return a Job's number."""
        key = (
            id(job.pod_sets),
            job.kind,
            job.unmodelled,
            job.namespace,
            frozenset(job.labels.items()),
            frozenset(job.annotations.items()),
            job.active_deadline_seconds,
        )
        # The pod sets are kept beside their id: a freed object's id could be given to others.
        return self._known.setdefault(key, (job.pod_sets, len(self._known)))[1]


_ANY_SAVING: Final = MoveSaving()


class MoveOptions:
    """Finds the options for moves, once for all Jobs that differ only in name and age."""

    def __init__(self, world: ReconsiderInput, occupancy: Occupancy) -> None:
        self._world, self._occupancy = world, occupancy
        self._known: dict[tuple[object, ...], MoveCandidate | Obstacle] = {}

    def of(self, question: MoveQuestion) -> MoveCandidate | Obstacle:
        """Return a Job with the options that it could be moved to, or why there is none."""
        pending, workload = question.pending, question.workload
        # The nearer a deadline, the fewer options are in time, so Jobs with one differ by age too.
        key = (
            question.alike,
            question.policy.name,
            question.option,
            pending.queue,
            workload.policy,
            workload.obstacle,
            pending.created if wishes.DEADLINE in pending.job.annotations else 0.0,
        )
        if key not in self._known:
            self._known[key] = self._work_out(question, kind=str(len(self._known)))
        known = self._known[key]
        if isinstance(known, Obstacle):
            return known
        return replace(
            known,
            key=pending.key,
            rank=question.rank,
            order=workload.queued_at,
            moved=pending.moves,
        )

    def _work_out(self, question: MoveQuestion, *, kind: str) -> MoveCandidate | Obstacle:
        """Return what Jobs have in common that differ only in name and age."""
        pending, policy = question.pending, question.policy
        try:
            if unmodelled(
                pending.job, pending.queue, self._world.snapshot.setup, self._world.snapshot.cluster
            ):
                return Obstacle.UNMODELLED
            applicant, assessments = self.assessed(question)
            by_option = {assessment.option: assessment for assessment in assessments}
            here, runs = by_option[question.option], _runs(by_option[question.option])
            if runs is None:
                return Obstacle.OPTION_REFUSED
            ways = self._ways(question, by_option)
        except FieldError:
            return Obstacle.OPTION_REFUSED
        if isinstance(ways, Obstacle):
            return ways
        candidate = MoveCandidate(
            key="",
            rank=question.rank,
            option=here.option,
            runs=runs,
            kind=kind,
            order=0,
            ways=ways,
        )
        return _judged_by(candidate, policy, _cost_of(by_option, applicant.wishes))

    def assessed(self, question: MoveQuestion) -> tuple[Applicant, tuple[Assessment, ...]]:
        """Assess all options of a Job's policy, in their order, as at its creation.

        Raises:
            FieldError: the Job, or what an option makes of it, cannot be read.

        """
        pending, world = question.pending, self._world
        moment = Moment(now=world.now, unix=world.unix, time="", uid="")
        applicant = replace(
            read_applicant(
                pending.job.as_created,
                question.policy,
                self._occupancy,
                moment,
                created=pending.created,
            ),
            submitted=pending.queue,
            stays_in=question.option,
        )
        assessments = options.fitted(applicant)
        expectations.expect(applicant, assessments)
        return applicant, assessments

    def _ways(
        self, question: MoveQuestion, by_option: Mapping[str, Assessment]
    ) -> tuple[Way, ...] | Obstacle:
        """Return the other options that a Job could be moved to, or why there is none."""
        here, stands = by_option[question.option], question.pending.job
        if question.pending.option and here.job is not None:
            # It is as its decision adapted it; without a decision it is as it was submitted.
            stands = here.job
        # By a start that is not known no Job is moved, as none is sent elsewhere by it at its
        # creation (decision 0023).
        if not _is_known(here):
            return Obstacle.START_UNKNOWN
        ways: list[Way] = []
        because = Obstacle.OPTION_REFUSED
        for there in by_option.values():
            runs = _runs(there)
            if there is here or there.rejection is not None or runs is None or there.job is None:
                continue
            if not _is_known(there) or _lacks_cost(question.policy, here, there):
                because = Obstacle.START_UNKNOWN
                continue
            if against := self.against(question, stands, there):
                because = against
                continue
            # Both starts may be off, independently of one another.
            off = hypot(_half_width(here), _half_width(there))
            ways.append(self._way(question, there, runs=runs, off=off))
        return tuple(ways) or because

    def against(self, question: MoveQuestion, stands: Job, there: Assessment) -> Obstacle | None:
        """Return why a Job cannot be moved from *stands* to another option; None: it can."""
        kind = BY_NAME[stands.kind]
        changes, workload = kind.edits(stands, there.job or stands), question.workload
        if refusal := kind.obstacle_to(changes, workload=workload.obstacle):
            return refusal
        # A move of the queue alone leaves the pod template without the option's mark, by which
        # guests of the option are counted (decision 0013).
        if not kind.changes_template(changes):
            if workload.obstacle is Obstacle.EVICTED:
                return workload.obstacle
            is_uncounted = marks.would_be_uncounted(question.policy, there.option, workload.policy)
            return Obstacle.UNCOUNTED_GUEST if is_uncounted else None
        is_new_enough = self._world.changes_resources or not kind.changes_with_kubernetes
        return None if is_new_enough else Obstacle.OLDER_KUBERNETES

    def _way(self, question: MoveQuestion, there: Assessment, *, runs: float, off: float) -> Way:
        """Describe an assessed option, where a Job runs for *runs* seconds.

        *off*: by how much its starts there and where it is may be off together.
        """
        job, policy = question.pending.job, question.policy
        option = next(option for option in policy.spec.options if option.name == there.option)
        finish = there.forecast.finish if there.forecast is not None else None
        return Way(
            arrival=Arrival(
                key="",
                namespace=job.namespace,
                local_queue=there.queue,
                needs=there.needs,
                priority=priority_of(job, option, self._world.snapshot.cluster),
                policy=policy.name,
                option=there.option,
            ),
            cluster_queue=there.cluster_queue,
            job_class=class_text_of_workload(question, there.option, self._world.snapshot),
            runs=runs,
            priced=inf if finish is None else finish,
            unsure=margin(off, self._world.min_gain_probability),
            least_times=least_times(there),
        )


def _lacks_cost(policy: FallbackPolicy, *assessments: Assessment) -> bool:
    """Tell whether costs decide, and that of one option is not known."""
    if policy.spec.strategy.least_cost is None:
        return False
    costs = [assessment.cost for assessment in assessments]
    return any(cost is None or cost.stakes is None for cost in costs)


def least_times(assessment: Assessment) -> float:
    """Return how many times the least gain a move must gain: more where its run is a guess."""
    run = assessment.forecast.run if assessment.forecast is not None else None
    return GUESSED_TIMES if run is not None and run.basis is Basis.PROFILE else 1.0


def _cost_of(by_option: Mapping[str, Assessment], wished: Wishes) -> tuple[CostOf, Stakes] | None:
    """Return what a Job costs in its options, and what is at stake; None: that is not known."""
    costs = {name: option.cost for name, option in by_option.items() if option.cost is not None}
    stakes = next((cost.stakes for cost in costs.values() if cost.stakes is not None), None)
    if stakes is None:
        return None
    forecasts = {name: by_option[name].forecast for name in costs}
    sigmas = {
        name: 0.0 if forecast is None else sigma_of(forecast)
        for name, forecast in forecasts.items()
    }

    def cost_of(option: str, finish: float) -> float:
        """Return the money for time and lateness, beside what the option charges."""
        cost = costs[option].charge + stakes.time_value * finish / HOUR
        if wished.deadline is None:
            return cost
        return cost + late_cost(stakes, wished.deadline - finish, sigmas[option])

    return cost_of, stakes


def _judged_by(
    candidate: MoveCandidate, policy: FallbackPolicy, priced: tuple[CostOf, Stakes] | None
) -> MoveCandidate:
    """Return a Job with what a move of it must gain at least, in time or in money."""
    rules = policy.spec.reconsider or Reconsider()
    if priced is None:
        gain = rules.minimum_gain
        return replace(candidate, least_seconds=seconds(gain.time), least_part=gain.percent / 100)
    cost_of, stakes = priced
    saving, given = rules.minimum_saving or _ANY_SAVING, policy.spec.strategy.least_cost
    time_value = given.time_value if given is not None else None
    return replace(
        candidate,
        cost_of=cost_of,
        least_saved=float(saving.amount),
        least_part=saving.percent / 100,
        hour_costs=stakes.time_value if time_value is None else float(time_value),
    )


def _runs(assessment: Assessment) -> float | None:
    """Return the seconds for which a Job holds quota in an option; None: not known."""
    run = expected_runs.lasting(assessment.forecast)
    return run.seconds if run is not None else None


def _is_known(assessment: Assessment) -> bool:
    """Tell whether a move may rest on an option's start; without a forecast nothing forbids it."""
    return assessment.forecast is None or assessment.forecast.start.is_known


def _half_width(assessment: Assessment) -> float:
    """Return half the width of a start's range, in seconds; 0: no forecast, or no upper end."""
    start = assessment.forecast.start if assessment.forecast is not None else None
    return 0.0 if start is None or start.high == inf else (start.high - start.low) / 2


def class_text_of_workload(question: MoveQuestion, option: str, snapshot: Snapshot) -> str:
    """Return the name by which a Job's run time in an option is looked up."""
    job_class = match.class_of(question.pending.job, question.policy, snapshot)
    said = wishes.said_seconds(question.pending.job.annotations)
    return forecast_input.class_name(job_class, question.policy.name, option, said)
