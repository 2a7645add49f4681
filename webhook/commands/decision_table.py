"""A decision as text for a terminal: the options with their numbers and reasons."""

from __future__ import annotations

import textwrap
from math import inf

from webhook.decide.decision_record import basis_of
from webhook.model.decision import Assessment, CreateOutcome, Decision, Fit, Skipped
from webhook.model.forecasts import Forecast, Start
from webhook.model.words import clip, spoken

WIDTH = 100
_LEAST = 40
"""Narrower terminals break lines themselves."""
_NUMBERS_WIDTH = 46
"""Width of the columns that are not names."""
_NAME_LEAST = 8
_WHY_WIDTH = 28
"""With less room than this the reasons get lines of their own."""
_WHY = "WHY"
_NAMES = ("OPTION", "QUEUE", "CLUSTERQUEUE", "CLUSTER")
_CLUSTER = _NAMES.index("CLUSTER")
"""The column that is shown only if some option has a worker cluster."""
_COUNTED = (*_NAMES, "FITS", "PENDING", "RESERVING", _WHY)
_FORECAST = (*_NAMES, "PENDING", "STARTS", "RUNS", "DONE", _WHY)


def table(outcome: CreateOutcome, width: int = WIDTH) -> str:
    """Return a decision in at most *width* columns: the options with numbers and reasons."""
    width = max(width, _LEAST)
    if isinstance(outcome, Skipped):
        return "\n".join([f"Left untouched: {outcome.skip.meaning}.", *outcome.warnings])
    decision = outcome.decision
    head = f"Policy {decision.policy} ({decision.mode}): {decision.reason}"
    lines = textwrap.wrap(head, width, subsequent_indent="  ")
    if decision.options:
        lines += ["", *_rows(decision, width)]
    return "\n".join(lines)


def _rows(decision: Decision, width: int) -> list[str]:
    foreseen = any(option.forecast is not None for option in decision.options)
    header, cells_of = (_FORECAST, _foreseen) if foreseen else (_COUNTED, _counted)
    marks = ["  "] + [
        "> " if option.option == decision.option else "  " for option in decision.options
    ]
    remote = any(option.cluster for option in decision.options)
    names = max((width - _NUMBERS_WIDTH) // (len(_NAMES) - (not remote)), _NAME_LEAST)
    cells = [header, *(cells_of(option, names) for option in decision.options)]
    if not remote:
        cells = [(*row[:_CLUSTER], *row[_CLUSTER + 1 :]) for row in cells]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    left = sum(widths) + 2 * len(widths) + 2
    lines = []
    for mark, row in zip(marks, cells, strict=True):
        start = mark + "".join(
            f"{cell:<{size + 2}}" for cell, size in zip(row, widths, strict=False)
        )
        if width - left >= _WHY_WIDTH:
            lines += _beside(start, row[-1], width)
        else:
            lines += _below(start, row[-1], width)
    return lines


def _beside(start: str, why: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(why, width - len(start)) or [""]
    lines = [start + wrapped[0], *(" " * len(start) + line for line in wrapped[1:])]
    return [line.rstrip() for line in lines]


def _below(start: str, why: str, width: int) -> list[str]:
    if why == _WHY:
        return [start.rstrip()]
    indent = " " * 6
    wrapped = textwrap.wrap(why, width, initial_indent=indent, subsequent_indent=indent)
    return [start.rstrip(), *wrapped]


def _names(option: Assessment, width: int) -> tuple[str, ...]:
    names = (option.option, option.queue, option.cluster_queue, option.cluster)
    return tuple(clip(name or "-", width) for name in names)


def _why(option: Assessment) -> str:
    return str(option.rejection) if option.rejection is not None else option.detail


def _counted(option: Assessment, width: int) -> tuple[str, ...]:
    counts = _count(option.pending), _count(option.reserving)
    return (*_names(option, width), _fits(option), *counts, _why(option))


def _foreseen(option: Assessment, width: int) -> tuple[str, ...]:
    found = option.forecast
    if found is None:
        return (*_names(option, width), _count(option.pending), "-", "-", "-", _why(option))
    runs = "-" if found.run is None else spoken(found.run.seconds)
    done = "-" if found.finish is None else _moment(found.finish)
    why = _why(option) if option.rejection is not None else _rests_on(found)
    return (*_names(option, width), _count(option.pending), _starts(found.start), runs, done, why)


def _starts(start: Start) -> str:
    if not start.is_known:
        return "unknown"
    return "now" if start.seconds == 0.0 else _moment(start.seconds)


def _moment(seconds: float) -> str:
    return "never" if seconds == inf else f"in {spoken(seconds)}"


def _rests_on(found: Forecast) -> str:
    """Return how sure it is, and why not surer."""
    if found.run is None:
        return "no run time is known"
    waits = (found.dispatch, found.delay)
    parts = [f"run: {basis_of(found.run)}", *(each.by for each in waits if each is not None)]
    if found.finish_low is not None and found.finish_high is not None:
        parts.append(f"done within {spoken(found.finish_low)} to {spoken(found.finish_high)}")
    if found.start.uncertain:
        parts.append(f"uncertain: {', '.join(found.start.uncertain)}")
    return "; ".join(parts)


def _fits(option: Assessment) -> str:
    if option.fit is None or option.rejection is not None:
        return "refused"
    if option.starts_now:
        return "now"
    return {Fit.FITS: "yes", Fit.MAY_PREEMPT: "may preempt"}.get(option.fit, "waits")


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
