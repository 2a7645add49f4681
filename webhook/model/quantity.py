"""Kubernetes quantities as ints: cpu in milli, every other resource in whole units, rounded up.

The grammar is that of ``resource.ParseQuantity``; rounding is Kueue's (``ResourceValue``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from webhook.model.fields import FieldError

FlavorResource: TypeAlias = tuple[str, str]
"""(ResourceFlavor's name, resource's name)"""
Amounts: TypeAlias = Mapping[FlavorResource, int]
CPU = "cpu"
NANO = 1_000_000_000
LONGEST = 64
"""Characters of a quantity; Kubernetes writes none of more than 30, and takes many thousands."""
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)


def parse(value: str | float, *, resource: str, path: str = "") -> int:
    """Read a quantity as an int: milli for cpu, else whole units, rounded up.

    Raises:
        FieldError: *value* is no quantity.

    """
    text = value if isinstance(value, str) else repr(value)
    # The common case, whole numbers, is worth its line: this runs for each option of a review.
    if len(text) <= LONGEST and text.isascii() and text.isdigit():
        return int(text) * 1000 if resource == CPU else int(text)
    value_exact = exact(text, path)
    scaled = value_exact * 1000 if resource == CPU else value_exact
    return -(-scaled.numerator // scaled.denominator)


@lru_cache(maxsize=4096)
def nano(value: str) -> int:
    """Read a quantity as a whole number of billionths, the finest that Kubernetes keeps.

    Sums and products of these are rounded once, at their end, as Kueue does.

    Raises:
        FieldError: *value* is no quantity.

    """
    if len(value) <= LONGEST and value.isascii() and value.isdigit():
        return int(value) * NANO
    scaled = exact(value) * NANO
    return -(-scaled.numerator // scaled.denominator)


def from_nano(amount: int | Fraction, *, resource: str) -> int:
    """Round billionths up to what the model counts in: milli for cpu, else whole units."""
    unit = NANO // 1000 if resource == CPU else NANO
    return int(-(-amount // unit))


def is_quantity(text: str) -> bool:
    return _matched(text) is not None


def render(value: int, *, resource: str) -> str:
    """Write an int as the shortest quantity a person would write: ``1500m``, ``24``, ``6Gi``."""
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, unit in reversed(_BINARY.items()):
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
    return str(value)


def exact(text: str, path: str = "") -> Fraction:
    """Read a quantity without rounding."""
    match = _matched(text)
    if match is None:
        raise FieldError(path, f"expected a quantity such as 500m or 6Gi, got {text[:LONGEST]!r}")
    suffix = match["suffix"] or ""
    number = Fraction(match["sign"] + match["number"].rstrip("."))
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number * Fraction(10) ** exponent


def is_same(one: object, other: object) -> bool:
    """Return whether two values are one amount, as 1 and 1000m; others are only equal or not."""
    try:
        return exact(str(one)) == exact(str(other))
    except FieldError:
        return one == other


def _matched(text: str) -> re.Match[str] | None:
    return _GRAMMAR.fullmatch(text) if len(text) <= LONGEST else None
