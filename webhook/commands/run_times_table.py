"""Learned run times as rows, for a terminal of 100 columns, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from webhook.commands.terminal import harmless
from webhook.learn.estimates import Learned
from webhook.learn.run_records import unpack_runs
from webhook.model.forecasts import RunTime
from webhook.model.run_keys import is_of_queue

_Row: TypeAlias = tuple[str, ...]

WIDTH: Final = 100
_HEADER: Final = ("CLASS", "WHAT", "FLAVORS", "RUNS", "MEDIAN", "8 OF 10", "FAILED", "BASIS")
_FAILING_HEADER: Final = ("CLASS", "WHAT", "POLICY", "OPTION", "UNTIL")
_MOST: Final = {"CLASS": 20, "WHAT": 30, "FLAVORS": 24, "POLICY": 20, "OPTION": 14}
_UNKNOWN: Final = dict.fromkeys(("seconds", "low", "high"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def as_json(found: Learned) -> dict[str, Any]:
    """Return seconds as numbers, times as RFC 3339; the class that ended last comes first."""
    return {
        "runTimes": list(_run_times(found)),
        "startDelays": list(_delays("flavors", found.starts)),
        "dispatches": list(_delays("clusterQueue", found.dispatches)),
        "keepsFailing": list(_failing(found)),
    }


def as_text(found: Learned) -> str:
    shown = as_json(found)
    if not shown["runTimes"]:
        return "No Workload has ended yet that tells of a run time."
    lines = _columns(_HEADER, [_cells(item) for item in shown["runTimes"]])
    for title, header, rows in _begun(shown):
        lines += ["", title, *_columns(header, rows)]
    if shown["keepsFailing"]:
        rows = [
            (item["class"], item["name"], item["policy"], item["option"], item["until"])
            for item in shown["keepsFailing"]
        ]
        lines += ["", "Refused, because it keeps failing there:"]
        lines += _columns(_FAILING_HEADER, rows)
    return "\n".join(lines)


def _run_times(found: Learned) -> Iterator[dict[str, Any]]:
    classes = (key for key in found.records if not is_of_queue(key))
    for key in sorted(classes, key=lambda key: (-found.records[key].last, key)):
        record = found.records[key]
        for flavors in sorted({*record.runs, *record.failed}):
            known = found.estimates.get((key, flavors))
            yield {
                "class": key,
                "name": record.name,
                "flavors": flavors,
                "runs": known.runs if known else 0,
                **(_range(known) if known else _UNKNOWN),
                "failed": len(unpack_runs(record.failed.get(flavors, b""))),
                "basis": str(known.basis) if known else None,
            }


def _delays(of: str, found: Mapping[str, RunTime]) -> Iterator[dict[str, Any]]:
    for name, each in sorted(found.items()):
        yield {of: name, "runs": each.runs, **_range(each)}


def _range(known: RunTime) -> dict[str, float]:
    amounts = {"seconds": known.seconds, "low": known.low, "high": known.high}
    return {name: round(amount, 1) for name, amount in amounts.items()}


def _begun(shown: Mapping[str, Any]) -> Iterator[tuple[str, _Row, list[_Row]]]:
    """Yield the tables of the delays before a run: title, header, rows."""
    titles = {
        "startDelays": ("flavors", "From admission until all pods are ready:"),
        "dispatches": ("clusterQueue", "From quota until AdmissionChecks are passed:"),
    }
    for kind, (of, title) in titles.items():
        rows: list[_Row] = [
            (
                item[of],
                str(item["runs"]),
                _lasting(item["seconds"]),
                f"{_lasting(item['low'])}-{_lasting(item['high'])}",
            )
            for item in shown[kind]
        ]
        if rows:
            yield title, (of.upper(), "RUNS", "MEDIAN", "8 OF 10"), rows


def _failing(found: Learned) -> Iterator[dict[str, Any]]:
    for (key, policy, option), end in sorted(found.refusals.items()):
        until = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = found.records[key].name
        yield {"class": key, "name": name, "policy": policy, "option": option, "until": until}


def _cells(item: Mapping[str, Any]) -> tuple[str, ...]:
    known = item["seconds"] is not None
    return (
        item["class"],
        item["name"],
        item["flavors"],
        str(item["runs"]),
        _lasting(item["seconds"]) if known else "-",
        f"{_lasting(item['low'])}-{_lasting(item['high'])}" if known else "-",
        str(item["failed"]),
        item["basis"] or "-",
    )


def _columns(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    most = [_MOST.get(name, WIDTH) for name in header]
    cells = [
        [_clipped(harmless(cell) or "-", width) for cell, width in zip(row, most, strict=True)]
        for row in (header, *rows)
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widest = header.index("WHAT") if "WHAT" in header else 0
    widths[widest] -= max(0, sum(widths) + 2 * (len(widths) - 1) - WIDTH)
    return [
        "  ".join(
            f"{_clipped(cell, width):<{width}}" for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _lasting(seconds: float) -> str:
    """Return a duration in two figures or more: ``7.5s``, ``70s``, ``12.5m``, ``3.0h``."""
    for unit, name, below in ((1, "s", 100), (_MINUTE, "m", 100), (_HOUR, "h", 48)):
        amount = seconds / unit
        if amount < below:
            return f"{amount:.1f}{name}" if amount < 10 or unit > 1 else f"{amount:.0f}{name}"  # noqa: PLR2004
    return f"{seconds / _DAY:.1f}d"
