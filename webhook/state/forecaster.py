"""Keeps forecasts current in a thread, for a bounded part of one CPU.

It decides which trees to forecast and when, and keeps the forecasts; how they are computed is the
forecast's. What one Workload breaks costs only the forecast of its own tree.
"""

from __future__ import annotations

import queue
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain

from webhook.kueue.tree_forecast import TreeForecast
from webhook.model import faults
from webhook.state.feed import Feed
from webhook.state.forecast_input import ForecastInput, ForecastInputs, Trees, watched
from webhook.state.snapshot import Snapshot
from webhook.state.workload import SeenWorkload

DUTY = 0.25
"""Largest part of one CPU: publishing what has changed must not wait."""
LONGEST_REST_SECONDS = 0.5
"""For all changed trees together: forecasts are at most two seconds old, so many long ones may
exceed ``DUTY``."""
AT_ONCE = 2000
"""Most Workloads in one forecast input, unless a single tree has more."""
_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 30.0
"""Range of the age at which an unchanged queue is forecast again: when the first run in it should
have ended, and did not."""


@dataclass(frozen=True, slots=True)
class ForecastResult:
    """What a forecast returned; without forecasts: the thread is ready for the next one."""

    forecasts: Mapping[str, TreeForecast] | None = None
    seen: tuple[SeenWorkload, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    """Trees that cannot be forecast, with the error in our code."""


class Forecaster:
    """Forecasts of one cluster.

    ``offer`` and ``take`` are called by one thread of its process, which gets results by ``tell``.
    """

    def __init__(
        self,
        tell: Callable[[ForecastResult], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tell, self._clock, self._cpu, self._sleep = tell, clock, cpu, sleep
        self._requests: queue.SimpleQueue[ForecastInput | None] = queue.SimpleQueue()
        self._forecast_inputs = ForecastInputs()
        self._is_free = True
        self._forecasts: dict[str, TreeForecast] = {}
        self._due: dict[str, float] = {}
        self._watched: frozenset[str] = frozenset()
        self._depends_on: tuple[object, ...] = ()
        self._trees = Trees()
        self._changed: set[str] = set()
        self._since: dict[str, float] = {}
        """Tree to the time of its first change that no forecast contains."""
        self._requested: Mapping[str, float] = {}
        """The same for the trees being forecast at the moment."""
        self._failed: dict[str, str] = {}
        """Trees without a forecast because of an error in our code, until one succeeds,"""
        self._missing: dict[str, float] = {}
        """and the time since when they have none."""
        self._share = 1.0

    def start(self) -> None:
        threading.Thread(target=self._run, name="forecaster", daemon=True).start()

    def stop(self) -> None:
        """End after the forecast that is being computed."""
        self._requests.put(None)

    @property
    def waiting(self) -> int:
        """Return the number of inputs not forecast yet."""
        return self._requests.qsize()

    def as_of(self, now: float) -> float:
        """Return the monotonic time up to which the forecasts contain all events."""
        waiting = (self._since, self._requested, self._missing)
        return min(chain.from_iterable(times.values() for times in waiting), default=now)

    def offer(self, feed: Feed, unix: float) -> None:
        """Start a forecast of what has changed, if the last one is done.

        *unix* is the current time in seconds since 1970.
        """
        snapshot, now = feed.published, self._clock()
        recounted = feed.take_recounted()
        if snapshot is None:
            return
        self._start(snapshot, now)
        self._changed |= recounted & self._watched
        for name in self._changed:
            self._since.setdefault(self._trees.root(name), now)
        if not self._watched:
            # Without forecasts, which Workloads one contains does not matter.
            feed.contents_to_forecast(())
        if self._is_free:
            self._request(feed, snapshot, now, unix)

    def _request(self, feed: Feed, snapshot: Snapshot, now: float, unix: float) -> None:
        """Queue the trees that have waited longest for a forecast."""
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
        contents, seen = feed.contents_to_forecast(counted, later)
        self._changed -= counted
        self._requested = {root: self._since.pop(root, now) for root in waiting[:number]}
        self._is_free, self._share = False, (sum(sizes[:number]) + 1) / (sum(sizes) + 1)
        self._requests.put(
            ForecastInput(
                snapshot=snapshot,
                counted=contents,
                due=frozenset(due - later),
                seen=seen,
                now=now,
                unix=unix,
            )
        )

    def take(self, forecast: ForecastResult, feed: Feed) -> tuple[str, ...]:
        """Apply a result and publish its forecasts to *feed*; return the lines to log."""
        if forecast.forecasts is None:
            self._is_free = True
            return ()
        lines = self._note_failed(forecast.failed)
        unknown = set(chain.from_iterable(map(self._trees.members, self._failed)))
        self._forecasts = {
            name: of_tree
            for name, of_tree in {**self._forecasts, **forecast.forecasts}.items()
            if name in self._watched and name not in unknown
        }
        for name, of_tree in forecast.forecasts.items():
            self._due[name] = of_tree.computed_at + _lasts(of_tree)
        self._requested = {}
        feed.publish_forecast(self._forecasts, forecast.seen)
        return lines

    def _note_failed(self, failed: Mapping[str, str]) -> tuple[str, ...]:
        """Drop the forecasts of trees that failed, the old ones too, and schedule a retry."""
        now = self._clock()
        lines = tuple(
            f"{root} cannot be forecast: {error}"
            for root, error in failed.items()
            if self._failed.get(root) != error
        )
        for root in self._requested.keys() - failed.keys():
            self._failed.pop(root, None)
            self._missing.pop(root, None)
        for root, error in failed.items():
            if not self._trees.members(root):
                continue
            self._failed[root] = error
            self._missing.setdefault(root, self._requested.get(root, now))
            self._due |= dict.fromkeys(self._trees.members(root), now + _LATEST_SECONDS)
        return lines

    def _size(self, root: str, snapshot: Snapshot) -> int:
        """Return the number of Workloads of a tree."""
        names = self._trees.members(root)
        contents = (snapshot.workloads.held.get(name) for name in names)
        counted = sum(held.pending + held.reserving for held in contents if held is not None)
        competing = chain.from_iterable(
            snapshot.workloads.competing.get(name, ()) for name in names
        )
        return counted + sum(arrival.count for arrival in competing)

    def _start(self, snapshot: Snapshot, now: float) -> None:
        """Find the queues to forecast; all are forecast again if more than counts has changed."""
        depends_on = (
            snapshot.fallback.policies,
            snapshot.setup.cluster_queues,
            snapshot.setup.local_queues,
            snapshot.setup.cohorts,
            snapshot.setup.flavors,
            snapshot.setup.kueue,
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
        """Compute the next forecast, waiting for input, and rest afterwards.

        False: it was stopped.
        """
        forecast_input = self._requests.get()
        if forecast_input is None:
            return False
        before = self._cpu()
        forecasts, failed = self._forecast(forecast_input)
        spent = self._cpu() - before
        self._tell(ForecastResult(forecasts, forecast_input.seen, failed))
        self._sleep(min(LONGEST_REST_SECONDS * self._share, spent * (1 / DUTY - 1)))
        self._tell(ForecastResult())
        return True

    def _forecast(
        self, forecast_input: ForecastInput
    ) -> tuple[Mapping[str, TreeForecast], Mapping[str, str]]:
        """Forecast all trees; if that fails, each by itself, so that one costs no other."""
        try:
            return self._forecast_inputs.forecasts(forecast_input), {}
        except Exception:  # noqa: BLE001 - what one Workload says must not end the process
            parts: defaultdict[str, set[str]] = defaultdict(set)
        trees = Trees(forecast_input.snapshot)
        for name in forecast_input.asked:
            parts[trees.root(name)].add(name)
        forecasts: dict[str, TreeForecast] = {}
        failed: dict[str, str] = {}
        for root, names in sorted(parts.items()):
            try:
                forecasts |= self._forecast_inputs.forecasts(forecast_input.only(frozenset(names)))
            except Exception as error:  # noqa: BLE001
                failed[root] = faults.describe(error)
        return forecasts, failed

    def _run(self) -> None:
        while self.step():
            pass


def _lasts(forecast: TreeForecast) -> float:
    """Return for how many seconds a forecast is valid without an event: until one is expected."""
    return min(max(forecast.next_event, _SOONEST_SECONDS), _LATEST_SECONDS)
