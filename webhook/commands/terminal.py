"""Text for people at a terminal: tables that fit its width, colours, and times in words.

If the output is not a terminal (a pipe, a file), nothing is cut and nothing is coloured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from webhook.model.words import harmless, span

ELLIPSIS: Final = "…"
GAP: Final = "  "
WRAPPED: Final = 100
"""Width of sentences if the output is not a terminal."""
_ENDLESS: Final = 10_000
_NARROWEST: Final = 8
"""Least width that a column is cut to; its header is never cut."""
TONES: Final[Mapping[str, str]] = {
    "accepted": "green",
    "created": "green",
    "moved": "yellow",
    "not ready": "red",
    "off": "yellow",
    "ready": "green",
    "refused": "red",
    "stale": "red",
    "undone": "magenta",
}
"""Words that have a colour."""
_COMMANDS: Final = ("kubectl ", "kueue-fallback ")
_OURS: Final = re.compile("(\x1b\\[(?:0|1|3[1-7])m)")
"""What ``tinted`` and ``strong`` write; other control characters come from elsewhere."""


def say(text: str, *, err: bool = False) -> None:
    """Print a text of any number of lines, without control characters from a cluster or a file."""
    whole = "\n".join(map(_painted, text.split("\n")))
    click.echo(whole, err=err)


def width(output: str = "text") -> int | None:
    """Return how many columns there are; None: no limit."""
    if output == "wide" or not (_is_terminal() or os.environ.get("COLUMNS")):
        return None
    return shutil.get_terminal_size().columns


def columns(output: str = "text") -> int:
    """Return the column at which sentences are wrapped."""
    if output == "wide":
        return _ENDLESS
    return width() or WRAPPED


def wrapped(text: str, output: str = "text") -> str:
    """Return a paragraph in lines of the width that there is."""
    return textwrap.fill(" ".join(text.split()), columns(output), break_on_hyphens=False)


def fitted(text: str, output: str = "text") -> str:
    """Return lines in the width that there is; commands stay whole, to be copied."""
    limit = width(output)
    return "\n".join(part for line in text.split("\n") for part in broken(line, limit))


def broken(line: str, limit: int | None) -> list[str]:
    """Return a line as lines of at most *limit* columns; None: no limit."""
    shown = harmless(line)
    indent = " " * (len(shown) - len(shown.lstrip()))
    is_command = shown.lstrip().startswith(_COMMANDS)
    if limit is None or is_command or len(click.unstyle(line)) <= limit:
        return [line]
    return textwrap.wrap(
        shown,
        limit,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def has_colours() -> bool:
    """Return whether to colour: only on a terminal, and never with NO_COLOR (no-color.org)."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tinted(text: str, *, like: str = "") -> str:
    """Colour a word of ``TONES``; *like* is the word whose colour *text* gets, if another."""
    tone = TONES.get((like or text).strip())
    return click.style(text, fg=tone) if tone and has_colours() else text


def strong(text: str) -> str:
    return click.style(text, bold=True) if has_colours() else text


def _painted(line: str) -> str:
    parts = _OURS.split(line)
    return "".join(part if number % 2 else harmless(part) for number, part in enumerate(parts))


def cut(text: str, limit: int | None) -> str:
    """Cut a text that is longer than the limit, and show that it was.

    Of a name the middle is left out: names that stand together mostly begin alike.
    """
    if limit is None or len(text) <= limit:
        return text
    kept = max(limit - len(ELLIPSIS), 0)
    if " " in text:
        return text[:kept].rstrip() + ELLIPSIS
    return text[: kept - kept // 2] + ELLIPSIS + text[len(text) - kept // 2 :]


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    limit: int | None,
    indent: str = "",
    spare: Sequence[str] = (),
) -> list[str]:
    """Return rows in columns; if they do not fit, the widest columns are cut.

    Where that is not enough, the columns of *spare* are left out one by one.
    """
    cells = [tuple(header), *(tuple(harmless(cell) or "-" for cell in row) for row in rows)]
    for name in spare:
        if limit is None or len(indent) + _least(cells) <= limit:
            break
        at = cells[0].index(name)
        cells = [(*row[:at], *row[at + 1 :]) for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if limit is not None:
        room = limit - len(indent) - len(GAP) * (len(widths) - 1)
        _shrink(widths, _least_widths(cells), room)
    return [_line(row, widths, indent, strong if row is cells[0] else tinted) for row in cells]


def _least_widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        min(max(map(len, column)), max(len(column[0]), _NARROWEST))
        for column in zip(*cells, strict=True)
    ]


def _least(cells: Sequence[Sequence[str]]) -> int:
    """Return how many columns a terminal must have at least."""
    widths = _least_widths(cells)
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _shrink(widths: list[int], least: Sequence[int], room: int) -> None:
    while sum(widths) > room:
        spare = [size - low for size, low in zip(widths, least, strict=True)]
        if not any(spare):
            return
        widest = max(range(len(widths)), key=lambda index: (spare[index] > 0, widths[index]))
        widths[widest] -= 1


def _line(
    row: Sequence[str], widths: Sequence[int], indent: str, paint: Callable[[str], str]
) -> str:
    parts = [f"{cut(cell, size):<{size}}" for cell, size in zip(row, widths, strict=True)]
    parts[-1] = parts[-1].rstrip()
    return (indent + GAP.join(map(paint, parts))).rstrip()


def ago(seconds: float) -> str:
    """Return when something was, *seconds* before now; if negative, it is still to come."""
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"


def dump(document: Mapping[str, Any], output: str) -> str:
    """Return JSON or YAML for programs."""
    if output == "json":
        return json.dumps(document, indent=2)
    import yaml

    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)).rstrip()


def _is_terminal() -> bool:
    return sys.stdout.isatty()
