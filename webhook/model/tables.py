"""Text in columns, laid out by rich. Nothing in it is read as markup."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

ENDLESS: Final = 10_000
"""Columns where nothing is to be wrapped."""


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Align the first columns left and the others right; the first row is the header."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for place in range(len(rows[0])):
        grid.add_column(justify="left" if place < left else "right")
    for row in rows:
        grid.add_row(*map(Text, row))
    return [line.plain for line in lines(grid, ENDLESS)]


def lines(shown: RenderableType, width: int) -> list[Text]:
    """Return lines of at most *width* columns, without the spaces at their ends."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    found = []
    for segments in console.render_lines(shown, pad=False):
        line = Text.assemble(*((part.text, part.style or "") for part in segments))
        line.rstrip()
        found.append(line)
    return found
