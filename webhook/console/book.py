"""The newest decisions, from wherever they were told; any thread may put and read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from webhook.console.decisions import from_line
from webhook.console.view import Decision

KEPT = 500
_SLACK = 100
"""So many more before the oldest are looked for."""


class Book:
    """Lines are read only when somebody asks: most observers are never asked."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: deque[bytes] = deque(maxlen=kept)
        self._found: dict[tuple[str, str], Decision] = {}
        """By namespace and id: nobody can take another namespace's place."""
        self._lock = threading.Lock()

    def put_line(self, line: bytes) -> None:
        """Take over a line of the server's decision log."""
        self._lines.append(line)

    def put(self, decisions: Iterable[Decision]) -> None:
        with self._lock:
            for decision in decisions:
                self._put(decision)

    def newest(self) -> tuple[Decision, ...]:
        """List what is known, the newest first."""
        with self._lock:
            while self._lines:
                found = from_line(self._lines.popleft())
                if found is not None:
                    self._put(found)
            self._trim()
            return tuple(self._found.values())

    def _put(self, decision: Decision) -> None:
        key = decision.namespace, decision.id
        before = self._found.get(key)
        if before is None or _rank(before) <= _rank(decision):
            self._found[key] = decision
        if len(self._found) > self._kept + _SLACK:
            self._trim()

    def _trim(self) -> None:
        ranked = sorted(self._found.values(), key=lambda each: (-each.at, each.id))
        self._found = {(each.namespace, each.id): each for each in ranked[: self._kept]}


def _rank(decision: Decision) -> tuple[float, int]:
    """Put a move after its Job's creation, and a whole name after what the name was made from."""
    return decision.at, len(decision.job)
