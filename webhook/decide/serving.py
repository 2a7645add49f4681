"""Sizes a service for an option: how many replicas hold its latency there, and what they cost.

For services that say their request rate, under strategy Cost. What one replica does on the option's
device is what the policy says, or else what was learned, or else derived from the first option of
which either is known. It must not know how an option is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeAlias

from webhook.adapt.adaptation import scaled
from webhook.cost import terms
from webhook.cost.service_level import (
    MOST_REPLICAS,
    ReplicaSpeed,
    ServiceLevel,
    level_at,
    replicas_for,
)
from webhook.cost.terms import Span
from webhook.decide import expectations, objective
from webhook.decide.applicant import Applicant
from webhook.jobs import BY_NAME
from webhook.learn.device_runs import DevicePart, guess
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.costs.prices import DAY, HOUR, NO_PRICES, Cost, Place
from webhook.model.costs.service import Autoscaler
from webhook.model.decision import Assessment, Rejection
from webhook.model.job import Job, PodSets
from webhook.model.policy.custom_object import AUTO
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, seconds
from webhook.model.queues import PodSetNeeds
from webhook.model.reasons import Reason
from webhook.model.words import brief

PartsOf: TypeAlias = Callable[[Option], Sequence[DevicePart | None]]
"""The parts of devices that a replica could get in an option; of what is not known None."""
LearnedIn: TypeAlias = Callable[[Option], LearnedServing | None]
"""What a replica was learned to do in an option; None: that was not learned."""
_PER_CENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What one replica does in an option."""

    speed: ReplicaSpeed
    is_guess: bool = False
    """Whether it is derived from the devices' data sheets alone."""
    points: int = 0
    """As in ``ServiceLevel``."""


def known_of(
    policy: FallbackPolicy, option: Option, parts_of: PartsOf, learned_in: LearnedIn
) -> Known | None:
    """Return what one replica does in an option; None: nothing tells."""
    own = _told(option, learned_in)
    if own is not None:
        return own
    others = ((each, _told(each, learned_in)) for each in policy.spec.options)
    told, there = next(((each, found) for each, found in others if found), (option, None))
    if there is None:
        return None
    slowdowns = [_slowdown(policy, each) for each in (told, option)]
    if None not in slowdowns:
        first, other = (slowdown or 1.0 for slowdown in slowdowns)
        return replace(there, speed=_slower(there.speed, other / first))
    ratio = _slowest(parts_of(told), parts_of(option))
    if ratio is None:
        return None
    return replace(there, speed=_slower(there.speed, ratio), is_guess=True)


def _told(option: Option, learned_in: LearnedIn) -> Known | None:
    """Return what the policy says of an option, or else what was learned; None: neither."""
    if option.serving is not None:
        said = option.serving
        per_second, latency = float(said.requests_per_second), seconds(said.latency)
        return Known(speed=ReplicaSpeed(per_second=per_second, latency=latency))
    learned = learned_in(option)
    if learned is None:
        return None
    speed = ReplicaSpeed(per_second=learned.per_second, latency=learned.latency)
    return Known(speed=speed, points=learned.points)


def _slowdown(policy: FallbackPolicy, option: Option) -> float | None:
    return 1.0 if option is policy.spec.options[0] else option.slowdown


def _slower(speed: ReplicaSpeed, times: float) -> ReplicaSpeed:
    return ReplicaSpeed(per_second=speed.per_second / times, latency=speed.latency * times)


def _slowest(told: Sequence[DevicePart | None], parts: Sequence[DevicePart | None]) -> float | None:
    """Return how much longer a request takes at worst; None: that of some device is not known."""
    guesses = [guess(one, other) for one in told for other in parts]
    ratios = [found.ratio for found in guesses if found is not None]
    return max(ratios) if ratios and len(ratios) == len(guesses) else None


def sized(
    applicant: Applicant, option: Option, job: Job, known: Known | None
) -> tuple[Job, ServiceLevel] | Rejection:
    """Return the adapted *job* with its replicas, and how it does with them; or why it may not.

    Where the option sets none, the replicas are those that the service has.
    """
    rate, target = applicant.wishes.request_rate or 0.0, applicant.wishes.target_latency or inf
    if known is None:
        detail = "what a replica does there is not known; give the option `serving`"
        return Rejection(reason=Reason.SERVING_UNKNOWN, detail=detail)
    needed = replicas_for(rate, target, known.speed)
    if needed is None:
        detail = f"no number of replicas answers {rate:g} requests a second"
        if known.speed.latency > target:
            detail = f"a request takes {brief(known.speed.latency)} there"
        return _too_slow(detail, target)
    others = applicant.snapshot.cluster.autoscalers.get((job.namespace, job.reference))
    is_set = others is None and option.adaptation.replicas == AUTO
    autoscaler = others or _own(applicant)
    if is_set or autoscaler is not None:
        if bound := _bound(applicant, autoscaler, needed.replicas):
            detail = f"it takes {needed.replicas} replicas to answer 95 % of {rate:g} requests a"
            detail += f" second in {brief(target)}, and {bound}"
            return Rejection(reason=Reason.TOO_MANY_REPLICAS, detail=detail)
        # So many it will have, even if they are not ours to set.
        number = max(needed.replicas, autoscaler.least if autoscaler is not None else 1)
        level = _by(known, level_at(rate, number, known.speed))
        return with_replicas(job, number) if is_set else job, level
    number = next(each.replicas.number for each in job.pod_sets if each.replicas is not None)
    level = level_at(rate, number, known.speed)
    if level.latency > target:
        took = "ever longer" if level.latency == inf else brief(level.latency)
        detail = f"with {number} replicas 95 % of {rate:g} requests a second take {took}"
        return _too_slow(f"{detail}, with {needed.replicas} {brief(needed.latency)}", target)
    return job, _by(known, level)


def _by(known: Known, level: ServiceLevel) -> ServiceLevel:
    return replace(level, is_guess=known.is_guess, points=known.points)


def _own(applicant: Applicant) -> Autoscaler | None:
    """Return the bounds of the autoscaler that the policy wants for a service; None: it has none.

    What quota holds is no bound of it here, as that is judged for all replicas.
    """
    wanted = applicant.policy.spec.autoscale
    if wanted is None or not BY_NAME[applicant.job.kind].resizes:
        return None
    return Autoscaler(name="", least=wanted.min_replicas or 1, most=MOST_REPLICAS)


def _too_slow(detail: str, target: float) -> Rejection:
    detail = f"{detail}, and its target-latency is {brief(target)}"
    return Rejection(reason=Reason.LATENCY_NOT_MET, detail=detail)


def _bound(applicant: Applicant, autoscaler: Autoscaler | None, needed: int) -> str:
    """Return what keeps a service from having so many replicas, in words; empty: nothing."""
    most = applicant.wishes.max_replicas
    if most is not None and needed > most:
        return f"its max-replicas is {most}"
    if autoscaler is not None and needed > autoscaler.most:
        return f"HorizontalPodAutoscaler {autoscaler.name} has maxReplicas {autoscaler.most}"
    return ""


def with_replicas(job: Job, number: int) -> Job:
    """Return a service with so many replicas."""
    pod_sets = PodSets(scaled(pod_set, number) for pod_set in job.pod_sets)
    return job if pod_sets == job.pod_sets else job.with_pod_sets(pod_sets)


def together(asked: Sequence[PodSetNeeds], workloads: int) -> tuple[PodSetNeeds, ...]:
    """Return what so many Workloads ask for, as if they were one."""
    return tuple(replace(each, count=each.count * workloads, known={}) for each in asked)


def weigh(applicant: Applicant, assessments: Sequence[Assessment]) -> None:
    """Fill in what an hour of each sized option costs, on average over the next day."""
    for assessment in assessments:
        if assessment.service is not None and assessment.usage:
            assessment.place = expectations.place_of(applicant, assessment, assessment.usage)
            assessment.cost = _an_hour(applicant, assessment.place)
    objective.compare(assessments)


def _an_hour(applicant: Applicant, place: Place) -> Cost | None:
    least_cost = applicant.policy.spec.strategy.least_cost
    if place.prices is NO_PRICES or least_cost is None:
        return None
    unix, hours = applicant.moment.unix, DAY / HOUR
    day = Span(reserved=unix, begun=unix, end=unix + DAY)
    cost = terms.cost_of(place.usage, place.prices, day)
    grams, price = _part(cost.carbon_grams, hours), float(least_cost.carbon_price)
    return Cost(
        money=_part(cost.money, hours),
        kwh=_part(cost.kwh, hours),
        electricity=_part(cost.electricity, hours),
        carbon_grams=grams,
        carbon=price * grams / 1000 if price and grams is not None else None,
        congestion=objective.congestion_of(place, day) / hours,
    )


def _part(amount: float | None, hours: float) -> float | None:
    return None if amount is None else amount / hours


def level_words(level: ServiceLevel) -> str:
    """Say how a service does: ``8 replicas, 75 % used, 129ms``."""
    used = f"{_PER_CENT * level.utilisation:.0f} % used"
    replicas = "1 replica" if level.replicas == 1 else f"{level.replicas} replicas"
    return f"{replicas}, {used}, {brief(level.latency)}"
