"""Ranks the worker clusters behind MultiKueue for a Workload, and tells when to ask another.

The measure is that of the policy by which its Job was decided: when it ends, what it costs, else
when it starts. A cluster later in the MultiKueueConfig comes before an earlier one only where it
gains the policy's minimum. Who nominates clusters, and how, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from math import inf, isfinite
from typing import Final

from webhook.cost import terms
from webhook.cost.cluster_prices import in_worker
from webhook.decide import match, objective, remote_options, wishes
from webhook.kueue import multikueue
from webhook.kueue.newcomer import FoundStart
from webhook.learn import expected_runs
from webhook.learn.expected_runs import Expecting
from webhook.model.costs.prices import NO_PRICES, Place
from webhook.model.decision import Assessment
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, StrategyType, seconds
from webhook.model.policy.strategy import FinishTime, LeastCost
from webhook.model.queues import Arrival, ClusterQueue, LocalQueue
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


def prospects(
    arrival: Arrival,
    queues: tuple[LocalQueue, ClusterQueue],
    flavors: str,
    occupancy: Occupancy,
    *,
    now: float,
    unix: float,
) -> tuple[ClusterProspect, ...]:
    """Return what is expected in each cluster behind its queue, in the MultiKueueConfig's order.

    *queues* and *flavors* are those of the manager, where the Workload has its quota.
    *now* is in seconds on the clock of ``Snapshot.as_of``, *unix* the same in seconds since 1970.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    assessment = Assessment(
        option=arrival.option,
        queue=arrival.local_queue,
        cluster_queue=queues[1].name,
        needs=arrival.needs,
    )
    remote_options.assess(occupancy, assessment, queues, priority=arrival.priority)
    starts = remote_options.forecast_starts(
        occupancy, assessment, now=now, priority=arrival.priority
    )
    found = tuple(
        _prospect(cluster, occupancy, starts.get(cluster.cluster))
        for cluster in assessment.clusters
    )
    policy, option = decided_by(arrival, occupancy)
    if policy is None or option is None or arrival.job_class is None:
        return found
    if not policy.spec.strategy.forecasts:
        return found
    learned = occupancy.snapshot.learned
    expecting = Expecting(
        run_times=learned.run_times,
        start_delays=learned.start_delays,
        job_class=arrival.job_class,
        policy=policy,
        first_flavors=flavors if option.name == policy.spec.options[0].name else "",
    )
    runs = {
        prospect.cluster: _run(expecting, option, flavors, occupancy, prospect.cluster, starts)
        for prospect in found
    }
    ends = tuple(_with_end(prospect, runs[prospect.cluster]) for prospect in found)
    least_cost = policy.spec.strategy.least_cost
    if least_cost is None:
        return ends
    costs = _costs(ends, runs, starts, occupancy, (least_cost, unix), assessment.clusters)
    return tuple(replace(prospect, cost=costs.get(prospect.cluster)) for prospect in ends)


def decided_by(
    arrival: Arrival, occupancy: Occupancy
) -> tuple[FallbackPolicy | None, Option | None]:
    """Return the policy and the option of a Workload's decision, as far as they are there."""
    policy = match.named(arrival.policy, arrival.namespace, occupancy.snapshot)
    options = policy.spec.options if policy is not None else ()
    return policy, next((option for option in options if option.name == arrival.option), None)


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


def _with_end(prospect: ClusterProspect, run: RunTime | None) -> ClusterProspect:
    if run is None or prospect.standing is not Standing.KNOWN:
        return prospect
    return replace(prospect, ends_in=prospect.starts_in + run.seconds)


def _run(
    expecting: Expecting,
    option: Option,
    flavors: str,
    occupancy: Occupancy,
    cluster: str,
    starts: Mapping[str, FoundStart],
) -> RunTime | None:
    """Return the expected run in a cluster: as learned there, else as the manager has recorded."""
    if (reached := starts.get(cluster)) is not None:
        there = replace(expecting, run_times=occupancy.clusters[cluster].snapshot.learned.run_times)
        run = expected_runs.estimate(there, option, reached.names)
        if run is not None and run.basis is Basis.LEARNED:
            return run
    return expected_runs.estimate(expecting, option, flavors)


def _costs(
    ends: Sequence[ClusterProspect],
    runs: Mapping[str, RunTime | None],
    starts: Mapping[str, FoundStart],
    occupancy: Occupancy,
    weighing: tuple[LeastCost, float],
    clusters: Sequence[Assessment],
) -> Mapping[str, float | None]:
    """Return what each cluster costs in all, of those where end and usage are known."""
    least_cost, unix = weighing
    known = [
        prospect.cluster
        for prospect in ends
        if prospect.ends_in is not None and prospect.cluster in starts
    ]
    queues = {cluster.cluster: cluster.cluster_queue for cluster in clusters}
    places = [_place(name, queues[name], starts[name], occupancy) for name in known]
    starting = {prospect.cluster: prospect.starts_in for prospect in ends}
    assessments = [
        _assessed(name, starting[name], runs[name], place, unix)
        for name, place in zip(known, places, strict=True)
    ]
    stakes = objective.stakes_of(
        least_cost, wishes.NONE, objective.first_hour(places, least_cost, unix)
    )
    objective.weigh(assessments, stakes, wishes.NONE, unix)
    return {
        assessment.option: assessment.cost.total if assessment.cost is not None else None
        for assessment in assessments
    }


def _place(name: str, queue: str, reached: FoundStart, occupancy: Occupancy) -> Place:
    manager, there = occupancy.snapshot, occupancy.clusters[name].snapshot
    prices = in_worker(
        manager.costs.prices.get(name, NO_PRICES),
        reached.usage,
        there.setup.flavors,
        manager.costs.accelerator_profiles,
    )
    congestion = there.costs.congestion.get(queue, {})
    return Place(usage=reached.usage, prices=prices, congestion=congestion)


def _assessed(
    name: str, starts_in: float, run: RunTime | None, place: Place, unix: float
) -> Assessment:
    """Return a cluster in the form in which options are weighed, under its own name."""
    start = replace(_NOW, seconds=starts_in, low=starts_in, high=starts_in)
    end = expected_runs.later(start, run)
    forecast = Forecast(
        start=start, run=run, finish=end.seconds, finish_low=end.low, finish_high=end.high
    )
    factor = objective.interruptions(forecast, place, wishes.NONE)
    span = terms.span_of(forecast, unix, factor)
    cost = terms.cost_of(place.usage, place.prices, span) if span is not None else None
    return Assessment(option=name, queue="", forecast=forecast, cost=cost, place=place)


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
        """Return whether *candidate* is better than *best* by at least the minimum."""
        before = self._amount(best)
        gained = before - self._amount(candidate)
        return gained > 0 and gained >= max(self.least, before * self.percent / 100)

    def _amount(self, prospect: ClusterProspect) -> float:
        amount = {
            StrategyType.COST: prospect.cost,
            StrategyType.FINISH_TIME: prospect.ends_in,
            StrategyType.THRESHOLD: prospect.starts_in,
        }[self.type]
        return inf if amount is None else amount


def measure_of(found: Sequence[ClusterProspect], policy: FallbackPolicy | None) -> Measure:
    """Return the policy's measure if it is known of all that would start, else the next simpler."""
    known = [prospect for prospect in found if prospect.standing is Standing.KNOWN]
    starts = Measure(type=StrategyType.THRESHOLD)
    if policy is None or not policy.spec.strategy.forecasts:
        return starts
    strategy = policy.spec.strategy
    if strategy.least_cost is not None and all(prospect.cost is not None for prospect in known):
        saving = strategy.least_cost.minimum_saving
        return Measure(
            type=StrategyType.COST, least=float(saving.amount), percent=float(saving.percent)
        )
    if all(prospect.ends_in is not None for prospect in known):
        gain = (strategy.finish_time or FinishTime()).minimum_gain
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


def next_cluster(
    ranked: Sequence[ClusterProspect],
    nominated: Sequence[str],
    measure: Measure,
    *,
    waited: float,
    is_late: bool,
) -> tuple[str, Nomination] | None:
    """Return the cluster to add to those nominated, and why; None: not now.

    *waited*: seconds since the last one was; *is_late*: that one should have taken the Workload.
    """
    others = [prospect for prospect in ranked if prospect.cluster not in nominated]
    if not others:
        return None
    best, asked = others[0], [prospect for prospect in ranked if prospect.cluster in nominated]
    if not asked:
        return best.cluster, Nomination.FIRST
    if waited < AGAIN_SECONDS:
        return None
    if asked[0].standing <= Standing.SILENT:
        return best.cluster, Nomination.LOST
    if is_late:
        return best.cluster, Nomination.LATE
    if best.standing is Standing.KNOWN and (
        asked[0].standing is not Standing.KNOWN or measure.gains(best, asked[0])
    ):
        return best.cluster, Nomination.BETTER
    return None


def expected_in(found: Sequence[ClusterProspect], nominated: Sequence[str]) -> float:
    """Return in how many seconds the first of the nominated clusters should start it.

    0: it is not known.
    """
    starts = [prospect.starts_in for prospect in found if prospect.cluster in nominated]
    soonest = min(starts, default=inf)
    return soonest if isfinite(soonest) else 0.0
