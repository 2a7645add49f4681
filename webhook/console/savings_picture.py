"""Draws what was saved over time, and who gained and who lost most.

What may be seen was decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from webhook.console import phrases
from webhook.hindsight.savings_record import Gained
from webhook.model.words import span

SAVED_HEIGHT: Final = 60
"""In pixels, from the highest gain to the deepest loss."""
MOST_GAINERS: Final = 3
MOST_LOSERS: Final = 2
_MOST_COLUMNS: Final = 32
_LEAST_COLUMNS: Final = 6
_HOUR: Final = 3600
_DAY: Final = 86_400
_STEPS: Final = (_HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, _DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedColumn:
    """Jobs that came in one step; places are in percent, heights in pixels."""

    x: float
    width: float
    gained: float
    lost: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOverTime:
    is_enforced: bool
    """Whether it was saved; else it would have been."""
    columns: tuple[SavedColumn, ...]
    base: float
    """Position of zero gain, in pixels from the top."""
    step: str
    peak: str
    """The highest gain in one step."""
    sentence: str
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and the time there."""


def saved_over_time(hours: Sequence[Gained], now: float) -> SavedOverTime | None:
    """Return the picture at *now*, in seconds since 1970; None: nothing was replayed.

    Where some policy enforces, only what was so is drawn.
    """
    is_enforced = any(hour.is_enforced for hour in hours)
    drawn = [hour for hour in hours if hour.is_enforced == is_enforced]
    if not drawn:
        return None
    axis = _axis(min(hour.since for hour in drawn), now)
    gained: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    for hour in drawn:
        if hour.since >= axis.start:
            index = int((hour.since - axis.start) // axis.step)
            gained[index] += round(hour.gained_seconds)
            lost[index] += round(hour.lost_seconds)
    highest, deepest = max(gained.values(), default=0), max(lost.values(), default=0)
    scale = SAVED_HEIGHT / max(highest + deepest, 1)
    return SavedOverTime(
        is_enforced=is_enforced,
        columns=tuple(
            SavedColumn(
                x=round(100 * index / axis.columns, 2),
                width=round(80 / axis.columns, 2),
                gained=round(scale * gained[index], 1),
                lost=round(scale * lost[index], 1),
                sentence=f"{axis.time(index)}: {_sums(gained[index], lost[index])}",
            )
            for index in sorted(gained)
            if gained[index] or lost[index]
        ),
        base=round(scale * highest, 1),
        step=span(axis.step),
        peak=span(highest),
        sentence=f"{_sums(gained.total(), lost.total())} in {span(axis.columns * axis.step)}",
        ticks=tuple((50.0 * half, axis.time(half * axis.columns / 2)) for half in range(3)),
    )


class _Steps(NamedTuple):
    """The axis: when it begins, in seconds since 1970, and its columns of *step* seconds."""

    start: float
    step: int
    columns: int

    def time(self, column: float) -> str:
        at = self.start + column * self.step
        is_one_day = self.columns * self.step <= _DAY
        return phrases.minute(at) if is_one_day else phrases.day_hour(at)


def _axis(first: float, now: float) -> _Steps:
    step = next((step for step in _STEPS if (now - first) / step < _MOST_COLUMNS - 1), _DAY)
    end = (now // step + 1) * step
    columns = min(_MOST_COLUMNS, max(_LEAST_COLUMNS, ceil((end - first) / step)))
    return _Steps(end - columns * step, step, columns)


def _sums(gained: int, lost: int) -> str:
    return f"{span(gained)} sooner, {span(lost)} later"


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One namespace's Jobs of one policy, over the last day; places are in percent of the bar."""

    gain: Gained
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRows:
    rows: tuple[GainRow, ...]
    """Rows from the largest gain to the largest loss."""
    hidden: int


def gain_rows(gained: Sequence[Gained]) -> GainRows:
    ranked = sorted(gained, key=lambda gain: (-gain.saved_seconds, gain.namespace, gain.policy))
    losers = [gain for gain in ranked[MOST_GAINERS:] if gain.saved_seconds < 0][-MOST_LOSERS:]
    room = MOST_GAINERS + MOST_LOSERS - len(losers)
    shown = [*ranked[: min(room, len(ranked) - len(losers))], *losers]
    amounts = [gain.saved_seconds for gain in shown]
    most, least = max((0.0, *amounts)), min((0.0, *amounts))
    reach = most - least or 1.0
    zero = -100 * least / reach
    return GainRows(
        rows=tuple(_gain_row(gain, zero, reach) for gain in shown),
        hidden=len(gained) - len(shown),
    )


def _gain_row(gain: Gained, zero: float, reach: float) -> GainRow:
    width = 100 * abs(gain.saved_seconds) / reach
    x = zero - width if gain.saved_seconds < 0 else zero
    return GainRow(gain=gain, x=round(x, 2), width=round(width, 2))
