"""Finds the places of a Job by their paths, in which elements of lists go by name.

It must not know what is edited, nor why.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias, cast

from jsonpointer import JsonPointer, escape

from webhook.model.edits import ABSENT, KEYED_BY_NAME, Absent, Path

Allowed: TypeAlias = tuple[Path, ...]
"""Patterns of paths; a part ``*`` is any text, ``domain/*`` any name with that prefix."""
Tree: TypeAlias = "dict[str, Tree | Path]"


def pattern_of(path: Path, allowed: Allowed) -> Path | Tree | None:
    """Return the pattern for *path*; a tree if *path* is above allowed paths; None: neither."""
    node: Path | Tree | None = _tree_of(allowed)
    for part in path:
        if not isinstance(node, dict):
            return None
        node = node.get(part) or node.get("*") or node.get(part.partition("/")[0] + "/*")
    return node


@lru_cache(maxsize=16)
def _tree_of(allowed: Allowed) -> Tree:
    """Return the patterns as a tree by their parts; its leaves are the patterns."""
    tree: Tree = {}
    for pattern in allowed:
        node = tree
        for part in pattern[:-1]:
            # No pattern lies below another one, so what is found here is a tree.
            node = cast("Tree", node.setdefault(part, {}))
        node[pattern[-1]] = pattern
    return tree


def value_at(source: Any, path: Path) -> Any | Absent:
    """Return the value at *path*; ABSENT if it is null or cannot be reached."""
    node = source
    for part in path:
        node = step(node, part)
        if node is None:
            return ABSENT
    return node


def step(node: Any, part: str) -> Any:
    """Return the value one part further down; None: there is none."""
    if isinstance(node, dict):
        return node.get(part)
    if isinstance(node, list):
        index = place_of(node, part)
        return None if index is None else node[index]
    return None


NAMES = ("name", "groupName", "manager")
"""The fields by which elements of lists go."""
_DIGITS = 5
"""Digits of an index: one less than this at most, so that a forged path costs nothing."""


def place_of(elements: list[Any], name: str) -> int | None:
    """Return the index of the element called *name*, the last of several; None: there is none."""
    # Of several variables with one name, the kubelet uses the last.
    for index in range(len(elements) - 1, -1, -1):
        element = elements[index]
        # Ray's groups of workers and a TrainJob's patches have no ``name``.
        if isinstance(element, dict) and name in map(element.get, NAMES):
            return index
    return _nameless_place(elements, name)


def _nameless_place(elements: list[Any], name: str) -> int | None:
    """Return *name* as the index of an element without a name; None: there is none."""
    # An AppWrapper's components have neither name; its webhook keeps their order.
    if not (
        name.isascii() and name.isdigit() and len(name) < _DIGITS and int(name) < len(elements)
    ):
        return None
    element = elements[int(name)]
    is_named = not isinstance(element, dict) or any(key in element for key in NAMES)
    return None if is_named else int(name)


def empty(part: str) -> Any:
    """Return the empty container, list or object, for a field *part* that has to be created."""
    return [] if part in KEYED_BY_NAME else {}


def to_pointer(path: Iterable[str]) -> str:
    """Write a path as a JSON Pointer (RFC 6901) with names in the place of list indices."""
    return "".join(f"/{escape(part)}" for part in path)


def from_pointer(pointer: str) -> Path:
    """Return the path that a JSON Pointer says.

    Raises:
        JsonPointerException: it is none.

    """
    return tuple(JsonPointer(pointer).parts)
