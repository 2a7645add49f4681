"""Rests during long work, so that nobody waits for its end.

Niceness is not enough for that: a scheduler gives even the nicest thread its turn, and looks again
only at its next tick, up to 4 ms later. A thread that sleeps gives the CPU away at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")

WORK_SECONDS = 0.0005
"""About what the server takes for a review."""
REST_SECONDS = 0.00005
"""As short as a sleep can be: Linux lets it end later by about as much again."""


def paced(
    items: Iterable[_Item], *, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[_Item]:
    """Yield *items*, with a rest whenever those taken so far were worked on for a while."""
    since: float | None = None
    for item in items:
        now = clock()
        if since is None:
            since = now
        elif now - since >= WORK_SECONDS:
            sleep(REST_SECONDS)
            since = clock()
        yield item
