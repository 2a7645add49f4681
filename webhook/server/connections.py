"""All connections of the worker, and the steps that take each from handshake to answer.

Every step has a deadline, kept in a heap; a socket never blocks; all connections together have
limits in number and bytes, and no step waits for a client. The bytes of HTTP are ``http1``'s, what
an answer says the application's.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import math
import selectors
import socket
import ssl
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from webhook.model import faults
from webhook.server import gunicorn_app
from webhook.server.http1 import BadMessage, HttpMessage, MessageReader
from webhook.server.peer_turns import TurnsByPeer

MAX_BODY = (3 << 20) + (256 << 10)
"""Bytes: the API server's limit for objects, and room for the review around them."""
_CHUNK = 64 << 10
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_RECEIVED = slice(52, 56)
"""Where Linux's ``struct tcp_info`` has the milliseconds since data was last received."""


class Connection:
    """One client's connection, without blocking calls.

    ``shake_hands``, ``receive`` and ``send`` return None when they are done, else the ``selectors``
    event to wait for before calling them again.
    """

    __slots__ = (
        "_outgoing",
        "begun",
        "closed",
        "closing",
        "deadline",
        "greeted",
        "held",
        "inbox",
        "message",
        "peer",
        "polled",
        "queued",
        "scheduled",
        "since",
        "sock",
    )

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        client.setblocking(False)
        self.peer = str(client.getpeername()[0])
        """The client's address, by which messages are answered in turn."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        self.inbox = MessageReader(MAX_BODY)
        self.message: HttpMessage | None = None
        """A complete message that waits to be answered."""
        self._outgoing = memoryview(b"")
        self.held = 0
        """Bytes of this connection that ``Clients`` has counted towards ``MAX_HELD``."""
        self.deadline = self.scheduled = math.inf
        self.since = 0.0
        """Monotonic time at which it last began to wait for a message."""
        self.polled: tuple[int, Callable[[Connection], None]] | None = None
        """Registered events and the step to call on them; None: not registered."""
        self.greeted = False
        """The handshake is done."""
        self.begun = False
        """Part of a message has been received, and its deadline is set."""
        self.queued = False
        """One of its steps is queued."""
        self.closing = False
        """The answer being sent is the last one."""
        self.closed = False

    @property
    def size(self) -> int:
        return len(self.inbox) + (len(self.message.body) if self.message else 0)

    @property
    def has_more(self) -> bool:
        """Return whether bytes have been received already that the poller would not report."""
        return bool(len(self.inbox) or self.sock.pending())

    def waited_seconds(self) -> float:
        """Return the seconds since the last byte reached this machine.

        0 if the kernel does not say.
        """
        try:
            tcp_info = self.sock.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.stop
            )
        except OSError:
            return 0.0
        return int.from_bytes(tcp_info[_LAST_RECEIVED], sys.byteorder) / 1000

    def client_names(self) -> frozenset[str]:
        """Return the names (common and alternative) in the client's certificate.

        Empty without one.
        """
        certificate = self.sock.getpeercert() or {}
        subject: Any = certificate.get("subject", ())
        alternatives: Any = certificate.get("subjectAltName", ())
        common = (value for pairs in subject for kind, value in pairs if kind == "commonName")
        return frozenset(
            (*common, *(name for kind, name in alternatives if kind in ("DNS", "URI")))
        )

    def shake_hands(self) -> int | None:
        return _attempt(self.sock.do_handshake)

    def receive(self) -> int | None:
        """Read what has arrived, until ``message`` is a complete one.

        Raises:
            BadMessage: the message cannot be accepted.
            OSError: the client closed the connection.

        """
        while (message := self.inbox.take()) is None:
            if self.inbox.wants_continue:
                self.inbox.wants_continue = False
                self._outgoing = memoryview(_CONTINUE)
            if (wanted := self.send()) is not None:
                return wanted
            if (wanted := _attempt(self._read)) is not None:
                return wanted
        self.message = message
        return None

    def _read(self) -> None:
        data = self.sock.recv(_CHUNK)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed by the client")
        self.inbox.feed(data)

    def put(self, answer: bytes, *, close: bool) -> None:
        self._outgoing, self.closing, self.message = memoryview(answer), close, None

    def send(self) -> int | None:
        return _attempt(self._write)

    def _write(self) -> None:
        while self._outgoing:
            self._outgoing = self._outgoing[self.sock.send(self._outgoing) :]

    def hang_up(self) -> None:
        """Close the sending side only.

        Closing both at once could cost the client the last answer.
        """
        self.inbox.clear()
        self.sock.shutdown(socket.SHUT_WR)

    def discard(self) -> bool:
        """Read and drop what still arrives.

        Return False once the client has closed its side, too.
        """
        try:
            return bool(self.sock.recv(_CHUNK))
        except BlockingIOError:
            return True

    def close(self) -> None:
        self.closed = True
        self.inbox.clear()
        self.message = None
        with contextlib.suppress(OSError):
            self.sock.close()


def _attempt(step: Callable[[], object]) -> int | None:
    try:
        step()
    except (ssl.SSLWantReadError, BlockingIOError):
        return selectors.EVENT_READ
    except ssl.SSLWantWriteError:
        return selectors.EVENT_WRITE
    return None


class Deadlines:
    """A heap with one live entry a connection.

    A deadline that moves later leaves its entry where it is; the entry is pushed again, with the
    new deadline, when it comes up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, conn: Connection, at: float) -> None:
        conn.deadline = at
        if at < conn.scheduled:
            self._push(conn)

    def clear(self, conn: Connection) -> None:
        conn.deadline = math.inf

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def overdue(self, now: float) -> Iterator[Connection]:
        """Remove and yield the connections whose deadline is at or before *now* (monotonic)."""
        while self._heap and self._heap[0][0] <= now:
            at, _, conn = heapq.heappop(self._heap)
            # Skip entries that an earlier one has replaced, and those of closed connections.
            if conn.closed or at > conn.scheduled:
                continue
            conn.scheduled = math.inf
            if conn.deadline <= now:
                conn.deadline = math.inf
                yield conn
            elif conn.deadline < math.inf:
                self._push(conn)

    def _push(self, conn: Connection) -> None:
        conn.scheduled = conn.deadline
        heapq.heappush(self._heap, (conn.deadline, next(self._order), conn))


HANDSHAKE_SECONDS = 10.0
MESSAGE_SECONDS = 2.0
"""From a message's first byte to its last, and for reading an answer: the webhook's own timeout;
anything later is of no use to the API server."""
HANG_UP_SECONDS = 1.0
"""For a client to read its last answer and close its side, too."""
FRESH_SECONDS = 1.0
"""While the worker ends, how long a connection may still send what it was opened for."""
MAX_HELD = 64 << 20
"""Bytes of incomplete and waiting messages, held at once over all connections."""
GREETING_SECONDS = 0.01
"""Time for handshakes before complete messages are answered again."""
ANSWERING_SECONDS = 0.01
"""Time for complete messages before those of others are received that have come meanwhile."""


class Clients:
    """All connections of the worker, with a queue of handshakes and a queue of complete messages.

    It registers each socket with *poller*; the data of the key is a step and its argument, to be
    called on an event.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        application: gunicorn_app.Application,
        *,
        limit: int,
        keep_alive_seconds: float,
        on_error: Callable[[str], object],
        names: Collection[str] = (),
    ) -> None:
        """Accept clients whose certificate has one of the *names*; without names, any client."""
        self._poller = poller
        self._application = application
        self._limit = limit
        self._keep_alive_seconds = keep_alive_seconds
        self._on_error = on_error
        self._names = frozenset(names)
        self._deadlines = Deadlines()
        self._open: set[Connection] = set()
        # In order of their last activity; those being answered are not in it.
        self._silent: dict[Connection, None] = {}
        self._greeting: deque[Connection] = deque()
        self._whole: TurnsByPeer[Connection] = TurnsByPeer()
        self._later: list[Callable[[], object]] = []
        self._held = 0
        self._answering = False
        self._ending = False
        self.draining = False
        """Every answer from now on is the last of its connection."""
        self.unanswered: Counter[str] = Counter()
        """Count of connections and messages without an answer of the application, by reason."""

    def __len__(self) -> int:
        return len(self._open)

    def in_flight(self) -> int:
        """Count the complete messages that wait, and the one being answered."""
        return len(self._whole) + int(self._answering)

    def idle_seconds(self, now: float) -> float:
        """Return how many seconds the poller may wait for events."""
        if self._whole or self._greeting:
            return 0.0
        return max(0.0, self._deadlines.next_at() - now)

    def put_off(self, work: Callable[[], object]) -> None:
        """Do something once the messages that are complete now are answered."""
        self._later.append(work)

    def work(self) -> None:
        """Answer complete messages, then do some handshakes, then close what is overdue."""
        until = time.monotonic() + ANSWERING_SECONDS
        while self._whole and time.monotonic() < until:
            self._next(self._whole, self._answer)
        self._do_what_was_put_off()
        # Handshakes are expensive, and a client whose connection becomes free may need no new one.
        until = time.monotonic() + GREETING_SECONDS
        while self._greeting and time.monotonic() < until:
            self._next(self._greeting, self._shake_hands)
        for conn in self._deadlines.overdue(time.monotonic()):
            if self._goes_on(conn):
                continue
            self.unanswered["unfinished"] += bool(conn.greeted and len(conn.inbox))
            self._drop(conn)

    def welcome(self, client: socket.socket, context: ssl.SSLContext | None) -> None:
        """Set up a new connection; close it if there is no certificate yet or no room."""
        if len(self._open) >= self._limit:
            self.make_room()
        if context is None or len(self._open) >= self._limit:
            client.close()
            return
        try:
            conn = Connection(client, context)
        except (OSError, ValueError):
            client.close()
            return
        self._open.add(conn)
        self._heard_of(conn, HANDSHAKE_SECONDS)
        self._wait(conn, selectors.EVENT_READ, self._greet)

    def make_room(self) -> bool:
        """Close the connection that was silent longest; return False if there is none.

        An API server uses its connections or opens new ones, so old silent ones are not its own.
        """
        if not self._silent:
            return False
        self._drop(next(iter(self._silent)))
        return True

    def let_go(self) -> None:
        """Hang up on idle connections, and give the others a short time to finish."""
        self.draining = self._ending = True
        now = time.monotonic()
        for conn in tuple(self._silent):
            idle_since = conn.since
            if conn.greeted and not len(conn.inbox):
                # What was sent before we hang up is not lost.
                self._collect(conn)
            if conn.closed or conn.queued or len(conn.inbox):
                continue
            if conn.greeted and now - idle_since > FRESH_SECONDS:
                self._hang_up(conn)
            else:
                self._deadlines.set(conn, now + FRESH_SECONDS)

    def close(self) -> None:
        for conn in tuple(self._open):
            self._drop(conn)

    # Steps of one connection.

    def _next(
        self,
        waiting: deque[Connection] | TurnsByPeer[Connection],
        step: Callable[[Connection], None],
    ) -> None:
        conn = waiting.popleft()
        conn.queued = False
        if not conn.closed:
            step(conn)

    def _greet(self, conn: Connection) -> None:
        if not conn.queued:
            conn.queued = True
            self._greeting.append(conn)

    def _shake_hands(self, conn: Connection) -> None:
        try:
            wanted = conn.shake_hands()
        except (OSError, ValueError):
            self.unanswered["handshake"] += 1
            if len(self._open) < self._limit // 2:
                # Closing at once would lose the TLS alert, which tells the client why.
                self._hang_up(conn)
            else:
                self._drop(conn)
            return
        if wanted is not None:
            self._wait(conn, wanted, self._greet)
            return
        conn.greeted = True
        if self._names and self._names.isdisjoint(conn.client_names()):
            self._refuse(conn, "403 Forbidden")
        else:
            self._rest(conn)

    def _rest(self, conn: Connection) -> None:
        """Wait for the connection's next message."""
        conn.begun = False
        self._heard_of(conn, FRESH_SECONDS if self._ending else self._keep_alive_seconds)
        if conn.has_more:
            self._collect(conn)
        else:
            self._wait(conn, selectors.EVENT_READ, self._collect)

    def _collect(self, conn: Connection) -> None:
        if conn.queued:
            return
        try:
            wanted = conn.receive()
            self._count(conn)
        except BadMessage as refused:
            self._refuse(conn, refused.status)
            return
        except (OSError, ValueError):
            self._drop(conn)
            return
        if wanted is None:
            self._silent.pop(conn, None)
            self._deadlines.clear(conn)
            conn.queued = True
            self._whole.append(conn.peer, conn)
            return
        if len(conn.inbox) and not conn.begun:
            conn.begun = True
            self._heard_of(conn, MESSAGE_SECONDS)
        self._wait(conn, wanted, self._collect)

    def _refuse(self, conn: Connection, status: str) -> None:
        """Answer with the status alone, and hang up."""
        self._silent.pop(conn, None)
        self.unanswered[status[:3]] += 1
        conn.put(gunicorn_app.failure(status), close=True)
        self._send(conn)

    def _answer(self, conn: Connection) -> None:
        if conn.message is None:
            return
        close = self.draining or conn.message.closing
        waited = conn.waited_seconds()
        self._answering = True
        try:
            answer = gunicorn_app.respond(
                self._application,
                conn.message,
                peer=conn.peer,
                waited_seconds=waited,
                close=close,
            )
        except Exception as error:  # noqa: BLE001 - the last line: it costs this client its answer
            self._on_error(f"no answer: {faults.describe(error)}")
            self.unanswered["500"] += 1
            answer, close = gunicorn_app.failure("500 Internal Server Error"), True
        self._answering = False
        conn.put(answer, close=close)
        self._send(conn)

    def _do_what_was_put_off(self) -> None:
        works, self._later = self._later, []
        for work in works:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - its answer is sent, and others wait
                self._on_error(f"after an answer: {faults.describe(error)}")

    def _send(self, conn: Connection) -> None:
        try:
            wanted = conn.send()
        except (OSError, ValueError):
            self._drop(conn)
            return
        self._count(conn)
        if wanted is not None:
            self._deadlines.set(conn, time.monotonic() + MESSAGE_SECONDS)
            self._wait(conn, wanted, self._send)
        elif conn.closing:
            self._hang_up(conn)
        else:
            self._rest(conn)

    def _hang_up(self, conn: Connection) -> None:
        self._silent.pop(conn, None)
        try:
            conn.hang_up()
        except (OSError, ValueError):
            self._drop(conn)
            return
        self._count(conn)
        self._deadlines.set(conn, time.monotonic() + HANG_UP_SECONDS)
        self._wait(conn, selectors.EVENT_READ, self._discard)

    def _discard(self, conn: Connection) -> None:
        try:
            left = conn.discard()
        except (OSError, ValueError):
            left = False
        if not left:
            self._drop(conn)

    # What the steps share.

    def _goes_on(self, conn: Connection) -> bool:
        """Receive what arrived before the deadline; return whether nothing is left to be closed.

        The process may have stood still past the deadline while bytes waited in the kernel.
        """
        if not conn.polled or conn.polled[1] != self._collect:
            return False
        self._collect(conn)
        return conn.closed or conn.queued or conn.deadline < math.inf

    def _heard_of(self, conn: Connection, seconds: float) -> None:
        conn.since = time.monotonic()
        self._silent.pop(conn, None)
        self._silent[conn] = None
        self._deadlines.set(conn, conn.since + seconds)

    def _count(self, conn: Connection) -> None:
        size = conn.size
        self._held += size - conn.held
        grown, conn.held = size > conn.held, size
        if grown and self._held > MAX_HELD:
            raise BadMessage("503 Service Unavailable")

    def _wait(self, conn: Connection, events: int, then: Callable[[Connection], None]) -> None:
        if not conn.polled:
            self._poller.register(conn.sock, events, (then, conn))
        elif conn.polled != (events, then):
            self._poller.modify(conn.sock, events, (then, conn))
        conn.polled = (events, then)

    def _drop(self, conn: Connection) -> None:
        if conn.closed:
            return
        if conn.polled:
            self._poller.unregister(conn.sock)
            conn.polled = None
        conn.close()
        self._count(conn)
        self._silent.pop(conn, None)
        self._open.discard(conn)
