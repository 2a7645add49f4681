"""Text for people at a terminal, laid out by rich, and times in words.

If the output is not a terminal (a pipe, a file), nothing is coloured, and lines are not wrapped.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import click
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from webhook.model import tables
from webhook.model.words import harmless, harmless_lines, span

Line: TypeAlias = str | Text
WRAPPED: Final = 100
"""Width of sentences in tables if the output is not a terminal."""
_NARROWEST: Final = 8
"""Least width that a column is wrapped to; its header is never wrapped."""
_GAP: Final = 2
_REASON: Final = 24
"""Least width of the last column, which often has a sentence, beside spare columns."""
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


def say(*lines: Line, err: bool = False) -> None:
    """Print lines as they are, without control characters from a cluster or a file."""
    click.echo("\n".join(map(_painted, lines)), err=err)


def _painted(line: Line) -> str:
    if isinstance(line, str):
        return harmless_lines(line)
    # What is ours are the styles, never a character.
    safe = line.copy()
    safe.plain = harmless_lines(line.plain)
    if not has_colours():
        return safe.plain
    console = Console(file=io.StringIO(), force_terminal=True, width=tables.ENDLESS)
    with console.capture() as painted:
        console.print(safe, soft_wrap=True, end="")
    return painted.get()


def tell(*lines: Line, output: str = "text", err: bool = False) -> None:
    """Print lines in the width that there is."""
    limit = width(output)
    say(*(part for line in lines for part in fitted(line, limit)), err=err)


def width(output: str = "text") -> int | None:
    """Return how many columns there are; None: no limit."""
    if output == "wide" or not (_is_terminal() or os.environ.get("COLUMNS")):
        return None
    return shutil.get_terminal_size().columns


def columns(output: str = "text") -> int:
    """Return the column at which sentences in tables are wrapped."""
    if output == "wide":
        return tables.ENDLESS
    return width() or WRAPPED


def fitted(line: Line, limit: int | None, *, indent: int = 0) -> list[Text]:
    """Return lines of at most *limit* columns; commands stay whole, to be copied."""
    found: list[Text] = []
    for part in _text(line).split("\n", allow_blank=True):
        part.plain = harmless(part.plain)
        bare = part.plain.lstrip()
        room = indent + len(part.plain) - len(bare)
        if limit is None or bare.startswith(_COMMANDS):
            found.append(Text.assemble(" " * indent, part))
        else:
            body = part[len(part.plain) - len(bare) :] if bare else part
            found += tables.lines(Padding(body, (0, 0, 0, room)), limit)
    return found


def has_colours() -> bool:
    """Return whether to colour: only on a terminal, and never with NO_COLOR (no-color.org)."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tinted(text: str, *, like: str = "") -> Text:
    """Colour a word of ``TONES``; *like* is the word whose colour *text* gets, if another."""
    return Text(text, style=TONES.get((like or text).strip(), ""))


def strong(text: str) -> Text:
    return Text(text, style="bold")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    limit: int | None,
    indent: int = 0,
    spare: Sequence[str] = (),
) -> list[Text]:
    """Return rows in columns; if they do not fit, the widest columns are wrapped.

    Where that is not enough, the columns of *spare* are left out one by one.
    """
    cells = [tuple(header), *(tuple(harmless(cell) or "-" for cell in row) for row in rows)]
    room = tables.ENDLESS if limit is None else limit - indent
    for name in spare:
        if sum(_least_widths(cells, _REASON)) <= room:
            break
        if name in cells[0]:
            at = cells[0].index(name)
            cells = [(*row[:at], *row[at + 1 :]) for row in cells]
    widths = _widths(cells, room)
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, size in zip(cells[0], widths, strict=True):
        grid.add_column(Text(name), overflow="fold", width=size - _GAP)
    for row in cells[1:]:
        grid.add_row(*map(tinted, row))
    found = tables.lines(grid, sum(widths))
    return [Text.assemble(" " * indent, line) for line in found]


def _widths(cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return how wide columns are, with what is between them; the widest ones give way first."""
    # Left to itself, rich would fold a header rather than wrap another column once more.
    widths = [max(map(cell_len, column)) + _GAP for column in zip(*cells, strict=True)]
    least = _least_widths(cells, _NARROWEST)
    for _ in range(sum(widths) - _GAP - room):
        spare = [(size > low, size) for size, low in zip(widths, least, strict=True)]
        widest = spare.index(max(spare))
        widths[widest] = max(widths[widest] - 1, least[widest])
    return widths


def _least_widths(cells: Sequence[Sequence[str]], last: int) -> list[int]:
    """Return how wide columns are at least; *last*: what the last one gets, if it is wrapped."""
    lows = [*[_NARROWEST] * (len(cells[0]) - 1), last]
    return [
        min(max(map(cell_len, column)), max(cell_len(column[0]), low)) + _GAP
        for column, low in zip(zip(*cells, strict=True), lows, strict=True)
    ]


def ago(seconds: float) -> str:
    """Return when something was, *seconds* before now; if negative, it is still to come."""
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"


def dump(document: Mapping[str, Any], output: str) -> str:
    """Return JSON or YAML for programs."""
    if output == "json":
        return json.dumps(document, indent=2)
    import yaml

    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)).rstrip()


def _text(line: Line) -> Text:
    return line.copy() if isinstance(line, Text) else Text(line)


def _is_terminal() -> bool:
    return sys.stdout.isatty()
