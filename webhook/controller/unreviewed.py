"""Finds Jobs that a policy matched and that were created without a review by the webhook.

Under Enforce and Advise a review writes a decision on every Job that a policy matches, even if it
leaves the Job unchanged. A Job without one was not reviewed if, from shortly before its creation
until now, one and the same policy applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.watch import WatchUpdate, get_by_list
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import WatchedJob
from webhook.controller.job_events import RateLimit
from webhook.controller.policy_status import reference_of
from webhook.controller.world import World
from webhook.decide import match
from webhook.jobs import BY_NAME, referred
from webhook.metric_table import policy_label
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Skip
from webhook.state.snapshot import Snapshot, updated

MARGIN_SECONDS: Final = 5.0
"""The webhook may not have known of a change so shortly before a Job's creation. Also room for the
clocks of two machines, and for times in whole seconds."""
KEPT_SECONDS: Final = 300.0
"""How far back snapshots are kept; longer than an API server's restart takes."""
MOST_WAITING: Final = 10_000
MOST_FETCHED: Final = 100
"""In one step: each is a call."""
NAMED_A_MINUTE: Final = 10
"""Jobs created without a review that are named in the log; the others are only counted."""
JUDGED_SECONDS: Final = 15.0
"""Within so long a leader has judged a Job, as its watches are normally never older."""

Fetch = Callable[[str, str], Mapping[str, Any] | None]
"""(namespace, reference) to the whole Job, None if it was deleted; may raise ClusterError."""


def fetching(client: KubernetesApi) -> Fetch:
    """Return a function that gets single Jobs by the right to list them."""

    def fetch(namespace: str, reference: str) -> Mapping[str, Any] | None:
        kind, name = referred(reference)
        return get_by_list(client, kind.path(namespace), name)

    return fetch


class SnapshotHistory:
    """The snapshots of the last minutes, with the instants from which they were in force.

    Of each only what tells whether a policy applies, which seldom changes: several a second, with
    all that waited then, would be kept otherwise.
    """

    def __init__(self) -> None:
        self._past: deque[tuple[float, Snapshot]] = deque()

    def note(self, snapshot: Snapshot, unix: float) -> None:
        """Remember a snapshot that is in force from *unix* on."""
        lasting = _lasting(snapshot)
        if not self._past or self._past[-1][1] != lasting:
            self._past.append((unix, lasting))
        while len(self._past) > 1 and self._past[1][0] <= unix - KEPT_SECONDS:
            self._past.popleft()

    def since(self, unix: float) -> tuple[Snapshot, ...]:
        """Return the snapshots in force from *unix* until now; empty if that is not known."""
        if not self._past or self._past[0][0] > unix:
            return ()
        snapshots = []
        for began, snapshot in reversed(self._past):
            snapshots.append(snapshot)
            if began <= unix:
                break
        return tuple(snapshots)


def _lasting(snapshot: Snapshot) -> Snapshot:
    """Take out what changes with every Workload, and says nothing of which policy applies."""
    return updated(
        snapshot,
        held={},
        competing={},
        reserving={},
        consumed={},
        forecasts={},
        run_times={},
        start_delays={},
        dispatches={},
        failing=frozenset(),
        obstacles={},
        generation=min(snapshot.generation, 1),
        as_of=0.0,
    )


class Unreviewed:
    """Judges each new Job once, when every watch is known to be newer than the Job."""

    def __init__(
        self,
        fetch: Fetch,
        own_namespace: str,
        *,
        is_leader: Callable[[], bool],
        leader_at: Callable[[], float],
        note: Callable[[str], None],
        metrics: ControllerMetrics,
    ) -> None:
        """*leader_at* is when another leader was last heard, *note* is told each policy missed."""
        self._fetch = fetch
        self._own_namespace = own_namespace
        self._is_leader, self._leader_at = is_leader, leader_at
        self._note, self._metrics = note, metrics
        self._naming = RateLimit(NAMED_A_MINUTE)
        self._history = SnapshotHistory()
        self._known: dict[str, set[str]] = {}
        """UIDs of all Jobs of each kind that was listed; of others none is known to be new."""
        self._waiting: deque[tuple[float, WatchedJob]] = deque()
        self._unjudged = 0
        self._errors: dict[str, str] = {}

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log."""
        kind, before = message.kind, self._errors.pop(message.kind, "")
        if message.error:
            self._errors[kind] = message.error
            if message.unreadable:
                self._known.pop(kind, None)
            return () if before else (Attention(f"{message.kind}: {message.error}"),)
        if message.entries is not None:
            listed = [entry.value for entry in message.entries if entry.value is not None]
            self._take_list(kind, listed, message.at)
        elif (
            message.event is not None and message.event[1].value is not None and kind in self._known
        ):
            self._take_event(
                message.event[0], message.event[1].value, message.at, self._known[kind]
            )
        return (f"{message.kind}: readable again",) if before else ()

    def step(self, world: World) -> list[str]:
        """Judge the new Jobs if we lead; return the lines to log."""
        self._history.note(world.snapshot, world.unix)
        if not self._is_leader():
            self._leave(self._leader_at())
            return []
        lines: list[str] = []
        for policy, name in self._unreviewed(world.snapshot.as_of):
            self._note(policy)
            self._metrics.unreviewed.labels(policy_label(policy)).inc()
            if self._naming.lets_pass(world.now):
                text = f"Job {name}: created without a review; {reference_of(policy)} matches"
                lines.append(Attention(text))
        self._metrics.unjudged.inc(self._unjudged)
        self._unjudged = 0
        return lines

    def _unreviewed(self, as_of: float) -> list[tuple[str, str]]:
        """Judge the Jobs observed before *as_of*, when all watches were last alive.

        Return (policy, ``namespace/name``) of those that were not reviewed.
        """
        unreviewed: list[tuple[str, str]] = []
        fetched = 0
        while self._waiting and self._waiting[0][0] < as_of and fetched < MOST_FETCHED:
            watched = self._waiting[0][1]
            # One policy must have applied in all of these.
            past = self._history.since(watched.created - MARGIN_SECONDS)
            # What metadata alone rules out needs no call.
            if watched.job is not None and self._missed_by(watched.job, past):
                fetched += 1
                try:
                    unreviewed += self._judged(watched, watched.job, past)
                except ClusterError:
                    break
            self._waiting.popleft()
        return unreviewed

    def _leave(self, leader_at: float) -> None:
        """Forget the Jobs that another leader, known to lead at *leader_at*, has judged.

        The next leader judges the others, and those of the last seconds a second time.
        """
        while self._waiting and self._waiting[0][0] < leader_at - JUDGED_SECONDS:
            self._waiting.popleft()
        self._unjudged = 0

    def _take_list(self, kind: str, watched_jobs: Iterable[WatchedJob], at: float) -> None:
        before, known = self._known.get(kind), set[str]()
        self._known[kind] = known
        for watched in watched_jobs:
            known.add(watched.uid)
            if before is not None and watched.uid not in before:
                self._wait(watched, at)

    def _take_event(self, event_type: str, watched: WatchedJob, at: float, known: set[str]) -> None:
        if event_type == "DELETED":
            known.discard(watched.uid)
        elif watched.uid not in known:
            known.add(watched.uid)
            self._wait(watched, at)

    def _wait(self, watched: WatchedJob, at: float) -> None:
        if watched.job is None:
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((at, watched))
        else:
            self._unjudged += 1

    def _judged(
        self, watched: WatchedJob, seen: Job, past: tuple[Snapshot, ...]
    ) -> list[tuple[str, str]]:
        source = self._fetch(seen.namespace, seen.reference)
        if source is None or source["metadata"].get("uid") != watched.uid:
            return []
        try:
            job = BY_NAME[seen.kind].read(source)
        except FieldError:
            return []
        if DECISION in job.annotations or not job.pod_sets:
            return []
        policy = self._missed_by(job, past)
        return [(policy, f"{job.namespace}/{job.reference}")] if policy else []

    def _missed_by(self, job: Job, past: tuple[Snapshot, ...]) -> str | None:
        """Return the policy that applied all the time and would have written a decision.

        Else None.
        """
        names = {_applying(job, snapshot, self._own_namespace) for snapshot in past}
        return names.pop() if len(names) == 1 else None


def _applying(job: Job, snapshot: Snapshot, own_namespace: str) -> str | None:
    # Metadata alone says nothing of pod sets.
    if match.skip(job, snapshot) not in (None, Skip.NO_POD_SETS) or not _is_sent(job, snapshot):
        return None
    try:
        policy = match.policy_for(job, snapshot, own_namespace=own_namespace)
    except FieldError:
        return None
    return None if policy is None or policy.spec.mode is Mode.OBSERVE else policy.name


def _is_sent(job: Job, snapshot: Snapshot) -> bool:
    """Return whether our configuration asks for reviews there; True if there is none."""
    selectors = snapshot.fallback.reviewed_namespaces
    labels = snapshot.cluster.namespaces.get(job.namespace, {})
    return not selectors or any(selector.matches(labels) for selector in selectors)
