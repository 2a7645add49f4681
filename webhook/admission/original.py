"""Finds values in an object by named paths, records the submitted ones, and puts them back exactly.

The record comes back on the Job, where its owner may have changed it, so it is checked before it is
used. It must not know why a decision is undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeAlias, cast

from webhook.model import fields
from webhook.model import job as jobs
from webhook.model.edits import (
    ABSENT,
    KEYED_BY_NAME,
    Absent,
    Edit,
    Operation,
    Original,
    Path,
    from_pointer,
    to_pointer,
)
from webhook.model.fields import FieldError, Json
from webhook.model.marks import MARKS

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


_PATH = f"metadata.annotations[{jobs.DECISION}].original"
_TEXTS = frozenset({"labels", "annotations", "nodeSelector"})
_AMOUNTS = frozenset({"requests", "limits"})


def original_of(edits: Iterable[Edit], source: Mapping[str, Any]) -> Original:
    """Return the values of *source* at the paths of *edits*, with parents that are missing.

    What is missing or null is ABSENT.
    """
    values: dict[Path, Json | Absent] = {}
    # Most edits share their parents, and the way down to these is what costs.
    reached: dict[Path, Any] = {}
    for edit in edits:
        *above, last = edit.path
        parent = tuple(above)
        if parent not in reached:
            reached[parent] = _reach(source, parent, values)
        node = step(reached[parent], last)
        values[edit.path] = ABSENT if node is None else node
    return values


def _reach(source: Mapping[str, Any], path: Path, values: dict[Path, Json | Absent]) -> Any:
    """Return the parent at *path*; None: it is missing, and recorded so with those above it."""
    node: Any = source
    for depth, part in enumerate(path, start=1):
        node = step(node, part)
        if node is None:
            values.update((path[:end], ABSENT) for end in range(depth, len(path) + 1))
            break
    return node


def to_json(original: Original) -> dict[str, Json]:
    """Return the record as JSON Pointers with names for indices; ABSENT becomes null."""
    return {
        to_pointer(path): None if value is ABSENT else value for path, value in original.items()
    }


def from_json(source: Any) -> Original:
    """Read what ``to_json`` wrote; whether its paths may be edited is not checked here.

    Raises:
        FieldError: *source* is no object of JSON Pointers.

    """
    values: dict[Path, Json | Absent] = {}
    for pointer, value in fields.as_mapping(source, _PATH).items():
        if not pointer.startswith("/"):
            raise FieldError(_PATH, f"expected a JSON Pointer, got {pointer!r}")
        values[from_pointer(pointer)] = ABSENT if value is None else value
    return values


def undone(source: Mapping[str, Any], original: Original, allowed: Allowed) -> dict[str, Any]:
    """Return a copy of *source* with the submitted values put back, without a decision's marks.

    Raises:
        FieldError: the record has a path that is not in *allowed*, or a value of a wrong type.

    """
    _check(original, allowed)
    restored: dict[str, Any] = deepcopy(dict(source))
    # A decision edits only leaves, so a parent in the record is one that it had to create.
    parents = [path for path in original if isinstance(match(path, allowed), dict)]
    for path, value in original.items():
        if path not in parents:
            _put_back(restored, path, value)
    _take_marks(restored, original, allowed)
    # The deepest first: a parent is empty only after the ones below it are gone.
    for path in sorted(parents, key=len, reverse=True):
        _take_if_empty(restored, path)
    return restored


def _check(original: Original, allowed: Allowed) -> None:
    for path, value in original.items():
        pattern = match(path, allowed)
        fits = value is ABSENT if isinstance(pattern, dict) else _fits_pattern(path, value, pattern)
        if not fits:
            what = "may not be restored" if pattern is None else "has a value of a wrong type"
            raise FieldError(_PATH, f"{to_pointer(path)} {what}")


def _fits_pattern(path: Path, value: Json | Absent, pattern: Path | None) -> bool:
    if pattern is None or value is ABSENT:
        return pattern is not None
    *_, parent, last = pattern
    if parent in _TEXTS:
        return isinstance(value, str)
    if parent in _AMOUNTS:
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if parent == "env":
        return isinstance(value, dict) and value.get("name") == path[-1]
    if last == "tolerations":
        return isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict if last == "affinity" else str)


def _put_back(restored: dict[str, Any], path: Path, value: Json | Absent) -> None:
    node: Any = restored
    for part in path[:-1]:
        below = step(node, part)
        if below is None:
            if value is ABSENT or not isinstance(node, dict):
                # There is nothing to remove, or the container is gone, and that is not recreated.
                return
            below = node[part] = empty(part)
        node = below
    if isinstance(node, dict):
        if value is ABSENT:
            node.pop(path[-1], None)
        else:
            node[path[-1]] = deepcopy(value)
    elif isinstance(node, list):
        _put_element_back(node, path[-1], value)


def _put_element_back(elements: list[Any], name: str, value: Json | Absent) -> None:
    index = place_of(elements, name)
    if value is ABSENT:
        elements[:] = [item for item in elements if step(item, "name") != name]
    elif index is None:
        elements.append(deepcopy(value))
    else:
        elements[index] = deepcopy(value)


def _take_if_empty(restored: dict[str, Any], path: Path) -> None:
    parent, value = value_at(restored, path[:-1]), value_at(restored, path)
    if isinstance(parent, dict) and value in ({}, []):
        del parent[path[-1]]


def _take_marks(restored: dict[str, Any], original: Original, allowed: Allowed) -> None:
    for place in {pattern[:-1] for pattern in allowed if pattern[-2] in _TEXTS}:
        texts = value_at(restored, place)
        if not isinstance(texts, dict):
            continue
        taken = [key for key in MARKS.intersection(texts) if (*place, key) not in original]
        for key in taken:
            del texts[key]
        if taken:
            _take_if_empty(restored, place)
