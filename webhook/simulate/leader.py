"""What the leading controller does in a replay: it releases held Jobs and moves pending ones.

Its own code decides, at its own pace. Times at which nothing can come of it are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from webhook.learn.others_use import OthersUse
from webhook.model.decision import Decision
from webhook.model.holds import SLOT_SECONDS
from webhook.model.job import Pending
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Arrival
from webhook.reconsider import choose, hold_plan, offers
from webhook.reconsider.hold_plan import HeldJob
from webhook.simulate.replayed_forecasts import Forecasts, QueuedJob
from webhook.simulate.scenario_spec import Holding
from webhook.state.snapshot import Snapshot

RELEASE_SECONDS: Final = 60.0
"""Between two looks at held Jobs, as in the controller."""


class Holds:
    """The held Jobs of a replay."""

    def __init__(
        self, policies: tuple[FallbackPolicy, ...], holding: Holding, unix: Callable[[float], float]
    ) -> None:
        """*unix* gives the seconds since 1970 of a time in the replay."""
        self._holding, self._unix = holding, unix
        self._held: dict[str, HeldJob] = {}
        self._queued: dict[str, QueuedJob] = {}
        """What becomes of them once they are released, by the same key."""
        self._plan: hold_plan.Plan = {}
        self._others = OthersUse()
        may_hold = any(policy.spec.strategy.hold is not None for policy in policies)
        self._at = 0.0 if may_hold else inf
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
        return dict(Counter(held.namespace for held in self._held.values()))

    def add(self, queued: QueuedJob, decision: Decision) -> None:
        """Hold a Job."""
        held = HeldJob(
            namespace=queued.job.namespace,
            name=queued.key,
            version="",
            queue=queued.arrival.local_queue,
            policy=decision.policy,
            option=decision.option or "",
            others="",
            hold=decision.hold,
        )
        self._held[held.key], self._queued[held.key] = held, queued
        # The plan is of those who were there when it was made.
        self._planned = -inf

    def step(self, snapshot: Snapshot, now: float) -> Iterator[QueuedJob]:
        """Yield the Jobs that are released at *now*."""
        unix = self._unix(now)
        self._at = now + RELEASE_SECONDS
        self._others.note(hold_plan.contents_of_holding_queues(snapshot), unix)
        if self._holding is Holding.PLANNED and unix >= self._planned:
            self._planned = (unix // SLOT_SECONDS + 1) * SLOT_SECONDS
            jobs = list(self._held.values())
            self._plan = hold_plan.plan(jobs, snapshot, unix, self._plan, self._others)
        if self._holding is Holding.ALONE:
            yield from self._alone(snapshot, unix)
            return
        held = list(self._held.values())
        for job, _ in list(hold_plan.due(held, snapshot, self._plan, unix)):
            if job.hold is not None:
                begun = hold_plan.released(job, job.hold, snapshot, unix)
                self._others.released.append(begun)
            yield self._released(job)

    def _alone(self, snapshot: Snapshot, unix: float) -> Iterator[QueuedJob]:
        """Yield the Jobs whose own cheapest hour has come, whoever else runs."""
        for held in list(self._held.values()):
            until = held.hold.until if held.hold is not None else 0.0
            if hold_plan.reason(held, snapshot, until, unix) is not None:
                yield self._released(held)

    def _released(self, held: HeldJob) -> QueuedJob:
        del self._held[held.key]
        return self._queued.pop(held.key)


STEP_SECONDS = 2.0
"""Between two choices of moves, as in the controller."""
MOST_AT_ONCE = 16
"""The controller has no more moves in flight either (docs/decisions/0013-moves.md)."""


class Pace:
    """The times at which the controller would choose moves, and the next at which it has to."""

    def __init__(self) -> None:
        self._began = 0.0
        self._last = 0
        """The number of the last of these times; ``_next`` is later."""
        self._next: int | None = None

    @property
    def next(self) -> float:
        """Return the next time; inf: there is none."""
        return inf if self._next is None else self.at(self._next)

    def begin(self, now: float) -> None:
        """Choose moves from now on, though not now."""
        self._began, self._last, self._next = now, 0, 1

    def step(self) -> None:
        """Note that it is the next time now."""
        self._last = self._next or 0
        self._next = self._last + 1

    def hurry(self, now: float) -> None:
        """Let the next time be the first after *now*."""
        if self.next <= now + STEP_SECONDS:
            return
        # The quotient is not exact, hence the steps from before it.
        self._last = max(self._last, int((now - self._began) / STEP_SECONDS) - 1)
        while self.at(self._last + 1) <= now:
            self._last += 1
        self._next = self._last + 1

    def wait(self, until: float) -> None:
        """Leave out all times before *until*."""
        if until == inf or self._next is None:
            self._next = None
            return
        self._next = max(self._next, int((until - self._began) / STEP_SECONDS) - 1)
        while self.at(self._next) < until:
            self._next += 1

    def at(self, number: int) -> float:
        return self._began + number * STEP_SECONDS


class Moving:
    """The pending Jobs that a policy reconsiders, and when."""

    def __init__(self, snapshot: Snapshot, forecasts: Forecasts, *, is_quiet: bool = True) -> None:
        """Leave out the steps that cannot move a Job, if *is_quiet*."""
        self._is_quiet = is_quiet
        self._policies = {policy.name for policy in choose.policies_of(snapshot)}
        self._trees = choose.trees(snapshot)
        self._forecasts = forecasts
        self._pending: dict[str, Pending] = {}
        self._started: dict[str, Pending] = {}
        self._arrived = 1
        """Moves made so far, plus 1: so many are made at once."""
        self._pace = Pace()

    @property
    def next_step(self) -> float:
        """Return when to choose moves again; inf: no Job is reconsidered."""
        return self._pace.next if self._pending else inf

    def join(self, queued: QueuedJob, now: float) -> None:
        """Add a Job that was created now."""
        arrival = queued.arrival
        if arrival.policy not in self._policies:
            return
        if not self._pending:
            self._pace.begin(now)
        pending = Pending(
            uid=queued.key,
            version="",
            created=self._forecasts.unix(now),
            job=queued.job,
            queue=arrival.local_queue,
            policy=arrival.policy,
            option=arrival.option,
            changed=self._forecasts.unix(now),
        )
        self._pending[queued.key] = pending

    def start(self, key: str) -> None:
        if (pending := self._pending.pop(key, None)) is not None:
            self._started[key] = pending

    def preempt(self, key: str, now: float) -> None:
        """Let a Job that has started be reconsidered again."""
        if key not in self._started:
            return
        if not self._pending:
            self._pace.begin(now)
        self._pending[key] = self._started.pop(key)

    def end(self, key: str) -> None:
        self._started.pop(key, None)

    def change(self, now: float) -> None:
        """Note that the queues changed: moves may be chosen from the next step on."""
        if self._pending:
            self._pace.hurry(now)

    def step(self, snapshot: Snapshot, now: float) -> Sequence[tuple[str, Arrival]]:
        """Choose moves; return the keys, each with the arrival that replaces its Workload."""
        self._pace.step()
        world = offers.ReconsiderInput(
            snapshot=snapshot,
            contents=self._forecasts.contents(self._trees),
            workloads=choose.by_job(self._forecasts.waiting()),
            now=now,
            unix=self._forecasts.unix(now),
        )
        most = min(self._arrived, MOST_AT_ONCE)
        chosen = choose.choose_moves(world, self._pending.values(), most=most)
        self._arrived += len(chosen.moves)
        if self._is_quiet and not chosen.moves:
            self.wait(now + chosen.quiet_seconds)
        moves = []
        for move in chosen.moves:
            arrival = move.way.arrival
            key = move.candidate.key.partition("/")[2]
            self._pending[key] = _moved(self._pending[key], arrival, world.unix)
            moves.append((key, arrival))
        return moves

    def wait(self, until: float) -> None:
        """Leave out all steps before *until*."""
        self._pace.wait(until)


def _moved(before: Pending, arrival: Arrival, unix: float) -> Pending:
    return replace(
        before,
        queue=arrival.local_queue,
        option=arrival.option,
        moves=before.moves + 1,
        changed=unix,
    )
