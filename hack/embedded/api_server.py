"""An API server that is embedded in a Python process: HTTP, or HTTPS with client certificates.

It can be ended and started again on its port, and does what no real one does on demand: see
``Mood`` and ``Faults``. It knows no rights: whoever asks is answered.
"""

import contextlib
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Iterable
from http.server import ThreadingHTTPServer
from typing import Any, Final, Self

from hack.api import Object
from hack.embedded.answering import Handler, PagedLists
from hack.embedded.faults import Faults
from hack.embedded.object_store import ObjectStore
from hack.embedded.resource_api import ResourceApi
from hack.embedded.served_kinds import ServedKinds
from hack.embedded.webhook_calls import Admission

POLL_SECONDS: Final = 0.05


class EmbeddedServer:
    """Serves on a port of loopback from `start` to `kill`, or while its `with` block runs."""

    def __init__(
        self,
        items: Iterable[Object] = (),
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        gives_way: bool = False,
    ) -> None:
        """Know *items*; *gives_way*: take only CPU time that nobody else wants.

        An API server has a machine of its own.
        """
        self.kinds = ServedKinds()
        self.store = ObjectStore()
        self.admission = Admission(self.store, self.kinds)
        self.objects = ResourceApi(self.store, self.kinds, self.admission)
        self.faults = Faults()
        self.pages = PagedLists()
        self.users: dict[str, Object] = {}
        """Who has which token."""
        self.port = port
        self.tls = tls
        self._gives_way = gives_way
        self._server: _Server | None = None
        for item in items:
            self.apply(item)

    @property
    def address(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def kubeconfig(self) -> Object:
        """Return one for who is served without TLS."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "contexts": [{"name": "embedded", "context": {"cluster": "it", "user": "anybody"}}],
            "clusters": [{"name": "it", "cluster": {"server": self.address}}],
            "users": [{"name": "anybody", "user": {"token": "any"}}],
        }

    # Objects, past admission and all rules.

    def apply(self, item: Object) -> None:
        """Create or replace an object, status and all."""
        self.store.put(self.kinds.of_item(item), item)

    def delete(self, item: Object) -> None:
        metadata = item["metadata"]
        kind = self.kinds.of_item(item)
        self.store.remove(kind, metadata.get("namespace", ""), metadata["name"])

    def forget(self) -> None:
        """End all watches, and know nothing of what was before: whoever watched lists again."""
        self.store.forget()

    def drop_watches(self) -> None:
        """Break off all watches, without their ends."""
        self.faults.watches_dropped += 1
        self.store.wake()

    def new_token(self, user: Object) -> str:
        token = secrets.token_urlsafe()
        self.users[token] = user
        return token

    # Whether it serves.

    def start(self) -> None:
        self._server = _Server(self)
        self.port = self._server.server_port
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()

    def kill(self) -> None:
        """End at once, with all connections; what is stored stays."""
        server, self._server = self._server, None
        if server is not None:
            server.end()
            self.store.wake()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self.kill()

    def _serve(self, server: "_Server") -> None:
        if self._gives_way:
            # Of this thread, and of those that it starts.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        server.serve_forever(POLL_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, embedded: EmbeddedServer) -> None:
        self.embedded = embedded
        self.over = threading.Event()
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", embedded.port), Handler)
        if embedded.tls is not None:
            # The handshake belongs into the connection's own thread, not into the accept loop.
            self.socket = embedded.tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""

    def end(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
