"""What a replay costs: prices in the course of it, and what each Job really came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.decide.objective import stakes_of
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.strategy import LeastCost
from webhook.simulate.results import JobCost, JobResult
from webhook.state.price_compiler import PriceCompiler, PriceSources

EPOCH: Final = 1
"""Seconds since 1970 at the start of a scenario that does not say when it starts: 0 stands for no
admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPrices:
    """What resources cost in the course of a replay."""

    start: int
    """Seconds since 1970 at the scenario's start."""
    sources: PriceSources
    compiler: PriceCompiler = field(default_factory=PriceCompiler)

    def at(self, unix: float) -> Mapping[str, Prices]:
        """Return the prices by cluster around *unix*, in seconds since 1970."""
        return self.compiler.compile(self.sources, unix)[1]


def costed(
    jobs: Sequence[JobResult],
    prices: ReplayedPrices,
    policies: Sequence[FallbackPolicy],
    wishes: Mapping[str, Wishes],
) -> tuple[JobResult, ...]:
    """Return the Jobs with what each came to; *wishes* is by name, for those that have any.

    Time and lateness are worth what the first policy by Cost says, whoever decided, so that
    strategies are compared by one measure.
    """
    rules = next(
        (
            policy.spec.strategy.least_cost
            for policy in policies
            if policy.spec.strategy.least_cost is not None
        ),
        None,
    )
    # Prices are compiled for an hour and those around it, so Jobs that end at about the same time
    # follow one another.
    by_end = sorted(jobs, key=lambda job: job.finish or 0.0)
    costs = {job.name: _cost(job, prices, rules, wishes.get(job.name, Wishes())) for job in by_end}
    return tuple(replace(job, cost=costs[job.name]) for job in jobs)


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
    total = found.paid
    if rules is not None:
        stakes = stakes_of(rules, wishes, 1.0)
        total = (total or 0.0) + stakes.carbon_price * (kilograms or 0.0)
        total += stakes.time_value * (job.finish - job.arrival) / HOUR
        if late:
            total += stakes.late_hour * late / HOUR + stakes.late_fixed
    return JobCost(money=found.paid, kwh=found.kwh, kilograms=kilograms, late=late, total=total)
