"""How long AdmissionChecks take in a replay: for those that have passed them, and who waits now.

Told as the API server would tell it: in whole seconds.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.kueue.runs import Begun
from webhook.learn.dispatches import Dispatches, Waiting
from webhook.learn.estimates import RunTimes
from webhook.learn.run_records import Began
from webhook.model.forecasts import Dispatch
from webhook.model.run_keys import JobClass

EPOCH = 1
"""Seconds since 1970 at the scenario's start: 0 stands for no admission."""


@dataclass(frozen=True, slots=True)
class _Queue:
    waiting: Waiting = field(default_factory=Waiting)


class Dispatched:
    def __init__(self, run_times: RunTimes) -> None:
        """Know what *run_times* tells, and teach it more."""
        self._run_times = run_times
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._dispatches = Dispatches()
        self._recounted: set[str] = set()
        self._learned = set(run_times.delays.dispatches)
        """Queues of which it was known before."""

    def reserve(self, cluster_queue: str, begun: Begun) -> Began:
        """Let a Workload wait that has quota."""
        reserved = int(begun.at) + EPOCH
        self._queues[cluster_queue].waiting.add(("", begun.key), reserved)
        self._recounted.add(cluster_queue)
        return Began(
            cluster_queue=cluster_queue,
            flavors=",".join(sorted(set(begun.flavors))),
            cluster="",
            uid=digest(begun.key),
            reserved=reserved,
            admitted=0,
        )

    def admit(self, key: str, before: Began, job_class: JobClass, at: float, cluster: str) -> Began:
        """Let it run in a cluster, and learn from that.

        When its pods are ready is not told: a true run time has their start in it.
        """
        self._queues[before.cluster_queue].waiting.remove(("", key))
        self._recounted.add(before.cluster_queue)
        began = before._replace(admitted=int(at) + EPOCH, cluster=cluster)
        self._run_times.begin(job_class, began)
        return began

    def look(self) -> Mapping[str, Dispatch]:
        """Say what the observer would publish."""
        delays = self._run_times.delays
        found = self._dispatches.look(
            self._queues,
            delays.dispatches,
            recounted=self._recounted,
            dispatched=self._learned | delays.take_dispatched(),
            clock=-EPOCH,
        )
        self._recounted.clear()
        self._learned.clear()
        return found


def digest(key: str) -> int:
    return zlib.crc32(key.encode()) & 0xFFFF
