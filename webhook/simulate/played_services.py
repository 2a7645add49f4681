"""The services of a replay: each of their replicas is a Workload while it is there.

How many replicas there are is decided here, and what became of them is kept; which of them get
quota is decided by the queues. An autoscaler adds at once what is missing. What is too much it
removes as the controller's does: only after some minutes, and then one after the other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from webhook.cost import terms
from webhook.cost.service_level import MOST_REPLICAS, ReplicaSpeed, level_at, replicas_for
from webhook.cost.terms import Span
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.model.costs.prices import Prices
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import Arrival
from webhook.reconsider.autoscaling import SHRINK_SECONDS, STABLE_SECONDS
from webhook.simulate.results import (
    JobCost,
    ServiceMoment,
    ServiceResult,
    device_hours,
    rules_of,
    total_costs,
)
from webhook.simulate.scenario import ReplayedPrices, ServiceRun, Submission


class Scale(NamedTuple):
    """How many replicas an autoscaler may make."""

    fewest: int | None
    """None: as many as its stated rate needs."""
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedService:
    """A service as it was decided."""

    job: Job
    arrival: Arrival
    """Of one of its replicas."""
    replicas: int
    scale: Scale | None = None
    """None: nobody scales it."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """The quota that a replica has, or had."""

    start: float
    end: float = inf
    usage: Amounts
    parts: Mapping[FlavorResource, float]
    speed: ReplicaSpeed


class Services:
    """All services of a replay."""

    def __init__(self, runs: Iterable[ServiceRun]) -> None:
        self._coming = deque(sorted(runs, key=lambda run: run.created))
        self.by_name: dict[str, PlayedService] = {}
        """Those that were created."""

    @property
    def next_step(self) -> float:
        """Return when services or replicas come or go next; inf: never again."""
        steps = [played.next_step for played in self.by_name.values()]
        return min([*steps, *(run.created for run in self._coming)], default=inf)

    def created(self, now: float) -> ServiceRun | None:
        """Return the next service that is created now; None: none is."""
        is_due = self._coming and self._coming[0].created <= now
        return self._coming.popleft() if is_due else None

    def add(self, run: ServiceRun, placed: PlacedService) -> None:
        """Add one that was created and decided."""
        self.by_name[run.name] = PlayedService(run, placed)

    def due(self, now: float) -> Sequence[PlayedService]:
        """Return the services of which replicas come or go now."""
        return [played for played in self.by_name.values() if played.next_step <= now]

    def results(
        self, prices: ReplayedPrices | None, policies: Sequence[FallbackPolicy]
    ) -> tuple[ServiceResult, ...]:
        """Return what became of them; *policies* as in ``results.costed``."""
        rules = rules_of(policies)
        carbon_price = 0.0 if rules is None else float(rules.carbon_price)
        return tuple(played.result(prices, carbon_price) for played in self.by_name.values())


class PlayedService:
    """One service in the course of a replay."""

    def __init__(self, run: ServiceRun, placed: PlacedService) -> None:
        self.run, self.placed = run, placed
        self.next_step = run.created
        self.waiting: dict[str, None] = {}
        """The replicas without quota, the oldest first."""
        self._holding: dict[str, _Held] = {}
        self._held: list[_Held] = []
        """All quota that replicas ever had."""
        self._count = 0
        self._shrinks_at = inf

    def coming(self, now: float) -> Iterator[Submission]:
        """Yield the replicas that are created now."""
        for _ in range(self._wanted(now) - self._replicas):
            self._count += 1
            key = f"{self.run.name}-{self._count}"
            self.waiting[key] = None
            yield Submission(at=now, name=key, template=self.run.name)

    def going(self, now: float) -> Sequence[tuple[str, bool]]:
        """Return the replicas that are removed now, and whether each has quota.

        First those that wait, and then the youngest.
        """
        spare = self._replicas - self._wanted(now)
        if now < self.run.ends:
            spare = self._removed_now(spare, now)
        coming = [at for at in (*self.run.rates, self._shrinks_at, self.run.ends) if at > now]
        self.next_step = min(coming) if now < self.run.ends else inf
        there = [*((key, True) for key in self._holding), *((key, False) for key in self.waiting)]
        gone = there[len(there) - max(0, spare) :]
        for key, _ in gone:
            self.waiting.pop(key, None)
        return gone

    def _removed_now(self, spare: int, now: float) -> int:
        """Return how many of *spare* replicas an autoscaler removes, and note when it goes on."""
        if spare <= 0:
            self._shrinks_at = inf
            return 0
        if self._shrinks_at == inf:
            self._shrinks_at = now + STABLE_SECONDS
        if self._shrinks_at > now:
            return 0
        self._shrinks_at = now + SHRINK_SECONDS
        return 1

    @property
    def _replicas(self) -> int:
        return len(self.waiting) + len(self._holding)

    def _wanted(self, now: float) -> int:
        """Return how many replicas there are to be."""
        if now >= self.run.ends:
            return 0
        if self.placed.scale is None or not self._holding:
            return max(self._replicas, self.placed.replicas)
        fewest, most = self.placed.scale
        needed = self._needed(self.run.rate_at(now))
        return min(max(needed, fewest or self._needed(self.run.stated)), most)

    def _needed(self, rate: float) -> int:
        """Return how many replicas as those with quota hold the latency; the most if none do."""
        speed = _together(held.speed for held in self._holding.values())
        level = replicas_for(rate, self.run.target, speed)
        return MOST_REPLICAS if level is None else level.replicas

    def begin(
        self, begun: StartedWorkloads, usage: Amounts, parts: Mapping[FlavorResource, float]
    ) -> None:
        """Let a replica have quota."""
        flavors = ",".join(sorted(set(begun.flavors)))
        speed = self.run.speed_on(flavors, self.placed.arrival.option)
        held = _Held(start=begun.at, usage=usage, parts=parts, speed=speed)
        self.waiting.pop(begun.key, None)
        self._holding[begun.key] = held
        self._held.append(held)
        if self.placed.scale is not None:
            self.next_step = begun.at

    def end(self, key: str, at: float) -> None:
        """Let a replica give its quota back."""
        self._holding.pop(key).end = at

    def preempt(self, key: str, at: float) -> None:
        """Let a replica lose its quota, and wait again."""
        self.end(key, at)
        self.waiting[key] = None

    def result(self, prices: ReplayedPrices | None, carbon_price: float) -> ServiceResult:
        """Return what became of it; *carbon_price* is for a kilogram."""
        hours, costs = Counter[str](), []
        for held in self._held:
            hours.update(device_hours(held.usage, held.parts, held.end - held.start))
            if prices is not None:
                costs.append(_cost(held, prices, carbon_price))
        return ServiceResult(
            name=self.run.name,
            queue=self.placed.arrival.local_queue,
            option=self.placed.arrival.option,
            target=self.run.target,
            moments=tuple(self._moments()),
            ends=self.run.ends,
            device_hours=hours,
            cost=total_costs(costs),
        )

    def _moments(self) -> Iterator[ServiceMoment]:
        """Yield how it does, from each moment on at which that changes."""
        served = [(held.start + self.run.startup, held.end, held.speed) for held in self._held]
        changes = {*self.run.rates, *(at for start, end, _ in served for at in (start, end))}
        last = None
        for at in sorted(at for at in changes if at < self.run.ends):
            rate = self.run.rate_at(at)
            speeds = [speed for start, end, speed in served if start <= at < end]
            level = level_at(rate, len(speeds), _together(speeds)) if speeds else None
            latency = inf if level is None else level.latency
            now = (rate, len(speeds), latency)
            if now != last:
                yield ServiceMoment(at, *now)
            last = now


def _together(speeds: Iterable[ReplicaSpeed]) -> ReplicaSpeed:
    """Return the speed that replicas have together: their mean rate, and the worst latency."""
    each = list(speeds)
    return ReplicaSpeed(
        per_second=sum(speed.per_second for speed in each) / len(each),
        latency=max(speed.latency for speed in each),
    )


def _cost(held: _Held, prices: ReplayedPrices, carbon_price: float) -> JobCost:
    begin, end = prices.start + held.start, prices.start + held.end
    # Prices are compiled for some days: those around the end reach back to the beginning.
    there = prices.at(end).get("", Prices())
    found = terms.cost_of(held.usage, there, Span(reserved=begin, begun=begin, end=end))
    return JobCost(
        money=found.paid,
        kwh=found.kwh,
        kilograms=found.kilograms,
        transfer=None,
        late=None,
        total=found.paid_with(carbon_price),
    )
