"""Finds values in an object by named paths, and tells which paths may be edited.

It must not know what is edited there. Beside them, whose fields they are by ``managedFields``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

from webhook.model.edits import ABSENT, KEYED_BY_NAME, Absent, Operation, Path, to_pointer

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


_VALUE = "f:value"


def disowned(source: Mapping[str, Any], variables: Iterable[Path]) -> list[Operation]:
    """List the operations after which nobody owns the literal value of these variables."""
    metadata = source.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    claimed = [(*_fields_of(path), _VALUE) for path in variables]
    return [
        {"op": "remove", "path": to_pointer(("metadata", "managedFields", str(index), *path))}
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        for path in claimed
        if _is_there(entry, path)
    ]


def _fields_of(path: Path) -> Iterator[str]:
    """Yield the parts of a path as managed fields write it: ``f:env``, ``k:{"name":"A"}``."""
    yield "fieldsV1"
    above = ""
    for part in path:
        is_name = above in KEYED_BY_NAME
        key = json.dumps({"name": part}, separators=(",", ":"), ensure_ascii=False)
        yield f"k:{key}" if is_name else f"f:{part}"
        above = "" if is_name else part


def _is_there(node: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True
