"""Keeps the journal: collects finished Jobs from the watches and writes them to its ConfigMaps.

A Job of another kind than batch is asked for when its Workload has ended: watches have only its
metadata, and its Workload does not say where in it the pod templates are.

A replica that does not lead keeps the last minutes in memory, and writes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate, get_by_list
from webhook.decide import match
from webhook.hindsight import entries, journal
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal import JournalEntry, Slot, Written
from webhook.jobs import BY_NAME
from webhook.model.faults import attempted
from webhook.model.flags import Named
from webhook.model.job import PLAIN
from webhook.model.namespace_shares import has_place
from webhook.model.signatures import SigningKeys
from webhook.state.forecast_input import queues_of
from webhook.state.run_records_reader import path_of
from webhook.state.snapshot import Snapshot

WRITE_SECONDS: Final = 20.0
"""Between two writes."""
MOST_WRITTEN: Final = 4
"""ConfigMaps written in one step."""
MOST_CLEARED: Final = 4
"""ConfigMaps that are looked at in one step, whether what they hold is too old to be kept."""
MOST_FETCHED: Final = 100
"""Jobs asked for in one step; the others wait for the next."""
GRACE_SECONDS: Final = 2.0
"""Wait after a Workload's end: by then its Job's last change is known, too."""
MOST_JOBS: Final = 40_000
"""Jobs whose metadata are kept, at about a kilobyte each. Namespaces share them, and forget their
own oldest ones: one alone keeps half."""
MOST_BYTES: Final = 60_000_000
"""Of the metadata of all Jobs, shared likewise."""
LONGEST_KNOWN: Final = 8_192
"""Bytes of one Job's metadata, compressed; a Job that has more gets no entry."""
MOST_ENDED: Final = 20_000
KEPT_SECONDS: Final = 300.0
"""How long a replica that does not lead keeps what ended; by then the leader has written it."""
GONE_SECONDS: Final = 60.0
"""How long a deleted Job is kept: its Workload's end may be reported later."""


class JobMetadata(NamedTuple):
    """A Job's metadata, compressed."""

    uid: str
    seen: float
    """When it was created, in seconds since 1970, if that was observed; 0: it was there before."""
    packed: bytes
    """Empty: too large to be kept."""


class Journal:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        unix: Callable[[], float],
        days: int = 1,
    ) -> None:
        """Keep *days* of the journal in *namespace*; *is_leader* is called before each write."""
        self._transport = transport
        self._namespace = namespace
        self._is_leader = is_leader
        self._unix = unix
        self._days = days
        self._jobs: dict[str, dict[str, JobMetadata]] = {}
        """Namespace to its Jobs by their UIDs, the oldest first."""
        self._counts: Counter[str] = Counter()
        """Namespace to how many Jobs are kept of it,"""
        self._bytes: Counter[str] = Counter()
        """and to the bytes of their metadata."""
        self._gone: deque[tuple[float, str, str]] = deque()
        """When Jobs were deleted, their namespaces and UIDs."""
        self._ended: deque[tuple[float, JournalEntry]] = deque()
        self._due: dict[int, list[JournalEntry]] = {}
        """Slot to the entries to add to it."""
        self._new: list[JournalEntry] = []
        self._next = 0.0
        self._cleared = -1
        """The newest slot of which it is known that its ConfigMap holds nothing too old."""

    def known(self) -> tuple[JobMetadata, ...]:
        """Return the Jobs whose metadata are known, the oldest of each namespace first."""
        return tuple(
            known for of_namespace in self._jobs.values() for known in of_namespace.values()
        )

    def take_jobs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log, of which there are none."""
        for event_type, entry in _entries(message):
            if isinstance(known := getattr(entry.value, "known", None), JobMetadata):
                self._take_job(event_type, entry.key[0], known)
        return ()

    def take_over(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of finished Workloads; return the lines to log: none."""
        for _, entry in _entries(message):
            value = entry.value
            if not isinstance(value, FinishedRun) or value.past is None:
                continue
            if len(self._ended) >= MOST_ENDED:
                self._ended.popleft()
            self._ended.append((self._unix(), value.past))
        return ()

    def _take_job(self, event_type: str, namespace: str, known: JobMetadata) -> None:
        before = self._take_out(namespace, known.uid)
        if event_type == "DELETED":
            self._gone.append((self._unix(), namespace, known.uid))
        seen = before.seen if before else self._unix() if event_type == "ADDED" else 0.0
        while namespace in self._jobs and not self._has_place(namespace):
            self._take_out(namespace, next(iter(self._jobs[namespace])))
        if self._has_place(namespace):
            self._jobs.setdefault(namespace, {})[known.uid] = known._replace(seen=seen)
            self._counts[namespace] += 1
            self._bytes[namespace] += len(known.packed)

    def _has_place(self, namespace: str) -> bool:
        return has_place(namespace, self._counts, MOST_JOBS) and has_place(
            namespace, self._bytes, MOST_BYTES
        )

    def _take_out(self, namespace: str, uid: str) -> JobMetadata | None:
        known = self._jobs.get(namespace, {}).pop(uid, None)
        if known is not None:
            self._counts[namespace] -= 1
            self._bytes[namespace] -= len(known.packed)
            if not self._jobs[namespace]:
                del self._jobs[namespace], self._counts[namespace], self._bytes[namespace]
        return known

    def read_again(self) -> None:
        """Read at the next step what other leaders have written."""
        self._next, self._cleared = 0.0, -1

    def step(self, snapshot: Snapshot, now: float) -> Written:
        """Write what has ended, if it is time and we lead. *now* is monotonic, in seconds."""
        self._new = []
        self._forget()
        too_old = self._too_old()
        if now < self._next or not (self._ended or self._due or too_old):
            return Written()
        if not self._is_leader():
            return Written()
        self._next = now + WRITE_SECONDS
        self._sort_in(snapshot)
        written, errors = 0, []
        for slot in sorted(self._due, reverse=True)[:MOST_WRITTEN]:
            if not self._is_leader():
                break
            try:
                written += self._write(slot)
            except ClusterError as error:
                errors.append(f"journal: {error}")
        try:
            for slot in too_old[:MOST_CLEARED]:
                written += self._clear(slot)
                self._cleared = slot
        except ClusterError as error:
            errors.append(f"journal: {error}")
        return Written(tried=True, written=written, errors=tuple(errors))

    def take_new(self) -> tuple[JournalEntry, ...]:
        """Return, once, the entries that the last step wrote and no leader had written before."""
        taken, self._new = tuple(self._new), []
        return taken

    def _forget(self) -> None:
        unix = self._unix()
        while self._gone and self._gone[0][0] < unix - GONE_SECONDS:
            _, namespace, uid = self._gone.popleft()
            self._take_out(namespace, uid)
        if self._is_leader():
            return
        self._due.clear()
        while self._ended and self._ended[0][0] < unix - KEPT_SECONDS:
            self._ended.popleft()

    def _sort_in(self, snapshot: Snapshot) -> None:
        """Turn finished Workloads of queues that policies use into entries, by slot."""
        unix = self._unix()
        queues, oldest = queues_of(snapshot), journal.oldest_kept(unix, self._days)
        named = match.named_by(snapshot.fallback.policies)
        fetched = 0
        while self._ended and self._ended[0][0] <= unix - GRACE_SECONDS and fetched < MOST_FETCHED:
            _, ended = self._ended.popleft()
            slot = journal.slot_of(ended.finished)
            if slot < oldest or (ended.namespace, ended.queue) not in queues:
                continue
            fetched += ended.kind != PLAIN
            if (entry := self._entry(ended, snapshot.fallback.signing, named)) is not None:
                self._due.setdefault(slot, []).append(entry)
        for slot in [slot for slot in self._due if slot < oldest]:
            del self._due[slot]

    def _entry(
        self, ended: JournalEntry, keys: SigningKeys | None, named: Named
    ) -> JournalEntry | None:
        known = self._jobs.get(ended.namespace, {}).get(ended.uid)
        if known is not None and not known.packed:
            return None
        metadata = None if known is None else json.loads(zlib.decompress(known.packed))
        seen = known.seen if known else 0.0
        # Whatever is wrong with a Job, it only gets no entry: the others do.
        whole = self._fetched(ended)
        made = attempted(
            lambda: entries.entry(ended, metadata, seen=seen, keys=keys, named=named, whole=whole)
        )
        return made[0]

    def _fetched(self, ended: JournalEntry) -> Mapping[str, Any] | None:
        """Return a Job of another kind than batch; None: it is not there, or cannot be read now."""
        kind = BY_NAME.get(ended.kind)
        if kind is None or kind.kind == PLAIN or not ended.uid:
            return None
        try:
            job = get_by_list(self._transport, kind.path(ended.namespace), ended.name)
        except ClusterError:
            return None
        return job if job is not None and job["metadata"].get("uid") == ended.uid else None

    def _write(self, number: int) -> bool:
        """Add to one slot."""
        new: list[JournalEntry] = []

        # Read each time: an hour's entries would stay in memory at a few kilobytes each.
        def add(source: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
            stored = _stored(source, number)
            if stored.number > number:
                return None
            before = stored if stored.number == number else Slot(number=number, entries={})
            merged = before.merged(self._due[number])
            new[:] = (entry for key, entry in merged.entries.items() if key not in before.entries)
            return journal.config_map(merged) if merged != before else None

        is_written = self._update(number, add)
        if is_written:
            self._new += new
        del self._due[number]
        return is_written

    def _too_old(self) -> range:
        """Return the slots that are not kept any longer, and were not looked at yet."""
        unix = self._unix()
        first = max(self._cleared + 1, journal.oldest_held(unix))
        return range(first, journal.oldest_kept(unix, self._days))

    def _clear(self, number: int) -> bool:
        """Take the entries out of a slot's ConfigMap if they are too old to be kept.

        It stays, empty, so that no right to delete is needed.
        """

        def empty(source: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
            stored = _stored(source, number)
            if not stored.entries or stored.number > number:
                return None
            return journal.config_map(Slot(number=stored.number, entries={}))

        return self._update(number, empty)

    def _update(
        self, number: int, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any] | None]
    ) -> bool:
        place, name = path_of(self._namespace), journal.name_of(number)
        return published.update(self._transport, place, name, change, may_write=self._is_leader)


def _stored(source: Mapping[str, Any] | None, number: int) -> Slot:
    """Return what the ConfigMap of a slot holds, maybe of another hour; -1: it cannot be read."""
    if source is None:
        return Slot(number=number, entries={})
    return journal.read_slot(source) or Slot(number=-1, entries={})


def known_of(source: Mapping[str, Any]) -> JobMetadata:
    """Return a Job's metadata, reduced and compressed; when it was created is not observed here.

    Raises:
        FieldError: it cannot be read.

    """
    metadata = entries.metadata_of(source)
    packed = zlib.compress(json.dumps(metadata).encode())
    is_kept = len(packed) <= LONGEST_KNOWN
    return JobMetadata(str(metadata.get("uid") or ""), 0.0, packed if is_kept else b"")


def _entries(message: WatchUpdate) -> Iterator[tuple[str, ReadObject]]:
    """Yield the objects of a watch update, with the type of the event that brought them."""
    for entry in message.entries or ():
        yield "", entry
    if message.event is not None:
        yield message.event
