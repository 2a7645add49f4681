"""Errors that nobody expected: what may be said of them, and how one object's stays its own.

And the lines of the log, of which some are for an admin to act on.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

CERTIFICATES: Final = "certificates"
NOMINATIONS: Final = "nominations"
OBSERVER_PARTS: Final = ("messages", "state", CERTIFICATES, NOMINATIONS)
"""Parts of an observer's turn: reading messages, building the state, keeping certificates, and
nominating worker clusters while no controller leads."""
CONTROLLER_PARTS: Final = (
    *("messages", "state", "policies", "records"),
    *("events", "moves", "jobs", "keys", "savings", "congestion", "holds", "starts"),
    *(NOMINATIONS, "advice", "prometheus", "namespaces", "services", "autoscalers"),
    "fragmentation",
)
"""Parts of a controller's turn."""
T = TypeVar("T")


class Attention(str):
    """A line of the log that an admin must act on; the others say what is done."""

    __slots__ = ()
    level = "warning"


class Fault(Attention):
    """A line about a failure that nobody expected."""

    __slots__ = ()
    level = "error"


def logged(process: str, text: str, unix: float) -> dict[str, object]:
    """Return a line of the log of *process*."""
    level = text.level if isinstance(text, Attention) else "info"
    return {"ts": round(unix, 3), "level": level, "process": process, "msg": str(text)}


_PLACES = 4
_LONGEST = 500


def attempted(work: Callable[[], T], *stated: type[Exception]) -> tuple[T | None, str]:
    """Do *work* for one object; return its result and "", or None and why it failed.

    Errors of *stated* types give the reason in their own words; of others only the place is given.

    The one place that catches everything. Who may create a Job chooses what is read here, in
    processes that serve the whole cluster: an object that a reader was not written for must harm
    itself alone. Lack of memory is no object's fault and ends the process.
    """
    try:
        return work(), ""
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        return None, str(error)[:_LONGEST] if isinstance(error, stated) else describe(error)


class Failures:
    """What failed in the turns of a loop that goes on: counted by part, each kind named once."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
        self.counts: Counter[str] = Counter()
        """Part of a turn to how often it failed."""
        self._named: set[str] = set()

    def survive(
        self, part: str, work: Callable[[], T], *stated: type[Exception]
    ) -> tuple[T | None, bool]:
        """Do one part of a turn; return its result (None: it failed), and whether it succeeded.

        *stated* as for ``attempted``.
        """
        outcome, problem = attempted(work, *stated)
        if problem:
            self.counts[part] += 1
            if problem not in self._named:
                self._named.add(problem)
                self.log(Fault(f"{part}: {problem}; said once"))
        return outcome, not problem


def describe(error: BaseException) -> str:
    """Name an error by its class and by where it came from, the innermost place last.

    Never by its text, which may hold parts of a Job.
    """
    frames = traceback.extract_tb(error.__traceback__)[-_PLACES:]
    places = (f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} at {' > '.join(places)}"
