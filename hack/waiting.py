"""Waits for a state, with one time-out for all that wait here, in tests and in benchmarks."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Found = TypeVar("Found")

WAIT_SECONDS: Final = 300.0
"""Longer than anything takes beside other clusters and builds; only a failure waits as long."""
POLL_SECONDS: Final = 0.05


class WaitedInVainError(AssertionError):
    """What was waited for did not come; the text says what it was."""


def wait_for(
    find: Callable[[], Found | None],
    what: str | Callable[[], str],
    *,
    timeout_seconds: float = WAIT_SECONDS,
) -> Found:
    """Return the first truthy value that is found.

    Raises:
        WaitedInVainError: none came in time; it says *what*, asked for then if it is a function.

    """
    deadline = time.monotonic() + timeout_seconds
    while not (found := find()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise WaitedInVainError(f"waited {timeout_seconds:.0f} s in vain: {told}")
        time.sleep(POLL_SECONDS)
    return found
