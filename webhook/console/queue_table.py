"""Draws ClusterQueues as a dense table by cohort: the resource that counts, who waits, and a day.

What may be seen was decided before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Final

from webhook.console import phrases
from webhook.console.queue_history import STEP_SECONDS, STEPS, Series
from webhook.console.view import Cell, Queue
from webhook.model.quantity import CPU

AT_ONCE: Final = 10
"""Rows shown before the reader expands the rest."""
DETAILED: Final = 4
"""So few ClusterQueues are shown with all of their quota, too."""
SPARK_HEIGHT: Final = 20
_NO_DEVICES: Final = (CPU, "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """How many waited over the last day, as a path; a step is one unit wide."""

    path: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    queue: Queue
    cell: Cell | None
    """Its devices, of all flavors together, else its cores; None: it has no quota."""
    flavors: str
    spark: Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRows:
    cohort: str
    """Empty: none."""
    rows: tuple[QueueRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTable:
    cohorts: tuple[CohortRows, ...]
    more: tuple[CohortRows, ...]
    """The rest, with fewer pending."""
    hidden: int

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Return the ClusterQueues that are shown, in its order."""
        return tuple(row.queue for group in self.cohorts for row in group.rows)


def queue_table(queues: Sequence[Queue], now: float) -> QueueTable:
    """Return the table at *now*, in seconds since 1970; the busiest ClusterQueues come first."""
    ranked = sorted(queues, key=_rank)
    shown, rest = ranked[:AT_ONCE], ranked[AT_ONCE:]
    return QueueTable(cohorts=_by_cohort(shown, now), more=_by_cohort(rest, now), hidden=len(rest))


def _rank(queue: Queue) -> tuple[bool, int, bool, str, str]:
    return (not queue.trouble, -queue.pending, not _devices(queue), queue.name, queue.cluster)


def _by_cohort(ranked: Sequence[Queue], now: float) -> tuple[CohortRows, ...]:
    """Group ClusterQueues; the cohort of the busiest comes first, and those without one last."""
    place = {cohort: index for index, cohort in reversed(list(enumerate(q.cohort for q in ranked)))}
    ordered = sorted(ranked, key=lambda queue: (not queue.cohort, place[queue.cohort]))
    return tuple(
        CohortRows(cohort=cohort, rows=tuple(_row(queue, now) for queue in members))
        for cohort, members in groupby(ordered, lambda queue: queue.cohort)
    )


def _row(queue: Queue, now: float) -> QueueRow:
    cells = _devices(queue) or [cell for cell in queue.cells if cell.resource == CPU]
    cells = [cell for cell in cells if cell.resource == cells[0].resource]
    return QueueRow(
        queue=queue,
        cell=_together(cells) if cells else None,
        flavors=", ".join(cell.flavor for cell in cells),
        spark=_spark(queue.history, int(now // STEP_SECONDS)),
    )


def _devices(queue: Queue) -> list[Cell]:
    return [
        cell
        for cell in queue.cells
        if cell.resource not in _NO_DEVICES and not cell.resource.startswith("hugepages-")
    ]


def _together(cells: Sequence[Cell]) -> Cell:
    first, *_ = cells
    amounts = ("nominal", "reserved", "borrowed", "available", "used")
    return replace(first, **{name: sum(getattr(cell, name) for cell in cells) for name in amounts})


# A series changes once a minute at most, and the page is drawn every few seconds.
@lru_cache(maxsize=4096)
def _spark(series: Series, step: int) -> Spark:
    """Draw a series whose last entry is of the *step* since 1970."""
    known = [count for count in series if count is not None]
    if not known:
        return Spark(path="", sentence="not counted yet")
    peak = max(known)
    scale = (SPARK_HEIGHT - 2) / max(peak, 1)
    start = STEPS - len(series)
    path = "".join(
        f"M{start + index} {SPARK_HEIGHT}v-{count * scale + 1:.1f}h.8V{SPARK_HEIGHT}"
        for index, count in enumerate(series)
        if count is not None
    )
    at = (step - (len(series) - 1 - series.index(peak))) * STEP_SECONDS
    since = phrases.duration(len(series) * STEP_SECONDS)
    sentence = f"at most {peak:,} pending in {since}, at {phrases.minute(at)} UTC; now {series[-1]}"
    return Spark(path=path, sentence=sentence)
