"""Words for people: times, texts of a bounded length, and names that may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_DAYS_FROM = 48 * _HOUR
_WHOLE_DAYS_FROM = 10 * _DAY
_WHOLE_FROM = 100.0
_MASSES = ((1e6, "t"), (1e3, "kg"))
_MOST_COMPARED = 200
"""Most names that a name is compared with: each costs some 40 microseconds."""
_LONGEST_NAME = 253
"""Characters of an object's name."""
LIMIT = 230
"""Characters of a sentence, so that the warning around it stays within Kubernetes' 256."""


def rfc3339(unix: float) -> str:
    """Write seconds since 1970 as Kubernetes writes times: UTC, in whole seconds."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def harmless(text: str) -> str:
    """Replace control characters in a text, which could come from anyone, by spaces."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def harmless_lines(text: str) -> str:
    """Do as ``harmless``, but leave the line breaks."""
    return "\n".join(map(harmless, text.split("\n")))


def clip(text: str, limit: int = LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def span(seconds: float) -> str:
    """Write a duration as kubectl does, in at most two units: ``5m30s``, ``2h5m``, ``2d4h``.

    There is no other way to write one for people.
    """
    if seconds < 0:
        return f"-{span(-seconds)}" if round(seconds) else "0s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return _two(whole, (_MINUTE, "m"), (1, "s"))
    if whole < _DAYS_FROM:
        return _two(whole, (_HOUR, "h"), (_MINUTE, "m"))
    smaller = (_HOUR, "h") if whole < _WHOLE_DAYS_FROM else (_DAY, "d")
    return _two(whole, (_DAY, "d"), smaller)


def brief(seconds: float) -> str:
    """Write the time of a request: ``129ms``, ``1.25s``."""
    return f"{1000 * seconds:.3g}ms" if seconds < 1 else f"{seconds:.3g}s"


def _two(seconds: int, large: tuple[int, str], small: tuple[int, str]) -> str:
    """Write seconds in two units, rounded to the smaller one, which is left out if it is 0."""
    rounded = round(seconds / small[0]) * small[0]
    number, rest = divmod(rounded, large[0])
    more = f"{rest // small[0]}{small[1]}" if rest else ""
    return f"{number}{large[1]}{more}"


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


_SMALLEST_DECIMAL = 9
"""Decimals of a number of three digits: a chance that is next to nothing gives one of 1e-63."""


def three_digits(amount: float) -> float:
    """Round to three digits that count; whole numbers have no decimals."""
    return plain_number(round(float(f"{amount:.3g}"), _SMALLEST_DECIMAL))


def plain_number(amount: float) -> float:
    """Return a number that JSON writes without ``.0``."""
    return int(amount) if amount == int(amount) else amount
