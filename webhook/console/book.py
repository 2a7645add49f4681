"""The newest decisions, from wherever they were told; any thread may put and read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container
from dataclasses import replace

from webhook.api.resources import Key
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
        self._of_jobs: dict[Key, str] = {}
        """Jobs to the ids of what they say."""
        self._lock = threading.Lock()

    def put_line(self, line: bytes) -> None:
        """Take over a line of the server's decision log."""
        self._lines.append(line)

    def put(self, job: Key, decision: Decision | None) -> None:
        """Take over what a Job says; of one Job only the last of it is kept."""
        with self._lock:
            before = self._of_jobs.get(job)
            if before is not None and (decision is None or decision.id != before):
                self._drop(job)
            if decision is not None:
                self._of_jobs[job] = decision.id
                self._put(decision)

    def forget_others(self, jobs: Container[Key]) -> None:
        """Forget what Jobs said that are gone."""
        with self._lock:
            for job in [each for each in self._of_jobs if each not in jobs]:
                self._drop(job)

    def _drop(self, job: Key) -> None:
        key = job[0], self._of_jobs.pop(job)
        found = self._found.get(key)
        if found is not None and found.is_unverified:
            del self._found[key]

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
        if before is None or before.at <= decision.at:
            self._found[key] = decision if before is None else _together(before, decision)
        if len(self._found) > self._kept + _SLACK:
            self._trim()

    def _trim(self) -> None:
        ranked = sorted(self._found.values(), key=lambda each: (-each.at, each.id))
        self._found = {(each.namespace, each.id): each for each in ranked[: self._kept]}
        kept = {job: id_ for job, id_ in self._of_jobs.items() if (job[0], id_) in self._found}
        self._of_jobs = kept


def _together(before: Decision, decision: Decision) -> Decision:
    """Put a move after its Job's creation; of the same instant, what the log told stands.

    A whole name stays, too: the log knows only what a generated one was made from.
    """
    if before.at < decision.at:
        return decision
    told = before if decision.is_unverified and not before.is_unverified else decision
    return replace(told, job=max(before.job, decision.job, key=len))
