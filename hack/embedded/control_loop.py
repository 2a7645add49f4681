"""Follows objects of an API server by list and watch, and lets those act who play controllers.

One thread acts, so that nothing is decided twice. What a controller has written counts at once, not
only when its event comes.
"""

import contextlib
import http
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from webhook.api.client import Client
from webhook.api.kubernetes_api import Gone, NotServed, Refused, Unreachable
from webhook.api.resources import Key, ReadObject, Resource, key_of
from webhook.api.watch import Follower, WatchUpdate

Object = dict[str, Any]

OVERTAKEN: Final = frozenset({http.HTTPStatus.CONFLICT})
"""Somebody else has written the object meanwhile; the event of that leads to another attempt."""


class _StoppedError(Exception):
    """The loop has ended, and so does whoever follows a resource for it."""


class Writer:
    """Writes objects for those who play controllers, and keeps all that is known of objects."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._controllers: Sequence[PlayedController] = ()
        self.known: dict[str, dict[Key, Object]] = {}

    def serve(self, controllers: Sequence["PlayedController"]) -> None:
        self._controllers = controllers
        self.known = {kind: {} for each in controllers for kind in each.paths}

    def create(self, kind: str, path: str, item: Object) -> None:
        with self._unless_overtaken():
            self.note(kind, "ADDED", self._client.post(path, item))

    def patch(self, kind: str, path: str, change: Object) -> bool:
        """Merge a change into an object; return whether it was, and nobody was faster."""
        with self._unless_overtaken():
            self.note(kind, "MODIFIED", self._client.patch(path, change))
            return True
        return False

    def delete(self, path: str) -> None:
        with self._unless_overtaken():
            self._client.delete(path)

    def note(self, kind: str, event: str, source: Mapping[str, Any]) -> None:
        """Keep an object as it is now, unless a newer state of it is known, and pass it on."""
        key, table = key_of(source), self.known[kind]
        before = table.get(key)
        if before is not None and _version(source) < _version(before):
            return
        if event == "DELETED":
            table.pop(key, None)
        elif before is not None and _version(source) == _version(before):
            return
        else:
            table[key] = dict(source)
        for controller in self._controllers:
            if kind in controller.paths:
                controller.note(kind, event, dict(source))

    def note_all(self, kind: str, sources: Sequence[Object]) -> None:
        """Keep the objects of a whole list, and forget those that are not in it."""
        listed = {key_of(source) for source in sources}
        for key in self.known[kind].keys() - listed:
            self.note(kind, "DELETED", self.known[kind][key])
        for source in sources:
            self.note(kind, "ADDED", source)

    @contextlib.contextmanager
    def _unless_overtaken(self) -> Any:
        try:
            yield
        except NotServed:
            # It is gone; its event is on the way.
            return
        except Refused as error:
            if error.status not in OVERTAKEN:
                raise


class PlayedController(Protocol):
    """One that acts on what it knows of some kinds of objects."""

    paths: Mapping[str, str]
    """By kind, where it is served."""

    def note(self, kind: str, event: str, source: Object) -> None:
        """Hear that an object has come, has changed, or is gone (ADDED, MODIFIED, DELETED)."""

    def act(self) -> float:
        """Do what is to do now; return when there is more to do, on the monotonic clock."""


class ControlLoop:
    """Lets controllers act from `start` to `stop`; a failure of theirs ends it with a traceback."""

    def __init__(self, kubeconfig: Path, *makers: Callable[[Writer], PlayedController]) -> None:
        self._client = Client(str(kubeconfig))
        self._writer = Writer(self._client)
        self._controllers = [make(self._writer) for make in makers]
        self._writer.serve(self._controllers)
        self._updates: queue.SimpleQueue[WatchUpdate | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._act_on_updates, name="played controllers", daemon=True
        )
        self._unlisted = set(self._writer.known)

    def start(self) -> None:
        paths = {kind: path for each in self._controllers for kind, path in each.paths.items()}
        for kind, path in paths.items():
            threading.Thread(target=self._follow, args=(kind, path), daemon=True).start()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._updates.put(None)
        self._thread.join()

    def _follow(self, kind: str, path: str) -> None:
        follower = Follower(
            Resource(kind=kind, path=path, read=lambda _, source: ReadObject(("", ""), source)),
            self._client,
            self._emit,
            clock=time.monotonic,
            sleep=self._sleep,
            uniform=random.uniform,
        )
        with contextlib.suppress(_StoppedError):
            follower.run()

    def _emit(self, update: WatchUpdate) -> None:
        self._unless_over()
        self._updates.put(update)

    def _sleep(self, seconds: float) -> None:
        self._over.wait(seconds)
        self._unless_over()

    def _unless_over(self) -> None:
        if self._over.is_set():
            raise _StoppedError

    def _act_on_updates(self) -> None:
        due = math.inf
        while not self._over.is_set():
            self._take(due)
            if self._unlisted or self._over.is_set():
                continue
            try:
                due = min(controller.act() for controller in self._controllers)
            except (Unreachable, Gone):
                # The API server is away for a moment, as it may be; whoever acts finds the same
                # still to do.
                due = time.monotonic() + 0.5

    def _take(self, due: float) -> None:
        """Wait for an update until then, and note it and all others that have come."""
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        with contextlib.suppress(queue.Empty):
            update = self._updates.get(timeout=timeout)
            while update is not None:
                self._note(update)
                update = self._updates.get_nowait()

    def _note(self, update: WatchUpdate) -> None:
        if update.entries is not None:
            self._writer.note_all(update.kind, [entry.value for entry in update.entries])
            self._unlisted.discard(update.kind)
        elif update.event is not None:
            event, entry = update.event
            self._writer.note(update.kind, event, entry.value)


def _version(source: Mapping[str, Any]) -> int:
    return int(source["metadata"]["resourceVersion"])
