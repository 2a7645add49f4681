"""Pydantic's errors as FieldErrors: the path as Kubernetes writes it, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from webhook.model.fields import FieldError, child, kind_of

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_NO_PLACES: Final = ("<list>", "<map>", "[key]")
"""The forms of a union, and a key that is wrong itself: no places in the input."""
_WHOLE_TEXTS: Final = {
    "missing": "expected, but not there",
    "extra_forbidden": "no such field",
}
_TYPES: Final = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}
_LIMITS: Final = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than_equal": "at most",
}
_LENGTHS: Final = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
}


def field_errors(error: ValidationError, forms: Mapping[str, str]) -> tuple[FieldError, ...]:
    """Return one error for each mistake; *forms* says in words what a pattern demands."""
    found = error.errors(include_url=False)
    return tuple(
        FieldError(_path(each["loc"]), _message(each, forms))
        for each in found
        if not _follows(each, found)
    )


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Return whether a list counts as too short only because its items are wrong."""
    here = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(here) and other["loc"][: len(here)] == here for other in errors
    )


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for part in location:
        if part not in _NO_PLACES:
            path = child(path, part)
    return path


def _message(error: ErrorDetails, forms: Mapping[str, str]) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind in _WHOLE_TEXTS:
        return _WHOLE_TEXTS[kind]
    if kind == "value_error":
        return str(context["error"])
    if kind in _LENGTHS:
        bound, name, unit = _LENGTHS[kind]
        limit = context[name]
        return f"expected {bound} {limit} {unit}{'s' * (limit != 1)}, got {len(given)}"
    if expected := _expected(error, context, forms):
        return f"expected {expected}, got {_shown(given)}"
    return error["msg"]


def _expected(error: ErrorDetails, context: Mapping[str, Any], forms: Mapping[str, str]) -> str:
    kind = error["type"]
    if kind in _LIMITS:
        return f"{_LIMITS[kind]} {error['msg'].rsplit(' ', 1)[-1]}"
    if kind in ("enum", "literal_error"):
        return str(context["expected"])
    return _TYPES.get(kind.replace("_parsing", "_type")) or forms.get(
        context.get("pattern", ""), ""
    )


def _shown(given: Any) -> str:
    is_named = isinstance(given, str | int | float) and not isinstance(given, bool)
    return repr(given) if is_named else kind_of(given)
