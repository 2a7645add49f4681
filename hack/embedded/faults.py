"""What no real API server does on demand: late answers, half ones, none, and refusals."""

import enum
import http
import threading
from collections.abc import Callable
from typing import Final

from hack.embedded.refusals import RefusedCall, expired

LATE_SECONDS: Final = 3.0
DRIP_SECONDS: Final = 0.05
"""Between two bytes."""
SILENT_SECONDS: Final = 0.5
"""Between two looks whether it still is."""
Wanted = Callable[[str, str, str], bool]
"""Whether a call of this method, path and user is meant."""


class Mood(enum.Enum):
    """How each answer comes."""

    PROMPT = "prompt"
    LATE = "late"
    DRIPPING = "dripping"
    SILENT = "silent"


class Faults:
    """The mood, and refusals of the next calls; threads share it."""

    def __init__(self) -> None:
        self.mood = Mood.PROMPT
        self.clock_seconds = 0.0
        """By how much the clock by which answers are dated is ahead."""
        self.watches_dropped = 0
        """How often all watches were broken off."""
        self.refused: list[tuple[int, str, str]] = []
        """(code, method, path) of each call that was refused so."""
        self._lock = threading.Lock()
        self._refusals: list[tuple[RefusedCall, Wanted]] = []

    def refuse(self, code: int, times: int, wanted: Wanted = lambda *_: True) -> None:
        """Answer the next calls, or those that are *wanted*, with 409, 410, 429, 500 or 503."""
        with self._lock:
            self._refusals += [(_REFUSALS[code], wanted)] * times

    def check(self, method: str, path: str, user: str) -> None:
        """Raise what the call is to be refused with."""
        with self._lock:
            for place, (refusal, wanted) in enumerate(self._refusals):
                if wanted(method, path, user):
                    del self._refusals[place]
                    self.refused.append((refusal.code, method, path))
                    raise refusal

    @property
    def left(self) -> int:
        """How many calls are still to be refused."""
        with self._lock:
            return len(self._refusals)


_REFUSALS: Final = {
    409: RefusedCall(
        http.HTTPStatus.CONFLICT,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    ),
    410: expired("The resourceVersion for the provided watch is too old."),
    429: RefusedCall(http.HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "too many requests"),
    500: RefusedCall(http.HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "etcd is gone"),
    503: RefusedCall(http.HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", "shutting down"),
}
