"""Held Jobs in a replay: who they are, and when the leading controller would release them.

Its own plan decides. A minute in which nothing has changed keeps the plan of the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from webhook.learn.others_use import OthersUse
from webhook.model.decision import Decision
from webhook.model.holds import SLOT_SECONDS
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Arrival, Snapshot
from webhook.reconsider import hold_plan
from webhook.reconsider.hold_plan import HeldJob
from webhook.simulate.scenario import Submission
from webhook.simulate.scenario_spec import Holding

STEP_SECONDS: Final = 60.0
"""Between two looks, as in the controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A Job that is created and not queued yet."""

    submission: Submission
    arrival: Arrival
    job: Job
    age: int
    held: HeldJob


class Holds:
    """The held Jobs of a replay."""

    def __init__(
        self, policies: tuple[FallbackPolicy, ...], holding: Holding, unix: Callable[[float], float]
    ) -> None:
        """*unix* gives the seconds since 1970 of a time in the replay."""
        self._holding, self._unix = holding, unix
        self._held: dict[str, Withheld] = {}
        self._plan: hold_plan.Plan = {}
        self._others = OthersUse()
        self._at = 0.0 if any(map(_holds, policies)) else inf
        self._planned = -inf
        """Until when the plan stands if nobody comes."""

    @property
    def next_step(self) -> float:
        """Return when to look again; inf: no policy holds Jobs."""
        return self._at

    def skip(self, until: float) -> None:
        """Leave out looks while nobody waits and nobody runs."""
        if not self._held:
            self._at = max(self._at, until)

    @property
    def count(self) -> int:
        return len(self._held)

    @property
    def counts(self) -> dict[str, int]:
        """Namespace to how many of its Jobs are held."""
        return dict(Counter(withheld.held.namespace for withheld in self._held.values()))

    def add(self, job: Job, decision: Decision, made: tuple[Submission, Arrival, int]) -> None:
        """Hold a Job; *made* is its submission, where it will wait, and its age there."""
        submission, arrival, age = made
        held = HeldJob(
            namespace=job.namespace,
            name=submission.name,
            version="",
            queue=arrival.local_queue,
            policy=decision.policy,
            option=decision.option or "",
            others="",
            hold=decision.hold,
        )
        self._held[held.key] = Withheld(
            submission=submission, arrival=arrival, job=job, age=age, held=held
        )
        self._planned = -inf

    def step(self, snapshot: Snapshot, now: float) -> Iterator[Withheld]:
        """Yield the Jobs that are released at *now*."""
        unix = self._unix(now)
        self._at = now + STEP_SECONDS
        self._others.note(hold_plan.contents_of_holding_queues(snapshot), unix)
        if self._holding is Holding.PLANNED and unix >= self._planned:
            self._planned = (unix // SLOT_SECONDS + 1) * SLOT_SECONDS
            jobs = [withheld.held for withheld in self._held.values()]
            self._plan = hold_plan.plan(jobs, snapshot, unix, self._plan, self._others)
        if self._holding is Holding.ALONE:
            yield from self._alone(snapshot, unix)
            return
        held = [withheld.held for withheld in self._held.values()]
        for job, _ in list(hold_plan.due(held, snapshot, self._plan, unix)):
            if job.hold is not None:
                begun = hold_plan.released(job, job.hold, snapshot, unix)
                self._others.released.append(begun)
            yield self._held.pop(job.key)

    def _alone(self, snapshot: Snapshot, unix: float) -> Iterator[Withheld]:
        """Yield the Jobs whose own cheapest hour has come, whoever else runs."""
        for key, withheld in list(self._held.items()):
            until = withheld.held.hold.until if withheld.held.hold is not None else 0.0
            if hold_plan.reason(withheld.held, snapshot, until, unix) is not None:
                yield self._held.pop(key)


def _holds(policy: FallbackPolicy) -> bool:
    least_cost = policy.spec.strategy.least_cost
    return least_cost is not None and least_cost.hold is not None
