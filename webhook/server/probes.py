"""A plain HTTP server for probes and scrapes.

It answers a table of paths and nothing else. Its port is open to all pods by default, in the
process that decides: so connections are few, each is answered once, and one that sends nothing is
closed in favor of a new one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from webhook.server.addresses import split_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]
_NOT_FOUND = Answer(body=b"not found\n", status=404)


def routes(
    registry: CollectorRegistry,
    *,
    not_ready: Callable[[], str],
    notice: Callable[[], str] = lambda: "",
    before_scrape: Callable[[], None] = lambda: None,
) -> Routes:
    """Build the table for ``/healthz``, ``/readyz`` and ``/metrics``.

    *not_ready* returns why this process is not ready, empty if it is; *notice* what an admin should
    know although it is ready.
    """

    def ready() -> Answer:
        if why := not_ready():
            return Answer(body=f"{why}\n".encode(), status=503)
        but = notice()
        return Answer(body=f"ok, but {but}\n".encode() if but else b"ok\n")

    def metrics() -> Answer:
        before_scrape()
        return Answer(body=generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return {"/healthz": lambda: Answer(body=b"ok\n"), "/readyz": ready, "/metrics": metrics}


AT_ONCE = 16
"""Connections at once, each with a thread; more than kubelet and all scrapers need."""
SILENT_SECONDS = 2.0
LONGEST_SECONDS = 10.0
"""Longest life of a connection: a scrape takes some milliseconds."""


class BoundedServer(ThreadingHTTPServer):
    """A server that, when full, closes a connection that has asked nothing.

    It is the oldest of the peer that has most of them, so that a peer with many takes no room from
    others.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        places: int,
        longest_seconds: float,
        grace_seconds: float = 0.0,
    ) -> None:
        """Serve so many connections at once, for a while twice as many as some are closed.

        Each has *grace_seconds* to ask before it may be closed in favor of another.
        """
        self._places, self._longest_seconds = places, longest_seconds
        self._grace_seconds = grace_seconds
        self._since: dict[Any, float] = {}
        """Open connections to the monotonic time of their start, oldest first."""
        self._peers: dict[Any, str] = {}
        self._busy: set[Any] = set()
        """Those that have asked for a path, or are being closed."""
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.makes_room():
            with self._lock:
                self._since[request] = time.monotonic()
                self._peers[request] = str(client_address[0])
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def makes_room(self) -> bool:
        """Return whether one more connection is served, after closing another one if needed."""
        with self._lock:
            count = len(self._since)
            if count < self._places:
                return True
            idle = [request for request in self._since if request not in self._busy]
            if not idle or count >= 2 * self._places:
                return False
            of_peers = Counter(self._peers[request] for request in idle)
            closed = max(idle, key=lambda request: of_peers[self._peers[request]])
            if time.monotonic() - self._since[closed] < self._grace_seconds:
                return False
            self._busy.add(closed)
        # Its thread notices and ends by itself.
        _hang_up(closed)
        return True

    def has_asked(self, request: Any) -> None:
        with self._lock:
            self._busy.add(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
            self._peers.pop(request, None)
            self._busy.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that have lasted too long.

        Called on each poll of the listening socket.
        """
        before = time.monotonic() - self._longest_seconds
        with self._lock:
            late = [request for request, since in self._since.items() if since < before]
        for request in late:
            _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep clients that hung up or sent nonsense out of the log."""


def _hang_up(request: Any) -> None:
    with contextlib.suppress(OSError):
        # Under TLS, too: its own shutdown would take the state from under the other thread.
        socket.socket.shutdown(request, socket.SHUT_RDWR)


def serve(address: str, table: Routes) -> BoundedServer:
    """Serve the table in a daemon thread.

    Raises:
        OSError, ValueError: the address cannot be bound, or is not ``host:port``.

    """

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_SECONDS

        def do_GET(self) -> None:
            server.has_asked(self.request)
            route = table.get(self.path.partition("?")[0])
            answer = _NOT_FOUND if route is None else route()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Keep probes and scrapes out of the decision log."""

    server = BoundedServer(
        split_address(address), Handler, places=AT_ONCE, longest_seconds=LONGEST_SECONDS
    )
    threading.Thread(target=server.serve_forever, name=f"http {address}", daemon=True).start()
    return server
