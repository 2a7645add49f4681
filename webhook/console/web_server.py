"""A small threaded HTTP server for the console: few connections at once, each for a bounded time.

It knows sockets and TLS, but not what the application answers.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from webhook.model.faults import Attention

THREADS = "console"
"""Prefix of its threads' names: a failure in one of them does not end the process."""
AT_ONCE = 8
"""Connections; others wait. Each response takes the interpreter that the observer needs."""
SILENT_SECONDS = 10.0
LONGEST_SECONDS = 30.0
_STEP_SECONDS = 0.5


class _Handler(WSGIRequestHandler):
    timeout = SILENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Keep HTTP requests out of the log; the application logs failures."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or said nothing for long
            super().handle()


class ConsoleServer(ThreadingMixIn, WSGIServer):
    """Serves an application until it is shut down."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        app: WSGIApplication,
        log: Callable[[str], None],
        context: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        """Bind at once; *context* returns each connection's TLS context, None: close it for now.

        Raises:
            OSError: the address cannot be bound.

        """
        self._log, self._context = log, context
        self._free = threading.Semaphore(AT_ONCE)
        self._since: dict[Any, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without a DNS lookup of this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _named(self.server_address)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=_STEP_SECONDS):
            self.service_actions()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had: nobody will give the place back
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        threading.current_thread().name = f"{THREADS} request"
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # A client can delay its handshake, so it is never done in the thread that accepts.
        connection = self._secured(request)
        if connection is None:
            return
        self._since[connection] = time.monotonic()
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        except OSError:
            return  # no TLS, or not with us
        finally:
            del self._since[connection]
            if connection is not request:
                connection.close()

    def _secured(self, request: socket.socket) -> socket.socket | None:
        if self._context is None:
            return request
        context = self._context()
        if context is None:
            return None
        request.settimeout(SILENT_SECONDS)
        return context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)

    def service_actions(self) -> None:
        """Close connections that have lasted too long; called on each poll of the socket."""
        before = time.monotonic() - LONGEST_SECONDS
        for request, since in tuple(self._since.items()):
            if since < before:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - theirs
        self._log(Attention("console: a connection ended in an error"))


def _named(address: Any) -> tuple[str, int]:
    return str(address[0]), int(address[1])
