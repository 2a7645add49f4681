"""Writes on pending Jobs when each is expected to start, for owners who may see only Jobs.

Only on Jobs that a policy decided, only while Workloads are followed anyway, and only where a start
has changed by a tenth (decision 0002). Who leads anew writes each once more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed, Refused
from webhook.controller.world import World
from webhook.jobs import referred
from webhook.model.faults import Attention
from webhook.model.forecasts import ExpectedStart, write_expected_start
from webhook.model.job import EXPECTED_START
from webhook.state import forecast_input
from webhook.state.waiting_line import WaitingWorkload, waiting_in

STEP_SECONDS: Final = 60.0
REST: Final = 20.0
"""So many times as long as it took, a forecast rests: at most a twentieth of a CPU's time."""
MOST_AT_ONCE: Final = 10
"""Jobs written in one step: each is a call, and the loop moves and releases Jobs meanwhile."""


class StartWriter:
    def __init__(
        self, transport: KubernetesApi, *, max_state_age: float, is_leader: Callable[[], bool]
    ) -> None:
        """Write while *is_leader*, which is called before each write."""
        self._transport, self._is_leader = transport, is_leader
        self._max_state_age = max_state_age
        self._told: dict[str, ExpectedStart] = {}
        """What stands on each Job, as we have written it."""
        self._news: deque[tuple[str, ExpectedStart]] = deque()
        self._due = 0.0
        self._said = ""

    def step(self, world: World) -> tuple[str, ...]:
        """Forecast if it is time, and write what is new; return the lines to log."""
        if not self._is_leader():
            self._told.clear()
            self._news.clear()
            return ()
        if world.now >= self._due and world.knows_workloads(self._max_state_age):
            began = time.monotonic()
            self._forecast(world)
            self._due = world.now + max(STEP_SECONDS, REST * (time.monotonic() - began))
        for _ in range(min(MOST_AT_ONCE, len(self._news))):
            if not self._is_leader():
                break
            key, start = self._news.popleft()
            if problem := self._write(key, start):
                said, self._said = self._said, problem
                return () if said == problem else (Attention(problem),)
        return ()

    def _forecast(self, world: World) -> None:
        snapshot, unix = world.snapshot, world.unix
        names = forecast_input.trees_of(snapshot.fallback.policies, snapshot)
        contents = {name: world.feed.contents_of(name) for name in names}
        waiting = waiting_in(contents, snapshot, unix - (world.now - snapshot.as_of))
        starts = {
            each.key: _expected(each, unix)
            for each in waiting
            # A person's Job that no policy decided is none of ours to write on.
            if each.workload.job and each.workload.policy and isfinite(each.start.seconds)
        }
        self._told = {key: told for key, told in self._told.items() if key in starts}
        news = (
            (key, start)
            for key, start in starts.items()
            if start.differs(self._told.get(key), unix)
        )
        self._news = deque(sorted(news, key=lambda each: each[1].at))

    def _write(self, key: str, start: ExpectedStart) -> str:
        """Write one start; return why that failed, empty: it did not, or the Job has gone."""
        namespace, _, reference = key.partition("/")
        kind, name = referred(reference)
        if not kind.is_movable:
            return ""
        body = {"metadata": {"annotations": {EXPECTED_START: write_expected_start(start)}}}
        try:
            self._transport.patch(kind.path(namespace, name), body)
        except (NotServed, Refused):
            return ""
        except ClusterError as error:
            return f"expected starts: {error}"
        self._told[key], self._said = start, ""
        return ""


def _expected(waiting: WaitingWorkload, unix: float) -> ExpectedStart:
    return ExpectedStart(
        at=unix + waiting.start.seconds,
        as_of=unix,
        cluster_queue=waiting.cluster_queue,
        position=waiting.position,
        pending=waiting.pending,
    )
