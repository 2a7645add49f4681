"""How long AdmissionChecks take in each ClusterQueue, from recent passes and those that wait now.

Behind MultiKueue this is how long it takes until a worker cluster has reserved quota.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.api.resources import Key
from webhook.learn.estimates import estimate
from webhook.learn.run_records import Packed, unpack_runs
from webhook.model.forecasts import Dispatch

_SLACK: Final = 64
"""Stale entries that a heap may have."""


@dataclass(slots=True)
class WaitingDispatches:
    """Workloads in one ClusterQueue that have quota and wait for AdmissionChecks."""

    since: dict[Key, int] = field(default_factory=dict)
    """Workload to the time of its reservation, in seconds since 1970."""
    _heap: list[tuple[int, Key]] = field(default_factory=list, compare=False)

    def add(self, key: Key, reserved: int) -> None:
        self.since[key] = reserved
        heapq.heappush(self._heap, (reserved, key))
        if len(self._heap) > 2 * len(self.since) + _SLACK:
            self._heap = [(since, waiting_key) for waiting_key, since in self.since.items()]
            heapq.heapify(self._heap)

    def remove(self, key: Key) -> None:
        self.since.pop(key, None)

    def oldest(self, passed: int) -> int:
        """Return since when the longest wait lasts, in seconds since 1970; 0: none waits.

        A Workload with quota from before *passed* was overtaken by one that has passed: what holds
        it back is its own, so it is ignored.
        """
        while self._heap:
            since, key = self._heap[0]
            if since >= passed and self.since.get(key) == since:
                return since
            heapq.heappop(self._heap)
        return 0


class Dispatches:
    def __init__(self) -> None:
        self._past: dict[str, Dispatch] = {}
        self._since: dict[str, int] = {}
        self._published: Mapping[str, Dispatch] = {}

    def step(
        self,
        waiting_in: Mapping[str, WaitingDispatches],
        pools: Mapping[str, Packed],
        *,
        recounted: Collection[str],
        dispatched: Collection[str],
        clock: float,
    ) -> Mapping[str, Dispatch]:
        """Return what is known of each ClusterQueue; the same mapping as before if nothing changed.

        *clock* is what to add to seconds since 1970 for the clock of ``Snapshot.as_of``.
        """
        for name in dispatched:
            self._past[name] = _past(pools.get(name, b""))
        dispatches = dict(self._published)
        for name in {*recounted, *dispatched}:
            waiting = waiting_in.get(name)
            past = self._past.get(name, Dispatch())
            since = waiting.oldest(past.passed) if waiting is not None else 0
            known = self._with_wait(name, past, since, clock)
            if known == Dispatch():
                dispatches.pop(name, None)
            else:
                dispatches[name] = known
        if dispatches != self._published:
            self._published = dispatches
        return self._published

    def _with_wait(self, name: str, past: Dispatch, since: int, clock: float) -> Dispatch:
        """Add the longest current wait; while it is the same one, its start does not move."""
        before = self._published.get(name, past)
        moment = before.waiting_since if self._since.get(name) == since else since + clock
        self._since[name] = since
        return replace(past, waiting_since=moment if since else None)


def _past(packed: Packed) -> Dispatch:
    runs = unpack_runs(packed)
    return Dispatch(
        learned=estimate(runs),
        least=min((run.seconds for run in runs), default=0),
        passed=max((run.finished - run.seconds for run in runs), default=0),
    )
