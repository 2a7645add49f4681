"""The API server's way with connections: Go's HTTP/1.1 pool.

A call that finds no idle connection dials one, but takes whichever comes free first: its own, or
another call's. What was dialled for nothing stays idle, up to 25, for 90 s.
"""

import collections
import contextlib
import http.client
import queue
import select
import threading

from hack.waiting import WAIT_SECONDS

MAX_IDLE = 25


class GoClient:
    def __init__(self, running):
        self._running = running
        self._lock = threading.Lock()
        self._idle = []
        self._waiting = collections.deque()
        self._dialling = []

    def post(self, body):
        """Post once, without trying again: bytes were written. Returns status and body."""
        connection = self._take()
        if isinstance(connection, OSError):
            raise connection
        try:
            connection.request("POST", "/mutate?timeout=10s", body=body)
            response = connection.getresponse()
            found = response.status, response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if response.getheader("Connection") == "close":
            connection.close()
        else:
            self._put(connection)
        return found

    def idle(self):
        with self._lock:
            return len(self._idle)

    def close(self):
        for thread in self._dialling:
            thread.join()
        for connection in self._idle:
            connection.close()

    def _take(self):
        mailbox = queue.SimpleQueue()
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if is_open(connection):
                    return connection
                connection.close()
            self._waiting.append(mailbox)
            thread = threading.Thread(target=self._dial)
            self._dialling.append(thread)
        thread.start()
        return mailbox.get(timeout=WAIT_SECONDS)

    def _dial(self):
        connection = self._running.client()
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            with self._lock, contextlib.suppress(IndexError):
                self._waiting.popleft().put(error)
            return
        self._put(connection)

    def _put(self, connection):
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(connection)
            elif len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.close()


def is_open(connection):
    """Tell whether the server has neither hung up nor sent what nobody asked for."""
    pending = connection.sock.pending()
    return not pending and not select.select([connection.sock], [], [], 0)[0]
