"""Small typed getters that read untrusted JSON at one border, with errors that name the path.

Past this border nothing is a ``dict[str, Any]``: callers turn what they read into frozen values.
Pydantic's errors are turned into the same ``FieldError``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
EMPTY: Mapping[str, Any] = {}
DEEPEST: Final = 128
"""Most levels of nesting that are read; a Job's own are below 20."""
_LONGEST_SAID: Final = 1000
"""Characters of an error: it quotes what may be as long as an object."""
_LONGEST_TIME: Final = 40
_LAST: Final = 1 << 32
"""Seconds since 1970, some of which are kept in four bytes."""
_LONGEST_NUMBER: Final = 20
_NESTING: Final = frozenset({dict, list})


class FieldError(ValueError):
    """An input is wrong.

    ``path`` is where (``spec.template.spec.containers[0].image``), ``message`` is what was
    expected there.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return text if len(text) <= _LONGEST_SAID else _without_middle(text)


def _without_middle(text: str) -> str:
    kept = _LONGEST_SAID // 2
    return f"{text[: kept - 3]}...{text[-kept:]}"


def child(path: str, key: str | int) -> str:
    """Name the place of *key* below *path*, as the API server writes it."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def as_mapping(value: Any, path: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise FieldError(path, f"expected an object, got {kind_of(value)}")


def mapping(source: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Read an object; absent and null read as an empty one."""
    value = source.get(key)
    if isinstance(value, dict):
        return value
    return EMPTY if value is None else as_mapping(value, child(path, key))


def sequence(source: Mapping[str, Any], key: str, path: str) -> Sequence[Any]:
    """Read a list; absent and null read as an empty one."""
    value = source.get(key)
    if value is None:
        return ()
    if isinstance(value, list):
        return value
    raise FieldError(child(path, key), f"expected a list, got {kind_of(value)}")


def objects(
    source: Mapping[str, Any], key: str, path: str, *, most: int | None = None
) -> Sequence[tuple[Mapping[str, Any], str]]:
    """Read a list of objects, each with its own path; of more than *most* none is looked at."""
    listed = sequence(source, key, path)
    if not listed:
        return ()
    here = child(path, key)
    if most is not None and len(listed) > most:
        raise FieldError(here, f"{len(listed)} entries, too many to decide (most: {most})")
    # A loop, as tens of thousands of objects are read at each start.
    found = []
    for index, entry in enumerate(listed):
        where = f"{here}[{index}]"
        found.append((entry if isinstance(entry, dict) else as_mapping(entry, where), where))
    return found


def mappings(source: Mapping[str, Any], key: str, path: str) -> tuple[Mapping[str, Any], ...]:
    """Read a list of objects without their paths, where nothing is read inside them."""
    listed = sequence(source, key, path)
    for index, entry in enumerate(listed):
        if not isinstance(entry, dict):
            as_mapping(entry, child(child(path, key), index))
    return tuple(listed)


def text(source: Mapping[str, Any], key: str, path: str, default: str = "") -> str:
    value = source.get(key)
    if value is None:
        return default
    if isinstance(value, str):
        return value
    raise FieldError(child(path, key), f"expected a string, got {kind_of(value)}")


def flag(source: Mapping[str, Any], key: str, path: str) -> bool:
    value = source.get(key)
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    raise FieldError(child(path, key), f"expected true or false, got {kind_of(value)}")


def integer(source: Mapping[str, Any], key: str, path: str) -> int | None:
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise FieldError(child(path, key), f"expected a whole number, got {kind_of(value)}")


def texts(source: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    """Read an object whose values are strings, such as labels."""
    entries = mapping(source, key, path)
    for name, value in entries.items():
        if not isinstance(value, str):
            where = child(child(path, key), name)
            raise FieldError(where, f"expected a string, got {kind_of(value)}")
    return entries


def strings(source: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """Read a list of strings."""
    listed = sequence(source, key, path)
    for index, value in enumerate(listed):
        if not isinstance(value, str):
            where = child(child(path, key), index)
            raise FieldError(where, f"expected a string, got {kind_of(value)}")
    return tuple(listed)


def seconds_since_1970(written: str, path: str) -> float:
    """Read a time as Kubernetes writes it; one without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(written if len(written) <= _LONGEST_TIME else "")
        seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds < _LAST:
        raise FieldError(path, f"expected a time, got {written[:_LONGEST_TIME]!r}")
    return seconds


def created_unix(source: Mapping[str, Any]) -> float:
    """Return when an object was created, in seconds since 1970; infinity: it does not say.

    Raises:
        FieldError: its metadata cannot be read.

    """
    written = text(mapping(source, "metadata", ""), "creationTimestamp", "metadata")
    return seconds_since_1970(written, "metadata.creationTimestamp") if written else inf


def from_json(text: str, path: str, *, longest: int) -> Mapping[str, Any]:
    """Read a JSON object from a text that a user may have written, such as an annotation.

    The API server checks that it is text, but not what it says: it may be nested without end, or
    have numbers that no float holds and characters that cannot be written again.

    Raises:
        FieldError: it is longer than *longest* characters, nested too deeply, or no JSON object.

    """
    if len(text) > longest:
        raise FieldError(path, f"expected at most {longest} characters, got {len(text)}")
    try:
        decoded = _DECODER.decode(text)
        check_depth(decoded, path)
        json.dumps(decoded, ensure_ascii=False).encode()
    except FieldError:
        raise
    except (ValueError, RecursionError):
        raise FieldError(path, "expected JSON") from None
    return as_mapping(decoded, path)


def check_depth(value: Any, path: str) -> None:
    """Refuse a value nested more than ``DEEPEST`` deep, on which recursive code could fail.

    Raises:
        FieldError: it is nested more deeply; the path is *path*.

    """
    level = [value] if type(value) in _NESTING else []
    for _ in range(DEEPEST + 1):
        if not level:
            return
        level = [
            inner
            for parent in level
            for inner in (parent.values() if type(parent) is dict else parent)
            if type(inner) in _NESTING
        ]
    raise FieldError(path, f"nested more than {DEEPEST} deep")


def kind_of(value: Any) -> str:
    """Name a JSON value's type as a person would."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names |= {int: "a number", float: "a number", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _whole(text: str) -> int:
    return int(text) if len(text) <= _LONGEST_NUMBER else _refuse(text)


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refuse(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_whole)


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
    "dataclass_type": "an object",
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
    errors = error.errors(include_url=False)
    return tuple(
        FieldError(_path(mistake["loc"]), _message(mistake, forms))
        for mistake in errors
        if not _follows(mistake, errors)
    )


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Return whether a list counts as too short only because its items are wrong."""
    here = error["loc"]
    return error["type"] == "too_short" and any(
        len(nested["loc"]) > len(here) and nested["loc"][: len(here)] == here for nested in errors
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
