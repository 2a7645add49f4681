"""Small typed getters that read untrusted JSON at one border, with errors that name the path.

Past this border nothing is a ``dict[str, Any]``: callers turn what they read into frozen values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
EMPTY: Mapping[str, Any] = {}
_LONGEST_SAID = 1000
"""Characters of an error: it quotes what may be as long as an object."""


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
    source: Mapping[str, Any], key: str, path: str
) -> Sequence[tuple[Mapping[str, Any], str]]:
    """Read a list of objects, each with its own path."""
    found = sequence(source, key, path)
    if not found:
        return ()
    here = child(path, key)
    return tuple(
        (as_mapping(item, where), where)
        for item, where in ((item, f"{here}[{index}]") for index, item in enumerate(found))
    )


def mappings(source: Mapping[str, Any], key: str, path: str) -> tuple[Mapping[str, Any], ...]:
    """Read a list of objects whose insides are of no interest, so that no path is needed."""
    found = sequence(source, key, path)
    for index, item in enumerate(found):
        if not isinstance(item, dict):
            as_mapping(item, child(child(path, key), index))
    return tuple(found)


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
    found = mapping(source, key, path)
    for name, value in found.items():
        if not isinstance(value, str):
            where = child(child(path, key), name)
            raise FieldError(where, f"expected a string, got {kind_of(value)}")
    return found


def strings(source: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """Read a list of strings."""
    found = sequence(source, key, path)
    for index, value in enumerate(found):
        if not isinstance(value, str):
            where = child(child(path, key), index)
            raise FieldError(where, f"expected a string, got {kind_of(value)}")
    return tuple(found)


def kind_of(value: Any) -> str:
    """Name a JSON value's type as a person would."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    names |= {int: "a number", float: "a number", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def created_unix(source: Mapping[str, Any]) -> float:
    """Tell when an object was created, in seconds since 1970; infinity: it is not said.

    Raises:
        FieldError: its metadata cannot be read.

    """
    written = text(mapping(source, "metadata", ""), "creationTimestamp", "metadata")
    try:
        created = datetime.fromisoformat(written)
        return created.replace(tzinfo=created.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return inf
