"""A gunicorn thread worker whose threads only ever get whole messages.

The poller drives TLS handshakes and collects head and body without blocking, so no connection can
park a thread: not one that was dialled and never used (the API server's client keeps up to 25 of
those), not one that sends half a body. Leans on gunicorn 27's ThreadWorker.
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
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from gunicorn import http, util
from gunicorn import sock as gunicorn_sockets
from gunicorn.workers.gthread import TConn, ThreadWorker

from webhook.inbox import Inbox, Refused

HANDSHAKE_SECONDS = 10.0
MESSAGE_SECONDS = 2.0
"""From a message's first byte to its last, and for writing an answer: the webhook's own time-out;
anything later is of no use to the API server."""
LINGER_SECONDS = 2.0
"""How long idle connections are kept while stopping, for a review that is on its way."""
MAX_BODY = (3 << 20) + (256 << 10)
"""Bytes: the API server's limit for objects, and room for the review around them."""
_CHUNK = 64 << 10
_MAX_COLLECTED = 64 << 20
"""Bytes of unfinished messages held at once, over all connections."""
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED)


class Connection(TConn):  # type: ignore[misc]
    """One client, with what it has sent so far and the instant after which it is dropped."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.inbox = Inbox(MAX_BODY)
        self.message = b""
        self.deadline = math.inf
        self.scheduled = math.inf
        self.polled = False
        self.closed = False


class WholeMessageWorker(ThreadWorker):  # type: ignore[misc]
    """Hands a connection to a thread when a whole message is there, never before."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()
        self._collected = 0
        self._idle: set[Connection] = set()

    def accept(self, listener: Any) -> None:
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _AGAIN:
                return
            raise
        self.nr_conns += 1
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn = Connection(self.cfg, client, address, listener.getsockname())
        self._expire_in(conn, HANDSHAKE_SECONDS)
        if not self.cfg.is_ssl:
            self._wait(conn, selectors.EVENT_READ, self._collect)
            return
        try:
            context = gunicorn_sockets.ssl_context(self.cfg)
            conn.sock = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            self._drop(conn, error)
            return
        self._shake_hands(conn, client)

    def _shake_hands(self, conn: Connection, _: Any) -> None:
        try:
            conn.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._wait(conn, selectors.EVENT_READ, self._shake_hands)
        except ssl.SSLWantWriteError:
            self._wait(conn, selectors.EVENT_WRITE, self._shake_hands)
        except (OSError, ValueError) as error:
            self._drop(conn, error)
        else:
            self._rest(conn)

    def _rest(self, conn: Connection) -> None:
        """Wait for the next message; a new one gets the time for a message from its first byte."""
        conn.sock.setblocking(False)
        self._idle.add(conn)
        self._expire_in(conn, float(self.cfg.keepalive) if self.alive else LINGER_SECONDS)
        # What TLS has decrypted already, or came with the last message, wakes no poller.
        self._collect(conn, None)

    def _collect(self, conn: Connection, _: Any) -> None:
        try:
            message = self._receive(conn)
        except Refused as refused:
            self._refuse(conn, refused.status)
        except (OSError, ValueError) as error:
            self._drop(conn, error)
        else:
            if message is None:
                self._wait(conn, selectors.EVENT_READ, self._collect)
                return
            self._leave_poller(conn)
            self._idle.discard(conn)
            conn.message = message
            # While a thread has it, no deadline may close the socket under it.
            conn.deadline = math.inf
            self.enqueue_req(conn)

    def _receive(self, conn: Connection) -> bytes | None:
        """Read what is there; a whole message, or None when more must come."""
        held = len(conn.inbox)
        try:
            while (message := conn.inbox.take()) is None:
                self._answer_continue(conn)
                try:
                    data = conn.sock.recv(_CHUNK)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                    return None
                if not data:
                    raise ConnectionResetError(errno.ECONNRESET, "closed by the client")
                if conn in self._idle:
                    self._idle.discard(conn)
                    self._expire_in(conn, MESSAGE_SECONDS)
                conn.inbox.feed(data)
                if self._collected + len(conn.inbox) - held > _MAX_COLLECTED:
                    raise Refused("503 Service Unavailable")
            return message
        finally:
            self._collected += len(conn.inbox) - held

    def _answer_continue(self, conn: Connection) -> None:
        if conn.inbox.wants_continue:
            conn.inbox.wants_continue = False
            conn.sock.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def handle(self, conn: Connection) -> bool:
        """Answer the one message that was collected. Runs in a thread."""
        req = None
        try:
            conn.sock.settimeout(MESSAGE_SECONDS)
            conn.parser = http.get_parser(self.cfg, iter((conn.message,)), conn.client)
            conn.message = b""
            req = next(conn.parser)
            return bool(self.handle_request(req, conn))
        except (http.errors.NoMoreData, StopIteration, ssl.SSLError, OSError) as error:
            self.log.debug("connection ended: %s", error)
        except Exception as error:  # noqa: BLE001 - the thread's last line: gunicorn answers it
            self.handle_error(req, conn.sock, conn.client, error)
        return False

    def finish_request(self, conn: Connection, fs: Future[bool]) -> None:
        """Take the connection back from the thread. Runs in the poller."""
        if not fs.cancelled() and fs.exception() is None and fs.result():
            try:
                self._rest(conn)
            except (OSError, ValueError) as error:
                self._drop(conn, error)
        else:
            self._drop(conn, None)

    def murder_pending(self) -> None:
        """Close every connection whose time is up."""
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            at, _, conn = heapq.heappop(self._deadlines)
            if conn.closed or at > conn.scheduled:
                continue
            conn.scheduled = math.inf
            if conn.deadline <= now:
                self._drop(conn, TimeoutError("no whole message in time"))
            elif conn.deadline < math.inf:
                self._schedule(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        for conn in tuple(self._idle):
            self._expire_in(conn, deadline - time.monotonic())

    def _expire_in(self, conn: Connection, seconds: float) -> None:
        conn.deadline = time.monotonic() + seconds
        # One heap entry a connection: a later deadline is looked up when the entry comes up.
        if conn.deadline < conn.scheduled:
            self._schedule(conn)

    def _schedule(self, conn: Connection) -> None:
        conn.scheduled = conn.deadline
        heapq.heappush(self._deadlines, (conn.deadline, next(self._order), conn))

    def _wait(self, conn: Connection, events: int, then: Any) -> None:
        if conn.polled:
            self.poller.modify(conn.sock, events, partial(then, conn))
        else:
            self.poller.register(conn.sock, events, partial(then, conn))
            conn.polled = True

    def _leave_poller(self, conn: Connection) -> None:
        if conn.polled:
            conn.polled = False
            with contextlib.suppress(KeyError, ValueError, OSError):
                self.poller.unregister(conn.sock)

    def _refuse(self, conn: Connection, status: str) -> None:
        answer = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        with contextlib.suppress(OSError):
            conn.sock.send(answer.encode())
        self._drop(conn, None)

    def _drop(self, conn: Connection, error: BaseException | None) -> None:
        if conn.closed:
            return
        if error is not None:
            self.log.debug("connection dropped: %s", error)
        conn.closed = True
        self._leave_poller(conn)
        self._idle.discard(conn)
        self._collected -= len(conn.inbox)
        self.nr_conns -= 1
        util.close(conn.sock)
