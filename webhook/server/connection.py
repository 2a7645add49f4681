"""One TLS connection: a socket that never blocks, the bytes received, and the answer still to send.

It does not know the poller, other connections or what a message means; ``connections`` drives it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import selectors
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from webhook.server.http1 import HttpMessage, MessageReader

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
        "polled",
        "queued",
        "scheduled",
        "since",
        "sock",
    )

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        client.setblocking(False)
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
            told = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.stop)
        except OSError:
            return 0.0
        return int.from_bytes(told[_LAST_RECEIVED], sys.byteorder) / 1000

    def client_names(self) -> frozenset[str]:
        """Return the names (common and alternative) in the client's certificate.

        Empty without one.
        """
        found = self.sock.getpeercert() or {}
        subject: Any = found.get("subject", ())
        others: Any = found.get("subjectAltName", ())
        common = (value for pairs in subject for kind, value in pairs if kind == "commonName")
        return frozenset((*common, *(name for kind, name in others if kind in ("DNS", "URI"))))

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
