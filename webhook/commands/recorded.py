"""The decision that a Job carries, as text for people, with the numbers of when it was made."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from webhook.commands import terminal
from webhook.decide import decision_record
from webhook.decide.decision_record import PREFIX, VERSION
from webhook.decide.match import OPT_OUT, POLICY
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, REASON, UNDONE

_HEADER = (
    "OPTION",
    "QUEUE",
    "CLUSTERQUEUE",
    "CLUSTER",
    "FITS",
    "PENDING",
    "STARTS",
    "RUNS",
    "DONE",
    "WHY NOT",
)
_CLUSTER = _HEADER.index("CLUSTER")
"""The column that is shown only if some option has a worker cluster."""
_BELOW = " " * 6
_MOVES = ("SINCE", "OPTION", "REASON")


def decision_on(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the decision without what undoing it needs; None: there is none that can be read."""
    text = (job["metadata"].get("annotations") or {}).get(DECISION)
    if not isinstance(text, str):
        return None
    try:
        found = decision_record.parsed(text)
    except FieldError:
        return None
    return {key: value for key, value in found.items() if key != "original"}


def undone_on(job: Mapping[str, Any]) -> str:
    """Return how a Job's decision was undone; empty: it was not."""
    annotations = job["metadata"].get("annotations") or {}
    if DECISION in annotations or annotations.get(POLICY) != OPT_OUT:
        return ""
    reason = str(annotations.get(REASON, ""))
    if not reason and UNDONE in annotations:
        return f"undone: what policy {terminal.harmless(annotations[UNDONE])} had decided"
    return terminal.harmless(reason.removeprefix(PREFIX))


def as_text(decision: Mapping[str, Any], limit: int | None) -> list[str]:
    """Return the lines: the sentence, each option with its numbers, and the moves."""
    sentence = f"Policy {_text(decision, 'policy')} ({_text(decision, 'mode')}): "
    sentence += _text(decision, "reason")
    columns = limit or terminal.WRAPPED
    lines = textwrap.wrap(sentence, columns, subsequent_indent="  ")
    if decision.get("version") != VERSION:
        lines.append(f"It is of version {decision.get('version')}: not all of it may be shown.")
    options = _objects(decision, "options")
    if options:
        lines += ["", *_table(options, _text(decision, "option"), limit)]
    history = _objects(decision, "history")
    if history:
        stays = [
            tuple(_text(stay, key) for key in ("time", "option", "reason")) for stay in history
        ]
        times = "once" if decision.get("moves") == 1 else f"{decision.get('moves')} times"
        lines += ["", f"Moved {times}:", *terminal.table(_MOVES, stays, limit=limit, indent="  ")]
    return lines


def _table(options: Sequence[Mapping[str, Any]], taken: str, limit: int | None) -> Iterator[str]:
    """Yield the options; the reason of a rejection is beside its numbers, or below for room."""
    rows: list[tuple[str, ...]] = [_row(option, taken=taken) for option in options]
    header: tuple[str, ...] = ("  " + _HEADER[0], *_HEADER[1:])
    if not any(_text(option, "cluster") for option in options):
        header, *rows = ((*row[:_CLUSTER], *row[_CLUSTER + 1 :]) for row in (header, *rows))
    whole = terminal.table(header, rows, limit=None)
    if limit is None or max(len(click.unstyle(line)) for line in whole) <= limit:
        yield from whole
        return
    head, *numbers = terminal.table(header[:-1], [row[:-1] for row in rows], limit=limit)
    yield head
    for line, row in zip(numbers, rows, strict=True):
        yield line
        yield from textwrap.wrap(row[-1], limit, initial_indent=_BELOW, subsequent_indent=_BELOW)


def when(decision: Mapping[str, Any]) -> str:
    """Return when it was made: ``2026-12-01T08:00:00Z, 5 min ago``."""
    text = _text(decision, "time")
    unix = unix_of(text)
    return text if unix is None else f"{text}, {terminal.ago(max(0.0, time.time() - unix))}"


def unix_of(text: str) -> float | None:
    """Parse a time to seconds since 1970; None: it is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _row(option: Mapping[str, Any], *, taken: str) -> tuple[str, ...]:
    name = _text(option, "name")
    refused = _text(option, "rejected")
    fits = "yes" if option.get("fits") is True else "waits" if "fits" in option else "-"
    return (
        f"> {name}" if name == taken else f"  {name}",
        _text(option, "queue"),
        _text(option, "clusterQueue"),
        _text(option, "cluster"),
        "refused" if refused else fits,
        _text(option, "pending"),
        _moment(option.get("startsIn")),
        _lasting(option.get("runs")),
        _moment(option.get("finishesIn")),
        refused,
    )


def _moment(seconds: Any) -> str:
    if seconds == 0:
        return "now"
    return f"in {_lasting(seconds)}" if _is_number(seconds) else "-"


def _lasting(seconds: Any) -> str:
    return terminal.spoken(seconds) if _is_number(seconds) else "-"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(source: Mapping[str, Any], key: str) -> str:
    value = source.get(key)
    return "" if value is None else terminal.harmless(str(value))


def _objects(source: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    return tuple(_only_objects(source.get(key)))


def _only_objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item
