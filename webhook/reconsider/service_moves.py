"""The moves of services worth making, and those that are taken back.

A service never ends, so what it costs an hour is compared, over the time that its policy names. A
move whose new pods are not ready in time is taken back; the option is then left alone for a day.
It reads no objects and writes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from webhook.decide import match, options
from webhook.decide.applicant import Moment, read_applicant
from webhook.decide.strategies import GUESSED_TIMES
from webhook.model.costs.prices import DAY, HOUR
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.job import PUT_BACK, Pending, Rollout
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode, Reconsider, seconds
from webhook.model.policy.strategy import MoveSaving
from webhook.model.reasons import Obstacle
from webhook.model.words import figure, span
from webhook.state.occupancy import Occupancy

_PER_CENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMove:
    """A move that is to be asked for."""

    service: Pending
    policy: str
    option: str
    why: str
    """Why, in words for people."""
    is_back: bool = False
    """Whether it takes another move back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMoves:
    moves: tuple[ServiceMove, ...] = ()
    obstacles: Counter[tuple[str, Obstacle]] = field(default_factory=Counter)
    """Policy and obstacle to how many services it keeps from being moved."""


def choose_service_moves(
    services: Iterable[Pending], occupancy: Occupancy, *, now: float, unix: float
) -> ServiceMoves:
    """Return all moves to be taken back, and of each policy one more at most.

    It waits while a service of the policy rolls: what that takes is not all counted yet. *now* is
    on the clock of ``Snapshot.as_of``, *unix* the same moment in seconds since 1970.
    """
    judge = _Judge(occupancy, now, unix)
    policies = {policy.name: policy for policy in reversed(occupancy.snapshot.fallback.policies)}
    back: list[ServiceMove] = []
    ready: dict[str, list[Pending]] = {}
    obstacles: Counter[tuple[str, Obstacle]] = Counter()
    rolling: set[str] = set()
    for service in services:
        policy, rollout = policies.get(service.policy), service.rollout
        rules = policy.spec.reconsider if policy is not None else None
        if policy is None or rules is None or rollout is None or not judge.is_ours(service, policy):
            continue
        if not rollout.is_done:
            rolling.add(policy.name)
        late = _taken_back(service, rollout, policy, unix)
        if late is not None:
            back.append(late)
        elif because := service.obstacle or _limit(service, rollout, rules, unix):
            obstacles[policy.name, because] += 1
        else:
            ready.setdefault(policy.name, []).append(service)
    onward: list[ServiceMove] = []
    for name, candidates in ready.items():
        found = [judge.best(service, policies[name]) for service in candidates]
        obstacles.update((name, each) for each in found if isinstance(each, Obstacle))
        moves = [each for each in found if isinstance(each, tuple)]
        if moves and name not in rolling:
            onward.append(max(moves, key=lambda each: each[0])[1])
    return ServiceMoves(moves=(*back, *onward), obstacles=obstacles)


def _taken_back(
    service: Pending, rollout: Rollout, policy: FallbackPolicy, unix: float
) -> ServiceMove | None:
    """Return the move that puts a service back whose new pods were not ready in time."""
    rules = policy.spec.reconsider or Reconsider()
    patience = seconds(rules.ready_within)
    # What is not ready much later is so for another reason.
    is_late = not rollout.is_done and patience < unix - service.changed < patience + DAY
    if not is_late or rollout.left not in [option.name for option in policy.spec.options]:
        return None
    return ServiceMove(
        service=service,
        policy=policy.name,
        option=rollout.left,
        why=f"{PUT_BACK}{span(patience)}",
        is_back=True,
    )


def _limit(service: Pending, rollout: Rollout, rules: Reconsider, unix: float) -> Obstacle | None:
    """Return the limit that keeps a service from being moved now; None: there is none."""
    if not rollout.is_done:
        return Obstacle.ROLLING
    if unix - max(service.created, service.changed) < seconds(rules.after):
        return Obstacle.TOO_SOON
    lately = [moved for moved in rollout.moved if unix - moved < seconds(rules.horizon)]
    return Obstacle.MAX_MOVES if len(lately) >= rules.max_moves else None


class _Judge:
    """Compares what services cost an hour, in their option and in others."""

    def __init__(self, occupancy: Occupancy, now: float, unix: float) -> None:
        self._occupancy = occupancy
        self._moment = Moment(now=now, unix=unix, time="", uid="")

    def is_ours(self, service: Pending, policy: FallbackPolicy) -> bool:
        """Return whether a policy moves a service of which it compares what an hour costs."""
        by_cost = policy.spec.strategy.least_cost is not None
        if not by_cost or policy.spec.mode is not Mode.ENFORCE or not service.option:
            return False
        return match.skip(service.job, self._occupancy.snapshot) is None

    def best(
        self, service: Pending, policy: FallbackPolicy
    ) -> tuple[float, ServiceMove] | Obstacle | None:
        """Return the move that saves most, and what it saves; None: none saves enough."""
        try:
            assessed = self._assessed(service, policy)
        except FieldError:
            return Obstacle.OPTION_REFUSED
        if assessed is None:
            return None
        here = next((each for each in assessed if each.option == service.option), None)
        if here is None or _hourly(here) == inf:
            return Obstacle.COST_UNKNOWN
        rules = policy.spec.reconsider or Reconsider()
        hours = seconds(rules.horizon) / HOUR
        saving = rules.minimum_saving or MoveSaving()
        before = _hourly(here) * hours
        found: list[tuple[float, Assessment]] = []
        for there in assessed:
            if there is here or there.rejection is not None or self._failed(service, there):
                continue
            saved = before - _hourly(there) * hours
            least = max(float(saving.amount), before * saving.percent / _PER_CENT)
            if there.service is not None and there.service.is_guess:
                least *= GUESSED_TIMES
            if saved > 0.0 and saved >= least:
                found.append((saved, there))
        if not found:
            return None
        saved, there = max(found, key=lambda each: each[0])
        why = f"costs {figure(saved)} less in {span(seconds(rules.horizon))}"
        move = ServiceMove(service=service, policy=policy.name, option=there.option, why=why)
        return saved, move

    def _failed(self, service: Pending, there: Assessment) -> bool:
        """Return whether new pods were not ready there in time within the last day."""
        failed = service.rollout.failed if service.rollout is not None else {}
        return self._moment.unix - failed.get(there.option, -inf) < DAY

    def _assessed(self, service: Pending, policy: FallbackPolicy) -> Sequence[Assessment] | None:
        """Assess all options of a service; None: it says no request rate.

        Raises:
            FieldError: the service, or what an option makes of it, cannot be read.

        """
        applicant = replace(
            read_applicant(
                service.job.as_created,
                policy,
                self._occupancy,
                self._moment,
                created=service.created,
            ),
            submitted=service.queue,
            stays_in=service.option,
        )
        return options.assess(applicant) if applicant.is_sized else None


def _hourly(assessment: Assessment) -> float:
    """Return what an hour costs in an option; inf: that is not known."""
    total = assessment.cost.total if assessment.cost is not None else None
    return inf if total is None else total
