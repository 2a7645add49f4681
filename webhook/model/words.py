"""Words for people: times, texts of a bounded length, and names that may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

_MINUTES_FROM = 600.0
_HOURS_FROM = 36_000.0
_DAY = 86_400.0
_WHOLE_FROM = 100.0
_MASSES = ((1e6, "t"), (1e3, "kg"))
_DAYS_FROM = 3 * _DAY
_MOST_COMPARED = 200
"""Most names that a name is compared with: each costs some 40 microseconds."""
_LONGEST_NAME = 253
"""Characters of an object's name."""
LIMIT = 230
"""Characters of a sentence, so that the warning around it stays within Kubernetes' 256."""


def rfc3339(unix: float) -> str:
    """Write seconds since 1970 as Kubernetes writes times: UTC, in whole seconds."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clip(text: str, limit: int = LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def spoken(seconds: float) -> str:
    """Say a duration for people: ``70 s``, ``12 min``, ``30.5 h``, ``29 days``."""
    if seconds < _MINUTES_FROM:
        return f"{seconds:.0f} s"
    if seconds < _HOURS_FROM:
        return f"{seconds / 60:.0f} min"
    if seconds < _DAYS_FROM:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / _DAY:.0f} days"


def figure(amount: float) -> str:
    """Write an amount with three digits that count, and no exponent: ``0.0512``, ``1.31``."""
    if abs(amount) >= _WHOLE_FROM:
        return f"{amount:,.0f}"
    digits = f"{amount:.3g}"
    return f"{amount:.6f}".rstrip("0").rstrip(".") if "e" in digits else digits


def carbon(grams: float) -> str:
    """Write a mass of CO2: ``38 g``, ``1.2 kg``, ``0.85 t``."""
    unit, name = next((pair for pair in _MASSES if abs(grams) >= pair[0]), (1.0, "g"))
    return f"{figure(grams / unit)} {name}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (there is NAME)`` with the known name that may have been meant; empty: none."""
    compared = [
        candidate for candidate in islice(known, _MOST_COMPARED) if len(candidate) <= _LONGEST_NAME
    ]
    close = difflib.get_close_matches(name[:_LONGEST_NAME], compared, n=1)
    return f" (there is {close[0]})" if close else ""
