"""The result of a replay: each Job's way, and the figures by which strategies are compared.

Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from webhook.adapt.accelerators import is_accelerator
from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.decide.objective import stakes_of, transfer_of
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.strategy import LeastCost
from webhook.model.quantity import Amounts, FlavorResource
from webhook.simulate.scenario import ReplayedPrices

_NOTICED_SECONDS = 0.5
"""A Job that ends later by less does not count as slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """What a Job really came to, or several together; None: it is not known."""

    money: float | None
    """Money for rates and electricity."""
    kwh: float | None
    kilograms: float | None
    """CO2."""
    transfer: float | None
    """Money for data that was not where it ran, in full for each run; None: no data was missing."""
    late: float | None
    """Seconds after its deadline; None: it has none."""
    total: float | None
    """With transfer, and carbon, time and lateness as the first policy by Cost weighs them."""


class LostRun(NamedTuple):
    """A run that ended with a preemption; seconds since the scenario's start."""

    queue: str
    """The LocalQueue that the Job was in."""
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One Job's way through a replay; seconds since the scenario's start."""

    name: str
    template: str
    arrival: float
    submitted: str
    """The LocalQueue that it was created for."""
    queue: str
    """The LocalQueue that it was sent to."""
    priority_class: str = ""
    """The one that its option gives it, else its own; empty: it has none."""
    accelerators: int = 0
    """How many it was submitted for, all its pods together."""
    cluster: str = ""
    """The worker cluster that took it; empty: it ran here, or nowhere."""
    option: str = ""
    """Empty: no policy decided."""
    policy: str = ""
    """The policy that decided, even if the Job stays."""
    why: str = ""
    """Why it is not moved; empty: it is, or no policy decided."""
    start: float | None = None
    """When it started, for the last time; None: it never did within the replay."""
    preempted: int = 0
    """How often it was preempted."""
    lost: tuple[LostRun, ...] = ()
    """The runs that it lost by that, the first one first."""
    interrupted: int = 0
    """How often it was interrupted while it ran, as on spot capacity."""
    finish: float | None = None
    static_finish: float | None = None
    """When it ends under no policy at all; None: unknown, or never."""
    held: Amounts = field(default_factory=dict)
    """Quota that it was charged while it ran."""
    parts: Mapping[FlavorResource, float] = field(default_factory=dict)
    """Which part of a device a unit is of what counts slices or shares; else a whole one."""
    cost: JobCost | None = None
    """None: nothing has a price in the scenario, or it did not end."""

    @property
    def is_moved(self) -> bool:
        return self.queue != self.submitted

    @property
    def is_slower(self) -> bool:
        """Return whether it ends noticeably later than it would have without any policy."""
        if self.static_finish is None:
            return False
        return self.finish is None or self.finish > self.static_finish + _NOTICED_SECONDS


class ServiceMoment(NamedTuple):
    """How a service does from a moment on."""

    at: float
    """Seconds since the scenario's start."""
    rate: float
    """Requests a second."""
    replicas: int
    """Those that serve."""
    latency: float
    """Seconds, as the percentile; infinite: its requests wait longer and longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """What became of a service in a replay."""

    name: str
    queue: str
    """The LocalQueue that it was sent to."""
    option: str
    """Empty: no policy decided, or it was left as submitted."""
    target: float
    """Seconds of latency, as the percentile."""
    moments: tuple[ServiceMoment, ...]
    """Ascending; the first is its creation."""
    ends: float
    device_hours: Mapping[str, float]
    cost: JobCost | None
    """None: nothing has a price in the scenario."""

    @property
    def within(self) -> float:
        """Return in what part of its time its latency is met."""
        return self._mean(lambda moment: float(moment.latency <= self.target))

    @property
    def fewest(self) -> int:
        return min(moment.replicas for moment in self.moments)

    @property
    def most(self) -> int:
        return max(moment.replicas for moment in self.moments)

    @property
    def mean_replicas(self) -> float:
        return self._mean(lambda moment: moment.replicas)

    def _mean(self, value: Callable[[ServiceMoment], float]) -> float:
        ends = (*(moment.at for moment in self.moments[1:]), self.ends)
        weighted = (value(m) * (end - m.at) for m, end in zip(self.moments, ends, strict=True))
        return sum(weighted) / (self.ends - self.moments[0].at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Figures over Jobs that finished; times in seconds, None if none did."""

    jobs: int
    finished: int
    makespan: float | None
    """Time from the first arrival to the last finish."""
    mean_turnaround: float | None
    """Mean time from arrival to finish."""
    p95_turnaround: float | None
    mean_wait: float | None
    """Mean time from arrival to start."""
    device_hours: Mapping[str, float]
    """Hours of accelerators in use, by flavor."""
    moved: int
    slower: int
    preempted: int = 0
    """Preemptions, of all Jobs together."""
    interrupted: int = 0
    """Interruptions of what ran, likewise."""
    late: int = 0
    """Jobs that ended after their deadline."""
    costs: JobCost | None = None
    """None: nothing has a price in the scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one strategy."""

    strategy: str
    jobs: tuple[JobResult, ...]
    """In order of arrival."""
    services: tuple[ServiceResult, ...] = ()

    @property
    def totals(self) -> Totals:
        """Return the figures over all Jobs; devices and costs are those of services, too."""
        of_jobs = totals(self.jobs)
        hours = Counter(of_jobs.device_hours)
        for service in self.services:
            hours.update(service.device_hours)
        costs = [of_jobs.costs, *(service.cost for service in self.services)]
        return replace(
            of_jobs,
            device_hours=dict(sorted(hours.items())),
            costs=total_costs([cost for cost in costs if cost is not None]),
        )

    def of(self, template: str) -> tuple[JobResult, ...]:
        return tuple(job for job in self.jobs if job.template == template)

    def of_priority(self, priority_class: str) -> tuple[JobResult, ...]:
        return tuple(job for job in self.jobs if job.priority_class == priority_class)

    def of_width(self, accelerators: int) -> tuple[JobResult, ...]:
        return tuple(job for job in self.jobs if job.accelerators == accelerators)

    def in_cluster(self, name: str) -> tuple[JobResult, ...]:
        return tuple(job for job in self.jobs if job.cluster == name)


def totals(jobs: Sequence[JobResult]) -> Totals:
    ends = [job.finish for job in jobs if job.finish is not None]
    turnarounds = [job.finish - job.arrival for job in jobs if job.finish is not None]
    waits = [job.start - job.arrival for job in jobs if job.start is not None]
    first = min((job.arrival for job in jobs), default=0.0)
    return Totals(
        jobs=len(jobs),
        finished=len(ends),
        makespan=max(ends) - first if ends else None,
        mean_turnaround=_mean(turnarounds),
        p95_turnaround=percentile(turnarounds, 95) if turnarounds else None,
        mean_wait=_mean(waits),
        device_hours=_device_hours(jobs),
        moved=sum(job.is_moved for job in jobs),
        slower=sum(job.is_slower for job in jobs),
        preempted=sum(job.preempted for job in jobs),
        interrupted=sum(job.interrupted for job in jobs),
        late=sum(bool(job.cost and job.cost.late) for job in jobs),
        costs=total_costs([job.cost for job in jobs if job.cost is not None]),
    )


def total_costs(costs: Sequence[JobCost]) -> JobCost | None:
    """Return what several came to together; None: there is none."""
    if not costs:
        return None
    return JobCost(
        money=_sum(cost.money for cost in costs),
        kwh=_sum(cost.kwh for cost in costs),
        kilograms=_sum(cost.kilograms for cost in costs),
        transfer=_sum(cost.transfer for cost in costs),
        late=_sum(cost.late for cost in costs),
        total=_sum(cost.total for cost in costs),
    )


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def compared(result: Result, static: Result) -> Result:
    """Return the result with each Job's finish under no policy."""
    ends = {job.name: job.finish for job in static.jobs}
    jobs = (replace(job, static_finish=ends.get(job.name)) for job in result.jobs)
    return replace(result, jobs=tuple(jobs))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _device_hours(jobs: Sequence[JobResult]) -> Mapping[str, float]:
    by_flavor = Counter[str]()
    for job in jobs:
        if job.start is not None and job.finish is not None:
            by_flavor.update(device_hours(job.held, job.parts, job.finish - job.start))
    return dict(sorted(by_flavor.items()))


def device_hours(
    held: Amounts, parts: Mapping[FlavorResource, float], seconds: float
) -> Mapping[str, float]:
    """Return the hours of accelerators, by flavor, of what holds quota for so many seconds."""
    by_flavor: dict[str, float] = {}
    for (flavor, resource), amount in held.items():
        if is_accelerator(resource):
            used = amount * parts.get((flavor, resource), 1.0) * seconds / HOUR
            by_flavor[flavor] = by_flavor.get(flavor, 0.0) + used
    return by_flavor


def costed(
    jobs: Sequence[JobResult],
    prices: ReplayedPrices,
    policies: Sequence[FallbackPolicy],
    wishes: Mapping[str, Wishes],
) -> tuple[JobResult, ...]:
    """Return the Jobs with what each came to; *wishes* is by name, for those that have any."""
    rules = rules_of(policies)
    # Prices are compiled for an hour and those around it, so Jobs that end at about the same time
    # follow one another.
    by_end = sorted(jobs, key=lambda job: job.finish or 0.0)
    costs = {job.name: _cost(job, prices, rules, wishes.get(job.name, Wishes())) for job in by_end}
    return tuple(replace(job, cost=costs[job.name]) for job in jobs)


def rules_of(policies: Sequence[FallbackPolicy]) -> LeastCost | None:
    """Return what time, lateness and CO2 are worth; None: nothing.

    That is as the first policy by Cost says, whoever decided, so that strategies are compared by
    one measure.
    """
    by_cost = (policy.spec.strategy.least_cost for policy in policies)
    return next((rules for rules in by_cost if rules is not None), None)


def _cost(
    job: JobResult, prices: ReplayedPrices, rules: LeastCost | None, wishes: Wishes
) -> JobCost | None:
    """Return what a Job came to; None: it has not ended."""
    if job.start is None or job.finish is None:
        return None
    begin, end = prices.start + job.start, prices.start + job.finish
    # Prices are compiled for some days: those around the end reach back to the beginning.
    there = prices.at(end).get(job.cluster, Prices())
    found = terms.cost_of(job.held, there, Span(reserved=begin, begun=begin, end=end))
    late = None
    if wishes.deadline is not None:
        late = max(0.0, job.finish - job.arrival - wishes.deadline)
    kilograms = found.kilograms
    transfer = transfer_of(there, wishes.data) or None
    total = found.paid if transfer is None else (found.paid or 0.0) + transfer
    if rules is not None:
        stakes = stakes_of(rules, wishes, 1.0)
        total = (total or 0.0) + stakes.carbon_price * (kilograms or 0.0)
        total += stakes.time_value * (job.finish - job.arrival) / HOUR
        if late:
            total += stakes.late_hour * late / HOUR + stakes.late_fixed
    return JobCost(
        money=found.paid,
        kwh=found.kwh,
        kilograms=kilograms,
        transfer=transfer,
        late=late,
        total=total,
    )
