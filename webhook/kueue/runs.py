"""What holds quota in one tree: when each run is over, and when its quota is looked at again.

Kueue tries again at once only what has been tried in no look so far, and heads under StrictFIFO.
Others it tries a while after a release (``KueueConfig.requeue_seconds``), once for all releases
until then: ``requeueBatchPeriod`` in its ``pkg/cache/queue/inadmissible_workloads.go``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

from webhook.kueue.tree import Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Workloads that started, or finished."""

    at: float
    key: str
    cluster_queue: str
    flavors: tuple[str, ...]
    usage: Taken
    count: int
    finish: float


@dataclass(slots=True, kw_only=True)
class Run:
    leaf: int
    taken: Taken
    count: int
    variance: float
    priority: int | None = None
    """None: it is not known."""
    begun: Begun | None = None
    is_over: bool = False
    """Its quota lies idle."""


class Runs:
    """A heap of runs.

    *idle*: for how many seconds quota lies idle that a leaf releases. If *live*, as it happens:
    not where nobody waits, and until the tree's next look; else always, as newcomers find it who
    wait for it from now on.
    """

    def __init__(self, idle: Mapping[int, float], *, live: bool = False) -> None:
        self.ended: list[Begun] = []
        """What is over, if live, since it was last emptied;"""
        self.released: list[Begun] = []
        """and whose quota no longer lies idle."""
        self._idle, self._is_live = idle, live
        self._heap: list[tuple[float, int, Run]] = []
        self._order = 0
        self._looks_at = -inf
        """When what was released is looked at again."""

    def add(self, until: float, run: Run) -> None:
        self._push(until if self._is_live else until + self._idle[run.leaf], run)

    def end(self, key: str, at: float) -> None:
        """Let what runs under a key end: how long it would was not known when it began."""
        number, (_, order, run) = next(
            (number, each)
            for number, each in enumerate(self._heap)
            if each[2].begun is not None and each[2].begun.key == key
        )
        if run.begun is not None:
            run.begun = replace(run.begun, finish=at)
        self._heap[number] = at, order, run
        heapq.heapify(self._heap)

    def next_at(self) -> float:
        """Say when a run is over or its quota looked at, whichever is first; inf: never."""
        return self._heap[0][0] if self._heap else inf

    def pop(self, is_awaited: Callable[[], bool]) -> tuple[float, Run | None]:
        """Go on to the next of these moments; None: the run is over, and its quota lies idle."""
        at, _, run = heapq.heappop(self._heap)
        if not self._is_live or run.begun is None:
            return at, run
        if not run.is_over:
            run.is_over = True
            self.ended.append(run.begun)
            idle = self._idle[run.leaf]
            if idle and is_awaited():
                if self._looks_at <= at:
                    self._looks_at = at + idle
                self._push(self._looks_at, run)
                return at, None
        self.released.append(run.begun)
        return at, run

    def _push(self, at: float, run: Run) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, run))
