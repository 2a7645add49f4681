"""Draws who starts when: a row for each Job that waits, from now to when the last of them starts.

What may be seen was decided before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from webhook.console import phrases
from webhook.state.waiting_line import WaitingWorkload

MOST_ROWS: Final = 8
_LEAST_SPAN_SECONDS: Final = 60.0
_ROOM: Final = 1.25
"""Length of the axis, in times of the last expected start; a wider range is cut there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """One Job; places are in percent of the axis."""

    namespace: str
    job: str
    queue: str
    place: str
    """Its position, such as ``3 of 11``."""
    starts: str
    at: float | None
    """None: no start is foreseen."""
    low: float
    width: float
    """Position and width of the range that holds about 80 % of cases."""
    is_known: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsPicture:
    rows: tuple[StartRow, ...]
    hidden: str
    """How many more wait, who start later; empty: none."""
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and how long from now that is."""


def starts_picture(waiting: Sequence[WaitingWorkload]) -> StartsPicture | None:
    """Return the picture of those who wait, the first to start first; None: nobody waits."""
    if not waiting:
        return None
    shown = waiting[:MOST_ROWS]
    last = max((each.start.seconds for each in shown if each.start.seconds < inf), default=0.0)
    span = max(_LEAST_SPAN_SECONDS, _ROOM * last)
    hidden = len(waiting) - len(shown)
    return StartsPicture(
        rows=tuple(_row(each, span) for each in shown),
        hidden=phrases.counted(hidden, "more Job") if hidden else "",
        ticks=tuple(
            (25.0 * quarter, phrases.start(span * quarter / 4) if quarter else "now")
            for quarter in range(5)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestWait:
    namespace: str
    job: str
    queue: str
    waited: str
    """Since it was created."""
    starts: str


def longest_wait(waiting: Sequence[WaitingWorkload], now: float) -> LongestWait | None:
    """Return who has waited longest at *now*, in seconds since 1970; None: nobody waits."""
    if not waiting:
        return None
    first = min(waiting, key=lambda each: each.workload.created)
    return LongestWait(
        namespace=first.workload.namespace,
        job=first.workload.job,
        queue=first.cluster_queue,
        waited=phrases.duration(now - first.workload.created),
        starts=first.start.words,
    )


def _row(waiting: WaitingWorkload, span: float) -> StartRow:
    workload, start = waiting.workload, waiting.start
    low, high = _percent(start.low, span), _percent(start.high, span)
    starts = start.words
    within = start.range_words
    parts = [f"starts {starts}", *([f"within {within}"] if within else [])]
    return StartRow(
        namespace=workload.namespace,
        job=workload.job,
        queue=waiting.cluster_queue,
        place=f"{waiting.position} of {waiting.pending}",
        starts=starts,
        at=_percent(start.seconds, span) if start.seconds < inf else None,
        low=low,
        width=round(high - low, 2) if start.seconds < inf else 0.0,
        is_known=start.is_known,
        sentence="; ".join([", ".join(parts), *start.doubts]),
    )


def _percent(seconds: float, span: float) -> float:
    return round(100 * min(1.0, max(0.0, seconds / span)), 2)
