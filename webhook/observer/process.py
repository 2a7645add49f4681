"""The observer's process: it follows the cluster and tells its server what has changed.

Its server starts it, as ``python -m webhook.observer SETTINGS DESCRIPTOR`` (JSON of ``Settings``,
and an end of the pipe between them). It sends ``Update``s and lines of its log, and ends when the
pipe closes. It connects the parts; what changes mean is the feed's to know.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn, TypeAlias

from webhook.api.client import Client
from webhook.api.clock import ClockOffset
from webhook.api.resources import Resource
from webhook.api.watch import Follower, WatchUpdate
from webhook.console.console import THREADS, Console
from webhook.model.faults import OBSERVER_PARTS, Failures, logged
from webhook.model.policy.rules import SERVICES
from webhook.observer.certificates import Certifier
from webhook.observer.leaderless import LeaderlessDispatcher
from webhook.server import lifecycle
from webhook.server.tls import Certificates
from webhook.settings import Settings
from webhook.state.cluster_watches import ClusterWatches, FromCluster
from webhook.state.feed import Feed
from webhook.state.forecaster import Forecaster, ForecastResult
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.pipe import Update
from webhook.state.run_records_reader import RunRecordsReader
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Restraint
from webhook.state.watched import autoscalers, proven, signing_keys, training_runtimes, watched

COALESCE_SECONDS = 0.005
"""Changes within so long are published together."""
HEARTBEAT_SECONDS = 0.5
_Found: TypeAlias = WatchUpdate | ForecastResult | FromCluster
MESSAGES, STATE, *_ = OBSERVER_PARTS
NICENESS = 5
"""When CPU is short, the server answers first and the state gets older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What the observer's own thread keeps: the state of its cluster and of the workers."""

    feed: Feed
    forecaster: Forecaster
    workers: ClusterWatches | None
    ring: KeyRing
    failures: Failures
    clock: ClockOffset
    leaderless: LeaderlessDispatcher | None = None
    """None: controllers nominate no worker clusters."""

    def take(self, message: _Found) -> tuple[str, ...]:
        """Apply one message; return the lines to log."""
        if isinstance(message, ForecastResult):
            return self.forecaster.take(message, self.feed)
        if isinstance(message, WatchUpdate):
            self.ring.take(message)
            return self.feed.take(message)
        return self.workers.take(message) if self.workers is not None else ()


def main() -> NoReturn:
    settings, pipe = Settings.model_validate_json(sys.argv[1]), Connection(int(sys.argv[2]))
    os.nice(NICENESS)
    lifecycle.collect_seldom()
    lifecycle.end_with_parent()
    threading.excepthook = end_with
    to_server = ToServer(pipe)
    console = Console(settings, to_server.log)
    threading.Thread(target=listen, args=(pipe, console.take_lines), daemon=True).start()
    sys.setswitchinterval(0.0005)
    console.start()
    observe(settings, to_server, console)


class ToServer:
    """Sends to the server; any thread may call."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, pickled: bytes) -> None:
        with self._lock:
            self._pipe.send_bytes(pickled)

    def log(self, text: str) -> None:
        self.send(pickle.dumps(logged("observer", text, time.time())))


def observe(settings: Settings, to_server: ToServer, console: Console) -> NoReturn:
    """Follow everything and publish, until the pipe closes."""
    ring = KeyRing()
    resources = _resources(settings, ring)
    messages: queue.SimpleQueue[_Found] = queue.SimpleQueue()
    client = Client(settings.kubeconfig)
    _follow(settings, resources, client, messages)
    feed = _feed(settings, resources)
    forecaster = Forecaster(messages.put)
    forecaster.start()
    failures = Failures(to_server.log)
    certifier = Certifier(settings, to_server.log, failures)
    certifier.start()
    try:
        publish(
            Watching(
                feed=feed,
                forecaster=forecaster,
                workers=_workers(settings, client, messages, ring),
                ring=ring,
                failures=failures,
                clock=client.clock,
                leaderless=_leaderless(settings, client, failures),
            ),
            messages,
            to_server,
            console=console,
            certificates=certifier.news,
        )
    except ConnectionError:
        os._exit(0)


def _follow(
    settings: Settings,
    resources: Sequence[Resource],
    client: Client,
    messages: queue.SimpleQueue[_Found],
) -> None:
    """Start a thread for each resource, and one for the records of run times."""
    for resource in resources:
        follower = Follower(
            resource,
            client,
            messages.put,
            clock=time.monotonic,
            sleep=time.sleep,
            uniform=random.uniform,
        )
        threading.Thread(target=follower.run, name=resource.kind, daemon=True).start()
    records = RunRecordsReader(
        settings.namespace,
        client,
        messages.put,
        clock=time.monotonic,
        sleep=time.sleep,
        uniform=random.uniform,
    )
    threading.Thread(target=records.run, name="run times", daemon=True).start()


def _resources(settings: Settings, ring: KeyRing) -> tuple[Resource, ...]:
    """Return what is followed; marks on Workloads are verified by the keys of the *ring*."""
    resources = watched(
        namespace=settings.namespace,
        kueue_namespace=settings.kueue_namespace,
        series_names=settings.series,
        nodes=settings.watch_nodes,
        team_policies=settings.team_policies,
    )
    runtimes = training_runtimes() if "TrainJob" in settings.kinds else ()
    scaling = (autoscalers(),) if not set(SERVICES).isdisjoint(settings.kinds) else ()
    return (*proven(resources, ring), *runtimes, *scaling, signing_keys(settings.namespace))


def _feed(settings: Settings, resources: Sequence[Resource]) -> Feed:
    with_occupancy, restraint = OccupancyOfSnapshots(), _restraint(settings)
    return Feed(
        resources,
        time.monotonic(),
        complete=lambda snapshot: restraint(with_occupancy(snapshot)),
        stated_version=settings.kueue_version,
        currency=settings.currency,
    )


def _restraint(settings: Settings) -> Restraint:
    return Restraint(
        stated_version=settings.kueue_version, enforces=settings.untested_kueue == "enforce"
    )


def _workers(
    settings: Settings, client: Client, messages: queue.SimpleQueue[_Found], ring: KeyRing
) -> ClusterWatches | None:
    if not settings.watch_workers:
        return None
    watches = ClusterWatches(
        client,
        Client,
        messages.put,
        namespace=settings.namespace,
        kueue=settings.kueue_namespace,
        ring=ring,
    )
    watches.start()
    return watches


def _leaderless(
    settings: Settings, client: Client, failures: Failures
) -> LeaderlessDispatcher | None:
    if not settings.dispatcher:
        return None
    dispatcher = LeaderlessDispatcher(client, settings, failures)
    dispatcher.start()
    return dispatcher


def publish(
    watching: Watching,
    messages: queue.SimpleQueue[_Found],
    to_server: ToServer,
    *,
    console: Console,
    certificates: Callable[[], Certificates | None],
) -> NoReturn:
    feed, workers, failures = watching.feed, watching.workers, watching.failures
    frozen = False
    while True:
        for line in (*_gather(watching, messages), *watching.clock.news()):
            to_server.log(line)
        news = certificates()
        pickled, _ = failures.survive(STATE, partial(_pickled, watching, news))
        to_server.send(pickled or pickle.dumps(_sign_of_life(watching, news)))
        if news is not None:
            console.take_certificates(news)
        states = {} if workers is None else workers.counted()
        console.offer(feed.counted, states, feed.contents_of, feed.workloads)
        if watching.leaderless is not None:
            watching.leaderless.offer(feed.published, feed.workloads)
        if feed.synced and not frozen:
            _freeze()
            frozen = True


def _sign_of_life(watching: Watching, news: Certificates | None) -> Update:
    """Return an update without the cluster's state, sent when that cannot be computed."""
    watching.feed.publish_anew()
    update = watching.feed.sign_of_life(time.monotonic())
    return replace(update, failures=dict(watching.failures.counts), certificates=news)


def _pickled(watching: Watching, news: Certificates | None) -> bytes:
    """Return an update with what has changed since the last one, pickled."""
    feed, forecaster, workers = watching.feed, watching.forecaster, watching.workers
    now, unix = time.monotonic(), time.time()
    update = feed.update(now, unix)
    forecaster.offer(feed, unix)
    update = replace(
        update,
        forecasts_as_of=forecaster.as_of(now),
        certificates=news,
        failures=dict(watching.failures.counts),
        clock_ahead=watching.clock.seconds,
    )
    if watching.leaderless is not None:
        update = replace(update, leaderless_seconds=watching.leaderless.silent_seconds)
    if workers is not None:
        workers.follow(feed.published)
        update = workers.with_clusters(update, now, unix)
    return pickle.dumps(update)


def _gather(watching: Watching, messages: queue.SimpleQueue[_Found]) -> list[str]:
    """Apply all messages of the next few milliseconds, or none of half a second; return the log."""
    told: list[str] = []
    wait = HEARTBEAT_SECONDS
    until = time.monotonic() + wait
    while wait > 0:
        try:
            message = messages.get(timeout=wait)
        except queue.Empty:
            break
        lines, _ = watching.failures.survive(MESSAGES, partial(watching.take, message))
        told += lines or ()
        if isinstance(message, ForecastResult):
            break
        if _is_news(message):
            until = min(until, time.monotonic() + COALESCE_SECONDS)
        wait = until - time.monotonic()
    return told


def _is_news(message: WatchUpdate | FromCluster) -> bool:
    content = message.found if isinstance(message, FromCluster) else message
    if isinstance(content, WatchUpdate):
        return content.entries is not None or content.event is not None
    return True


def _freeze() -> None:
    """Exempt what the first sync has built from garbage collection: it stays."""
    gc.collect()
    lifecycle.exempt_from_collection()


def end_with(failure: threading.ExceptHookArgs) -> None:
    """End the process; only a thread that answers the console's users may fail alone."""
    if failure.thread is not None and failure.thread.name.startswith(THREADS):
        threading.__excepthook__(failure)
    else:
        lifecycle.end_with(failure)


def listen(pipe: Connection, take_lines: Callable[[Sequence[str]], None]) -> None:
    """Take the server's lines, and end with the server."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            take_lines(pipe.recv())
    os._exit(0)
