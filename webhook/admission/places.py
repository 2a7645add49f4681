"""Finding one's way in an object by named paths, and which places may be touched at all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias, cast

from webhook.model.edits import ABSENT, KEYED_BY_NAME, Absent, Path

Allowed: TypeAlias = tuple[Path, ...]
"""Patterns; the part ``*`` stands for any text, ``domain/*`` for any name of that domain."""
Tree: TypeAlias = "dict[str, Tree | Path]"


def match(path: Path, allowed: Allowed) -> Path | Tree | None:
    """Find the pattern for *path*; a tree where *path* is above allowed places; None: neither."""
    return find(path, tree_of(allowed))


def find(path: Path, tree: Tree) -> Path | Tree | None:
    """Do the same for many paths: looking the tree up costs more than going down in it."""
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
            # No pattern lies below another one, so whatever stands here is a tree.
            node = cast("Tree", node.setdefault(part, {}))
        node[pattern[-1]] = pattern
    return tree


def value_at(source: Any, path: Path) -> Any | Absent:
    """Read the value at *path*; null, and what cannot be reached, read as ABSENT."""
    node = source
    for part in path:
        node = step(node, part)
        if node is None:
            return ABSENT
    return node


def step(node: Any, part: str) -> Any:
    """Go down one part; None where there is nothing."""
    if isinstance(node, dict):
        return node.get(part)
    if isinstance(node, list):
        index = place_of(node, part)
        return None if index is None else node[index]
    return None


def place_of(elements: list[Any], name: str) -> int | None:
    """Find the element called *name*; the last of several, which for env is the one that counts."""
    for index in range(len(elements) - 1, -1, -1):
        element = elements[index]
        if isinstance(element, dict) and element.get("name") == name:
            return index
    return None


def empty(part: str) -> Any:
    """Make what stands at *part* when it has to be created."""
    return [] if part in KEYED_BY_NAME else {}
