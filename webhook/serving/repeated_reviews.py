"""Tells a reinvocation from a second Job, for Jobs that were left without a mark.

Kueue's webhook suspends a Job after ours has reviewed it, so the API server sends the same creation
again. A decision is recognized by its annotation, an untouched Job only by this: the same name
comes again at once, and now it is suspended.
"""

from __future__ import annotations

from collections import deque

REPEATED_SECONDS = 2.0
"""The webhook's timeout: the second review of one creation does not come later."""


class RepeatedReviews:
    """Remembers, for two seconds, creations that Kueue's webhook will suspend."""

    def __init__(self) -> None:
        self._expected: dict[str, deque[float]] = {}
        self._order: deque[tuple[float, str]] = deque()

    def expect(self, name: str, now: float) -> None:
        """Note an unsuspended Job; *name* is its name or generateName with its namespace."""
        self._expire(now)
        self._expected.setdefault(name, deque()).append(now)
        self._order.append((now, name))

    def is_repeated(self, name: str, now: float) -> bool:
        """Return whether a suspended Job was noted before.

        Each note answers one repeated review.
        """
        self._expire(now)
        expected = self._expected.get(name)
        if not expected:
            return False
        expected.popleft()
        return True

    def _expire(self, now: float) -> None:
        while self._order and now - self._order[0][0] > REPEATED_SECONDS:
            at, name = self._order.popleft()
            expected = self._expected.get(name)
            if expected and expected[0] <= at:
                expected.popleft()
            if not expected:
                self._expected.pop(name, None)
