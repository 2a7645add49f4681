"""A flavor's amounts of one resource as a bar: its parts in percent, and the same in words."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.console import words
from webhook.console.view import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    kind: str
    """``own``, ``borrowed`` or ``free``."""
    x: float
    width: float
    """Both in percent of the bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    flavor: str
    resource: str
    used: str
    """``6 of 8``; what is borrowed is said apart."""
    borrowed: str
    free: str
    sentence: str
    nominal: float
    """Where nominal quota ends, in percent."""
    parts: tuple[Part, ...]


def bar(cell: Cell) -> Bar:
    own = max(0, cell.reserved - cell.borrowed)
    whole = max(cell.nominal, cell.reserved + max(0, cell.available), 1)
    lengths = (("own", own), ("borrowed", cell.borrowed), ("free", max(0, cell.available)))
    parts, x = [], 0.0
    for kind, length in lengths:
        width = 100 * length / whole
        if width > 0:
            parts.append(Part(kind=kind, x=round(x, 2), width=round(width, 2)))
        x += width
    used = f"{words.amount(own, cell.resource)} of {words.amount(cell.nominal, cell.resource)}"
    borrowed = words.amount(cell.borrowed, cell.resource) if cell.borrowed else ""
    free = words.amount(max(0, cell.available), cell.resource)
    return Bar(
        flavor=cell.flavor,
        resource=cell.resource,
        used=used,
        borrowed=borrowed,
        free=free,
        sentence=f"{used} reserved, {borrowed or 'nothing'} borrowed, {free} free for a newcomer",
        nominal=round(100 * cell.nominal / whole, 2),
        parts=tuple(parts),
    )
