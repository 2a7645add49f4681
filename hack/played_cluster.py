"""An API server that is played: it lists and watches objects that it is given, and has moods.

For what no real one does on demand: to answer late, byte by byte, or not at all. It knows no
rights and no schema; what Kubernetes does is tested against the real thing.
"""

import enum
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

from hack.api import Object
from hack.paper import KUEUE

LATE_SECONDS: Final = 3.0
DRIP_SECONDS: Final = 0.05
"""Between two bytes."""
SILENT_SECONDS: Final = 0.5
"""Between two looks whether it still is."""
_PLACE: Final = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?"
)
_GROUP, _, _VERSION = KUEUE.partition("/")
_GROUPS: Final = {
    "versions": [{"version": _VERSION, "groupVersion": KUEUE}],
    "name": _GROUP,
}


class Mood(enum.Enum):
    """How each answer comes."""

    PROMPT = "prompt"
    LATE = "late"
    DRIPPING = "dripping"
    SILENT = "silent"


class PlayedCluster:
    """Serves on a port of loopback while its `with` block runs."""

    def __init__(self, items: Iterable[Object] = (), *, gives_way: bool = False) -> None:
        """Know *items*; *gives_way*: take only CPU time that nobody else wants.

        An API server has a machine of its own.
        """
        self.mood = Mood.PROMPT
        self._gives_way = gives_way
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._objects: dict[str, dict[tuple[str, str], bytes]] = {}
        """As JSON, so that a list costs those who are measured beside it little."""
        self._events: list[tuple[str, Object]] = []
        """(kind, event) of each change; the resourceVersion is how many there were."""
        self._forgotten = 0
        """Up to which resourceVersion nobody can go on any more."""
        for item in items:
            self.apply(item)
        self._server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "played",
            "contexts": [{"name": "played", "context": {"cluster": "played", "user": "played"}}],
            "clusters": [{"name": "played", "cluster": {"server": self.address}}],
            "users": [{"name": "played", "user": {"token": "played"}}],
        }

    def apply(self, item: Object) -> None:
        """Create or replace an object, and tell those who watch."""
        kind, key = _plural(item["kind"]), _key(item)
        with self._changed:
            found = self._objects.setdefault(kind, {})
            event = "MODIFIED" if key in found else "ADDED"
            found[key] = json.dumps(item).encode()
            self._tell(kind, event, item)

    def delete(self, item: Object) -> None:
        kind = _plural(item["kind"])
        with self._changed:
            self._tell(kind, "DELETED", json.loads(self._objects[kind].pop(_key(item))))

    def forget(self) -> None:
        """End all watches, and know nothing of what was before: whoever watched lists again."""
        with self._changed:
            self._events.append(("", {}))
            self._forgotten = len(self._events)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _serve(self) -> None:
        if self._gives_way:
            # Of this thread, and of those that it starts.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        self._server.serve_forever(0.05)

    # For the handler.

    def rest(self, seconds: float) -> None:
        self._over.wait(seconds)

    def wait_while_silent(self) -> None:
        while self.mood is Mood.SILENT and not self.is_over():
            self.rest(SILENT_SECONDS)

    def is_over(self) -> bool:
        return self._over.is_set()

    def find(self, kind: str, namespace: str, name: str) -> bytes | None:
        with self._changed:
            return self._objects.get(kind, {}).get((namespace, name))

    def has_forgotten(self, version: int) -> bool:
        return version < self._forgotten

    def listed(self, kind: str, selected: str, *, first: int = 0, limit: int = 0) -> bytes:
        """Return one page of a list, or all of it; where the next one begins is its token."""
        with self._changed:
            found = self._objects.get(kind, {})
            if selected:
                found = {key: text for key, text in found.items() if key[1] == selected}
            end = first + limit if limit else len(found)
            metadata = {"resourceVersion": str(len(self._events))}
            if end < len(found):
                metadata["continue"] = str(end)
            items = b",".join(islice(found.values(), first, end))
        return b'{"items":[%s],"metadata":%s}' % (items, json.dumps(metadata).encode())

    def wait_for_events(self, after: int, until: float) -> list[tuple[str, Object]]:
        """Return what has changed since the resourceVersion; wait for it no longer than that."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._events) > after or self.is_over(),
                max(0.0, until - time.monotonic()),
            )
            return self._events[after:]

    def _tell(self, kind: str, event: str, item: Object) -> None:
        version = {"resourceVersion": str(len(self._events) + 1)}
        told = {**item, "metadata": {**item["metadata"], **version}}
        self._events.append((kind, {"type": event, "object": told}))
        self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """Carries one connection of the client."""

    protocol_version = "HTTP/1.1"
    cluster: PlayedCluster

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        place, params = _PLACE.fullmatch(target.path), dict(parse_qsl(target.query))
        if target.path == f"/apis/{_GROUP}":
            self._answer(_GROUPS)
        elif place is None:
            self._answer({"message": "not found"}, status=404)
        elif params.get("watch"):
            self._watch(place["kind"], params)
        elif place["name"]:
            found = self.cluster.find(place["kind"], place["namespace"] or "", place["name"])
            if found is None:
                self._answer({"message": "not found"}, status=404)
            else:
                self._send(found)
        else:
            page = {"first": int(params.get("continue", 0)), "limit": int(params.get("limit", 0))}
            self._send(self.cluster.listed(place["kind"], _selected(params), **page))

    def _watch(self, kind: str, params: Mapping[str, str]) -> None:
        until = time.monotonic() + float(params["timeoutSeconds"])
        after = int(params["resourceVersion"])
        if self.cluster.has_forgotten(after):
            self._answer({"message": "too old"}, status=410)
            return
        self.send_response_only(200)
        self.send_header("Transfer-Encoding", "chunked")
        self._end_headers()
        while time.monotonic() < until and not self.cluster.is_over():
            found = self.cluster.wait_for_events(after, until)
            if self.cluster.has_forgotten(after):
                break
            after += len(found)
            for changed, event in found:
                name = event["object"]["metadata"]["name"]
                if changed == kind and _selected(params) in ("", name):
                    line = json.dumps(event).encode() + b"\n"
                    self._write(b"%x\r\n%s\r\n" % (len(line), line))
        self._write(b"0\r\n\r\n")

    def _answer(self, found: Object, *, status: int = 200) -> None:
        self._send(json.dumps(found).encode(), status=status)

    def _send(self, content: bytes, *, status: int = 200) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self._end_headers()
        self._write(content)

    def _end_headers(self) -> None:
        if self.cluster.mood is Mood.LATE:
            self.cluster.rest(LATE_SECONDS)
        self.cluster.wait_while_silent()
        self.end_headers()

    def _write(self, content: bytes) -> None:
        self.cluster.wait_while_silent()
        while content and self.cluster.mood is Mood.DRIPPING:
            self.wfile.write(content[:1])
            content = content[1:]
            self.cluster.rest(DRIP_SECONDS)
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _handler(played: PlayedCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        cluster = played

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                # The client is gone, as it may be after a while of silence.
                self.close_connection = True

        def finish(self) -> None:
            try:
                super().finish()
            except OSError:
                self.close_connection = True

    return Handler


def _selected(params: Mapping[str, str]) -> str:
    """Name the one object that is asked for; empty: all."""
    return params.get("fieldSelector", "").removeprefix("metadata.name=")


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
