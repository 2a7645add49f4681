"""Keeps what hinders the moves of Jobs: Workloads in, one event at a time; each Job's obstacle out.

Pure: the time is that of the newest event. Which Workload is an obstacle is read with it
(``read_workload``). It must not know which move is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.api.resources import Key
from webhook.model.reasons import Obstacle
from webhook.state.workload import Workload

STARTING_SECONDS: Final = 10
"""How long Kueue may take to start a Job after it has admitted its Workload."""


class Obstacles:
    def __init__(self) -> None:
        self._by_job: dict[Key, dict[Key, Obstacle]] = {}
        """Job to those of its Workloads that are obstacles."""
        self._starting: dict[Key, Workload] = {}
        """Workloads that have just been admitted."""
        self._published: Mapping[Key, Obstacle] = {}
        self._changed: set[Key] = set()
        """Jobs."""

    def put(self, key: Key, before: Workload | None, after: Workload | None, newest: int) -> None:
        """Apply a Workload as it is now; *after* None: it was deleted.

        *newest* is the time of the last event on any Workload, in seconds since 1970.
        """
        self._forget(key, before)
        if after is None or not after.job or after.obstacle in (None, Obstacle.FINISHED):
            return
        if after.obstacle is Obstacle.QUOTA_RESERVED and after.admitted:
            if after.admitted < newest - STARTING_SECONDS:
                return
            self._starting[key] = after
        job = after.namespace, after.job
        self._by_job.setdefault(job, {})[key] = after.obstacle
        self._changed.add(job)

    def current(self, newest: int) -> Mapping[Key, Obstacle]:
        """Return the obstacle of each Job that has one.

        The same object as long as nothing changes.
        """
        started = newest - STARTING_SECONDS
        for key, workload in list(self._starting.items()):
            if workload.admitted < started:
                self._forget(key, workload)
        if self._changed:
            published = dict(self._published)
            for job in self._changed:
                if job in self._by_job:
                    published[job] = next(iter(self._by_job[job].values()))
                else:
                    published.pop(job, None)
            self._published = published
            self._changed.clear()
        return self._published

    def _forget(self, key: Key, workload: Workload | None) -> None:
        self._starting.pop(key, None)
        if workload is None:
            return
        job = workload.namespace, workload.job
        of_job = self._by_job.get(job, {})
        if of_job.pop(key, None) is not None:
            self._changed.add(job)
            if not of_job:
                del self._by_job[job]
