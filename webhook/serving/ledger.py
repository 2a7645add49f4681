"""Placements: decisions whose Workloads are not yet part of the snapshot in use.

A pure state machine; whoever holds it guards it with a lock and drops a placement in the same step
in which the snapshot that contains its Workload comes into use: so it is never counted twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from webhook.model.queues import Arrival
from webhook.state.workload import BY_NAME, SeenWorkload

UNNAMED = "gen:"
"""``gen:<namespace>/<generateName>/<n>``: a Job left as submitted whose name came later."""

_LONGEST_BASE = 58
_RANDOM = 5
"""What the API server makes of a generateName: at most 58 characters of it, and 5 more."""
_NAMES_KEPT_SECONDS = 900.0
"""Longer than the observer, started again, tells of Workloads it finds there."""
SOON_SECONDS = 5.0
"""Within these a Workload is seen whose Job came to be, by far: Kueue makes it in milliseconds."""
_TIMES = 4.0
"""Of the longest that it took lately, where that comes to more than ``SOON_SECONDS``."""
_LESS_EACH_TIME = 0.9
"""How the longest time is forgotten with each Workload that took less."""
MOST_UNSEEN = 256
"""Placements of one namespace that count while their Workloads are not yet seen."""
LEAST_UNSEEN = 8
"""The same where many have come to nothing."""
_PER_PLACEMENT = 8
"""By so many fewer count for each that came to nothing, and again more for each that was seen."""


class Ledger:
    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds = ttl_seconds
        self._entries: dict[str, tuple[Arrival, float]] = {}
        """Each with when it was entered."""
        self._unseen: Counter[str] = Counter()
        """Namespace to its placements."""
        self._lost: Counter[str] = Counter()
        """Namespace to how many fewer of its placements count."""
        self._longest = 0.0
        """Seconds that it took lately until a Workload was seen."""
        self._names: dict[str, float] = {}
        """Jobs without a decision that were seen, and when they may be forgotten."""
        self._clock = 0.0

    def enter(self, arrival: Arrival, now: float) -> None:
        """Remember a placement; one of the same key is replaced and counts as the newest."""
        self._clock = max(self._clock, now)
        self._pop(arrival.key)
        self._entries[arrival.key] = arrival, now
        self._unseen[arrival.namespace] += 1

    def has_room(self, arrival: Arrival) -> bool:
        """Tell whether one more of its namespace counts."""
        most = max(LEAST_UNSEEN, MOST_UNSEEN - self._lost[arrival.namespace])
        return arrival.key in self._entries or self._unseen[arrival.namespace] < most

    def seen(self, workloads: Iterable[SeenWorkload], now: float = 0.0) -> tuple[Arrival, ...]:
        """Drop and return the placements whose Workloads the snapshot in use contains."""
        self._clock = max(self._clock, now)
        gone: list[Arrival] = []
        for workload in workloads:
            entry = self._pop(workload.key) or self._claim_unnamed(workload)
            if entry is not None:
                arrival, entered = entry
                gone.append(arrival)
                self._longest = max(self._clock - entered, self._longest * _LESS_EACH_TIME)
                self._trust(arrival.namespace, -_PER_PLACEMENT)
        return tuple(gone)

    def drop(self, placements: Iterable[Arrival]) -> tuple[Arrival, ...]:
        """Drop what is known to come to nothing; returns those that were here."""
        found = (self._pop(placement.key) for placement in placements)
        return tuple(entry[0] for entry in found if entry is not None)

    def expire(self, now: float, *, healthy: bool = False) -> tuple[Arrival, ...]:
        """Drop and return those whose Workloads never came.

        *healthy*: the watch is, so that what did not come within seconds does not come any more.
        """
        self._clock = max(self._clock, now)
        life = self._ttl_seconds
        if healthy:
            life = min(life, max(SOON_SECONDS, self._longest * _TIMES))
        # Both are in the order in which they were entered, so the oldest stand first.
        ended = itertools.takewhile(lambda entry: entry[1] + life <= now, self._entries.values())
        gone = tuple(arrival for arrival, _ in ended)
        for arrival in gone:
            self._pop(arrival.key)
            if healthy:
                self._trust(arrival.namespace, _PER_PLACEMENT)
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

    def _claim_unnamed(self, workload: SeenWorkload) -> tuple[Arrival, float] | None:
        """Let a Workload stand for the oldest unnamed placement that may be its own.

        Each Job does so once, however often it is told of.
        """
        if not workload.key.startswith(BY_NAME) or workload.key in self._names:
            return None
        self._names[workload.key] = self._clock + _NAMES_KEPT_SECONDS
        for key, (arrival, _) in self._entries.items():
            if key.startswith(UNNAMED) and _may_be(arrival, workload):
                return self._pop(key)
        return None

    def _pop(self, key: str) -> tuple[Arrival, float] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            namespace = entry[0].namespace
            self._unseen[namespace] -= 1
            if not self._unseen[namespace]:
                del self._unseen[namespace]
        return entry

    def _trust(self, namespace: str, lost: int) -> None:
        now = min(MOST_UNSEEN, self._lost[namespace] + lost)
        if now > 0:
            self._lost[namespace] = now
        else:
            del self._lost[namespace]


def _may_be(arrival: Arrival, workload: SeenWorkload) -> bool:
    if (arrival.namespace, arrival.local_queue) != (workload.namespace, workload.local_queue):
        return False
    base = arrival.key.removeprefix(UNNAMED).split("/")[1][:_LONGEST_BASE]
    name = workload.job_name
    return name.startswith(base) and len(name) == len(base) + _RANDOM
