"""The console in the observer: takes what the observer knows, builds views, and starts the server.

Decisions on Jobs, the conditions of policies, the controllers' Lease and what they published of
savings are read for the console alone: watched from its first use on, and not part of what the
server gets.
"""

from __future__ import annotations

import heapq
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

from webhook.api import lease
from webhook.api.calls import SHORT_SECONDS
from webhook.api.client import Client
from webhook.api.resources import (
    POLICIES,
    SAVINGS,
    TEAM_POLICIES,
    Key,
    ReadObject,
    Resource,
    full_name,
    our_path,
    read_by,
)
from webhook.api.watch import Follower, WatchUpdate
from webhook.console.access import Everybody, Reviews
from webhook.console.collect import ConsoleInput, Leads, collect
from webhook.console.decisions import KEPT, DecisionStore, from_job
from webhook.console.on_demand import DryRuns, JobWorkloads, LineForecasts
from webhook.console.routes import LOOPBACK, ConsoleSources, create_app
from webhook.console.view import Judged, View
from webhook.hindsight.savings_record import SavingsRecord, ShownDecision, read_savings
from webhook.jobs import BY_NAME, JOB, JobKind
from webhook.model import fields
from webhook.model.faults import Attention, Fault
from webhook.model.job import OPTION_LABEL, PLAIN
from webhook.server.addresses import is_loopback, split_address
from webhook.server.gunicorn_app import Application, Server
from webhook.server.tls import Certificates, SentContext
from webhook.settings import Settings
from webhook.state.queue_counts import QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.watched import OF_TEAMS
from webhook.state.workload import Workload

FIRST_SECONDS = 2.0
"""How long the first answer waits for the first lists."""
LEASES: Final = "leases"


class NewestJobs:
    """Reads Jobs; one that is older than as many others as are kept is not read.

    A list can have many thousands, each with an annotation of some thousand characters.
    """

    def __init__(self, kept: int = KEPT, kind: str = PLAIN) -> None:
        self._kept, self._kind = kept, kind
        self._newest: list[tuple[str, str]] = []
        self._uids: set[str] = set()

    def read(self, kind: str, source: Mapping[str, Any]) -> ReadObject:
        return read_by(self._read, kind, source)

    def _read(self, source: Mapping[str, Any]) -> ShownDecision | None:
        metadata = fields.mapping(source, "metadata", "")
        created = fields.text(metadata, "creationTimestamp", "metadata")
        uid = fields.text(metadata, "uid", "metadata")
        return from_job(source, self._kind) if self._is_among(created, uid) else None

    def _is_among(self, created: str, uid: str) -> bool:
        if uid in self._uids:
            return True
        # The times have one form, so their order is that of the texts.
        heapq.heappush(self._newest, (created, uid))
        self._uids.add(uid)
        if len(self._newest) > self._kept:
            _, oldest = heapq.heappop(self._newest)
            self._uids.discard(oldest)
        return uid in self._uids


def read_judged(kind: str, source: Mapping[str, Any]) -> ReadObject:
    """Read the conditions that the controller wrote on a policy."""
    return read_by(_judged, kind, source)


def _judged(source: Mapping[str, Any]) -> Judged | None:
    status = fields.mapping(source, "status", "")
    said = {
        fields.text(condition, "type", here): (
            fields.text(condition, "status", here),
            fields.text(condition, "message", here),
        )
        for condition, here in fields.objects(status, "conditions", "status")
    }
    if "Ready" not in said:
        return None
    is_ready, message = said["Ready"]
    reviewed, unreviewed = said.get("Reviewed", ("True", ""))
    return Judged(is_ready == "True", message, unreviewed if reviewed == "False" else "")


def read_leads(kind: str, source: Mapping[str, Any]) -> ReadObject:
    """Read who holds a Lease."""
    return read_by(_leads, kind, source)


def _leads(source: Mapping[str, Any]) -> Leads:
    spec = fields.mapping(source, "spec", "")
    renewed = fields.seconds_since_1970(fields.text(spec, "renewTime", "spec"), "spec.renewTime")
    seconds = fields.integer(spec, "leaseDurationSeconds", "spec") or 0
    return Leads(fields.text(spec, "holderIdentity", "spec"), renewed + seconds)


class Followed:
    """The console's own watches and what they have found."""

    def __init__(self, book: DecisionStore, settings: Settings, log: Callable[[str], None]) -> None:
        self._book, self._settings, self._log = book, settings, log
        self._resources = (
            JUDGED,
            *((TEAMS_JUDGED,) if settings.team_policies else ()),
            lease_in(settings.namespace),
            savings_in(settings.namespace),
        )
        self._known: Mapping[str, dict[Key, Any]] = {each.kind: {} for each in self._resources}
        self._troubles: dict[str, str] = {}
        followed = settings.kinds if settings.console_follow_jobs else ()
        self._jobs = {BY_NAME[name].plural: BY_NAME[name] for name in followed}
        """The kinds whose Jobs are followed, by the names of their watches."""
        self._listed = {kind: threading.Event() for kind in (*self._jobs, *self._known)}
        self._lock = threading.Lock()
        self._until: float | None = None
        """Until when the first views wait for the lists; None: the console was not used yet."""

    @property
    def judged(self) -> Mapping[str, Judged]:
        """Policy to the conditions that the controller wrote on it."""
        with self._lock:
            return {
                full_name(key): judged
                for kind in (POLICIES, TEAM_POLICIES)
                for key, judged in self._known.get(kind, {}).items()
            }

    @property
    def leads(self) -> Leads | None:
        with self._lock:
            return next(iter(self._known[LEASES].values()), None)

    @property
    def published(self) -> SavingsRecord | None:
        with self._lock:
            return next(iter(self._known[SAVINGS].values()), None)

    def begin(self) -> None:
        """Start the watches, and wait a little for their first lists."""
        with self._lock:
            is_first = self._until is None
            until = self._until = self._until or time.monotonic() + FIRST_SECONDS
        if is_first:
            for kind in self._jobs.values():
                self._start(jobs(NewestJobs(kind=kind.kind), kind), metadata_only=True)
            for resource in self._resources:
                self._start(resource, metadata_only=False)
        for listed in self._listed.values():
            listed.wait(max(0.0, until - time.monotonic()))

    def take(self, message: WatchUpdate) -> None:
        """Apply a watch update."""
        before = self._troubles.get(message.kind, "")
        self._troubles[message.kind] = message.error
        if message.error:
            if not before:
                self._log(Attention(f"console: {message.kind}: {message.error}"))
            if message.unreadable:
                self._listed[message.kind].set()
            return
        if message.kind in self._jobs:
            self._take_jobs(message, self._jobs[message.kind].kind)
        else:
            with self._lock:
                _apply(message, self._known[message.kind])
        if message.entries is not None:
            self._listed[message.kind].set()

    def _take_jobs(self, message: WatchUpdate, kind: str) -> None:
        """Store decisions of Jobs; of deleted ones only those that the log reported, too."""
        if message.entries is not None:
            for entry in message.entries:
                self._book.put(entry.key, entry.value, kind)
            self._book.forget_others({entry.key for entry in message.entries}, kind)
        elif message.event is not None:
            event_type, entry = message.event
            self._book.put(entry.key, None if event_type == "DELETED" else entry.value, kind)

    def _start(self, resource: Resource, *, metadata_only: bool) -> None:
        follower = Follower(
            resource,
            Client(self._settings.kubeconfig, metadata_only=metadata_only),
            self.take,
            clock=time.monotonic,
            sleep=time.sleep,
            uniform=random.uniform,
        )
        name = f"console {resource.kind}"
        threading.Thread(target=follower.run, name=name, daemon=True).start()


def _apply(message: WatchUpdate, known: dict[Key, Any]) -> None:
    """Apply a watch update to *known*; objects that cannot be read are removed."""
    if message.entries is not None:
        known.clear()
        known.update({e.key: e.value for e in message.entries if e.value is not None})
    elif message.event is not None:
        event_type, entry = message.event
        known.pop(entry.key, None)
        if event_type != "DELETED" and entry.value is not None:
            known[entry.key] = entry.value


JUDGED: Final = Resource(kind=POLICIES, path=our_path(POLICIES), required=False, read=read_judged)
TEAMS_JUDGED: Final = replace(
    JUDGED, kind=TEAM_POLICIES, path=our_path(TEAM_POLICIES), limit=OF_TEAMS
)


def lease_in(namespace: str) -> Resource:
    """Return the Lease by which one of the controllers leads."""
    return Resource(
        kind=LEASES,
        path=f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        field_selector=f"metadata.name={lease.NAME}",
        required=False,
        read=read_leads,
    )


def savings_in(namespace: str) -> Resource:
    """Return the record of savings that the leading controller publishes."""
    return Resource(
        kind=SAVINGS,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        field_selector=f"metadata.name={SAVINGS}",
        required=False,
        read=partial(read_by, read_savings),
    )


def jobs(newest: NewestJobs, kind: JobKind = JOB) -> Resource:
    """Return the Jobs of a kind that a policy has sent to an option."""
    return Resource(
        kind=kind.plural,
        path=kind.path(),
        label_selector=OPTION_LABEL,
        required=False,
        read=newest.read,
    )


THREADS: Final = "console"
"""Name of its thread: a failure in it does not end the process."""
AT_ONCE: Final = 8
"""Answers; others wait. Each takes the interpreter that the observer needs."""
PLACES: Final = 200
"""Connections; beyond them the one that was silent longest is closed."""
SILENT_SECONDS: Final = 10
FRESH_SECONDS = 0.25
"""For so long one view serves all users."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 10.0


class Console:
    """Collects views, at most some a second, and only when they are requested."""

    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        self._settings, self._log = settings, log
        self._book = DecisionStore()
        self._followed = Followed(self._book, settings, log)
        self._is_open = is_loopback(split_address(settings.console_listen)[0])
        self._sent = SentContext(on_error=log)
        self._counted: tuple[Snapshot | None, Mapping[str, Snapshot | None]] = None, {}
        self._jobs = JobWorkloads()
        self._line = LineForecasts(clock=time.monotonic, unix=time.time)
        self._dry_runs = DryRuns(
            lambda: self._counted[0],
            settings.namespace,
            clock=time.monotonic,
            unix=time.time,
            sleep=time.sleep,
        )
        self._view: View | None = None
        self._viewed = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._serve, name=THREADS, daemon=True).start()

    def offer(
        self,
        counted: Snapshot | None,
        workers: Mapping[str, Snapshot | None],
        contents_of: Callable[[str], QueueContents],
        workloads: Callable[[], Iterable[Workload]],
    ) -> None:
        """Replace the state of all clusters; called for each update.

        *contents_of* returns the Workloads of a ClusterQueue, *workloads* all of this cluster; both
        are called in this thread alone.
        """
        self._counted = counted, workers
        self._line.offer(counted, contents_of)
        self._jobs.offer(workloads)

    def take_certificates(self, certificates: Certificates) -> None:
        """Replace the certificate; the console's clients need none."""
        self._sent.take(replace(certificates, clients=None))

    def take_lines(self, lines: Iterable[str]) -> None:
        """Add lines of the server's decision log."""
        for line in lines:
            self._book.put_line(line)

    def view(self) -> View:
        """Return the view, collected again if it is older than ``FRESH_SECONDS``.

        Any thread may call.
        """
        self._followed.begin()
        with self._lock:
            now = time.monotonic()
            if self._view is None or now - self._viewed > FRESH_SECONDS:
                self._view, self._viewed = self._collected(now), now
            return self._view

    def _collected(self, now: float) -> View:
        counted, workers = self._counted
        known = ConsoleInput(
            now=now,
            unix=time.time(),
            max_age=self._settings.max_state_age,
            counted=counted,
            workers=workers,
            decisions=self._book.newest(),
            published=self._followed.published,
            judged=self._followed.judged,
            leads=self._followed.leads,
        )
        return collect(known)

    def _serve(self) -> None:
        """Serve until the process ends.

        Another observer may still have the address for a moment.
        """

        def serve() -> None:
            # The webhook's own certificate; loopback needs none.
            context = None if self._is_open else self._sent
            server = console_server(self._settings.console_listen, self._application, context)
            server.on_error = lambda text: self._log(Fault(f"console: {text}"))
            server.worker_of_this_process().run()

        def say(error: OSError) -> None:
            text = f"console: cannot serve {self._settings.console_listen}: {error}"
            self._log(Attention(text))

        serve_again(serve, say, clock=time.monotonic, sleep=time.sleep)

    def _application(self) -> Application:
        return create_app(
            ConsoleSources(
                view=self.view,
                waiting=self._line.waiting,
                workloads_of=self._jobs.workloads_of,
                decide=self._dry_runs.decide,
            ),
            (lambda _header, _peer: Everybody()) if self._is_open else self._reviews().rights_of,
            hosts=LOOPBACK if self._is_open else (),
            on_error=lambda error: self._log(Fault(f"console: {type(error).__name__}: {error}")),
        )

    def _reviews(self) -> Reviews:
        client = Client(self._settings.kubeconfig, answer_seconds=SHORT_SECONDS)
        return Reviews(client.post, self._settings.console_audience)


def console_server(
    address: str,
    load_application: Callable[[], Application],
    context: Callable[[], ssl.SSLContext | None] | None,
) -> Server:
    """Return what serves the console; *context* returns each connection's TLS context."""
    server = Server(
        listen=(address,),
        load_application=load_application,
        with_tls=0 if context is None else 1,
        threads=AT_ONCE,
        worker_connections=PLACES,
        keepalive=SILENT_SECONDS,
    )
    if context is not None:
        server.context = context
    return server


def serve_again(
    serve: Callable[[], None],
    say: Callable[[OSError], None],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> NoReturn:
    """Call *serve* forever, waiting longer after each failure in a row.

    A failure that repeats is logged once; one after it was served for a while counts as a new one.
    """
    wait, logged = _FIRST_WAIT_SECONDS, ""
    while True:
        began = clock()
        try:
            serve()
        except OSError as error:
            if clock() - began > _LONGEST_WAIT_SECONDS:
                wait, logged = _FIRST_WAIT_SECONDS, ""
            if str(error) != logged:
                logged = str(error)
                say(error)
        sleep(wait * random.uniform(0.8, 1.0))  # noqa: S311
        wait = min(_LONGEST_WAIT_SECONDS, 2 * wait)
