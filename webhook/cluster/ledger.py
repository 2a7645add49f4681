"""Placements: decisions whose Workloads are not yet part of the snapshot in use.

A pure state machine; whoever holds it guards it with a lock and drops a placement in the same step
in which the snapshot that contains its Workload comes into use: so it is never counted twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from webhook.cluster.seen import BY_NAME, Seen
from webhook.model.queues import Arrival

UNNAMED = "gen:"
"""``gen:<namespace>/<generateName>/<n>``: a Job left as submitted whose name came later."""

_LONGEST_BASE = 58
_RANDOM = 5
"""What the API server makes of a generateName: at most 58 characters of it, and 5 more."""
_NAMES_KEPT_SECONDS = 900.0
"""Longer than the observer, started again, tells of Workloads it finds there."""


class Ledger:
    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds = ttl_seconds
        self._entries: dict[str, tuple[Arrival, float]] = {}
        self._names: dict[str, float] = {}
        """Jobs without a decision that were seen, and when they may be forgotten."""
        self._clock = 0.0

    def enter(self, arrival: Arrival, now: float) -> None:
        """Remember a placement; one of the same key is replaced and counts as the newest."""
        self._clock = max(self._clock, now)
        self._entries.pop(arrival.key, None)
        self._entries[arrival.key] = arrival, now + self._ttl_seconds

    def seen(self, workloads: Iterable[Seen]) -> tuple[Arrival, ...]:
        """Drop and return the placements whose Workloads the snapshot in use contains."""
        gone: list[Arrival] = []
        for workload in workloads:
            entry = self._entries.pop(workload.key, None) or self._claim_unnamed(workload)
            if entry is not None:
                gone.append(entry[0])
        return tuple(gone)

    def expire(self, now: float) -> tuple[Arrival, ...]:
        """Drop and return those whose Workloads never came."""
        self._clock = max(self._clock, now)
        # Both are in the order in which they were entered, so the oldest stand first.
        ended = itertools.takewhile(lambda entry: entry[1] <= now, self._entries.values())
        gone = tuple(arrival for arrival, _ in ended)
        for arrival in gone:
            del self._entries[arrival.key]
        # A busy cluster names thousands, and this is asked with each review: no copy of them all.
        names = itertools.takewhile(lambda entry: entry[1] <= now, self._names.items())
        for key in [key for key, _ in names]:
            del self._names[key]
        return gone

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> tuple[Arrival, ...]:
        """List the placements, oldest first."""
        return tuple(arrival for arrival, _ in self._entries.values())

    def knows(self, key: str) -> bool:
        return key in self._entries

    def _claim_unnamed(self, workload: Seen) -> tuple[Arrival, float] | None:
        """Let a Workload stand for the oldest unnamed placement that may be its own.

        Each Job does so once, however often it is told of.
        """
        if not workload.key.startswith(BY_NAME) or workload.key in self._names:
            return None
        self._names[workload.key] = self._clock + _NAMES_KEPT_SECONDS
        for key, (arrival, _) in self._entries.items():
            if key.startswith(UNNAMED) and _may_be(arrival, workload):
                return self._entries.pop(key)
        return None


def _may_be(arrival: Arrival, workload: Seen) -> bool:
    if (arrival.namespace, arrival.local_queue) != (workload.namespace, workload.local_queue):
        return False
    base = arrival.key.removeprefix(UNNAMED).split("/")[1][:_LONGEST_BASE]
    name = workload.job_name
    return name.startswith(base) and len(name) == len(base) + _RANDOM
