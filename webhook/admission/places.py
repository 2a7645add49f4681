"""Finds values in an object by named paths, and tells which paths may be edited.

It must not know what is edited there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias, cast

from webhook.model.edits import ABSENT, KEYED_BY_NAME, Absent, Path

Allowed: TypeAlias = tuple[Path, ...]
"""Patterns of paths; a part ``*`` is any text, ``domain/*`` any name with that prefix."""
Tree: TypeAlias = "dict[str, Tree | Path]"


def match(path: Path, allowed: Allowed) -> Path | Tree | None:
    """Return the pattern for *path*; a tree if *path* is above allowed paths; None: neither."""
    return find(path, tree_of(allowed))


def find(path: Path, tree: Tree) -> Path | Tree | None:
    """Return the same as ``match`` from a *tree* that was fetched once for many paths."""
    # Fetching the tree costs more than going down in it.
    node: Path | Tree | None = tree
    for part in path:
        if not isinstance(node, dict):
            return None
        node = node.get(part) or node.get("*") or node.get(part.partition("/")[0] + "/*")
    return node


@lru_cache(maxsize=16)
def tree_of(allowed: Allowed) -> Tree:
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


def place_of(elements: list[Any], name: str) -> int | None:
    """Return the index of the element called *name*, the last of several; None: there is none."""
    # Of several variables with one name, the kubelet uses the last.
    for index in range(len(elements) - 1, -1, -1):
        element = elements[index]
        if isinstance(element, dict) and element.get("name") == name:
            return index
    return None


def empty(part: str) -> Any:
    """Return the empty container, list or object, for a field *part* that has to be created."""
    return [] if part in KEYED_BY_NAME else {}
