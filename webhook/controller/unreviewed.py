"""Finds Jobs that a policy matched and that the webhook was not asked about at their creation.

Under Enforce and Advise a review leaves a decision on every Job that a policy matches, even where
it leaves the Job as it is. So one without was not reviewed, if from shortly before its creation
until now the state has said that one and the same policy applies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from webhook.api.errors import ClusterError
from webhook.api.resources import ReadObject, Resource, read_by
from webhook.api.watch import WatchUpdate
from webhook.controller.job_events import Happening, happening_of
from webhook.decide import match
from webhook.flow import create
from webhook.hindsight.journal_keeper import JobMetadata, known_of
from webhook.jobs import KINDS
from webhook.model import fields, job_manifest
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, OURS, Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.queues import Snapshot
from webhook.model.signatures import SigningKeys
from webhook.reconsider import pending_jobs

KIND: Final = KINDS["batch", "v1", "Job"]
_MEANT: Final = (OURS, "kueue.x-k8s.io/")
"""Prefixes of the annotations that anything depends on; others can be long."""


class WatchedJob(NamedTuple):
    uid: str
    created: float
    """Seconds since 1970, by the API server's clock, which tells whole ones."""
    job: Job | None
    """Without anything of its spec; None where a decision stands on it."""
    known: JobMetadata | None = None
    """What the journal needs of it."""
    has_left: bool = False
    """Whether it was sent from one queue to another while it waited."""
    happening: Happening | None = None
    """What was last done to it, for its Events."""


class MovedJobs:
    """Notes whether some Job was sent to another queue while it waited.

    Its Workload may have to be repaired, though no policy reconsiders any more.
    """

    def __init__(self) -> None:
        self.seen = False

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Take over what the follower of Jobs has found out; there is nothing to log."""
        found = [*(message.entries or ()), *((message.event[1],) if message.event else ())]
        self.seen = self.seen or any(
            each.value is not None and each.value.has_left for each in found
        )
        return ()


def read(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> ReadObject:
    """Read one, for a ``Follower``; a decision that *keys* did not sign counts for nothing."""
    return read_by(lambda found: _glimpse(found, keys), kind, source)


JOBS: Final = Resource(kind="jobs", path="/apis/batch/v1/jobs", required=False, read=read)


def _glimpse(source: Mapping[str, Any], keys: SigningKeys | None) -> WatchedJob:
    metadata = fields.mapping(source, "metadata", "")
    created = fields.text(metadata, "creationTimestamp", "metadata")
    job = KIND.read({"metadata": source["metadata"]})
    recorded = create.recorded_on(job, keys, created=fields.created_unix(source))
    is_own = recorded is not None or DECISION not in job.annotations
    return WatchedJob(
        uid=fields.text(metadata, "uid", "metadata"),
        created=fields.seconds_since_1970(created, "metadata.creationTimestamp"),
        job=_undecided(job),
        known=known_of(source),
        has_left=pending_jobs.has_left(job, recorded),
        happening=happening_of(job, recorded) if is_own else None,
    )


def _undecided(job: Job) -> Job | None:
    if DECISION in job.annotations:
        return None
    meant = {
        key: text
        for key, text in job.annotations.items()
        if key.startswith(_MEANT) and len(text) <= job_manifest.LONGEST_SAID
    }
    return replace(job, annotations=meant)


MARGIN_SECONDS: Final = 5.0
"""What changed so shortly before a Job came may not have been known to the webhook. Also room for
the clocks of two machines, and for times that are told in whole seconds."""
KEPT_SECONDS: Final = 300.0
"""How far back the state is known; what an API server's restart takes, and more."""
MOST_WAITING: Final = 10_000
MOST_FETCHED: Final = 100
"""In one look: each is a call."""
JUDGED_SECONDS: Final = 15.0
"""In which a leader has judged a Job, as its watches are never older while all is well."""

Fetch = Callable[[str, str], Mapping[str, Any] | None]
"""(namespace, name) to the whole Job, None where it is gone; may raise ClusterError."""


class Getting(Protocol):
    """What is needed of ``api.client.Client``."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]: ...


def fetching(client: Getting) -> Fetch:
    """Let whole Jobs be fetched one by one."""

    def fetch(namespace: str, name: str) -> Mapping[str, Any] | None:
        # A list of one: so the right to list Jobs is all that is needed.
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        items = client.get(path, {"fieldSelector": f"metadata.name={name}"}).get("items")
        return items[0] if items else None

    return fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreviewedJobs:
    """What one look came to."""

    unreviewed: tuple[tuple[str, str], ...] = ()
    """(policy, ``namespace/name``)"""
    unjudged: int = 0
    """Jobs that were let go because too many waited."""


class SnapshotHistory:
    """The snapshots of the last minutes, with the instants from which they were in force."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Snapshot]] = deque()

    def note(self, snapshot: Snapshot, unix: float) -> None:
        if not self._past or self._past[-1][1].generation != snapshot.generation:
            self._past.append((unix, snapshot))
        while len(self._past) > 1 and self._past[1][0] <= unix - KEPT_SECONDS:
            self._past.popleft()

    def since(self, unix: float) -> tuple[Snapshot, ...]:
        """List what was in force from then until now; nothing where that is not known."""
        if not self._past or self._past[0][0] > unix:
            return ()
        found = []
        for began, snapshot in reversed(self._past):
            found.append(snapshot)
            if began <= unix:
                break
        return tuple(found)


class Unreviewed:
    """Judges each Job once, when every watch has given a sign of life since the Job was seen."""

    def __init__(self, fetch: Fetch, own_namespace: str) -> None:
        self._fetch = fetch
        self._own_namespace = own_namespace
        self._history = SnapshotHistory()
        self._known: set[str] | None = None
        """UIDs of the Jobs there are; None: not listed yet, so that none is known to be new."""
        self._waiting: deque[tuple[float, WatchedJob]] = deque()
        self._unjudged = 0
        self._error = ""

    def note(self, snapshot: Snapshot, unix: float) -> None:
        """Remember a state that is in force from now on."""
        self._history.note(snapshot, unix)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Take over what the follower of Jobs has found out; return what is to be logged."""
        before, self._error = self._error, message.error
        if message.error:
            if message.unreadable:
                self._known = None
            return () if before else (f"{message.kind}: {message.error}",)
        if message.entries is not None:
            self._take_list([e.value for e in message.entries if e.value is not None], message.at)
        elif message.event is not None and message.event[1].value is not None:
            self._take_event(message.event[0], message.event[1].value, message.at)
        return (f"{message.kind}: readable again",) if before else ()

    def step(self, *, as_of: float) -> UnreviewedJobs:
        """Judge those that were seen before *as_of*, when all watches were last alive."""
        found: list[tuple[str, str]] = []
        fetched = 0
        while self._waiting and self._waiting[0][0] < as_of and fetched < MOST_FETCHED:
            _, glimpse = self._waiting[0]
            past = self._history.since(glimpse.created - MARGIN_SECONDS)
            # What metadata alone rules out needs no call.
            if glimpse.job is not None and self._missed_by(glimpse.job, past):
                fetched += 1
                try:
                    found += self._judged(glimpse, glimpse.job, past)
                except ClusterError:
                    break
            self._waiting.popleft()
        unjudged, self._unjudged = self._unjudged, 0
        return UnreviewedJobs(unreviewed=tuple(found), unjudged=unjudged)

    def leave(self, *, leader_at: float) -> None:
        """Forget those that another has judged, who led at that instant.

        Who leads next judges the others, and those of the last seconds a second time.
        """
        while self._waiting and self._waiting[0][0] < leader_at - JUDGED_SECONDS:
            self._waiting.popleft()
        self._unjudged = 0

    def _take_list(self, glimpses: Iterable[WatchedJob], at: float) -> None:
        before, self._known = self._known, set()
        for glimpse in glimpses:
            self._known.add(glimpse.uid)
            if before is not None and glimpse.uid not in before:
                self._wait(glimpse, at)

    def _take_event(self, event_type: str, glimpse: WatchedJob, at: float) -> None:
        if self._known is None:
            return
        if event_type == "DELETED":
            self._known.discard(glimpse.uid)
        elif glimpse.uid not in self._known:
            self._known.add(glimpse.uid)
            self._wait(glimpse, at)

    def _wait(self, glimpse: WatchedJob, at: float) -> None:
        if glimpse.job is None:
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((at, glimpse))
        else:
            self._unjudged += 1

    def _judged(
        self, glimpse: WatchedJob, seen: Job, past: tuple[Snapshot, ...]
    ) -> list[tuple[str, str]]:
        source = self._fetch(seen.namespace, seen.name)
        if source is None or source["metadata"].get("uid") != glimpse.uid:
            return []
        try:
            job = KIND.read(source)
        except FieldError:
            return []
        policy = None if DECISION in job.annotations else self._missed_by(job, past)
        return [(policy, f"{job.namespace}/{job.name}")] if policy else []

    def _missed_by(self, job: Job, past: tuple[Snapshot, ...]) -> str | None:
        """Name the policy that applied all the time and would have left a decision."""
        names = {_applying(job, snapshot, self._own_namespace) for snapshot in past}
        return names.pop() if len(names) == 1 else None


def _applying(job: Job, snapshot: Snapshot, own_namespace: str) -> str | None:
    if match.skip(job, snapshot) is not None or not _is_sent(job, snapshot):
        return None
    try:
        policy = match.policy_for(job, snapshot, own_namespace=own_namespace)
    except FieldError:
        return None
    return None if policy is None or policy.spec.mode is Mode.OBSERVE else policy.name


def _is_sent(job: Job, snapshot: Snapshot) -> bool:
    """Tell whether our configuration asks for reviews there; without one, it should."""
    selectors = snapshot.reviewed_namespaces
    labels = snapshot.namespaces.get(job.namespace, {})
    return not selectors or any(selector.matches(labels) for selector in selectors)
