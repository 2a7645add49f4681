"""When Jobs arrive: written in the scenario or generated, all before the replay.

Pure: randomness and the lines of files come in. What the Jobs are is not known here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TypeAlias

from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import seconds
from webhook.model.quantity import is_quantity
from webhook.simulate.scenario import NO_CHANGES, RowChanges, Submission
from webhook.simulate.scenario_spec import (
    ArrivalsSpec,
    Burst,
    ConditionSpec,
    Csv,
    Every,
    Poisson,
)

_RATE_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}

Turns: TypeAlias = Callable[[int], str]
"""Number of an arrival to the name of its Job."""


def generate(spec: ArrivalsSpec, random: Random) -> Iterator[Submission]:
    """Yield one entry's arrivals, ascending; files are read elsewhere."""
    if spec.at is not None and spec.job is not None:
        run = None if spec.run_time is None else seconds(spec.run_time)
        yield Submission(at=seconds(spec.at), template=spec.job, given_seconds=run)
    elif spec.every is not None:
        yield from _at_intervals(spec.every, seconds(spec.every.interval), random)
    elif spec.burst is not None:
        yield from _at_intervals(spec.burst, seconds(spec.burst.gap), random)
    elif spec.poisson is not None:
        yield from _poisson(spec.poisson, random)


def per_second(rate: str) -> float:
    """Convert a valid rate such as ``120/h`` to Jobs a second."""
    number, _, unit = rate.partition("/")
    return float(number) / _RATE_SECONDS[unit]


def _at_intervals(spec: Every | Burst, interval: float, random: Random) -> Iterator[Submission]:
    turns, start = _turns(spec.jobs, random), seconds(spec.start)
    for number in range(spec.count):
        yield Submission(at=start + number * interval, template=turns(number))


def _poisson(spec: Poisson, random: Random) -> Iterator[Submission]:
    rate, turns = per_second(spec.rate), _turns(spec.jobs, random)
    start, end = seconds(spec.start), seconds(spec.start) + seconds(spec.duration)
    parts = spec.by_hour or (1.0,)
    most = max(parts)
    at, number = start, 0
    while rate * most and (at := at + random.expovariate(rate * most)) < end:
        # Of those at the highest rate, the part that comes in this hour.
        part = parts[int(at // _RATE_SECONDS["h"]) % len(parts)]
        if part == most or random.random() * most < part:
            yield Submission(at=at, template=turns(number))
            number += 1


def _turns(jobs: tuple[str, ...] | Mapping[str, float], random: Random) -> Turns:
    if isinstance(jobs, tuple):
        return lambda number: jobs[number % len(jobs)]
    names, weights = list(jobs), list(jobs.values())
    return lambda _: random.choices(names, weights)[0]


_UNITS = {"milliseconds": 0.001, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def read_arrivals(spec: Csv, lines: Iterable[str], path: str) -> list[Submission]:
    """Convert rows to arrivals, ascending, relative to the first; *path* is for errors.

    Raises:
        FieldError: a column is missing, a value cannot be read, or no row is left.

    """
    reader = csv.DictReader(lines, delimiter=spec.delimiter)
    _check_columns(spec, reader.fieldnames or (), path)
    submissions = sorted(_read_rows(spec, reader), key=lambda submission: submission.at)[
        : spec.limit
    ]
    if not submissions:
        raise FieldError(f"{path}.where", f"no row of {spec.file} is left")
    first, start = submissions[0].at, seconds(spec.start)
    return [
        replace(submission, at=start + (submission.at - first) * spec.time_scale)
        for submission in submissions
    ]


def _check_columns(spec: Csv, header: Iterable[str], path: str) -> None:
    known = list(header)
    wanted = {f"{path}.columns.arrival": spec.columns.arrival}
    named = {
        "runTime": spec.columns.run_time,
        "begin": spec.columns.begin,
        "end": spec.columns.end,
        "priority": spec.columns.priority,
        "deadline": spec.columns.deadline,
        "queue": spec.columns.queue,
        **{f"requests.{key}": column for key, column in spec.columns.requests.items()},
    }
    wanted |= {f"{path}.columns.{key}": column for key, column in named.items() if column}
    wanted |= {
        f"{path}.where[{n}].column": condition.column for n, condition in enumerate(spec.where)
    }
    for number, job in enumerate(spec.jobs):
        at = f"{path}.jobs[{number}].when"
        wanted |= {f"{at}[{n}].column": condition.column for n, condition in enumerate(job.when)}
    for where, column in wanted.items():
        if column not in known:
            message = f"no column {column} in {spec.file}; there is {', '.join(known) or 'nothing'}"
            raise FieldError(where, message)


def _read_rows(spec: Csv, reader: csv.DictReader[str]) -> Iterator[Submission]:
    for row in reader:
        try:
            job = _job_of(spec, row)
            if job is None:
                continue
            column = spec.columns.arrival
            at = _instant(row[column], spec.arrival_format, column)
            run_seconds = _ran(spec, row)
            changes = _changes(spec, row, f"{spec.file} line {reader.line_num}")
        except ValueError as error:
            raise FieldError(f"{spec.file} line {reader.line_num}", str(error)) from error
        yield Submission(at=at, template=job, given_seconds=run_seconds, changes=changes)


def _ran(spec: Csv, row: Mapping[str, str]) -> float | None:
    """Return for how many seconds a row's Job ran; None: the row does not say."""
    columns, form = spec.columns, spec.arrival_format
    if columns.run_time is not None:
        return _run_time(row[columns.run_time], columns.run_time) * _UNITS[spec.run_time_unit]
    if columns.end is None:
        return None
    begin = columns.begin or columns.arrival
    lasted = _instant(row[columns.end], form, columns.end) - _instant(row[begin], form, begin)
    if lasted < 0:
        raise ValueError(f"column {columns.end} is before {begin}")
    return lasted


def _changes(spec: Csv, row: Mapping[str, str], place: str) -> RowChanges:
    columns = spec.columns
    if not (columns.priority or columns.queue or columns.requests or columns.deadline):
        return NO_CHANGES
    asked = {resource: row[column] or "" for resource, column in columns.requests.items()}
    for resource, text in asked.items():
        if text and not is_quantity(text):
            expected = "a quantity such as 500m or 16Gi"
            raise _unlike(expected, columns.requests[resource], text)
    return RowChanges(
        place=place,
        priority_class=(row[columns.priority] or "") if columns.priority else "",
        queue=(row[columns.queue] or "") if columns.queue else "",
        requests=tuple((resource, text) for resource, text in asked.items() if text),
        deadline=_deadline(spec, row),
    )


def _deadline(spec: Csv, row: Mapping[str, str]) -> str:
    """Return a row's deadline as an annotation has it; empty: it has none."""
    column = spec.columns.deadline
    if not column or not row[column]:
        return ""
    return f"{_run_time(row[column], column) * _UNITS[spec.run_time_unit]:.0f}s"


def _job_of(spec: Csv, row: Mapping[str, str]) -> str | None:
    if not _all_hold(spec.where, row):
        return None
    return next((job.job for job in spec.jobs if _all_hold(job.when, row)), None)


def _all_hold(conditions: Iterable[ConditionSpec], row: Mapping[str, str]) -> bool:
    return all(_holds(condition, row) for condition in conditions)


def _holds(condition: ConditionSpec, row: Mapping[str, str]) -> bool:
    text = row[condition.column]
    if condition.equals is not None and text != condition.equals:
        return False
    if condition.one_of is not None and text not in condition.one_of:
        return False
    if condition.at_least is None and condition.at_most is None:
        return True
    if not text:
        # An unknown value is in no range.
        return False
    value = _number(text, condition.column)
    low = condition.at_least is None or value >= condition.at_least
    return low and (condition.at_most is None or value <= condition.at_most)


def _number(text: str | None, column: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise _unlike("a number", column, text) from None


def _run_time(text: str | None, column: str) -> float:
    value = _number(text, column)
    if not 0 <= value < float("inf"):
        raise _unlike("a number of at least 0", column, text)
    return value


def _instant(text: str | None, form: str, column: str) -> float:
    """Parse an arrival to seconds since some origin; times without a zone are UTC."""
    if form in _UNITS:
        return _number(text, column) * _UNITS[form]
    try:
        read = _time(text or "", form)
    except ValueError:
        raise _unlike(f"a time ({form})", column, text) from None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _time(text: str, form: str) -> datetime:
    if form == "iso":
        return datetime.fromisoformat(text)
    return datetime.strptime(text, form)  # noqa: DTZ007 - a zone in the format counts


def _unlike(expected: str, column: str, text: str | None) -> ValueError:
    got = repr(text) if text else "nothing"
    return ValueError(f"expected {expected} in column {column}, got {got}")
