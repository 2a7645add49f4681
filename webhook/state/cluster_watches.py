"""Watches the worker clusters behind MultiKueue, by kubeconfigs in Secrets.

Each has threads, connections and forecasts of its own: the state of one that is slow or gone only
gets older, and nothing else waits for it. All is called by one thread of its process; the threads
started here only send it what they have found.
"""

from __future__ import annotations

import base64
import binascii
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import yaml

from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed
from webhook.api.watch import Follower, WatchUpdate
from webhook.cost.congestion import by_queue
from webhook.learn import expected_runs
from webhook.learn.expected_runs import NOTHING_LENT
from webhook.model import fields
from webhook.model.costs.prices import NO_CONGESTION
from webhook.model.faults import Attention
from webhook.model.fields import FieldError, as_mapping
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.quantity import FlavorResource
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.feed import Feed
from webhook.state.forecaster import Forecaster, ForecastResult
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.pipe import Update
from webhook.state.queue_counts import QueueContents
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Snapshot, updated
from webhook.state.watched import proven, watched_on_worker

PREFIX: Final = "kueue-fallback-worker-"
"""Prefix of the Secrets' names; the MultiKueueCluster's name follows."""
KEY: Final = "kubeconfig"
AGAIN_SECONDS: Final = (3.0, 5.0)

_NOT_OURS: Final = {
    "cluster": ("certificate-authority", "insecure-skip-tls-verify", "proxy-url"),
    "user": ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key"),
}
"""What would run a program, read a local file or skip verification; Kueue rejects it, too."""
_TEXTS: Final = ("server", "tls-server-name", "token")
"""What is used verbatim."""


class Kubeconfig(NamedTuple):
    """How to reach a worker cluster."""

    cluster: str
    content: Mapping[str, Any] | None
    """None: the cluster cannot be reached, and *problem* says why."""
    problem: str = ""


class KubeconfigReader:
    """Reads the clusters' Secrets in a loop and reports all that is known after each pass."""

    def __init__(
        self,
        namespace: str,
        transport: KubernetesApi,
        names: Callable[[], Iterable[str]],
        tell: Callable[[tuple[Kubeconfig, ...]], None],
        *,
        wait: Callable[[], None],
    ) -> None:
        """Read the kubeconfigs of the clusters that *names* returns.

        *wait* is called after each pass.
        """
        self._namespace = namespace
        self._transport = transport
        self._names = names
        self._tell = tell
        self._wait = wait
        self._known: dict[str, Kubeconfig] = {}

    def run(self) -> None:
        while True:
            self.step()

    def step(self) -> None:
        """Read all kubeconfigs, report those that are known, and wait."""
        before, self._known = self._known, {}
        for name in self._names():
            kubeconfig = self._read(name) or before.get(name)
            if kubeconfig is not None:
                self._known[name] = kubeconfig
        self._tell(tuple(self._known.values()))
        self._wait()

    def _read(self, name: str) -> Kubeconfig | None:
        """Read one; None: keep the previous one, because the API server does not answer."""
        secret = f"{PREFIX}{name}"
        try:
            source = self._transport.get(f"/api/v1/namespaces/{self._namespace}/secrets/{secret}")
            return Kubeconfig(name, _content(source))
        except NotServed:
            return Kubeconfig(name, None, f"there is no Secret {secret}")
        except Forbidden as error:
            return Kubeconfig(name, None, str(error))
        except FieldError as error:
            # Its message must not quote a secret.
            return Kubeconfig(name, None, f"Secret {secret}: {error}")
        except ClusterError:
            return None


def _content(secret: Mapping[str, Any]) -> Mapping[str, Any]:
    path = f"data.{KEY}"
    text = fields.text(fields.mapping(secret, "data", ""), KEY, "data")
    try:
        content = as_mapping(yaml.safe_load(base64.b64decode(text)), path)
    except (ValueError, binascii.Error, yaml.YAMLError):
        raise FieldError(path, "expected a kubeconfig") from None
    for kind, names in _NOT_OURS.items():
        for entry, here in fields.objects(content, f"{kind}s", path):
            forbidden = [name for name in names if fields.mapping(entry, kind, here).get(name)]
            if forbidden:
                raise FieldError(f"{here}.{kind}.{forbidden[0]}", "not allowed here")
            _check_texts(fields.mapping(entry, kind, here), f"{here}.{kind}")
    return content


def _check_texts(source: Mapping[str, Any], path: str) -> None:
    """Reject texts that would only fail later, in the watch's threads, with errors that quote them.

    HTTP allows no line break in a header, and a token that was read from a file often has one.

    Raises:
        FieldError: a text is not one line of ASCII.

    """
    for name in _TEXTS:
        text = fields.text(source, name, path)
        if not (text.isascii() and text.isprintable()):
            raise FieldError(f"{path}.{name}", "expected one line of ASCII")


_SIGN_OF_LIFE_SECONDS = 0.5
"""Between two updates of a cluster without changes."""

T = TypeVar("T")
Connect: TypeAlias = Callable[[Mapping[str, Any]], KubernetesApi]


@dataclass(frozen=True, slots=True)
class FromCluster:
    """A message from a thread of one cluster's watch, or from the reader of kubeconfigs."""

    watch: ClusterWatch | None
    """None: it is from the reader."""
    found: WatchUpdate | ForecastResult | tuple[Kubeconfig, ...]
    """From the reader the kubeconfigs of all worker clusters, as now known."""


Tell: TypeAlias = Callable[["FromCluster"], None]


class ClusterWatch:
    """The watch of one worker cluster, by one kubeconfig.

    Another kubeconfig makes another watch.
    """

    def __init__(
        self,
        name: str,
        kubeconfig: Mapping[str, Any],
        kueue_namespace: str,
        tell: Tell,
        ring: KeyRing,
    ) -> None:
        self._name, self.kubeconfig = name, kubeconfig
        self.policies: tuple[FallbackPolicy, ...] = ()
        """The manager's policies: they determine which queues are forecast."""
        self.lent = NOTHING_LENT
        """What the manager has recorded of runs in this cluster, by class,"""
        self.lent_starts = NOTHING_LENT
        """and of the time until their pods were ready."""
        self.scarcity = NO_CONGESTION
        """As the manager's leading controller has published it,"""
        self.off: OffSwitch | None = None
        """and whether decisions are switched off there."""
        self._tell = tell
        # MultiKueue copies Workloads with the marks of the manager's decisions.
        resources = watched_on_worker(kueue_namespace=kueue_namespace)
        self._resources = proven(resources, ring)
        self._with_occupancy = OccupancyOfSnapshots()
        self._run_times = _Unchanged(expected_runs.together)
        self._starts = _Unchanged(expected_runs.together)
        self._feed = Feed(self._resources, time.monotonic(), complete=self._complete)
        self._forecaster = Forecaster(lambda forecast: tell(FromCluster(self, forecast)))
        self._stopped = threading.Event()
        self._congestion: Mapping[str, Mapping[FlavorResource, float]] = {}
        self._updated = self._unix = 0.0
        self._has_news = False

    def go_on_from(self, before: ClusterWatch) -> None:
        """Start with the policies, run times and forecasts of the watch before this one.

        Without forecasts a full queue would be the first choice until there are some.
        """
        self.policies = before.policies
        self.lent, self.lent_starts = before.lent, before.lent_starts
        self.scarcity, self.off = before.scarcity, before.off
        if before.counted is not None:
            self._feed.publish_forecast(before.counted.forecasts, ())

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
        self._forecaster.start()

    def stop(self) -> None:
        """Let the threads end, each after its step."""
        self._stopped.set()
        self._forecaster.stop()

    def take(self, message: WatchUpdate | ForecastResult) -> tuple[str, ...]:
        """Apply a message; return the lines to log."""
        if isinstance(message, ForecastResult):
            return self._forecaster.take(message, self._feed)
        self._has_news |= message.entries is not None or message.event is not None
        return self._feed.take(message)

    def update(self, now: float, unix: float) -> Update | None:
        """Return what has changed.

        None: nothing, and the last update is younger than half a second.
        """
        if not self._has_news and now - self._updated < _SIGN_OF_LIFE_SECONDS:
            return None
        self._updated, self._has_news, self._unix = now, False, unix
        update = self._feed.update(now, unix)
        self._forecaster.offer(self._feed, unix)
        return replace(update, forecasts_as_of=self._forecaster.as_of(now))

    @property
    def counted(self) -> Snapshot | None:
        """Return what the last snapshot was completed from; None: there was none yet."""
        return self._feed.counted

    def contents_of(self, cluster_queue: str) -> QueueContents:
        """Return the Workloads of a ClusterQueue, as of the last update."""
        return self._feed.contents_of(cluster_queue)

    def _complete(self, snapshot: Snapshot) -> Snapshot:
        queues = snapshot.setup.cluster_queues
        congestion = by_queue(self.scarcity, snapshot.setup, self.off, self._unix, self._name)
        if congestion != self._congestion:
            # What is equal stays the same object, so that it is not published again.
            self._congestion = congestion
        return updated(
            self._with_occupancy(snapshot),
            policies=self.policies,
            run_times=self._run_times(self.lent, snapshot.learned.run_times, queues),
            start_delays=self._starts(self.lent_starts, snapshot.learned.start_delays, queues),
            congestion=self._congestion,
        )

    def _sleep(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def _follow(self, follower: Follower) -> None:
        while not self._stopped.is_set():
            follower.step()


class ClusterWatches:
    """The watches of all worker clusters of a manager that have a kubeconfig."""

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
        """Read kubeconfigs in *namespace*, and Kueue's configuration on workers in *kueue*."""
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
            lambda kubeconfigs: tell(FromCluster(None, kubeconfigs)),
            wait=self._rest,
        )

    def start(self) -> None:
        threading.Thread(target=self._reader.run, name="kubeconfigs", daemon=True).start()

    def follow(self, manager: Snapshot | None) -> None:
        """Apply the manager's clusters, policies and run times.

        None: its state is not known yet.
        """
        if manager is None:
            return
        names = tuple(manager.setup.worker_clusters)
        if names != self._names:
            self._names = names
            self._asked.set()
        known = self._names, manager.setup.cluster_queues, manager.setup.checks
        lent = self._lent(manager.learned.run_times, *known)
        starts = self._lent_starts(manager.learned.start_delays, *known)
        for name, watch in self._watches.items():
            watch.policies = manager.fallback.policies
            watch.lent = lent.get(name, NOTHING_LENT)
            watch.lent_starts = starts.get(name, NOTHING_LENT)
            watch.scarcity, watch.off = manager.costs.scarcity, manager.fallback.off

    def take(self, message: FromCluster) -> tuple[str, ...]:
        """Apply a message; return the lines to log."""
        found = message.found
        if isinstance(found, tuple):
            return self._reach(found)
        for name, watch in self._watches.items():
            if watch is message.watch:
                return tuple(f"cluster {name}: {line}" for line in watch.take(found))
        return ()

    def with_clusters(self, update: Update, now: float, unix: float) -> Update:
        """Return the manager's update with those of its worker clusters."""
        news = ((name, watch.update(now, unix)) for name, watch in self._watches.items())
        return replace(
            update,
            clusters={
                name: cluster_update for name, cluster_update in news if cluster_update is not None
            },
            watched_clusters=tuple(self._watches) if self._is_known else None,
        )

    def counted(self) -> Mapping[str, Snapshot | None]:
        """Return the state of each watched cluster; None: nothing is known yet."""
        return {name: watch.counted for name, watch in self._watches.items()}

    def contents_of(self, cluster: str, cluster_queue: str) -> QueueContents:
        """Return the Workloads of a ClusterQueue of a watched cluster, as of its last update."""
        return self._watches[cluster].contents_of(cluster_queue)

    def _reach(self, kubeconfigs: tuple[Kubeconfig, ...]) -> tuple[str, ...]:
        lines: list[str] = []
        contents = {
            kubeconfig.cluster: kubeconfig.content
            for kubeconfig in kubeconfigs
            if kubeconfig.content is not None
        }
        for name in [name for name in self._watches if name not in contents]:
            self._watches.pop(name).stop()
            lines.append(f"cluster {name}: not watched any more")
        for name, content in contents.items():
            before = self._watches.get(name)
            if before is None or before.kubeconfig != content:
                self._begin(name, content, before)
                lines.append(f"cluster {name}: watched{' anew' if before else ''}")
        problems = {
            kubeconfig.cluster: kubeconfig.problem
            for kubeconfig in kubeconfigs
            if kubeconfig.problem
        }
        for name, problem in problems.items():
            if self._problems.get(name) != problem:
                lines.append(Attention(f"cluster {name}: not watched: {problem}"))
        self._problems = problems
        read_names = {kubeconfig.cluster for kubeconfig in kubeconfigs}
        self._is_known |= self._names is not None and read_names.issuperset(self._names)
        return tuple(lines)

    def _begin(self, name: str, content: Mapping[str, Any], before: ClusterWatch | None) -> None:
        watch = ClusterWatch(name, content, self._kueue, self._tell, self._ring)
        if before is not None:
            watch.go_on_from(before)
            before.stop()
        self._watches[name] = watch
        watch.start(self._connect(content))

    def _rest(self) -> None:
        self._asked.wait(random.uniform(*AGAIN_SECONDS))  # noqa: S311 - no secret
        self._asked.clear()


class _Unchanged(Generic[T]):
    """A function that is computed again only if an argument is another object than before."""

    def __init__(self, work: Callable[..., T]) -> None:
        self._work = work
        self._last: tuple[tuple[object, ...], T] | None = None

    def __call__(self, *given: object) -> T:
        last = self._last
        if last is None or not all(a is b for a, b in zip(last[0], given, strict=True)):
            self._last = last = given, self._work(*given)
        return last[1]
