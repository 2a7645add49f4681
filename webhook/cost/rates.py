"""Compiles Tariffs into curves: what each hour of the next days costs, in a time zone of its own.

Of the entries that hold at a moment the last counts. Daylight saving time is kept: an entry holds
by the clock on the wall. What cannot be used is a ``StatusProblem``, and the rest goes on. A series
of prices or carbon intensities, which a ConfigMap has in the format of its writer, is untrusted: it
is read whole or not at all, and each error says where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import compress, pairwise
from math import inf, isfinite, isnan
from statistics import median
from typing import Any, Final, TypeAlias, TypeVar

from webhook.model import fields
from webhook.model.costs.prices import (
    UNKNOWN,
    CompiledTariff,
    Curve,
    Prices,
    curve,
)
from webhook.model.costs.tariff import (
    DAYS,
    MONTHS,
    RateEntry,
    SeriesFormat,
    SeriesSource,
    Tariff,
    TariffSpec,
    When,
)
from webhook.model.fields import FieldError, child
from webhook.model.quantity import FlavorResource
from webhook.model.reasons import StatusProblem, TariffReady
from webhook.model.words import rfc3339

HORIZON_DAYS: Final = 10
"""Eight to come, and before them ``PAST_DAYS``, where a ``PriceCompiler`` asks."""
PAST_DAYS: Final = 2
"""Runs that have ended are priced, too: those of a report's time, and most of their length."""
_MOST_TIMES_MEDIAN: Final = 20
"""A point of a series above so many times the median is taken for an error, and clipped."""
_DAY: Final = timedelta(days=1)
_MINUTES_A_DAY: Final = 24 * 60
_MINUTE: Final = 60.0

_Entry = TypeVar("_Entry", bound=When)


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """A series as read: moments ascending, with the value from each on, until ``end``."""

    steps: Mapping[float, float]
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoints:
    """What the ConfigMaps of a Tariff's series hold; None: it names none, or it is not usable."""

    rates: Mapping[FlavorResource, Points] = field(default_factory=dict)
    """Those of flavors' resources; what no series is for is not there."""
    electricity: Points | None = None
    carbon: Points | None = None
    problems: tuple[StatusProblem, ...] = ()
    """Why a series that it names is not usable."""

    @property
    def until(self) -> float | None:
        """Return when the first of them ends, in seconds since 1970; None: there is none."""
        all_points = (*self.rates.values(), self.electricity, self.carbon)
        ends = [points.end for points in all_points if points is not None]
        return min(ends, default=None)


NO_SERIES: Final = SeriesPoints()


def compile_tariff(
    tariff: Tariff,
    *,
    now: float,
    zone: tzinfo | None,
    series: SeriesPoints = NO_SERIES,
    currency: str = "",
) -> CompiledTariff:
    """Return what a Tariff says of the time from *now* on, for ``HORIZON_DAYS``.

    *zone* is None where its name is not known: then the entries that hold always are used alone.
    *currency* is the installation's; empty: it is not known, and any is taken for it.
    """
    spec, differs = tariff.spec, _currency_problems(tariff, currency)
    if differs:
        spec = spec.model_copy(update=_WITHOUT_MONEY)
        series = replace(series, rates={}, electricity=None)
    span = _Span.of(now, zone, (*spec.rates, *spec.electricity, *spec.carbon))
    electricity, clipped_prices = _with_series(
        _curve(span, spec.electricity, lambda entry: float(entry.price)), series.electricity, span
    )
    carbon, clipped_carbon = _with_series(
        _curve(span, spec.carbon, lambda entry: float(entry.intensity)), series.carbon, span
    )
    rates, clipped_rates = _rates_over_time(spec.rates, series, span)
    prices = Prices(
        rates=rates,
        electricity=electricity,
        carbon=carbon,
        overhead=float(spec.overhead),
        core_watts=float(spec.watts.core),
        gibibyte_watts=float(spec.watts.gibibyte),
        interruptions=_interruptions(spec),
        transfer=float(spec.transfer),
        holds=frozenset(spec.holds),
    )
    return CompiledTariff(
        prices=prices,
        tariff=tariff,
        problems=(*_zone_problems(tariff, zone), *differs, *series.problems),
        clipped=clipped_rates + clipped_prices + clipped_carbon,
        series_until=series.until,
    )


_WITHOUT_MONEY: Final[Mapping[str, object]] = {"rates": (), "electricity": (), "transfer": "0"}


def _currency_problems(tariff: Tariff, currency: str) -> tuple[StatusProblem, ...]:
    theirs = tariff.spec.currency
    if not theirs or not currency or theirs == currency:
        return ()
    reason = TariffReady.CURRENCY_DIFFERS
    message = f"{theirs}, but money is in {currency} here, and is not converted"
    return (StatusProblem(reason=reason, path="spec.currency", message=message),)


def _interruptions(spec: TariffSpec) -> Mapping[str, float]:
    """Return what is expected on each flavor: those that the rates name, or all."""
    per_hour = float(spec.interruptions)
    by_entries = {flavor for entry in spec.rates for flavor in entry.flavors}
    by_series = {flavor for source in spec.series.rates for flavor in source.flavors}
    named = by_entries | by_series or {""}
    return dict.fromkeys(sorted(named), per_hour) if per_hour else {}


def _zone_problems(tariff: Tariff, zone: tzinfo | None) -> tuple[StatusProblem, ...]:
    if zone is not None:
        return ()
    message = f"there is no time zone {tariff.spec.time_zone}; only entries that always apply count"
    return (StatusProblem(reason=TariffReady.BAD_TIME_ZONE, path="spec.timeZone", message=message),)


@dataclass(frozen=True, slots=True)
class _Span:
    """The time that is compiled: the moments at which some entry may begin or end to hold."""

    moments: tuple[float, ...]
    """Ascending; the first is now."""
    walls: tuple[datetime | None, ...]
    """The clock on the wall at each; None: the time zone is not known."""
    end: float

    @classmethod
    def of(cls, now: float, zone: tzinfo | None, entries: Iterable[When]) -> _Span:
        end = now + HORIZON_DAYS * _DAY.total_seconds()
        if zone is None:
            return cls((now,), (None,), end)
        written = [entry.hours for entry in entries if entry.hours is not None]
        minutes = {0} | {minute for hours in written for minute in _minutes(hours)}
        moments = sorted(
            {now} | {moment for moment in _moments(now, zone, minutes) if now < moment < end}
        )
        return cls(
            tuple(moments), tuple(datetime.fromtimestamp(moment, zone) for moment in moments), end
        )


def _minutes(hours: str) -> tuple[int, int]:
    """Return the minutes of the day at which hours such as ``22:00-06:00`` begin and end."""
    begin, end = hours.split("-")
    return int(begin[:2]) * 60 + int(begin[3:]), int(end[:2]) * 60 + int(end[3:])


def _moments(now: float, zone: tzinfo, minutes: Iterable[int]) -> Iterable[float]:
    first = datetime.fromtimestamp(now, zone).date() - _DAY
    days = [first + _DAY * number for number in range(HORIZON_DAYS + 3)]
    within = [minute for minute in minutes if minute < _MINUTES_A_DAY]
    for day in days:
        for minute in within:
            wall = datetime.combine(day, time(minute // 60, minute % 60))
            # An hour that the clock goes through twice begins twice.
            for fold in (0, 1):
                yield wall.replace(tzinfo=zone, fold=fold).timestamp()
    for begin, end in pairwise(_midnight(day) for day in days):
        yield from _clock_changes(begin, end, zone)


def _midnight(day: date) -> float:
    return datetime.combine(day, time(), UTC).timestamp()


def _clock_changes(begin: float, end: float, zone: tzinfo) -> Iterable[float]:
    """Find, to the minute, when the clock is put forward or back within a day."""
    before = datetime.fromtimestamp(begin, zone).utcoffset()
    if before == datetime.fromtimestamp(end, zone).utcoffset():
        return
    low, high = begin, end
    while high - low > _MINUTE:
        middle = low + (high - low) // (2 * _MINUTE) * _MINUTE
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    yield high


def _held(span: _Span, entry: When) -> tuple[bool, ...]:
    """Return for each moment whether an entry holds from then on."""
    if entry.always:
        return (True,) * len(span.moments)
    hours = _minutes(entry.hours) if entry.hours is not None else (0, _MINUTES_A_DAY)
    return tuple(wall is not None and _holds(entry, wall, *hours) for wall in span.walls)


def _holds(entry: When, wall: datetime, begin: int, end: int) -> bool:
    minute = wall.hour * 60 + wall.minute
    after, before = begin <= minute, minute < end
    return (
        (after and before if begin < end else after or before)
        and (not entry.days or DAYS[wall.weekday()] in entry.days)
        and (not entry.months or MONTHS[wall.month - 1] in entry.months)
        and (entry.from_date is None or entry.from_date <= wall.date().isoformat())
        and (entry.until is None or wall.date().isoformat() <= entry.until)
    )


def _last_that_holds(
    span: _Span, held: Sequence[tuple[bool, ...]], values: Sequence[float]
) -> Curve | None:
    """Return the value of the last entry that holds, over time; None: none ever does."""
    latest = [UNKNOWN] * len(span.moments)
    for holds, value in zip(held, values, strict=True):
        for moment in compress(range(len(latest)), holds):
            latest[moment] = value
    if all(map(isnan, latest)):
        return None
    return curve(dict(zip(span.moments, latest, strict=True)), span.end)


def _curve(
    span: _Span, entries: Sequence[_Entry], value: Callable[[_Entry], float]
) -> Curve | None:
    held = [_held(span, entry) for entry in entries]
    return _last_that_holds(span, held, [value(entry) for entry in entries])


def _rates(entries: Sequence[RateEntry], span: _Span) -> Mapping[FlavorResource, Curve]:
    """Return the curve of each flavor and resource; while no entry holds, it is not known."""
    naming: dict[FlavorResource, list[int]] = {}
    for index, entry in enumerate(entries):
        for flavor in entry.flavors:
            for resource in entry.resources:
                naming.setdefault((flavor, resource), []).append(index)
    held = [_held(span, entry) for entry in entries]
    # Flavors that the same entries name have the same curve, which is worked out once.
    known: dict[tuple[tuple[int, ...], str], Curve | None] = {}
    for (_, resource), places in naming.items():
        key = tuple(places), resource
        if key not in known:
            prices = [float(entries[index].resources[resource]) for index in places]
            known[key] = _last_that_holds(span, [held[index] for index in places], prices)
    rates = {cell: known[tuple(places), cell[1]] for cell, places in naming.items()}
    return {cell: rate for cell, rate in rates.items() if rate is not None}


def _rates_over_time(
    entries: Sequence[RateEntry], series: SeriesPoints, span: _Span
) -> tuple[Mapping[FlavorResource, Curve], int]:
    """Return the rates with the series that stand above them, and how many points were clipped."""
    rates, count = dict(_rates(entries, span)), 0
    for cell, points in series.rates.items():
        whole, clipped = _with_series(rates.get(cell), points, span)
        count += clipped
        if whole is not None:
            rates[cell] = whole
    return rates, count


def _with_series(
    entries: Curve | None, points: Points | None, span: _Span
) -> tuple[Curve | None, int]:
    """Return a curve in which a series stands where it reaches, and how many points were clipped.

    Without entries the series alone counts, and past its end its mean.
    """
    if points is None or points.end <= span.moments[0]:
        return entries, 0
    most = _most(entries, points)
    clipped = {moment: min(max(value, 0.0), most) for moment, value in points.steps.items()}
    count = sum(clipped[moment] != value for moment, value in points.steps.items())
    first, end = next(iter(clipped)), min(points.end, span.end)
    if entries is None:
        return curve(clipped, end), count
    steps = {at: value for at, value in _pairs(entries) if at < first}
    steps |= {max(at, span.moments[0]): value for at, value in clipped.items() if at < end}
    if end < span.end:
        steps[end] = entries.at(end)
    steps |= {at: value for at, value in _pairs(entries) if at > end}
    return curve(dict(sorted(steps.items())), span.end), count


def _most(entries: Curve | None, points: Points) -> float:
    """Return the value above which a point is an error, by what is usual.

    Entries of 0 say nothing of what is, nor does a series that is mostly 0.
    """
    usual = median(entries.values) if entries is not None else 0.0
    usual = usual if usual > 0 else median(points.steps.values())
    return _MOST_TIMES_MEDIAN * usual if usual > 0 else inf


def _pairs(values: Curve) -> Iterable[tuple[float, float]]:
    return zip(values.times, values.values, strict=True)


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
