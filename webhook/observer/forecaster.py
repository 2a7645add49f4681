"""Keeps forecasts current in a thread of the observer, for a bounded part of one CPU."""

from __future__ import annotations

import queue
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain

from webhook.model import faults
from webhook.model.forecasts import Profile
from webhook.model.queues import Snapshot
from webhook.state.feed import Feed
from webhook.state.forecast_input import ForecastInput, ForecastInputs, Trees, watched
from webhook.state.workload import SeenWorkload

DUTY = 0.25
"""Part of one CPU, at most: publishing what has changed must not wait."""
LONGEST_REST_SECONDS = 0.5
"""For all trees in which something has changed, together: forecasts are at most two seconds old,
so many long ones have to do with more than their part."""
AT_ONCE = 2000
"""Workloads in the trees of one survey, if these are more than one."""
_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 30.0
"""After so long a forecast of a queue in which nothing changed is made anew: when the first run in
it should have ended, and did not."""


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What came of a survey; none: only time for the next one."""

    profiles: Mapping[str, Profile] | None = None
    seen: tuple[SeenWorkload, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    """Trees that cannot be forecast, and the error of ours that keeps them from it."""


class Forecaster:
    """``offer`` and ``take`` are called by the observer's own thread, which waits for ``tell``."""

    def __init__(
        self,
        tell: Callable[[ForecastResult], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tell, self._clock, self._cpu, self._sleep = tell, clock, cpu, sleep
        self._surveys: queue.SimpleQueue[ForecastInput | None] = queue.SimpleQueue()
        self._surveyor = ForecastInputs()
        self._is_free = True
        self._profiles: dict[str, Profile] = {}
        self._due: dict[str, float] = {}
        self._watched: frozenset[str] = frozenset()
        self._depends_on: tuple[object, ...] = ()
        self._trees = Trees()
        self._changed: set[str] = set()
        self._since: dict[str, float] = {}
        """Tree to when the first of the changes came that no forecast contains."""
        self._surveyed: Mapping[str, float] = {}
        """The same for the trees that are being forecast."""
        self._failed: dict[str, str] = {}
        """Trees that have no forecast because of an error of ours, until one works out,"""
        self._missing: dict[str, float] = {}
        """and since when they have none."""
        self._share = 1.0

    def start(self) -> None:
        threading.Thread(target=self._run, name="foresight", daemon=True).start()

    def stop(self) -> None:
        """End after the forecast that is being made."""
        self._surveys.put(None)

    @property
    def waiting(self) -> int:
        """Count the surveys that no forecast was made of yet."""
        return self._surveys.qsize()

    def as_of(self, now: float) -> float:
        """Say up to when all that has happened is in the forecasts."""
        waiting = (self._since, self._surveyed, self._missing)
        return min(chain.from_iterable(each.values() for each in waiting), default=now)

    def offer(self, feed: Feed, unix: float) -> None:
        """Have forecast where something has changed, if the last forecast is done."""
        snapshot, now = feed.published, self._clock()
        recounted = feed.take_recounted()
        if snapshot is None:
            return
        self._look(snapshot, now)
        self._changed |= recounted & self._watched
        for name in self._changed:
            self._since.setdefault(self._trees.root(name), now)
        if not self._watched:
            # Nobody will ask which Workloads a forecast contains.
            feed.survey(())
        if self._is_free:
            self._survey(feed, snapshot, now, unix)

    def _survey(self, feed: Feed, snapshot: Snapshot, now: float, unix: float) -> None:
        """Ask for the trees that have waited longest."""
        due = {name for name, at in self._due.items() if at <= now and name in self._watched}
        wait = dict(self._since)
        for name in due:
            root = self._trees.root(name)
            wait[root] = min(wait.get(root, now), self._due[name])
        if not wait:
            return
        waiting = sorted(wait, key=lambda root: (wait[root], root))
        sizes = [self._size(root, snapshot) for root in waiting]
        number = max(1, bisect_right(list(accumulate(sizes)), AT_ONCE))
        later = frozenset(chain.from_iterable(map(self._trees.members, waiting[number:])))
        anew = chain.from_iterable(
            self._trees.members(root) for root in waiting[:number] if root in self._failed
        )
        counted = self._changed.union(anew) - later
        census, seen = feed.survey(counted, later)
        self._changed -= counted
        self._surveyed = {root: self._since.pop(root, now) for root in waiting[:number]}
        self._is_free, self._share = False, (sum(sizes[:number]) + 1) / (sum(sizes) + 1)
        self._surveys.put(
            ForecastInput(
                snapshot=snapshot,
                counted=census,
                due=frozenset(due - later),
                seen=seen,
                now=now,
                unix=unix,
            )
        )

    def take(self, foreseen: ForecastResult, feed: Feed) -> tuple[str, ...]:
        """Take over what a forecast came to; return what is to be logged."""
        if foreseen.profiles is None:
            self._is_free = True
            return ()
        lines = self._note_failed(foreseen.failed)
        unknown = set(chain.from_iterable(map(self._trees.members, self._failed)))
        self._profiles = {
            name: profile
            for name, profile in {**self._profiles, **foreseen.profiles}.items()
            if name in self._watched and name not in unknown
        }
        for name, profile in foreseen.profiles.items():
            self._due[name] = profile.computed_at + _lasts(profile)
        self._surveyed = {}
        feed.foresee(self._profiles, foreseen.seen)
        return lines

    def _note_failed(self, failed: Mapping[str, str]) -> tuple[str, ...]:
        """Leave trees without a forecast, the one before included, and try again some time."""
        now = self._clock()
        lines = tuple(
            f"{root} cannot be forecast: {error}"
            for root, error in failed.items()
            if self._failed.get(root) != error
        )
        for root in self._surveyed.keys() - failed.keys():
            self._failed.pop(root, None)
            self._missing.pop(root, None)
        for root, error in failed.items():
            if not self._trees.members(root):
                continue
            self._failed[root] = error
            self._missing.setdefault(root, self._surveyed.get(root, now))
            self._due |= dict.fromkeys(self._trees.members(root), now + _LATEST_SECONDS)
        return lines

    def _size(self, root: str, snapshot: Snapshot) -> int:
        """Count the Workloads of a tree."""
        names = self._trees.members(root)
        found = (snapshot.held.get(name) for name in names)
        counted = sum(held.pending + held.reserving for held in found if held is not None)
        competing = chain.from_iterable(snapshot.competing.get(name, ()) for name in names)
        return counted + sum(arrival.count for arrival in competing)

    def _look(self, snapshot: Snapshot, now: float) -> None:
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
        self._trees = Trees(snapshot, self._watched)
        since = min(self._since.values(), default=now)
        self._failed, self._missing = {}, {}
        self._changed = set(self._watched)
        self._since = {self._trees.root(name): since for name in self._watched}

    def step(self) -> bool:
        """Make the next forecast, wait for a survey if there is none, and rest afterwards.

        False: it was stopped.
        """
        survey = self._surveys.get()
        if survey is None:
            return False
        before = self._cpu()
        profiles, failed = self._forecast(survey)
        spent = self._cpu() - before
        self._tell(ForecastResult(profiles, survey.seen, failed))
        self._sleep(min(LONGEST_REST_SECONDS * self._share, spent * (1 / DUTY - 1)))
        self._tell(ForecastResult())
        return True

    def _forecast(self, survey: ForecastInput) -> tuple[Mapping[str, Profile], Mapping[str, str]]:
        """Forecast all trees; where that fails, each by itself, so that one costs no other."""
        try:
            return self._surveyor.profiles(survey), {}
        except Exception:  # noqa: BLE001 - what one Workload says must not end the observer
            parts: defaultdict[str, set[str]] = defaultdict(set)
        trees = Trees(survey.snapshot)
        for name in survey.asked:
            parts[trees.root(name)].add(name)
        found: dict[str, Profile] = {}
        failed: dict[str, str] = {}
        for root, names in sorted(parts.items()):
            try:
                found |= self._surveyor.profiles(survey.only(frozenset(names)))
            except Exception as error:  # noqa: BLE001
                failed[root] = faults.describe(error)
        return found, failed

    def _run(self) -> None:
        while self.step():
            pass


def _lasts(profile: Profile) -> float:
    """Say for how long a profile holds if nothing happens: until something should."""
    first = profile.times[1] if len(profile.times) > 1 else _LATEST_SECONDS
    return min(max(first, _SOONEST_SECONDS), _LATEST_SECONDS)
