"""Deadlines of connections, in a heap in which moving a deadline later costs nothing."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from webhook.server.connection import Connection


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
