"""gunicorn's thread worker, changed so that only whole messages are answered.

gthread gives a connection to a thread as soon as it is accepted, so clients that finish neither a
handshake nor a message hold all threads (``docs/decisions/0007-worker.md`` has the reasons). Here
the poller shakes hands, collects and sends without blocking. Between two of its turns it answers
one message that is whole, or has a thread of the pool answer it where there are several.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import selectors
import socket
import ssl
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from gunicorn import http
from gunicorn import sock as gunicorn_sock
from gunicorn.http import wsgi
from gunicorn.http.errors import ExpectationFailed, LimitRequestHeaders, LimitRequestLine
from gunicorn.http.errors import ParseException as NotHttp
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from webhook.model import faults
from webhook.server.tls import names_of

MAX_BODY = (3 << 20) + (256 << 10)
"""Bytes: the API server's limit for objects, and room for the review around them."""
MAX_HEAD = 64 << 10
MAX_HELD = 64 << 20
"""Bytes of incomplete and waiting messages, held at once over all connections."""
HANDSHAKE_SECONDS = 10.0
MESSAGE_SECONDS = 2.0
"""From a message's first byte to its last, and for reading an answer: the webhook's own timeout;
anything later is of no use to the API server."""
HANG_UP_SECONDS = 1.0
"""For a client to read its last answer and close its side, too."""
LOOK_SECONDS = 0.2
"""Between two looks for connections whose time is over."""
WAITED = "kueue_fallback.waited_seconds"
"""Key in the environment: seconds since the message's last byte reached this machine."""

_CHUNK = 16 << 10
"""Bytes of a TLS record: no read returns more, and room for more would be mapped for each read."""
_END = b"\r\n\r\n"
_REFUSAL = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_LONG = "431 Request Header Fields Too Large"
_STATUSES = {
    ExpectationFailed: "417 Expectation Failed",
    LimitRequestHeaders: _TOO_LONG,
    LimitRequestLine: _TOO_LONG,
}
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LAST_RECEIVED = slice(52, 56)
"""Where Linux's ``struct tcp_info`` has the milliseconds since data was last received."""
_WHOLE = 0
"""A connection waits for no event of its socket, but for its message to be answered."""


_Waiting = TypeVar("_Waiting")


class TurnsByPeer(Generic[_Waiting]):
    """Those who wait, in turn by peer, however much one peer sends.

    One of each peer comes, then again one of each; of one peer the first comes first.
    """

    def __init__(self) -> None:
        # In the order in which the peers have their next turns; none is empty.
        self._of_peers: dict[str, deque[_Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_peers.values()))

    def append(self, peer: str, waiting: _Waiting) -> None:
        self._of_peers.setdefault(peer, deque()).append(waiting)

    def popleft(self) -> _Waiting:
        peer = next(iter(self._of_peers))
        line = self._of_peers.pop(peer)
        first = line.popleft()
        if line:
            self._of_peers[peer] = line
        return first


class RefusedMessage(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """The message cannot be accepted; ``status`` is the status line's text to answer with."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Connection:
    """One client's socket, which never blocks, and what was received and is to be sent."""

    def __init__(
        self, sock: socket.socket, client: Any, server: Any, context: ssl.SSLContext | None
    ) -> None:
        """Speak TLS if there is a *context*; *client* and *server* are the socket's addresses."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_tls = context is not None
        self.sock: Any = sock
        if context is not None:
            self.sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.client, self.server = client, server
        self.inbox, self.outbox = bytearray(), bytearray()
        self.message: Any = None
        """gunicorn's reading of the head, once that is there."""
        self.length = 0
        """Bytes of the message's body."""
        self.held = 0
        """Bytes of the inbox that are counted towards ``MAX_HELD``."""
        self.deadline = math.inf
        self.goes_on = True
        """Another message may follow."""
        self.steps: Iterator[int] = iter(())
        self.events = 0
        """Those that it is registered for."""

    def sendall(self, data: bytes) -> None:
        """Take a part of the answer; gunicorn's response calls this as if it were the socket."""
        self.outbox += data

    send = sendall

    def flush(self) -> None:
        while self.outbox:
            del self.outbox[: self.sock.send(self.outbox)]

    def refuse(self, status: str) -> None:
        """Answer with the status alone, and with nothing after that."""
        self.goes_on = False
        self.message = None
        self.inbox.clear()
        self.outbox[:] = _REFUSAL.format(status).encode()

    def take_body(self) -> bytes:
        body = bytes(memoryview(self.inbox)[: self.length])
        del self.inbox[: self.length]
        return body

    def waited_seconds(self) -> float:
        """Return the seconds since the last byte reached this machine, as the kernel counts them.

        This includes time in which the process stood still. 0 if the kernel does not say.
        """
        try:
            tcp_info = self.sock.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.stop
            )
        except OSError:
            return 0.0
        return int.from_bytes(tcp_info[_LAST_RECEIVED], sys.byteorder) / 1000


class BufferedWorker(ThreadWorker):  # type: ignore[misc]
    """Serves ``app.wsgi()`` on the first listener by TLS, on the others without."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turns: TurnsByPeer[Connection] = TurnsByPeer()
        self._waiting: dict[Connection, None] = {}
        """Those whose message is not whole; first those from which nothing came for longest."""
        self._held = 0
        self._stop_at = math.inf
        self._look_at = 0.0
        self._names = frozenset(self.app.client_names)
        self._unanswered: Counter[str] = Counter()
        self.app.unanswered = self._unanswered
        self.app.in_flight = lambda: len(self._turns)

    def prepare(self) -> None:
        """Make ready for ``run`` in a process that is no child of an arbiter."""
        self.tpool, self.poller = self.get_thread_pool(), selectors.DefaultSelector()
        self.method_queue.init()
        self.load_wsgi()

    def run(self) -> None:
        super().run()
        for conn in self._waiting:
            conn.sock.close()
        self.tmp.close()

    # What gthread's loop calls.

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002
        """On SIGTERM, serve on for the drain, with each answer the last of its connection."""
        self.app.draining = True
        self._stop_at = min(self._stop_at, time.monotonic() + self.app.drain_seconds)
        self.method_queue.defer(int)

    def notify(self) -> None:
        """Tell the arbiter that this worker lives; called in each turn of the loop.

        So a bug that never ends an answer ends the worker, after gunicorn's ``timeout``.
        """
        if time.monotonic() >= self._stop_at:
            self.alive = False
        super().notify()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        super().wait_for_and_dispatch_events(0 if self._turns else timeout)
        if self._turns:
            conn = self._turns.popleft()
            self.handle(conn)
            self._advance(conn)

    def accept(self, listener: Any) -> bool:
        """Accept a connection that waits; return whether another one may wait."""
        if self.nr_conns + 1 >= self.worker_connections:
            self._make_room()
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._make_room()
            return False
        has_tls = listener in self.sockets[: self.app.with_tls]
        context = gunicorn_sock.ssl_context(self.cfg) if has_tls else None
        if has_tls and context is None:
            client.close()  # there is no certificate yet
            return True
        try:
            conn = Connection(client, address, listener.getsockname(), context)
        except (OSError, ValueError):
            client.close()
            return True
        self.nr_conns += 1
        conn.steps = self._serve(conn)
        self._advance(conn)
        return True

    def enqueue_req(self, conn: Connection) -> None:
        if self.cfg.threads > 1:
            self.tpool.submit(self._handle_apart, conn)
        else:
            self._turns.append(f"{conn.server[1]} {conn.client[0]}", conn)

    def murder_pending(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for conn in [conn for conn in self._waiting if conn.deadline <= now]:
            self._unanswered["unfinished"] += bool(conn.inbox or conn.message)
            self._drop(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        """Stop listening, with no connection left that waits; let all others finish."""
        for listener in self.sockets:
            # As many as may wait; more could go on for as long as somebody connects.
            for _ in range(self.cfg.backlog):
                if not self.accept(listener):
                    break
            listener.close()
        for conn in self._waiting:
            conn.deadline = min(conn.deadline, deadline)

    # The steps of one connection, which are the poller's.

    def _advance(self, conn: Connection, _sock: object = None) -> None:
        """Take a connection to where it has to wait next, or to its end."""
        if conn.sock.fileno() < 0:
            return
        try:
            wanted = next(conn.steps, None)
        except Exception as error:  # noqa: BLE001 - whatever a client sends costs it its connection
            wanted = None
            if not isinstance(error, OSError):
                self.app.on_error(f"a connection ended: {faults.describe(error)}")
        if wanted is None:
            self._drop(conn)
            return
        self._poll(conn, wanted)
        if wanted == _WHOLE:
            self._waiting.pop(conn, None)
            self.enqueue_req(conn)

    def _serve(self, conn: Connection) -> Iterator[int]:
        """Yield each event that the connection waits for, and ``_WHOLE`` for an answer."""
        try:
            if conn.is_tls:
                yield from self._shake_hands(conn)
            while conn.goes_on:
                yield from self._collect(conn)
                yield _WHOLE
                self._hold(conn)
                self._give(conn, MESSAGE_SECONDS)
                yield from _until(conn.flush, selectors.EVENT_WRITE)
        except RefusedMessage as refused:
            self._unanswered[refused.status[:3]] += 1
            conn.refuse(refused.status)
        conn.inbox.clear()
        self._hold(conn)
        self._give(conn, MESSAGE_SECONDS)
        yield from _until(conn.flush, selectors.EVENT_WRITE)
        # Closing both sides at once could cost the client the last answer, or a TLS alert.
        conn.sock.shutdown(socket.SHUT_WR)
        self._give(conn, HANG_UP_SECONDS)
        while (yield from _until(partial(conn.sock.recv, _CHUNK))):
            pass

    def _shake_hands(self, conn: Connection) -> Iterator[int]:
        self._give(conn, HANDSHAKE_SECONDS)
        try:
            yield from _until(conn.sock.do_handshake)
        except OSError:
            self._unanswered["handshake"] += 1
            conn.goes_on = False
            return
        if self._names and self._names.isdisjoint(names_of(conn.sock.getpeercert())):
            raise RefusedMessage("403 Forbidden")

    def _collect(self, conn: Connection) -> Iterator[int]:
        """Read what arrives until a message is whole."""
        begun = bool(conn.inbox)
        keep = self.cfg.keepalive if self.alive else STOP_KEEPALIVE_LINGER
        self._give(conn, MESSAGE_SECONDS if begun else keep)
        while not self._is_whole(conn):
            data = yield from _until(partial(conn.sock.recv, _CHUNK))
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed by the client")
            if not begun:
                begun = True
                self._give(conn, MESSAGE_SECONDS)
            conn.inbox += data
            self._hold(conn)
            if self._held > MAX_HELD:
                raise RefusedMessage("503 Service Unavailable")

    def _is_whole(self, conn: Connection) -> bool:
        if conn.message is None:
            end = conn.inbox.find(_END)
            if end < 0 and len(conn.inbox) <= MAX_HEAD:
                return False
            if end < 0 or end > MAX_HEAD:
                raise RefusedMessage(_TOO_LONG)
            head = bytes(memoryview(conn.inbox)[: end + len(_END)])
            conn.message, conn.length = self._read(head, conn)
            del conn.inbox[: len(head)]
        return len(conn.inbox) >= conn.length

    def _read(self, head: bytes, conn: Connection) -> tuple[Any, int]:
        """Return the head as gunicorn reads it, and how many bytes of body follow."""
        try:
            message = next(http.get_parser(self.cfg, [head], conn.client), None)
        except NotHttp as error:
            raise RefusedMessage(_STATUSES.get(type(error), "400 Bad Request")) from None
        if message is None:
            raise RefusedMessage("400 Bad Request")
        headers = dict(message.headers)
        if "TRANSFER-ENCODING" in headers:
            raise RefusedMessage("411 Length Required")
        length = int(headers.get("CONTENT-LENGTH", 0))
        if length > MAX_BODY:
            raise RefusedMessage("413 Content Too Large")
        message.scheme = "https" if conn.is_tls else "http"
        return message, length

    # The answer to one message.

    def _handle_apart(self, conn: Connection) -> None:
        self.handle(conn)
        self.method_queue.defer(self._advance, conn)

    def handle(self, conn: Connection) -> None:
        """Answer a message; what the application does on closing its answer comes after it."""
        close: Callable[[], object] = int
        try:
            close = self._respond(conn)
        except Exception as error:  # noqa: BLE001 - the last line: it costs this client its answer
            self.app.on_error(f"no answer: {faults.describe(error)}")
            self._unanswered["500"] += 1
            conn.refuse("500 Internal Server Error")
        with contextlib.suppress(OSError):
            # What does not go out now, or why, is seen again at the connection's next step.
            conn.flush()
        try:
            close()
        except Exception as error:  # noqa: BLE001 - its answer is sent, and others wait
            self.app.on_error(f"after an answer: {faults.describe(error)}")

    def _respond(self, conn: Connection) -> Callable[[], object]:
        message, conn.message = conn.message, None
        response, environ = wsgi.create(message, conn, conn.client, conn.server, self.cfg)
        environ["wsgi.input"] = io.BytesIO(conn.take_body())
        environ[WAITED] = conn.waited_seconds()
        if self.app.draining or not self.alive:
            response.force_close()
        chunks = self.wsgi(environ, response.start_response)
        for chunk in chunks:
            response.write(chunk)
        response.close()
        conn.goes_on = not response.should_close()
        return getattr(chunks, "close", int)

    # What the steps share.

    def _give(self, conn: Connection, seconds: float) -> None:
        """Let the next step take so long; the client was heard of just now."""
        conn.deadline = time.monotonic() + seconds
        self._waiting.pop(conn, None)
        self._waiting[conn] = None

    def _hold(self, conn: Connection) -> None:
        self._held += len(conn.inbox) - conn.held
        conn.held = len(conn.inbox)

    def _make_room(self) -> None:
        """Close the connection that was silent longest.

        An API server uses its connections or opens new ones, so old silent ones are not its own.
        """
        for conn in tuple(self._waiting)[:1]:
            self._drop(conn)

    def _poll(self, conn: Connection, events: int) -> None:
        if events == conn.events:
            return
        if conn.events:
            self.poller.unregister(conn.sock)
        if events:
            self.poller.register(conn.sock, events, partial(self._advance, conn))
        conn.events = events

    def _drop(self, conn: Connection) -> None:
        self._poll(conn, 0)
        self._waiting.pop(conn, None)
        conn.inbox.clear()
        self._hold(conn)
        conn.sock.close()
        self.nr_conns -= 1


def _until(
    step: Callable[[], Any], otherwise: int = selectors.EVENT_READ
) -> Generator[int, None, Any]:
    """Repeat a step of a socket until it goes through; yield the event that it needs first."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE
        except BlockingIOError:
            yield otherwise
