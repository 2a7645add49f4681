"""The objects of an embedded API server, with versions and what has changed: its etcd.

An object is kept as JSON, so that a list costs those who are measured beside it little, and without
apiVersion and kind, so that all versions of a kind are one.
"""

import dataclasses
import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Final

from hack.api import Object
from hack.embedded.refusals import already_exists, conflict, expired, not_found
from hack.embedded.served_kinds import ServedKind, api_version

MOST_EVENTS: Final = 20_000
"""Of each kind; of what was before nobody can go on."""
Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One version of one object."""

    namespace: str
    name: str
    version: int
    rest: bytes
    """Its JSON, from what follows apiVersion and kind."""
    labels: Mapping[str, str]
    owners: frozenset[str]
    """The uids of its owners."""

    def text(self, kind: ServedKind, version: str) -> bytes:
        head = {"apiVersion": api_version(kind.group, version), "kind": kind.kind}
        return json.dumps(head).encode()[:-1] + b", " + self.rest[1:]

    def content(self) -> Object:
        """Return the object without apiVersion and kind."""
        found: Object = json.loads(self.rest)
        return found

    def item(self, kind: ServedKind, version: str) -> Object:
        found: Object = json.loads(self.text(kind, version))
        return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a write has done; an object that is created has no *before*, one deleted no *after*."""

    version: int
    before: Record | None
    after: Record | None
    last: Record
    """As watches show it: of a deleted object its last state, with the version of the deletion."""


class _Table:
    """The objects of one kind."""

    def __init__(self, lock: threading.RLock) -> None:
        self.records: dict[Key, Record] = {}
        self.changes: deque[Change] = deque(maxlen=MOST_EVENTS)
        self.forgotten = 0
        """Up to which version nobody can go on."""
        self.changed = threading.Condition(lock)

    def add(self, change: Change) -> None:
        if len(self.changes) == MOST_EVENTS:
            self.forgotten = self.changes[0].version
        self.changes.append(change)
        self.changed.notify_all()


class ObjectStore:
    """Holds objects, gives each write the next resourceVersion, and tells those who wait."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._versions = count(1)
        self._version = 0
        self._tables: dict[tuple[str, str], _Table] = {}

    @property
    def version(self) -> int:
        with self._lock:
            return self._version

    def find(self, kind: ServedKind, namespace: str, name: str) -> Record | None:
        with self._lock:
            return self._table(kind).records.get((namespace, name))

    def get(self, kind: ServedKind, namespace: str, name: str) -> Record:
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def all_of(self, kind: ServedKind, namespace: str = "") -> tuple[list[Record], int]:
        """Return all objects, or those of a namespace, in order of their names; and the version."""
        with self._lock:
            records = self._table(kind).records
            keys = [key for key in records if not namespace or key[0] == namespace]
            return [records[key] for key in sorted(keys)], self._version

    def owned_by(self, uid: str, kind: ServedKind) -> list[Record]:
        with self._lock:
            return [found for found in self._table(kind).records.values() if uid in found.owners]

    def create(self, kind: ServedKind, item: Object) -> Record:
        with self._lock:
            key = _key(item)
            if key in self._table(kind).records:
                raise already_exists(kind, key[1])
            return self._put(kind, item)

    def update(self, kind: ServedKind, item: Object, *, version: int) -> Record:
        """Replace the version of an object; raise a conflict where there is another one."""
        with self._lock:
            key = _key(item)
            if self.get(kind, *key).version != version:
                raise conflict(kind, key[1])
            return self._put(kind, item)

    def put(self, kind: ServedKind, item: Object) -> Record:
        """Create or replace an object, whatever there is."""
        with self._lock:
            return self._put(kind, item)

    def remove(self, kind: ServedKind, namespace: str, name: str, *, version: int = 0) -> Record:
        """Delete an object, if given only this version of it; return its last state."""
        with self._lock:
            found = self.get(kind, namespace, name)
            if version and found.version != version:
                raise conflict(kind, name)
            del self._table(kind).records[namespace, name]
            last = self._record(found.content())
            change = Change(version=last.version, before=found, after=None, last=last)
            self._table(kind).add(change)
            return last

    def forget(self) -> None:
        """Forget all earlier versions: whoever watches lists again."""
        with self._lock:
            self._version = next(self._versions)
            for table in self._tables.values():
                table.changes.clear()
                table.forgotten = self._version
            self.wake()

    def wake(self) -> None:
        """Let all who wait for changes look around."""
        with self._lock:
            for table in self._tables.values():
                table.changed.notify_all()

    def wait(self, kind: ServedKind, after: int, seconds: float) -> list[Change]:
        """Return the changes since a version; wait for one no longer than that.

        It returns earlier with none when it is woken.
        Raises 410 when the version is forgotten.
        """
        with self._lock:
            table = self._table(kind)
            if not (found := _since(table, after)) and seconds > 0:
                table.changed.wait(seconds)
                found = _since(table, after)
            return found

    def _table(self, kind: ServedKind) -> _Table:
        key = kind.group, kind.plural
        if key not in self._tables:
            self._tables[key] = _Table(self._lock)
        return self._tables[key]

    def _put(self, kind: ServedKind, item: Object) -> Record:
        table = self._table(kind)
        record = self._record(item)
        key = record.namespace, record.name
        before = table.records.get(key)
        table.records[key] = record
        table.add(Change(version=record.version, before=before, after=record, last=record))
        return record

    def _record(self, item: Object) -> Record:
        self._version = next(self._versions)
        metadata = {**item["metadata"], "resourceVersion": str(self._version)}
        others = {key: item[key] for key in item if key not in {"apiVersion", "kind", "metadata"}}
        return Record(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            version=self._version,
            rest=json.dumps({"metadata": metadata, **others}).encode(),
            labels=metadata.get("labels") or {},
            owners=frozenset(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
        )


def _since(table: _Table, after: int) -> list[Change]:
    if after < table.forgotten:
        raise expired(f"too old resource version: {after} ({table.forgotten})")
    found: list[Change] = []
    for change in reversed(table.changes):
        if change.version <= after:
            break
        found.append(change)
    found.reverse()
    return found


def _key(item: Object) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def now() -> str:
    """Return the time as objects have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
