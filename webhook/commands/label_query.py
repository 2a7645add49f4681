"""Label queries as kubectl's ``-l`` takes them, for what is not asked of an API server."""

from __future__ import annotations

import re
from typing import Final

from webhook.model.fields import FieldError
from webhook.model.pods import Expression, Operator, Selector

_KEY: Final = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_VALUE: Final = r"[A-Za-z0-9]?[-A-Za-z0-9_.]*"
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_PRESENT: Final = re.compile(rf"(!?)\s*({_KEY})")
_PARTS: Final = re.compile(r",(?![^(]*\))")
"""Commas, but for those between parentheses."""
_SETS: Final = {"in": Operator.IN, "notin": Operator.NOT_IN}
_SIGNS: Final = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN}


def read_query(text: str) -> Selector:
    """Read a query such as ``team=ml,env!=dev,tier in (a, b),!legacy``; empty: everything.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api

    Raises:
        FieldError: it is none.

    """
    parts = _PARTS.split(text) if text.strip() else []
    return Selector(labels={}, expressions=tuple(_expression(part.strip()) for part in parts))


def _expression(part: str) -> Expression:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found[3].split(","))
        return Expression(key=found[1], operator=_SETS[found[2]], values=values)
    if found := _EQUAL.fullmatch(part):
        return Expression(key=found[1], operator=_SIGNS[found[2]], values=(found[3],))
    if found := _PRESENT.fullmatch(part):
        operator = Operator.DOES_NOT_EXIST if found[1] else Operator.EXISTS
        return Expression(key=found[2], operator=operator)
    raise FieldError("--selector", f"expected a label query such as team=ml,env!=dev, got {part!r}")
