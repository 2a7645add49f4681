"""Stand between one client and the API server, and hold back calls until the test lets them go.

So a write lands at the worst moment, as it may on a busy network. Without TLS towards the client,
which then has the rights that the connections to the server have; on loopback, and for tests only.
"""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

CHUNK: Final = 1 << 16
IDLE_SECONDS: Final = 5.0
_BETWEEN_TWO: Final = frozenset({"connection", "keep-alive", "transfer-encoding"})
"""Headers of one connection alone."""

Connect = Callable[[], http.client.HTTPConnection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the client asks of the server."""

    method: str
    path: str
    body: bytes


Wanted = Callable[[Call], bool]


@dataclass(slots=True, kw_only=True)
class Held:
    """The calls that one `holding` keeps back."""

    wanted: Wanted
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _calls: list[Call] = field(default_factory=list)
    _lets_pass: bool = False

    @property
    def calls(self) -> tuple[Call, ...]:
        """Those that wait now."""
        with self._changed:
            return tuple(self._calls)

    def release(self) -> None:
        """Let go all that wait, and all that come."""
        with self._changed:
            self._lets_pass = True
            self._changed.notify_all()

    def wait(self, call: Call) -> None:
        """Return when the call may go on."""
        with self._changed:
            if self._lets_pass or not self.wanted(call):
                return
            self._calls.append(call)
            self._changed.wait_for(lambda: self._lets_pass)
            self._calls.remove(call)


class DelayingProxy:
    """Listens while its `with` block runs."""

    def __init__(self, port: int, connect: Connect) -> None:
        """*connect* makes a connection to the API server."""
        self._connect = connect
        self._holds: list[Held] = []
        self._server = _Server(("127.0.0.1", port), self._handler())

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def holding(self, wanted: Wanted) -> Iterator[Held]:
        """Hold back the calls that are wanted; all are let go in the end."""
        held = Held(wanted=wanted)
        self._holds.append(held)
        try:
            yield held
        finally:
            held.release()
            self._holds.remove(held)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_failure: object) -> None:
        for held in tuple(self._holds):
            held.release()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        connect, holds = self._connect, self._holds

        class Handler(_Handler):
            def setup(self) -> None:
                super().setup()
                self.server_side = connect()

            def hold(self, call: Call) -> None:
                for held in tuple(holds):
                    held.wait(call)

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """Carries one connection of the client; the server has one for it."""

    protocol_version = "HTTP/1.1"
    server_side: http.client.HTTPConnection
    used = 0.0
    """When the server answered last; it is connected to anew after a while."""

    def hold(self, call: Call) -> None:
        raise NotImplementedError

    def carry(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        call = Call(method=self.command, path=self.path, body=self.rfile.read(length))
        self.hold(call)
        try:
            # Closed when read: older Pythons leave it open, and then refuse the next request.
            with self._send(call) as response:
                self._answer(response)
        except (OSError, http.client.HTTPException):
            # Either side is gone: the client sees its connection end, and asks again.
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = carry  # noqa: N815 - as http.server calls

    def finish(self) -> None:
        self.server_side.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _send(self, call: Call) -> http.client.HTTPResponse:
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _BETWEEN_TWO
        }
        if time.monotonic() - self.used > IDLE_SECONDS:
            # The server may have ended it, and the client must not see that: it asks once.
            self.server_side.close()
        self.server_side.request(call.method, call.path, call.body or None, headers)
        response = self.server_side.getresponse()
        self.used = time.monotonic()
        return response

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _BETWEEN_TWO:
                self.send_header(name, value)
        is_whole = response.length is not None
        if not is_whole:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        # What a watch has to say is passed on as it comes.
        while chunk := response.read1(CHUNK):
            self.wfile.write(chunk if is_whole else b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if not is_whole:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Say nothing; the API server can be asked."""
