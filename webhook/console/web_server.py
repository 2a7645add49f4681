"""A small threaded HTTP server for the console: few answers at once, each for a bounded time.

It knows sockets and TLS, but not what the application answers.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from webhook.server.probes import BoundedServer

THREADS = "console"
"""Prefix of its threads' names: a failure in one of them does not end the process."""
AT_ONCE = 8
"""Answers; others wait. Each takes the interpreter that the observer needs."""
PLACES = 32
"""Connections, each with a thread; more than are answered, as some ask late or never."""
GRACE_SECONDS = 0.5
"""Time to ask while others wait for a place: a handshake takes some milliseconds."""
SILENT_SECONDS = 10.0
LONGEST_SECONDS = 30.0
_STEP_SECONDS = 0.05


class RequestHandler(WSGIRequestHandler):
    timeout = SILENT_SECONDS
    server: ConsoleServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Keep HTTP requests out of the log; the application logs failures."""

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        self.server.has_asked(self.request)
        return is_whole

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or said nothing for long
            super().handle()


class ConsoleServer(BoundedServer, WSGIServer):
    """Serves an application until it is shut down."""

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
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__(
            (host, port),
            RequestHandler,
            places=PLACES,
            longest_seconds=LONGEST_SECONDS,
            grace_seconds=GRACE_SECONDS,
        )
        self.set_app(_few_at_once(app))

    def server_bind(self) -> None:
        """Bind without a DNS lookup of this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _named(self.server_address)
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection, to be greeted in its own thread: a client can delay its handshake.

        Raises:
            OSError: there is no certificate yet.

        """
        request, client_address = super().get_request()
        if self._context is None:
            return request, client_address
        context = self._context()
        if context is None:
            request.close()
            raise OSError
        request.settimeout(SILENT_SECONDS)
        secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return secured, client_address

    def makes_room(self) -> bool:
        """Wait until another connection is served: more may ask at once than are answered."""
        while not super().makes_room():
            time.sleep(_STEP_SECONDS)
            self.service_actions()
        return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        threading.current_thread().name = f"{THREADS} request"
        super().process_request_thread(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError):  # no TLS, or not with us
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - theirs
        self._log("console: a connection ended in an error")


def _few_at_once(app: WSGIApplication) -> WSGIApplication:
    """Let an application make few answers at once; they are sent without a limit."""
    turns = threading.Semaphore(AT_ONCE)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with turns:
            return app(environ, start_response)

    return answer


def _named(address: Any) -> tuple[str, int]:
    return str(address[0]), int(address[1])
