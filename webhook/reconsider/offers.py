"""What a pending Job could be moved to: options that its policy has and nothing speaks against.

Worked out once for all Jobs that differ in name and age alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf

from webhook.decide import expectations, match, options, own_keys, wishes
from webhook.decide.strategies import margin
from webhook.decide.wishes import Wishes
from webhook.jobs import KINDS
from webhook.jobs.movable import changes_template, obstacle
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.priorities import priority_of
from webhook.learn import expected_runs
from webhook.model import marks
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.model.pending import Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Reconsider
from webhook.model.queues import Arrival, Snapshot
from webhook.model.reasons import Obstacle
from webhook.reconsider.plan import Way
from webhook.state import forecast_input
from webhook.state.workload import QueueContents, Workload

_KIND = KINDS["batch", "v1", "Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconsiderInput:
    """All that a look depends on, at one instant."""

    snapshot: Snapshot
    censuses: Mapping[str, QueueContents]
    """Of the ClusterQueues of ``trees``."""
    workloads: Mapping[str, Sequence[Workload]]
    """``namespace/name`` of a Job to its Workloads."""
    now: float
    """On the clock of ``Snapshot.as_of``."""
    unix: float
    own_namespace: str = ""
    changes_resources: bool = True
    """The API server lets a suspended Job's resources change: Kubernetes 1.36 and later."""
    min_gain_probability: float = 0.8
    """How likely a move must be a gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveQuestion:
    """A Job whose policy wants it to be looked at."""

    pending: Pending
    policy: FallbackPolicy
    rules: Reconsider
    option: str
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTarget:
    """An option that a Job could be moved to, and what would then stand in line there."""

    way: Way
    arrival: Arrival
    job_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What Jobs of one kind could be moved to; the same for all of them."""

    runs: float
    cluster_queue: str
    offers: tuple[MoveTarget, ...]
    obstacle: Obstacle | None = None
    """Why there is none."""
    number: int = 0
    """Of the kind, in its catalog."""


class MoveOptions:
    """What Jobs could be moved to, worked out once for all that differ in name and age alone."""

    def __init__(self, world: ReconsiderInput, occupancy: Occupancy) -> None:
        self._world, self._occupancy = world, occupancy
        self._known: dict[tuple[object, ...], tuple[object, JobOptions]] = {}

    def of(self, each: MoveQuestion) -> JobOptions:
        job = each.pending.job
        key = (
            id(job.pod_sets),
            job.namespace,
            each.policy.name,
            each.option,
            each.pending.queue,
            each.workload.policy,
            tuple(sorted(job.labels.items())),
            tuple(sorted(job.annotations.items())),
            job.active_deadline_seconds,
            each.pending.created if wishes.DEADLINE in job.annotations else 0.0,
        )
        if key not in self._known:
            # The pod sets are kept with their id, so that it stays theirs.
            found = replace(self._work_out(each), number=len(self._known))
            self._known[key] = job.pod_sets, found
        return self._known[key][1]

    def _work_out(self, each: MoveQuestion) -> JobOptions:
        try:
            assessments = self._assess(each)
            policy_options = zip(each.policy.spec.options, assessments, strict=True)
            found = {option.name: item for option, item in policy_options}
            here = found[each.option]
            return self._offers(each, here, [item for item in found.values() if item is not here])
        except FieldError:
            return _none(Obstacle.OPTION_REFUSED)

    def _assess(self, each: MoveQuestion) -> tuple[Assessment, ...]:
        job, policy = each.pending.job, each.policy
        found = options.assess(
            job.as_created,
            policy,
            self._occupancy,
            submitted=each.pending.queue,
            allowed=match.allowed_options(job, policy),
        )
        case = expectations.ForecastCase(
            job=job,
            policy=policy,
            occupancy=self._occupancy,
            job_class=match.class_of(job, policy, self._occupancy.snapshot),
            wishes=_wishes(each, self._world.unix),
            now=self._world.now,
        )
        return expectations.expect(case, found)

    def _offers(
        self, each: MoveQuestion, here: Assessment, others: Iterable[Assessment]
    ) -> JobOptions:
        runs, stands = _runs(here), each.pending.job
        if each.pending.option and here.job is not None:
            # As it was written at its decision; who has none stands as it was submitted.
            stands = here.job
        if runs is None:
            return _none(Obstacle.OPTION_REFUSED)
        if not _is_known(here):
            return _none(Obstacle.START_UNKNOWN)
        offers: list[MoveTarget] = []
        because = Obstacle.OPTION_REFUSED
        for item in others:
            there = _runs(item)
            if item.rejection is not None or there is None or item.job is None:
                continue
            if not _is_known(item):
                because = Obstacle.START_UNKNOWN
                continue
            if against := self._against(each, stands, item.option, item.job):
                because = against
                continue
            offer = self._offer(each, item, there)
            off = hypot(_half_width(here), _half_width(item))
            way = replace(offer.way, unsure=margin(off, self._world.min_gain_probability))
            offers.append(replace(offer, way=way))
        if not offers:
            return _none(because)
        return JobOptions(
            runs=runs,
            cluster_queue=here.cluster_queue,
            offers=tuple(offers),
        )

    def _against(self, each: MoveQuestion, stands: Job, option: str, there: Job) -> Obstacle | None:
        changes = _KIND.edits(stands, there)
        if found := obstacle(changes):
            return found
        if not changes_template(changes):
            is_uncounted = marks.would_be_uncounted(each.policy, option, each.workload.policy)
            return Obstacle.UNCOUNTED_GUEST if is_uncounted else None
        return None if self._world.changes_resources else Obstacle.OLDER_KUBERNETES

    def _offer(self, each: MoveQuestion, item: Assessment, runs: float) -> MoveTarget:
        job, policy = each.pending.job, each.policy
        option = next(option for option in policy.spec.options if option.name == item.option)
        finish = item.forecast.finish if item.forecast is not None else None
        return MoveTarget(
            way=Way(
                option=item.option,
                cluster_queue=item.cluster_queue,
                runs=runs,
                priced=inf if finish is None else finish,
            ),
            arrival=Arrival(
                key="",
                namespace=job.namespace,
                local_queue=item.queue,
                needs=item.needs,
                priority=priority_of(job, option, self._world.snapshot),
                policy=policy.name,
                option=item.option,
            ),
            job_class=class_text_of_workload(each, item.option, self._world.snapshot),
        )


def _none(because: Obstacle) -> JobOptions:
    return JobOptions(runs=0.0, cluster_queue="", offers=(), obstacle=because)


def _runs(item: Assessment) -> float | None:
    run = expected_runs.lasting(item.forecast)
    return run.seconds if run is not None else None


def _is_known(item: Assessment) -> bool:
    """Tell whether its start may be decided by; of one that is not forecast nobody says no."""
    return item.forecast is None or item.forecast.start.is_known


def _half_width(item: Assessment) -> float:
    """Say by how much its start may be off; nothing is said of one that is never."""
    start = item.forecast.start if item.forecast is not None else None
    return 0.0 if start is None or start.high == inf else (start.high - start.low) / 2


def class_text_of_workload(each: MoveQuestion, option: str, snapshot: Snapshot) -> str:
    found = match.class_of(each.pending.job, each.policy, snapshot)
    return forecast_input.class_name(found, each.policy.name, option)


def _wishes(each: MoveQuestion, unix: float) -> Wishes:
    """Read them as of now: a deadline comes nearer."""
    created = each.pending.created
    own_keys.check(each.pending.job, each.policy)
    found = wishes.read_wishes(each.pending.job.annotations, created)
    if found.deadline is None:
        return found
    return replace(found, deadline=found.deadline - (unix - created))
