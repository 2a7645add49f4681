"""Makes the entries of a Tariff from a year of past values: by season, kind of day and hour. Pure.

Last year's hours tell most of what this year's will be like, so no live feed is needed. A Tariff
takes 64 entries, so neighbouring hours of about the same value are one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from statistics import fmean
from typing import Any, Final

from webhook.model.costs.tariff import DAYS, MONTHS

MOST_PARTS: Final = 7
"""Of a day: four seasons by two kinds of days make 56 entries, beside the one for always."""
_HOURS: Final = 24
_SEASONS: Final = tuple(
    tuple(MONTHS[(first + month) % len(MONTHS)] for month in range(3)) for first in (11, 2, 5, 8)
)
_KINDS_OF_DAYS: Final = (DAYS[:5], DAYS[5:])
_ENOUGH_CLOSER: Final = 0.01
"""A further part of a day must take so much of the spread over all hours."""

_Table = Mapping[tuple[int, int], Sequence[float]]
"""Season and kind of day to the mean of each hour."""


def entries(points: Iterable[tuple[float, float]], zone: tzinfo, name: str) -> list[dict[str, Any]]:
    """Return the entries of *points*, each a moment in seconds since 1970 and a value.

    *name* is the key of a value in an entry. A season of which an hour is missing has no entries.
    """
    given = list(points)
    base = {name: _written(fmean(value for _, value in given))}
    return [
        base,
        *(entry for key, hours in _table(given, zone).items() for entry in _day(key, hours, name)),
    ]


def _table(points: Iterable[tuple[float, float]], zone: tzinfo) -> _Table:
    values: defaultdict[tuple[int, int, int], list[float]] = defaultdict(list)
    for unix, value in points:
        local = datetime.fromtimestamp(unix, zone)
        season = next(
            place for place, months in enumerate(_SEASONS) if MONTHS[local.month - 1] in months
        )
        values[season, int(local.weekday() >= len(_KINDS_OF_DAYS[0])), local.hour].append(value)
    found = {}
    for season in range(len(_SEASONS)):
        for kind in range(len(_KINDS_OF_DAYS)):
            hours = [values.get((season, kind, hour)) for hour in range(_HOURS)]
            if all(hours):
                found[season, kind] = [fmean(hour) for hour in hours if hour]
    return found


def _day(key: tuple[int, int], hours: Sequence[float], name: str) -> Iterator[dict[str, Any]]:
    season, kind = key
    for begin, end in parts(hours, MOST_PARTS):
        yield {
            "months": list(_SEASONS[season]),
            "days": list(_KINDS_OF_DAYS[kind]),
            "hours": f"{begin:02}:00-{end:02}:00",
            name: _written(fmean(hours[begin:end])),
        }


def parts(hours: Sequence[float], most: int) -> Sequence[tuple[int, int]]:
    """Cut a day into at most so many parts, each with its first hour and the one after its last.

    Those whose means are closest to the hours in them, by squares; as few as are about as close.
    """
    count = len(hours)
    whole = _spread(hours, 0, count)
    # For each end the least spread by so many parts, and where the last of them begins.
    best = [[(_spread(hours, 0, end), 0) for end in range(count + 1)]]
    while len(best) < most and best[-1][count][0] > _ENOUGH_CLOSER * whole:
        before = best[-1]
        best.append(
            [
                min((before[cut][0] + _spread(hours, cut, end), cut) for cut in range(end + 1))
                for end in range(count + 1)
            ]
        )
    cuts, end = [], count
    for ends in reversed(best):
        begin = ends[end][1]
        if begin < end:
            cuts.append((begin, end))
        end = begin
    return cuts[::-1]


def _spread(hours: Sequence[float], begin: int, end: int) -> float:
    """Return the sum of the squared distances of some hours from their mean."""
    some = hours[begin:end]
    mean = fmean(some) if some else 0.0
    return sum((value - mean) ** 2 for value in some)


def _written(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
