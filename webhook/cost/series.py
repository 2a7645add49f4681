"""Reads series of prices or carbon intensities from a ConfigMap, in the formats of their writers.

A series is untrusted: it is read whole or not at all, and each error says where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any, Final, TypeAlias

from webhook.cost.rates import Points, SeriesPoints
from webhook.model import fields
from webhook.model.costs.tariff import SeriesFormat, SeriesSource, Tariff
from webhook.model.fields import FieldError, child
from webhook.model.reasons import StatusProblem, TariffReady
from webhook.model.words import rfc3339

LONGEST: Final = 1 << 20
"""Characters of a series; a ConfigMap has no more."""
_MOST_POINTS: Final = 20_000
_KG_FROM_POUNDS: Final = 0.45359237
"""Pounds per MWh times this are grams per kWh."""
_LARGEST: Final = 1e12
_DEFAULT_SECONDS: Final = 3600.0
"""How long the only point of a series holds."""

SeriesTexts: TypeAlias = Mapping[str, Mapping[str, str]]
"""ConfigMap to its texts, by key."""
_Point = tuple[float, float, float | None]
"""From when, the value, and for how many seconds; None: until the next one."""


def series_of(tariff: Tariff, texts: SeriesTexts, unix: float) -> SeriesPoints:
    """Return the points of the series that a Tariff names, and why others are not usable.

    *unix* is now, in seconds since 1970: a series that ended before is not used.
    """
    sources = tariff.spec.series
    problems: list[StatusProblem] = []
    rates = {
        (flavor, source.resource): points
        for number, source in enumerate(sources.rates)
        if (points := _usable(source, f"rates[{number}]", texts, unix, problems)) is not None
        for flavor in source.flavors
    }
    electricity = _usable(sources.electricity, "electricity", texts, unix, problems)
    carbon = _usable(sources.carbon, "carbon", texts, unix, problems)
    return SeriesPoints(
        rates=rates, electricity=electricity, carbon=carbon, problems=tuple(problems)
    )


def _usable(
    source: SeriesSource | None,
    name: str,
    texts: SeriesTexts,
    unix: float,
    problems: list[StatusProblem],
) -> Points | None:
    """Return the points of a series; None: it is not usable, and *problems* gets why."""
    if source is None:
        return None
    path, reason = f"spec.series.{name}", TariffReady.BAD_SERIES
    where = f"ConfigMap {source.config_map}"
    text = texts.get(source.config_map, {}).get(source.key)
    message = f"no key {source.key} in {where}, or it is not among the chart's `tariffs.series`"
    if text is not None:
        try:
            points = read_series(text, source.format, f"{where}.{source.key}")
        except FieldError as error:
            message = str(error)
        else:
            if points.end > unix:
                return points
            reason = TariffReady.SERIES_ENDED
            message = f"the last point of {where} ended at {rfc3339(points.end)}"
    problems.append(StatusProblem(reason=reason, path=path, message=message))
    return None


@lru_cache(maxsize=8)
def read_series(text: str, written_as: SeriesFormat, path: str) -> Points:
    """Return the points of a series, in the order of time.

    Raises:
        FieldError: the text is no such series, with the place in it.

    """
    if len(text) > LONGEST:
        raise FieldError(path, f"expected at most {LONGEST} characters, got {len(text)}")
    try:
        given = json.loads(text, parse_constant=_refuse)
        fields.check_depth(given, path)
    except (ValueError, RecursionError):
        raise FieldError(path, "expected JSON") from None
    points = sorted(_READERS[written_as](given, path), key=lambda point: point[0])
    if not points:
        raise FieldError(path, "expected at least one point")
    if len(points) > _MOST_POINTS:
        raise FieldError(path, f"expected at most {_MOST_POINTS} points, got {len(points)}")
    return Points(steps={at: value for at, value, _ in points}, end=_end(points))


def _end(points: list[_Point]) -> float:
    """Return when the last point ends: after its own length, else after the usual distance."""
    at, _, length = points[-1]
    if length is None:
        moments = sorted({moment for moment, _, _ in points})
        distances = [later - earlier for earlier, later in pairwise(moments)]
        length = median(distances) if distances else _DEFAULT_SECONDS
    return at + length


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _points(given: Any, path: str) -> Iterator[_Point]:
    for point, here in _objects(given, path):
        yield _moment(point, "from", here), _number(point, "value", here), None


def _carbon_aware(given: Any, path: str) -> Iterator[_Point]:
    """Read what the exporter of the Carbon Aware SDK writes: minutes, and grams per kWh."""
    for point, here in _objects(given, path):
        when = "timestamp" if "timestamp" in point else "time"
        value = "value" if "value" in point else "rating"
        minutes = _number(point, "duration", here) if "duration" in point else None
        length = None if minutes is None else minutes * 60
        yield _moment(point, when, here), _number(point, value, here), length


def _electricity_maps(given: Any, path: str) -> Iterator[_Point]:
    whole = fields.as_mapping(given, path)
    key = "forecast" if "forecast" in whole else "history"
    for point, here in _objects(whole.get(key), child(path, key)):
        yield _moment(point, "datetime", here), _number(point, "carbonIntensity", here), None


def _watt_time(given: Any, path: str) -> Iterator[_Point]:
    """Read WattTime's, which are in pounds of CO2 per MWh."""
    whole = fields.as_mapping(given, path)
    for point, here in _objects(whole.get("data"), child(path, "data")):
        value = _number(point, "value", here) * _KG_FROM_POUNDS
        yield _moment(point, "point_time", here), value, None


_READERS: Final[Mapping[SeriesFormat, Callable[[Any, str], Iterator[_Point]]]] = {
    SeriesFormat.POINTS: _points,
    SeriesFormat.CARBON_AWARE: _carbon_aware,
    SeriesFormat.ELECTRICITY_MAPS: _electricity_maps,
    SeriesFormat.WATT_TIME: _watt_time,
}


def _objects(given: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    if not isinstance(given, list):
        raise FieldError(path, f"expected a list, got {fields.kind_of(given)}")
    for index, point in enumerate(given):
        here = child(path, index)
        yield fields.as_mapping(point, here), here


def _moment(point: Mapping[str, Any], key: str, path: str) -> float:
    written = point.get(key)
    if not isinstance(written, str):
        raise FieldError(child(path, key), f"expected a time, got {fields.kind_of(written)}")
    return fields.seconds_since_1970(written, child(path, key))


def _number(point: Mapping[str, Any], key: str, path: str) -> float:
    value: Any = point.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or abs(value) > _LARGEST:
        raise FieldError(child(path, key), f"expected a number, got {fields.kind_of(value)}")
    return float(value)
