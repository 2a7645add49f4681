"""Ranks the worker clusters behind MultiKueue for a Workload, and tells when to ask another.

The measure is that of the policy by which its Job was decided: when it ends, what it costs, else
when it starts; with what the Job's annotations ask for, as in a decision. A cluster later in the
MultiKueueConfig comes before an earlier one only where it gains the policy's minimum, and one is
asked beside those that are nominated where it gains what a move must gain. Who nominates clusters,
and how, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from math import inf, isfinite
from typing import Final, NamedTuple

from webhook.cost import terms
from webhook.cost.cluster_prices import in_worker
from webhook.decide import expectations, match, objective, options, remote_options
from webhook.decide.wishes import NONE, Wishes
from webhook.kueue import multikueue
from webhook.kueue.newcomer import FoundStart
from webhook.learn import expected_runs
from webhook.learn.expected_runs import Expecting
from webhook.model.costs.prices import NO_PRICES, Place
from webhook.model.decision import Assessment
from webhook.model.forecasts import Basis, RunTime, Start
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, StrategyType, seconds
from webhook.model.policy.strategy import FinishTime, LeastCost, MoveSaving, Saving
from webhook.model.policy.strategy import Gain as LeastGain
from webhook.model.queues import Arrival, ClusterQueue, LocalQueue
from webhook.model.words import figure, span
from webhook.state.occupancy import Occupancy

MARGIN_SECONDS: Final = 30.0
"""A cluster that has not taken a Workload so long after its expected start disappoints."""
AGAIN_SECONDS: Final = 10.0
"""Least time between two clusters that are nominated for one Workload."""
_NOW: Final = Start(seconds=0.0, low=0.0, high=0.0)


class Standing(IntEnum):
    """What is known of a cluster, from worst to best."""

    INACTIVE = 0
    """Kueue does not reach it."""
    REFUSED = 1
    """Its queues would not take the Workload."""
    SILENT = 2
    """It is watched, and has told nothing for too long."""
    UNKNOWN = 3
    """It may take it, and nothing says when."""
    KNOWN = 4
    """It is expected to start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProspect:
    """What is expected of a Workload in one cluster."""

    cluster: str
    standing: Standing
    starts_in: float = inf
    """Seconds."""
    ends_in: float | None = None
    """Seconds; None: its run is not known."""
    cost: float | None = None
    """Money in all; None: costs do not decide, or it is not known."""
    run: RunTime | None = None
    """For how long it is expected to hold quota; None: it is not known."""
    exceeds: bool = False
    """It would miss the deadline or exceed another limit of the Job, and some cluster would not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedWorkload:
    """A Workload that has quota at the manager, and for which a cluster is sought."""

    arrival: Arrival
    local_queue: LocalQueue
    """The manager's, as all that follows."""
    cluster_queue: ClusterQueue
    flavors: str
    """Of its quota."""
    wishes: Wishes = NONE
    """What the annotations of its Job ask for; of its deadline what is left."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Cluster to in how many seconds it starts there, of those where it waits already: it does not
    come behind itself."""


def prospects(
    workload: UnplacedWorkload, occupancy: Occupancy, *, now: float, unix: float
) -> tuple[ClusterProspect, ...]:
    """Return what is expected in each cluster behind its queue, in the MultiKueueConfig's order.

    *now* is in seconds on the clock of ``Snapshot.as_of``, *unix* the same in seconds since 1970.

    Raises:
        FieldError: a quantity, toleration or affinity term of a template cannot be read.

    """
    arrival, queues = workload.arrival, (workload.local_queue, workload.cluster_queue)
    policy, option = decided_by(arrival, occupancy)
    assessment = Assessment(
        option=arrival.option,
        queue=arrival.local_queue,
        cluster_queue=workload.cluster_queue.name,
        needs=arrival.needs,
    )
    remote_options.assess(occupancy, assessment, queues, priority=arrival.priority)
    if option is not None:
        _refuse_small_devices(workload, option, assessment.clusters, occupancy)
    newcomers = remote_options.forecast_starts(
        occupancy, assessment, now=now, priority=arrival.priority
    )
    starts = {
        name: _started_in(workload.waits[name], there) if name in workload.waits else there
        for name, there in newcomers.items()
    }
    found = tuple(
        _prospect(cluster, occupancy, starts.get(cluster.cluster))
        for cluster in assessment.clusters
    )
    if policy is None or option is None or not policy.spec.strategy.forecasts:
        return found
    seeking = _Seeking.of(workload, policy, option, occupancy, unix)
    return _judged(found, seeking, starts) if seeking is not None else found


def _started_in(in_seconds: float, found: FoundStart) -> FoundStart:
    return replace(found, start=Start(seconds=in_seconds, low=in_seconds, high=in_seconds))


def decided_by(
    arrival: Arrival, occupancy: Occupancy
) -> tuple[FallbackPolicy | None, Option | None]:
    """Return the policy and the option of a Workload's decision, as far as they are there."""
    policy = match.named(arrival.policy, arrival.namespace, occupancy.snapshot)
    offered = policy.spec.options if policy is not None else ()
    return policy, next((option for option in offered if option.name == arrival.option), None)


def _prospect(
    cluster: Assessment, occupancy: Occupancy, reached: FoundStart | None
) -> ClusterProspect:
    name = cluster.cluster
    if multikueue.inactive(name, occupancy.snapshot.setup):
        return ClusterProspect(cluster=name, standing=Standing.INACTIVE)
    if name in occupancy.stale:
        return ClusterProspect(cluster=name, standing=Standing.SILENT)
    if cluster.rejection is not None:
        return ClusterProspect(cluster=name, standing=Standing.REFUSED)
    if cluster.starts_now:
        return ClusterProspect(cluster=name, standing=Standing.KNOWN, starts_in=0.0)
    if reached is None or not reached.start.is_known or not isfinite(reached.start.seconds):
        return ClusterProspect(cluster=name, standing=Standing.UNKNOWN)
    return ClusterProspect(cluster=name, standing=Standing.KNOWN, starts_in=reached.start.seconds)


def _refuse_small_devices(
    workload: UnplacedWorkload,
    option: Option,
    clusters: Sequence[Assessment],
    occupancy: Occupancy,
) -> None:
    """Refuse the clusters whose devices are less than the Job needs, as in a decision."""
    snapshot, needs = occupancy.snapshot, workload.arrival.needs
    uses, job_class = snapshot.learned.device_uses, workload.arrival.job_class
    templates = [needed.template for needed in needs]
    for there in clusters:
        if there.rejection is None and there.cluster_queue:
            setup = occupancy.clusters[there.cluster].snapshot.setup
            queue = setup.cluster_queues[there.cluster_queue]
            there.rejection = options.too_small(
                workload.wishes,
                uses.get(job_class.key) if job_class is not None else None,
                option,
                given=options.devices_given(
                    templates, needs, queue, occupancy, cluster=there.cluster
                ),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seeking:
    """A Workload with all by which its policy compares clusters."""

    workload: UnplacedWorkload
    option: Option
    expecting: Expecting
    occupancy: Occupancy
    unix: float

    @classmethod
    def of(
        cls,
        workload: UnplacedWorkload,
        policy: FallbackPolicy,
        option: Option,
        occupancy: Occupancy,
        unix: float,
    ) -> _Seeking | None:
        """Return it; None: its class is not known."""
        job_class, learned = workload.arrival.job_class, occupancy.snapshot.learned
        if job_class is None:
            return None
        is_first = option.name == policy.spec.options[0].name
        expecting = Expecting(
            run_times=learned.run_times,
            start_delays=learned.start_delays,
            job_class=job_class,
            policy=policy,
            first_flavors=workload.flavors if is_first else "",
            said=workload.wishes.run_time,
        )
        return cls(
            workload=workload, option=option, expecting=expecting, occupancy=occupancy, unix=unix
        )


def _judged(
    found: Sequence[ClusterProspect], seeking: _Seeking, starts: Mapping[str, FoundStart]
) -> tuple[ClusterProspect, ...]:
    """Return the prospects with ends and costs, and which of them exceed a limit of the Job."""
    assessments = {
        prospect.cluster: assessment
        for prospect in found
        if prospect.standing is Standing.KNOWN
        and (assessment := _assessed(prospect, seeking, starts.get(prospect.cluster)))
    }
    policy = seeking.expecting.policy
    expectations.refuse_by_limits(list(assessments.values()), seeking.workload.wishes)
    least_cost = policy.spec.strategy.least_cost
    if least_cost is not None:
        _weigh([each for each in assessments.values() if each.place], least_cost, seeking)
    return tuple(
        _with_findings(prospect, assessments[prospect.cluster], by_cost=least_cost is not None)
        if prospect.cluster in assessments
        else prospect
        for prospect in found
    )


def _with_findings(
    prospect: ClusterProspect, assessment: Assessment, *, by_cost: bool
) -> ClusterProspect:
    forecast, cost = assessment.forecast, assessment.cost
    return replace(
        prospect,
        ends_in=forecast.finish if forecast is not None else None,
        run=expected_runs.lasting(forecast),
        cost=cost.total if by_cost and cost is not None else None,
        exceeds=assessment.rejection is not None,
    )


def _assessed(
    prospect: ClusterProspect, seeking: _Seeking, reached: FoundStart | None
) -> Assessment | None:
    """Return a cluster in the form in which options are weighed, under its own name.

    None: how long the Job runs there is not known.
    """
    name, wishes = prospect.cluster, seeking.workload.wishes
    run = _run(seeking, name, reached)
    if run is None:
        return None
    place, started, start = None, None, _NOW
    if reached is not None:
        place = _place(name, reached, seeking)
        delays = seeking.occupancy.clusters[name].snapshot.learned.start_delays
        started = expected_runs.start_up(delays, seeking.expecting.job_class, reached.names)
        # The counts are newer than the forecast, as in a decision.
        start = reached.start if prospect.starts_in else _NOW
    delay = expected_runs.before_run(seeking.option, run, on_way=None, started=started)
    forecast = expectations.forecast_of(start, run, None, delay)
    factor = objective.interruptions(forecast, place, wishes) if place is not None else 1.0
    cost = expectations.cost_in(place, forecast, seeking.unix, factor)
    return Assessment(option=name, queue="", forecast=forecast, cost=cost, place=place)


def _run(seeking: _Seeking, cluster: str, reached: FoundStart | None) -> RunTime | None:
    """Return the expected run in a cluster: as learned there, else as the manager has recorded."""
    expecting = seeking.expecting
    if reached is not None:
        learned = seeking.occupancy.clusters[cluster].snapshot.learned
        there = replace(expecting, run_times=learned.run_times)
        run = expected_runs.estimate(there, seeking.option, reached.names)
        if run is not None and run.basis is Basis.LEARNED:
            return run
    return expected_runs.estimate(expecting, seeking.option, seeking.workload.flavors)


def _place(name: str, reached: FoundStart, seeking: _Seeking) -> Place:
    manager, there = seeking.occupancy.snapshot, seeking.occupancy.clusters[name].snapshot
    prices = in_worker(
        manager.costs.prices.get(name, NO_PRICES),
        reached.usage,
        there.setup.flavors,
        manager.costs.accelerator_profiles,
    )
    here = seeking.workload.local_queue
    queues = remote_options.at_worker(name, seeking.occupancy, (here.namespace, here.name))
    key = seeking.expecting.job_class.key
    learned = there.learned.run_times.get((key, reached.names))
    return Place(
        usage=reached.usage,
        prices=terms.metered(prices, manager.learned.device_uses.get(key)),
        congestion=there.costs.congestion.get(queues[1].name, {}) if queues is not None else {},
        warm=learned.warm if learned is not None else 0.0,
    )


def _weigh(assessments: Sequence[Assessment], least_cost: LeastCost, seeking: _Seeking) -> None:
    """Fill in all terms of what the clusters cost."""
    policy, unix, wishes = seeking.expecting.policy, seeking.unix, seeking.workload.wishes
    snapshot = seeking.occupancy.snapshot
    weight = expectations.weight_of_lateness(policy, least_cost, snapshot, unix)
    places = [assessment.place for assessment in assessments]
    first_hour = objective.first_hour(places, least_cost, unix)
    stakes = objective.stakes_of(least_cost, wishes, first_hour, weight)
    objective.weigh(assessments, stakes, wishes, unix)


def rank(
    found: Sequence[ClusterProspect], policy: FallbackPolicy | None
) -> tuple[ClusterProspect, ...]:
    """Return the clusters, the best first; those where no start is known in their order."""
    measure = measure_of(found, policy)
    left = [prospect for prospect in found if prospect.standing is Standing.KNOWN]
    ranked = []
    while left:
        best = left[0]
        for candidate in left[1:]:
            if measure.gains(candidate, best):
                best = candidate
        left.remove(best)
        ranked.append(best)
    rest = [prospect for prospect in found if prospect.standing is not Standing.KNOWN]
    return (*ranked, *sorted(rest, key=lambda prospect: -prospect.standing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The measure that compares clusters, and what a later one must gain."""

    type: StrategyType
    """Threshold: by their starts."""
    least: float = 0.0
    percent: float = 0.0

    def gains(self, candidate: ClusterProspect, best: ClusterProspect) -> bool:
        """Return whether *candidate* is better than *best* by at least the minimum.

        One that exceeds what the Job allows is never better than one that does not.
        """
        if candidate.exceeds != best.exceeds:
            return best.exceeds
        before = self._amount(best)
        gained = before - self._amount(candidate)
        return gained > 0 and gained >= max(self.least, before * self.percent / 100)

    def gain_in_words(self, candidate: ClusterProspect, best: ClusterProspect) -> str:
        """Return what *candidate* is expected to gain; empty: that is not known."""
        gained = self._amount(best) - self._amount(candidate)
        if not isfinite(gained) or gained <= 0:
            return ""
        return {
            StrategyType.COST: f"costs {figure(gained)} less",
            StrategyType.FINISH_TIME: f"done {span(gained)} sooner",
            StrategyType.THRESHOLD: f"starts {span(gained)} sooner",
        }[self.type]

    def _amount(self, prospect: ClusterProspect) -> float:
        amount = {
            StrategyType.COST: prospect.cost,
            StrategyType.FINISH_TIME: prospect.ends_in,
            StrategyType.THRESHOLD: prospect.starts_in,
        }[self.type]
        return inf if amount is None else amount


def measure_of(
    found: Sequence[ClusterProspect], policy: FallbackPolicy | None, *, moves: bool = False
) -> Measure:
    """Return the policy's measure if it is known of all that would start, else the next simpler.

    *moves*: with what a pending Job must gain to be moved, if the policy reconsiders.
    """
    known = [
        prospect
        for prospect in found
        if prospect.standing is Standing.KNOWN and not prospect.exceeds
    ]
    starts = Measure(type=StrategyType.THRESHOLD)
    if policy is None or not policy.spec.strategy.forecasts:
        return starts
    strategy, moving = policy.spec.strategy, policy.spec.reconsider if moves else None
    if strategy.least_cost is not None and all(prospect.cost is not None for prospect in known):
        saving: Saving = strategy.least_cost.minimum_saving
        if moving is not None:
            saving = moving.minimum_saving or MoveSaving()
        return Measure(
            type=StrategyType.COST, least=float(saving.amount), percent=float(saving.percent)
        )
    if all(prospect.ends_in is not None for prospect in known):
        gain: LeastGain = (strategy.finish_time or FinishTime()).minimum_gain
        if moving is not None:
            gain = moving.minimum_gain
        return Measure(
            type=StrategyType.FINISH_TIME, least=seconds(gain.time), percent=float(gain.percent)
        )
    return starts


class Nomination(StrEnum):
    """Why a cluster is nominated."""

    FIRST = "first"
    BETTER = "better"
    """It is better than those that are nominated, by the minimum gain."""
    LATE = "late"
    """None of those that are nominated has taken the Workload in time."""
    LOST = "lost"
    """None of those that are nominated can be relied on any more."""
    ALL = "all"
    """Nothing can be compared, or all is switched off: every cluster, as without us."""


MEANINGS: Final[Mapping[Nomination, str]] = {
    Nomination.FIRST: "the best by its policy",
    Nomination.BETTER: "better by now than where it waits",
    Nomination.LATE: "where it waits, it was not taken in time",
    Nomination.LOST: "where it waits is not to be relied on",
    Nomination.ALL: "all are asked at once",
}


class NextCluster(NamedTuple):
    """A cluster to nominate beside those that are."""

    cluster: str
    why: Nomination
    gain: str = ""
    """What it is expected to gain, in words; empty: it is not asked for that."""


def next_cluster(
    ranked: Sequence[ClusterProspect],
    nominated: Sequence[str],
    measure: Measure,
    *,
    waited: float,
    is_late: bool,
    after: float = 0.0,
) -> NextCluster | None:
    """Return the cluster to add to those nominated; None: not now.

    *waited*: seconds since the last one was; *is_late*: that one should have taken the Workload.
    *measure* says what a better one must gain, and *after* how many seconds those nominated have.
    """
    others = [prospect for prospect in ranked if prospect.cluster not in nominated]
    if not others:
        return None
    best, asked = others[0], [prospect for prospect in ranked if prospect.cluster in nominated]
    if not asked:
        return NextCluster(best.cluster, Nomination.FIRST)
    if waited < AGAIN_SECONDS:
        return None
    if asked[0].standing <= Standing.SILENT:
        return NextCluster(best.cluster, Nomination.LOST)
    if is_late:
        return NextCluster(best.cluster, Nomination.LATE)
    return _better(best, asked[0], measure) if waited >= after else None


def _better(best: ClusterProspect, asked: ClusterProspect, measure: Measure) -> NextCluster | None:
    if best.standing is not Standing.KNOWN:
        return None
    if asked.standing is not Standing.KNOWN:
        return NextCluster(best.cluster, Nomination.BETTER)
    if not measure.gains(best, asked):
        return None
    return NextCluster(best.cluster, Nomination.BETTER, measure.gain_in_words(best, asked))


class AskedClusters(NamedTuple):
    """The clusters that are nominated for a Workload."""

    clusters: tuple[str, ...] = ()
    since: float = 0.0
    """When the last one was, or the Workload got its quota, in seconds since 1970."""
    patient_until: float | None = None
    """Until when they should have taken it, likewise; None: that is still to be worked out."""


def stays(policy: FallbackPolicy | None) -> float:
    """Return for how many seconds those nominated are given before a better cluster is asked."""
    moving = policy.spec.reconsider if policy is not None else None
    return AGAIN_SECONDS if moving is None else max(AGAIN_SECONDS, seconds(moving.after))


def choose(
    found: Sequence[ClusterProspect],
    policy: FallbackPolicy | None,
    asked: AskedClusters,
    unix: float,
) -> tuple[NextCluster | None, float]:
    """Return the cluster to add to those nominated, if any, and until when all are given time.

    What was expected when they were nominated holds; of those that another leader has nominated,
    what is expected now.
    """
    until = asked.patient_until
    if until is None:
        expected = expected_in(found, asked.clusters)
        until = (unix if expected else asked.since) + expected + MARGIN_SECONDS
    choice = next_cluster(
        rank(found, policy),
        asked.clusters,
        measure_of(found, policy, moves=True),
        waited=unix - asked.since,
        is_late=unix > until,
        after=stays(policy),
    )
    if choice is not None:
        until = unix + expected_in(found, (*asked.clusters, choice.cluster)) + MARGIN_SECONDS
    return choice, until


def placed_in(cluster: str, arrival: Arrival, found: Sequence[ClusterProspect]) -> Arrival:
    """Return a Workload's arrival in a cluster, with the run that is expected there."""
    run = next((prospect.run for prospect in found if prospect.cluster == cluster), None)
    return replace(arrival, cluster=cluster, run=run or arrival.run)


def expected_in(found: Sequence[ClusterProspect], nominated: Sequence[str]) -> float:
    """Return in how many seconds the first of the nominated clusters should start it.

    0: it is not known.
    """
    starts = [prospect.starts_in for prospect in found if prospect.cluster in nominated]
    soonest = min(starts, default=inf)
    return soonest if isfinite(soonest) else 0.0
