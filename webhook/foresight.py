"""Keeps forecasts current in a thread of the observer, for a bounded part of one CPU."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.cluster.feed import Feed
from webhook.cluster.seen import Seen
from webhook.model.forecasts import Profile
from webhook.model.queues import Snapshot
from webhook.surveys import Survey, Surveyor, watched

DUTY = 0.25
"""Part of one CPU, at most: publishing what has changed must not wait."""
LONGEST_REST_SECONDS = 1.0
"""Forecasts are at most two seconds old, so a long one has to do with more than its part."""
_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 30.0
"""After so long a forecast of a queue in which nothing changed is made anew: when the first run in
it should have ended, and did not."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What came of a survey; none: only time for the next one."""

    profiles: Mapping[str, Profile] | None = None
    seen: tuple[Seen, ...] = ()


class Foresight:
    """``offer`` and ``take`` are called by the observer's own thread, which waits for ``tell``."""

    def __init__(
        self,
        tell: Callable[[Foreseen], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tell, self._clock, self._cpu, self._sleep = tell, clock, cpu, sleep
        self._surveys: queue.SimpleQueue[Survey] = queue.SimpleQueue()
        self._surveyor = Surveyor()
        self._is_free = True
        self._profiles: dict[str, Profile] = {}
        self._due: dict[str, float] = {}
        self._watched: frozenset[str] = frozenset()
        self._depends_on: tuple[object, ...] = ()
        self._changed: set[str] = set()

    def start(self) -> None:
        threading.Thread(target=self._run, name="foresight", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Count the surveys that no forecast was made of yet."""
        return self._surveys.qsize()

    def offer(self, feed: Feed, unix: float) -> None:
        """Have forecast what has changed, if the last forecast is done."""
        self._changed |= feed.take_recounted()
        snapshot = feed.published
        if not self._is_free or snapshot is None:
            return
        now = self._clock()
        self._look(snapshot)
        if not self._watched:
            # Nobody will ask which Workloads a forecast contains.
            feed.survey(())
        counted = self._changed & self._watched
        due = {name for name, at in self._due.items() if at <= now and name in self._watched}
        self._changed.clear()
        if not counted and not due:
            return
        census, seen = feed.survey(counted)
        self._is_free = False
        self._surveys.put(
            Survey(
                snapshot=snapshot,
                counted=census,
                due=frozenset(due),
                seen=seen,
                now=now,
                unix=unix,
            )
        )

    def take(self, foreseen: Foreseen, feed: Feed) -> None:
        """Take over what a forecast came to."""
        if foreseen.profiles is None:
            self._is_free = True
            return
        self._profiles = {
            name: profile
            for name, profile in {**self._profiles, **foreseen.profiles}.items()
            if name in self._watched
        }
        for name, profile in foreseen.profiles.items():
            self._due[name] = profile.computed_at + _lasts(profile)
        feed.foresee(self._profiles, foreseen.seen)

    def _look(self, snapshot: Snapshot) -> None:
        """Find out which queues to watch; all are forecast anew where more than counts changed."""
        depends_on = (
            snapshot.policies,
            snapshot.cluster_queues,
            snapshot.local_queues,
            snapshot.cohorts,
            snapshot.flavors,
            snapshot.kueue,
        )
        known = zip(self._depends_on, depends_on, strict=False)
        if self._depends_on and all(a is b for a, b in known):
            return
        self._depends_on = depends_on
        self._watched = watched(snapshot)
        self._changed |= self._watched

    def step(self) -> None:
        """Make the next forecast, wait for a survey if there is none, and rest afterwards."""
        survey = self._surveys.get()
        before = self._cpu()
        profiles = self._surveyor.profiles(survey)
        spent = self._cpu() - before
        self._tell(Foreseen(profiles, survey.seen))
        self._sleep(min(LONGEST_REST_SECONDS, spent * (1 / DUTY - 1)))
        self._tell(Foreseen())

    def _run(self) -> None:
        while True:
            self.step()


def _lasts(profile: Profile) -> float:
    """Say for how long a profile holds if nothing happens: until something should."""
    first = profile.times[1] if len(profile.times) > 1 else _LATEST_SECONDS
    return min(max(first, _SOONEST_SECONDS), _LATEST_SECONDS)
