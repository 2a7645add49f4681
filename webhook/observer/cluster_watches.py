"""Follows the worker clusters behind MultiKueue, for the observer.

Each has threads, connections and forecasts of its own: what is known of one that is slow or gone
grows old, and nobody else waits for it.

Called by the observer's own thread, but for the threads that it starts, which only tell.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from webhook.api.kubeconfigs import AGAIN_SECONDS, Kubeconfig, KubeconfigReader
from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.watch import Follower, WatchUpdate
from webhook.kueue.live_occupancy import OccupancyOfSnapshots
from webhook.learn import expected_runs
from webhook.learn.expected_runs import NOTHING_LENT
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Snapshot
from webhook.observer.forecaster import Forecaster, ForecastResult
from webhook.state.feed import Counted, Feed
from webhook.state.pipe import Update
from webhook.state.signing_keys import KeyRing, proven
from webhook.state.watched import watched_on_worker

_SIGN_OF_LIFE_SECONDS = 0.5
"""Between two updates of a cluster in which nothing happens."""

T = TypeVar("T")
Connect: TypeAlias = Callable[[Mapping[str, Any]], KubernetesApi]


@dataclass(frozen=True, slots=True)
class FromCluster:
    """Something that a thread of a cluster's watch has found out."""

    watch: ClusterWatch
    found: WatchUpdate | ForecastResult


@dataclass(frozen=True, slots=True)
class Reachable:
    """How each of the worker clusters is reached now."""

    kubeconfigs: tuple[Kubeconfig, ...]


Tell: TypeAlias = Callable[["FromCluster | Reachable"], None]


class ClusterWatch:
    """One worker cluster, reached in one way; another kubeconfig makes another watch."""

    def __init__(
        self, kubeconfig: Mapping[str, Any], kueue_namespace: str, tell: Tell, ring: KeyRing
    ) -> None:
        self.kubeconfig = kubeconfig
        self.policies: tuple[FallbackPolicy, ...] = ()
        """The manager's: they say which queues are forecast."""
        self.lent = NOTHING_LENT
        """What the manager has recorded of runs in this cluster,"""
        self.lent_starts = NOTHING_LENT
        """and of how long their pods took to be ready."""
        self._tell = tell
        # What the manager's decisions have marked goes to the workers with its marks.
        found = watched_on_worker(kueue_namespace=kueue_namespace)
        self._resources = proven(found, ring)
        self._settler = OccupancyOfSnapshots()
        self._run_times = _Unchanged(expected_runs.together)
        self._starts = _Unchanged(expected_runs.together)
        self._feed = Feed(self._resources, time.monotonic(), settle=self._settle)
        self._foresight = Forecaster(lambda foreseen: tell(FromCluster(self, foreseen)))
        self._stopped = threading.Event()
        self._updated = 0.0
        self._has_news = False

    def go_on_from(self, before: ClusterWatch) -> None:
        """Begin with what the watch before this one was told and forecast.

        Without forecasts a full queue would be the first choice until there are some.
        """
        self.policies = before.policies
        self.lent, self.lent_starts = before.lent, before.lent_starts
        if before.counted is not None:
            self._feed.foresee(before.counted.profiles, ())

    def start(self, transport: KubernetesApi) -> None:
        for resource in self._resources:
            follower = Follower(
                resource,
                transport,
                lambda message: self._tell(FromCluster(self, message)),
                clock=time.monotonic,
                sleep=self._sleep,
                uniform=random.uniform,
            )
            threading.Thread(target=self._follow, args=(follower,), daemon=True).start()
        self._foresight.start()

    def stop(self) -> None:
        """Let the threads end, each after its step."""
        self._stopped.set()
        self._foresight.stop()

    def take(self, found: WatchUpdate | ForecastResult) -> tuple[str, ...]:
        """Take over what was found out; return what is to be logged."""
        if isinstance(found, ForecastResult):
            return self._foresight.take(found, self._feed)
        self._has_news |= found.entries is not None or found.event is not None
        return self._feed.take(found)

    def update(self, now: float, unix: float) -> Update | None:
        """Say what has changed; None: nothing, and the last sign of life is not long ago."""
        if not self._has_news and now - self._updated < _SIGN_OF_LIFE_SECONDS:
            return None
        self._updated, self._has_news = now, False
        update = self._feed.update(now, unix)
        self._foresight.offer(self._feed, unix)
        return replace(update, forecasts_as_of=self._foresight.as_of(now))

    @property
    def counted(self) -> Counted | None:
        """Return what the last snapshot was settled from."""
        return self._feed.counted

    def _settle(self, snapshot: Snapshot) -> Snapshot:
        queues = snapshot.cluster_queues
        return replace(
            self._settler(snapshot),
            policies=self.policies,
            run_times=self._run_times(self.lent, snapshot.run_times, queues),
            start_delays=self._starts(self.lent_starts, snapshot.start_delays, queues),
        )

    def _sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def _follow(self, follower: Follower) -> None:
        while not self._stopped.is_set():
            follower.step()


class ClusterWatches:
    """All worker clusters of a manager for which there is a kubeconfig."""

    def __init__(
        self,
        secrets: KubernetesApi,
        connect: Connect,
        tell: Tell,
        *,
        namespace: str,
        kueue: str,
        ring: KeyRing,
    ) -> None:
        """Find kubeconfigs in *namespace*, and Kueue's configuration on workers in *kueue*."""
        self._connect = connect
        self._tell = tell
        self._kueue = kueue
        self._ring = ring
        self._names: tuple[str, ...] | None = None
        self._asked = threading.Event()
        self._watches: dict[str, ClusterWatch] = {}
        self._problems: dict[str, str] = {}
        self._is_known = False
        self._lent = _Unchanged(expected_runs.lent)
        self._lent_starts = _Unchanged(expected_runs.lent)
        self._reader = KubeconfigReader(
            namespace,
            secrets,
            lambda: self._names or (),
            lambda found: tell(Reachable(found)),
            wait=self._rest,
        )

    def start(self) -> None:
        threading.Thread(target=self._reader.run, name="kubeconfigs", daemon=True).start()

    def follow(self, manager: Snapshot | None) -> None:
        """Take over which clusters there are, and by which policies they are forecast."""
        if manager is None:
            return
        names = tuple(manager.worker_clusters)
        if names != self._names:
            self._names = names
            self._asked.set()
        known = self._names, manager.cluster_queues, manager.checks
        lent = self._lent(manager.run_times, *known)
        starts = self._lent_starts(manager.start_delays, *known)
        for name, watch in self._watches.items():
            watch.policies = manager.policies
            watch.lent = lent.get(name, NOTHING_LENT)
            watch.lent_starts = starts.get(name, NOTHING_LENT)

    def take(self, found: FromCluster | Reachable) -> tuple[str, ...]:
        """Take over what was found out; return what is to be logged."""
        if isinstance(found, Reachable):
            return self._reach(found.kubeconfigs)
        for name, watch in self._watches.items():
            if watch is found.watch:
                return tuple(f"cluster {name}: {line}" for line in watch.take(found.found))
        return ()

    def told(self, update: Update, now: float, unix: float) -> Update:
        """Add the worker clusters to what is published of their manager."""
        news = ((name, watch.update(now, unix)) for name, watch in self._watches.items())
        return replace(
            update,
            clusters={name: each for name, each in news if each is not None},
            watched_clusters=tuple(self._watches) if self._is_known else None,
        )

    def counted(self) -> Mapping[str, Counted | None]:
        """Return what is known of each cluster that is watched; None: nothing yet."""
        return {name: watch.counted for name, watch in self._watches.items()}

    def _reach(self, found: tuple[Kubeconfig, ...]) -> tuple[str, ...]:
        lines: list[str] = []
        contents = {each.cluster: each.content for each in found if each.content is not None}
        for name in [name for name in self._watches if name not in contents]:
            self._watches.pop(name).stop()
            lines.append(f"cluster {name}: not watched any more")
        for name, content in contents.items():
            before = self._watches.get(name)
            if before is None or before.kubeconfig != content:
                self._begin(name, content, before)
                lines.append(f"cluster {name}: watched{' anew' if before else ''}")
        problems = {each.cluster: each.problem for each in found if each.problem}
        for name, problem in problems.items():
            if self._problems.get(name) != problem:
                lines.append(f"cluster {name}: not watched: {problem}")
        self._problems = problems
        looked = {each.cluster for each in found}
        self._is_known |= self._names is not None and looked.issuperset(self._names)
        return tuple(lines)

    def _begin(self, name: str, content: Mapping[str, Any], before: ClusterWatch | None) -> None:
        watch = ClusterWatch(content, self._kueue, self._tell, self._ring)
        if before is not None:
            watch.go_on_from(before)
            before.stop()
        self._watches[name] = watch
        watch.start(self._connect(content))

    def _rest(self) -> None:
        self._asked.wait(random.uniform(*AGAIN_SECONDS))  # noqa: S311 - no secret
        self._asked.clear()


class _Unchanged(Generic[T]):
    """Works something out again only if it is asked of other objects than the last time."""

    def __init__(self, work: Callable[..., T]) -> None:
        self._work = work
        self._last: tuple[tuple[object, ...], T] | None = None

    def __call__(self, *given: object) -> T:
        last = self._last
        if last is None or not all(a is b for a, b in zip(last[0], given, strict=True)):
            self._last = last = given, self._work(*given)
        return last[1]
