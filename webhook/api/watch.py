"""Follows one resource: lists it in pages, watches from there, and lists again when it must.

Watches are short and resumed from the last resourceVersion, so that even a quiet cluster proves
every few seconds that it is up: by an event, a bookmark, a clean close. That a watch could be
opened proves nothing: the API server says only afterwards that the resourceVersion is too old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.api.kubernetes_api import (
    Forbidden,
    Gone,
    KubernetesApi,
    NotServed,
    Refused,
    TooLarge,
    Unreachable,
)
from webhook.api.resources import Key, Limit, ReadObject, Resource, full_name, key_of
from webhook.model.fields import FieldError

PAGE = 500
"""As client-go's."""
WATCH_SECONDS = (6.0, 9.0)
"""Range for the length of a quiet watch; the limit for the state's age is 15 s, and a loaded
machine needs some of that itself."""
_FIRST_WATCH_SECONDS = 2.0
"""After a list or a failure: its close soon proves that the watch works."""
_GRACE_SECONDS = 2.0
"""Silence after the watch's own end until the connection counts as dead."""
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3.0
"""State must be right within 10 s of the API server's return."""
_PROBE_SECONDS = 8.0
"""Between attempts at what is forbidden: below the age at which state is stale."""
_TOO_SHORT_SECONDS = 1.0
_FAILURES_BEFORE_LIST = 8
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchUpdate:
    """What one step has found, as of *at* (monotonic), unless *error* says that it failed."""

    kind: str
    at: float
    entries: tuple[ReadObject, ...] | None = None
    """The whole list."""
    event: tuple[str, ReadObject] | None = None
    """(type, object) of one change."""
    error: str = ""
    served: bool = True
    """False: the list is empty because there is no such resource."""
    unreadable: bool = False
    """What is known must not be used any longer: we are not allowed to read it."""


def path_of(transport: KubernetesApi, resource: Resource) -> str:
    """Return the resource's path with Kueue's served version filled in.

    Raises:
        NotServed: there is no Kueue.

    """
    if "{kueue}" not in resource.path:
        return resource.path
    version = transport.kueue_version()
    if version is None:
        raise NotServed(resource.kind)
    return resource.path.format(kueue=version)


def list_pages(
    transport: KubernetesApi,
    path: str,
    params: Mapping[str, str] | None = None,
    *,
    most: int = PAGE,
) -> Iterator[Mapping[str, Any]]:
    """Yield a list page by page, at most *most* objects each; all are of one resourceVersion.

    Of large objects there are fewer in a page, so that memory does not grow with what tenants make.
    """
    limit = most
    following: dict[str, str] = {}
    while True:
        try:
            page = transport.get(path, {**(params or {}), "limit": str(limit), **following})
        except TooLarge:
            limit = max(1, limit // 8)
            continue
        limit = min(most, 2 * limit)
        if not _is_list(page):
            raise Unreachable("an answer that is no list of objects")
        token = (page.get("metadata") or {}).get("continue")
        yield page
        if not token:
            return
        following = {"continue": token}
        del page  # which may take megabytes, before the next one is read


def get_by_list(transport: KubernetesApi, path: str, name: str) -> Mapping[str, Any] | None:
    """Return one object of a collection; None: there is none.

    It is asked for in a list, so that only the right to list is needed.
    """
    items = transport.get(path, {"fieldSelector": f"metadata.name={name}"}).get("items") or ()
    return next(iter(items), None)


def _is_list(page: Mapping[str, Any]) -> bool:
    """Return whether it is a list, not what something else than an API server may answer with."""
    items = page.get("items") or []
    return _is_object(page) and isinstance(items, list) and all(map(_is_object, items))


def _is_object(source: object) -> bool:
    return isinstance(source, dict) and isinstance(source.get("metadata") or {}, dict)


class Follower:
    """The list and watch of one resource; clock, sleep and random are passed in."""

    def __init__(
        self,
        resource: Resource,
        transport: KubernetesApi,
        emit: Callable[[WatchUpdate], None],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        uniform: Callable[[float, float], float],
    ) -> None:
        self._resource = resource
        self._transport = transport
        self._emit = emit
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform
        self._read = resource.read
        self._limited = LimitedReads(resource.limit)
        self._version = ""
        """The resourceVersion to watch from; empty: list first."""
        self._failures = 0
        self._proven = False
        """The last watch ended cleanly."""

    def run(self) -> None:
        while True:
            self.step()

    def step(self) -> None:
        """List if necessary, then watch until the watch ends; wait as long as a failure demands."""
        try:
            path = path_of(self._transport, self._resource)
            if not self._version:
                self._list(path)
            self._watch(path)
        except Gone:
            self._version = ""
            self._back_off()
        except NotServed:
            if "{kueue}" in self._resource.path:
                self._transport.forget_versions()
            self._miss()
        except Forbidden as error:
            self._version = ""
            self._tell(error=str(error), unreadable=True)
            self._sleep(self._uniform(0.8, 1.0) * _PROBE_SECONDS)
        except (Refused, Unreachable) as error:
            self._tell(error=str(error))
            if isinstance(error, Refused) or self._failures >= _FAILURES_BEFORE_LIST:
                self._version = ""
            self._back_off()

    def _list(self, path: str) -> None:
        entries: list[ReadObject] = []
        at, version = self._clock(), ""
        self._limited.forget()
        left_out: dict[Key, ReadObject] = {}
        for page in list_pages(self._transport, path, self._resource.params):
            # Each page is reduced at once: whole objects of a large list would fill the memory.
            for source in page.get("items") or ():
                unread = self._limited.left_out(source)
                if unread is None:
                    entries.append(self._read(self._resource.kind, source))
                else:
                    left_out[unread.key] = unread
            version = str((page.get("metadata") or {}).get("resourceVersion") or "")
            del page
        self._version = version
        entries += left_out.values()
        self._emit(WatchUpdate(kind=self._resource.kind, at=at, entries=tuple(entries)))

    def _watch(self, path: str) -> None:
        seconds = self._uniform(*WATCH_SECONDS) if self._proven else _FIRST_WATCH_SECONDS
        params = {
            **self._resource.params,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(int(seconds)),
        }
        opened = self._clock()
        self._proven = False
        for event in self._transport.watch(path, params, read_seconds=seconds + _GRACE_SECONDS):
            self._take(event)
            del event  # which may be large, before the next one is waited for
        self._tell()
        if self._limited.is_old:
            self._version = ""
        self._proven = True
        if self._clock() - opened < _TOO_SHORT_SECONDS:
            self._back_off()
        else:
            self._failures = 0

    def _take(self, event: Mapping[str, Any]) -> None:
        source, event_type = event.get("object") or {}, str(event.get("type"))
        if not _is_object(source):
            raise Unreachable("an event without an object")
        if event_type == "ERROR":
            if source.get("code") == _GONE:
                raise Gone
            raise Unreachable(str(source.get("message") or "the watch failed"))
        self._failures = 0
        version = (source.get("metadata") or {}).get("resourceVersion")
        change = None
        if event_type != "BOOKMARK":
            unread = self._limited.left_out(source, event_type)
            change = event_type, unread or self._read(self._resource.kind, source)
        self._emit(WatchUpdate(kind=self._resource.kind, at=self._clock(), event=change))
        self._version = str(version or self._version)

    def _miss(self) -> None:
        """Report an empty list after two 404s in a row: an API may be missing for a moment."""
        if self._version:
            self._version = ""
            self._back_off()
            return
        self._failures = 0
        self._emit(
            WatchUpdate(kind=self._resource.kind, at=self._clock(), entries=(), served=False)
        )
        self._sleep(self._uniform(0.8, 1.0) * self._resource.unserved_seconds)

    def _tell(self, *, error: str = "", unreadable: bool = False) -> None:
        kind, at = self._resource.kind, self._clock()
        self._emit(WatchUpdate(kind=kind, at=at, error=error, unreadable=unreadable))

    def _back_off(self) -> None:
        wait = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**self._failures)
        self._failures += 1
        self._sleep(wait * self._uniform(0.5, 1.0))


_ALL = "*"
"""Stands for a name in the key of what is left out; no object has it."""


class LimitedReads:
    """Tells which objects are read, and which are left out where tenants may write any number."""

    def __init__(self, limit: Limit | None) -> None:
        """*limit* None: all are read."""
        self._limit = limit
        self._names: dict[str, set[str]] = {}
        self._full: set[str] = set()
        """Namespaces some of whose objects are left out."""
        self.is_old = False
        """Whether a new list might read other objects than are read now."""

    def forget(self) -> None:
        """Begin a new list."""
        self._names.clear()
        self._full.clear()
        self.is_old = False

    def left_out(self, source: Mapping[str, Any], event_type: str = "ADDED") -> ReadObject | None:
        """Return what is known in place of an object that is left out; None: it is to be read."""
        if self._limit is None:
            return None
        try:
            namespace, name = key_of(source)
        except FieldError:
            return None
        names = self._names.setdefault(namespace, set())
        if event_type == "DELETED":
            # Its place is free for one that was left out.
            self.is_old |= name in names and bool(self._full)
            names.discard(name)
            return None
        if name in names or self._has_room(names):
            names.add(name)
            return None
        self._full.add(namespace)
        self.is_old |= bool(names) and name < max(names)
        return ReadObject((namespace, _ALL), None, self._problem(namespace))

    def _has_room(self, names: set[str]) -> bool:
        limit = self._limit
        if limit is None:
            return True
        total = sum(map(len, self._names.values()))
        return len(names) < limit.in_namespace and total < limit.in_cluster

    def _problem(self, namespace: str) -> str:
        limit = self._limit
        most = f"{limit.in_namespace} of a namespace and {limit.in_cluster} in all" if limit else ""
        return f"{full_name((namespace, _ALL))}: only {most} are read"
