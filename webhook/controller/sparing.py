"""Lets a few lines a minute pass, so that an outage does not fill the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_MINUTE: Final = 60.0


class Sparing:
    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._passed: deque[float] = deque(maxlen=most)

    def lets_pass(self) -> bool:
        """Tell whether one more may pass in the minute before now, and count it if so."""
        now = self._clock()
        if len(self._passed) == self._passed.maxlen and self._passed[0] > now - _MINUTE:
            return False
        self._passed.append(now)
        return True
