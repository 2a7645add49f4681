"""One JSON Patch operation (RFC 6902) carried out on a parsed object, in place.

A value goes in as a copy: what later operations do to it must not reach back into this one.

It is as strict as the API server: what is not there can be neither replaced nor removed.
``add``, ``remove`` and ``replace`` are known, which is all that is ever sent. A library would do it
too, at a fifth of a review's time; the tests hold this against one.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

from webhook.model.recall import recalling


class CannotApplyError(ValueError):
    """An operation does not apply; the text says where and why."""


def apply(operation: Mapping[str, Any], source: dict[str, Any]) -> None:
    """Change *source* as *operation* says.

    Raises:
        CannotApplyError: it does not apply.

    """
    pointer = operation["path"]
    above, last = _parts(pointer)
    node: Any = source
    for part in above:
        # Nearly all steps are these, and calling a function for each would cost as much again.
        node = node[part] if type(node) is dict and part in node else _below(node, part, pointer)
    if isinstance(node, dict):
        _apply_to_object(operation, node, last)
    elif isinstance(node, list):
        _apply_to_list(operation, node, last)
    else:
        raise CannotApplyError(f"{pointer}: its parent is neither an object nor a list")


def _apply_to_object(operation: Mapping[str, Any], node: dict[str, Any], key: str) -> None:
    kind = operation["op"]
    if kind != "add" and key not in node:
        raise CannotApplyError(f"{operation['path']}: there is nothing to {kind}")
    if kind == "remove":
        del node[key]
    else:
        node[key] = _own(operation["value"])


def _apply_to_list(operation: Mapping[str, Any], node: list[Any], part: str) -> None:
    kind, pointer = operation["op"], operation["path"]
    if kind == "add" and part == "-":
        node.append(_own(operation["value"]))
    elif kind == "add":
        node.insert(_index(part, len(node) + 1, pointer), _own(operation["value"]))
    elif kind == "remove":
        del node[_index(part, len(node), pointer)]
    else:
        node[_index(part, len(node), pointer)] = _own(operation["value"])


def _own(value: Any) -> Any:
    return value if type(value) is str else marshal.loads(marshal.dumps(value))  # noqa: S302


@recalling(most=2048, longest=1024)
def _parts(pointer: str) -> tuple[tuple[str, ...], str]:
    """Take a JSON Pointer (RFC 6901) apart: what leads to the parent, and the last part."""
    start, *parts = pointer.split("/")
    if start or not parts:
        raise CannotApplyError(f"{pointer!r} points to no place in the object")
    if "~" in pointer:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in parts]
    return tuple(parts[:-1]), parts[-1]


def _below(node: Any, part: str, pointer: str) -> Any:
    if isinstance(node, dict) and part in node:
        return node[part]
    if isinstance(node, list):
        return node[_index(part, len(node), pointer)]
    raise CannotApplyError(f"{pointer}: nothing called {part}")


def _index(part: str, end: int, pointer: str) -> int:
    is_number = part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")
    if not is_number or int(part) >= end:
        raise CannotApplyError(f"{pointer}: no element {part}")
    return int(part)
