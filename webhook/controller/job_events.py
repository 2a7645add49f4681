"""Writes Events on Jobs that a decision changed, moved or restored, whichever replica decided.

An Event is derived from the Job's metadata, including its name, so that neither a restart nor
another leader writes it twice. A replica that does not lead follows along and writes nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.resources import Key
from webhook.api.watch import WatchUpdate
from webhook.controller.followed_watches import Happening, WatchedJob
from webhook.controller.world import World
from webhook.jobs import referred
from webhook.model.faults import Attention
from webhook.model.namespace_shares import has_place, in_turn
from webhook.model.reasons import EventReason
from webhook.model.words import rfc3339

_MINUTE: Final = 60.0


class RateLimit:
    """Lets at most *most* pass in any 60 seconds."""

    def __init__(self, most: int) -> None:
        self._passed: deque[float] = deque(maxlen=most)

    def lets_pass(self, now: float) -> bool:
        """Return whether one more may pass at *now*, which is monotonic, and count it if so."""
        if len(self._passed) == self._passed.maxlen and self._passed[0] > now - _MINUTE:
            return False
        self._passed.append(now)
        return True


RECENT_SECONDS: Final = 300.0
"""No Event is written of what happened longer ago."""
HANDED_OVER_SECONDS: Final = 15.0
"""A replica that does not lead keeps an Event for so long; by then the leader has written it."""
MOST_AT_ONCE: Final = 20
"""In one step, of each namespace in turn, as all that a minute lets pass."""
EVENTS_A_MINUTE: Final = 240
MOST_WAITING: Final = 1000
"""Shared by the namespaces (``namespace_shares``)."""
CLUSTER_SCOPED: Final = "default"
"""The namespace of Events on cluster-scoped objects."""
_LONGEST: Final = 1024
"""Characters of an Event's message."""


class JobEvents:
    def __init__(
        self,
        transport: KubernetesApi,
        *,
        is_leader: Callable[[], bool],
        unix: Callable[[], float],
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._unix = unix
        self._marks: dict[str, dict[str, str]] = {}
        """For each kind: UID of each Job with an event, to the mark of its last event."""
        self._due: list[Happening] = []
        """The oldest first."""
        self._waiting: Counter[str] = Counter()
        """Namespace to how many of these are its."""
        self._left_out = 0
        self._error = ""
        self._pace = RateLimit(EVENTS_A_MINUTE)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log, of which there are none."""
        before = self._marks.setdefault(message.kind, {})
        if message.entries is not None:
            marks = self._marks[message.kind] = {}
            for entry in message.entries:
                if entry.value is not None:
                    self._note(entry.key, entry.value, before, marks)
        elif message.event is not None and message.event[1].value is not None:
            event_type, entry = message.event
            if event_type == "DELETED":
                before.pop(entry.value.uid, None)
            else:
                self._note(entry.key, entry.value, before, before)
        return ()

    def step(self, world: World) -> tuple[str, ...]:
        """Write due Events, within the rate limit; return the lines to log."""
        now = world.unix
        kept = RECENT_SECONDS if self._is_leader() else HANDED_OVER_SECONDS
        self._due = [due for due in self._due if due.since >= now - kept]
        self._waiting = Counter(due.namespace for due in self._due)
        lines: list[str] = []
        for due in in_turn(self._due, attrgetter("namespace"))[:MOST_AT_ONCE]:
            if not (self._is_leader() and self._pace.lets_pass(world.now)):
                break
            self._due.remove(due)
            try:
                lines += self._write(due, now)
            except ClusterError as error:
                self._due.insert(0, due)
                told = Attention(f"Events on Jobs: {error}")
                lines += [] if self._error == str(error) else [told]
                self._error = str(error)
                break
            self._error = ""
        if self._left_out and self._is_leader():
            text = f"Events on Jobs: {self._left_out} left out, too many at once"
            lines.append(Attention(text))
        self._left_out = 0
        return tuple(lines)

    def _note(
        self,
        key: Key,
        watched: WatchedJob,
        before: Mapping[str, str],
        marks: dict[str, str],
    ) -> None:
        """Note in *marks* what was last done to a Job; *before* are the marks known until now."""
        happening, last = watched.happening, before.get(watched.uid)
        if happening is None:
            return
        marks[watched.uid] = happening.mark
        now = self._unix()
        # A happening without a time is new only if another one was known of the Job.
        has_changed = last is not None and not happening.unix
        at = happening.unix or watched.created
        if last == happening.mark or not (has_changed or at >= now - RECENT_SECONDS):
            return
        if has_place(key[0], self._waiting, MOST_WAITING):
            due = happening._replace(key=key, uid=watched.uid, since=now)
            self._due.append(due)
            self._waiting[key[0]] += 1
        else:
            self._left_out += 1

    def _write(self, due: Happening, now: float) -> list[str]:
        """Write one Event; return what to log if it is left out.

        Raises:
            ClusterError: no Event can be written now. What only this Event is refused for (its
                namespace is being deleted, say) must not hold up the others, so it is not raised.
        """
        try:
            post_event(self._transport, event_on_job(due, unix=now))
        except (Refused, Forbidden, NotServed) as error:
            if isinstance(error, Forbidden) and error.is_lack_of_rights:
                raise
            return [f"Job {'/'.join(due.key)}: no Event written: {error}"]
        return []


def post_event(transport: KubernetesApi, written: Mapping[str, Any]) -> None:
    """Write an Event, unless one of the same name is there already.

    Raises:
        ClusterError: it cannot be written.

    """
    try:
        transport.post(f"/api/v1/namespaces/{written['metadata']['namespace']}/events", written)
    except ClusterError as error:
        # It was written before a restart, or by another leader.
        if not error.is_conflict:
            raise


def event_on_job(due: Happening, *, unix: float) -> Mapping[str, Any]:
    """Return the Event of a Job."""
    involved, cause = involved_job(due.key, due.uid), f"{due.uid} {due.mark}"
    return event(involved, due.reason, due.message, cause=cause, unix=unix)


def involved_job(key: Key, uid: str) -> Mapping[str, str]:
    """Return how an Event names a Job; *key* is its namespace and its reference."""
    kind, name = referred(key[1])
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "namespace": key[0],
        "name": name,
        "uid": uid,
    }


def event(
    involved: Mapping[str, str],
    reason: EventReason,
    message: str,
    *,
    cause: str,
    unix: float,
    warns: bool = False,
) -> Mapping[str, Any]:
    """Return the Event of an object; for the same *cause* it has the same name."""
    at, digest = rfc3339(unix), blake2b(cause.encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{involved['name'][:200]}.{digest}",
            "namespace": involved.get("namespace", CLUSTER_SCOPED),
        },
        "involvedObject": involved,
        "type": "Warning" if warns else "Normal",
        "reason": str(reason),
        "message": message[:_LONGEST],
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "kueue-fallback"},
    }
