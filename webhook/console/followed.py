"""What only the console wants to know of the cluster: followed from when on somebody asks."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.api import lease
from webhook.api.client import Client
from webhook.api.resources import POLICIES, Key, ReadObject, Resource, read_by
from webhook.api.watch import Follower, WatchUpdate
from webhook.console.collect import Judged, Leads
from webhook.console.decisions import KEPT, DecisionStore, from_job
from webhook.console.view import ShownDecision
from webhook.model import fields
from webhook.model.job import OPTION_LABEL
from webhook.settings import Settings

FIRST_SECONDS = 2.0
"""How long the first answer waits for the first lists."""
JOBS: Final = "jobs"
LEASES: Final = "leases"


class NewestJobs:
    """Reads Jobs, and leaves those out of which newer ones were seen in number.

    A list can have many thousands, each with an annotation of some thousand characters.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._found: list[tuple[str, str]] = []
        self._uids: set[str] = set()

    def read(self, kind: str, source: Mapping[str, Any]) -> ReadObject:
        return read_by(self._read, kind, source)

    def _read(self, source: Mapping[str, Any]) -> ShownDecision | None:
        metadata = fields.mapping(source, "metadata", "")
        created = fields.text(metadata, "creationTimestamp", "metadata")
        uid = fields.text(metadata, "uid", "metadata")
        return from_job(source) if self._is_among(created, uid) else None

    def _is_among(self, created: str, uid: str) -> bool:
        if uid in self._uids:
            return True
        # Times of one form: their order is that of the texts.
        heapq.heappush(self._found, (created, uid))
        self._uids.add(uid)
        if len(self._found) > self._kept:
            _, oldest = heapq.heappop(self._found)
            self._uids.discard(oldest)
        return uid in self._uids


def read_judged(kind: str, source: Mapping[str, Any]) -> ReadObject:
    """Read what the controller says of a policy."""
    return read_by(_judged, kind, source)


def _judged(source: Mapping[str, Any]) -> Judged | None:
    status = fields.mapping(source, "status", "")
    for condition, here in fields.objects(status, "conditions", "status"):
        if condition.get("type") == "Ready":
            is_ready = fields.text(condition, "status", here) == "True"
            return Judged(is_ready, fields.text(condition, "message", here))
    return None


def read_leads(kind: str, source: Mapping[str, Any]) -> ReadObject:
    """Read who holds a Lease."""
    return read_by(_leads, kind, source)


def _leads(source: Mapping[str, Any]) -> Leads:
    spec = fields.mapping(source, "spec", "")
    renewed = fields.seconds_since_1970(fields.text(spec, "renewTime", "spec"), "spec.renewTime")
    seconds = fields.integer(spec, "leaseDurationSeconds", "spec") or 0
    return Leads(fields.text(spec, "holderIdentity", "spec"), renewed + seconds)


class Followed:
    """Followers of their own: their news is nobody's business but the console's."""

    def __init__(self, book: DecisionStore, settings: Settings, log: Callable[[str], None]) -> None:
        self._book, self._settings, self._log = book, settings, log
        self._judged: dict[Key, Judged] = {}
        self._leads: dict[Key, Leads] = {}
        self._troubles: dict[str, str] = {}
        self._listed = {kind: threading.Event() for kind in (JOBS, POLICIES, LEASES)}
        self._lock = threading.Lock()
        self._until: float | None = None
        """When the first answer waits no longer; None: nobody has asked yet."""

    @property
    def judged(self) -> Mapping[str, Judged]:
        """Policy to what the controller says of it."""
        with self._lock:
            return {name: found for (_, name), found in self._judged.items()}

    @property
    def leads(self) -> Leads | None:
        with self._lock:
            return next(iter(self._leads.values()), None)

    def begin(self) -> None:
        """Follow from now on, and wait a little for what there is."""
        with self._lock:
            is_first = self._until is None
            until = self._until = self._until or time.monotonic() + FIRST_SECONDS
        if is_first:
            if self._settings.console_follow_jobs:
                self._start(jobs(NewestJobs()), metadata_only=True)
            else:
                self._listed[JOBS].set()
            self._start(JUDGED, metadata_only=False)
            self._start(lease_in(self._settings.namespace), metadata_only=False)
        for listed in self._listed.values():
            listed.wait(max(0.0, until - time.monotonic()))

    def take(self, message: WatchUpdate) -> None:
        """Take over what a follower has found out."""
        before = self._troubles.get(message.kind, "")
        self._troubles[message.kind] = message.error
        if message.error:
            if not before:
                self._log(f"console: {message.kind}: {message.error}")
            if message.unreadable:
                self._listed[message.kind].set()
            return
        if message.kind == JOBS:
            self._take_jobs(message)
        else:
            with self._lock:
                known: dict[Key, Any] = self._judged if message.kind == POLICIES else self._leads
                _apply(message, known)
        if message.entries is not None:
            self._listed[message.kind].set()

    def _take_jobs(self, message: WatchUpdate) -> None:
        """Remember decisions of Jobs; of those that are gone only what the log told, too."""
        if message.entries is not None:
            for entry in message.entries:
                self._book.put(entry.key, entry.value)
            self._book.forget_others({entry.key for entry in message.entries})
        elif message.event is not None:
            event_type, entry = message.event
            self._book.put(entry.key, None if event_type == "DELETED" else entry.value)

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
    """Bring what is known up to date; what cannot be read is not known."""
    if message.entries is not None:
        known.clear()
        known.update({e.key: e.value for e in message.entries if e.value is not None})
    elif message.event is not None:
        event_type, entry = message.event
        known.pop(entry.key, None)
        if event_type != "DELETED" and entry.value is not None:
            known[entry.key] = entry.value


JUDGED: Final = Resource(
    kind=POLICIES,
    path=f"/apis/kueue-fallback.dev/v1alpha1/{POLICIES}",
    required=False,
    read=read_judged,
)


def lease_in(namespace: str) -> Resource:
    """Name the Lease by which one of the controllers leads."""
    return Resource(
        kind=LEASES,
        path=f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        field_selector=f"metadata.name={lease.NAME}",
        required=False,
        read=read_leads,
    )


def jobs(newest: NewestJobs) -> Resource:
    """Name the Jobs that a policy sent somewhere."""
    return Resource(
        kind=JOBS,
        path="/apis/batch/v1/jobs",
        label_selector=OPTION_LABEL,
        required=False,
        read=newest.read,
    )
