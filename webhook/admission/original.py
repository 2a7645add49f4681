"""Records the submitted values at edited paths, and puts them back exactly.

The record comes back on the Job, where its owner may have changed it, so it is checked before it is
used. It must not know why a decision is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from webhook.admission import patch
from webhook.admission.patch import Allowed
from webhook.model import fields
from webhook.model import job as jobs
from webhook.model.edits import ABSENT, Absent, Edit, Original, Path, from_pointer, to_pointer
from webhook.model.fields import FieldError, Json
from webhook.model.marks import MARKS

_PATH = f"metadata.annotations[{jobs.DECISION}].original"
_TEXTS = frozenset({"labels", "annotations", "nodeSelector"})
_AMOUNTS = frozenset({"requests", "limits"})


def original_of(edits: Iterable[Edit], source: Mapping[str, Any]) -> Original:
    """Return the value in *source* at each path of *edits*, and at each missing parent of these.

    What is missing or null is ABSENT.
    """
    original: dict[Path, Json | Absent] = {}
    # Most edits share their parents, and the way down to these is what costs.
    reached: dict[Path, Any] = {}
    for edit in edits:
        *above, last = edit.path
        parent = tuple(above)
        if parent not in reached:
            reached[parent] = _reach(source, parent, original)
        node = patch.step(reached[parent], last)
        original[edit.path] = ABSENT if node is None else node
    return original


def _reach(source: Mapping[str, Any], path: Path, original: dict[Path, Json | Absent]) -> Any:
    """Return the parent at *path*; None: it is missing, and recorded so with those above it."""
    node: Any = source
    for depth, part in enumerate(path, start=1):
        node = patch.step(node, part)
        if node is None:
            original.update((path[:end], ABSENT) for end in range(depth, len(path) + 1))
            break
    return node


def to_json(original: Original) -> dict[str, Json]:
    """Return JSON Pointer, with names instead of indices, to value; ABSENT becomes null."""
    return {
        to_pointer(path): None if value is ABSENT else value for path, value in original.items()
    }


def from_json(source: Any) -> Original:
    """Read what ``to_json`` wrote; whether its paths may be edited is not checked here.

    Raises:
        FieldError: *source* is no object of JSON Pointers.

    """
    original: dict[Path, Json | Absent] = {}
    for pointer, value in fields.as_mapping(source, _PATH).items():
        if not pointer.startswith("/"):
            raise FieldError(_PATH, f"expected a JSON Pointer, got {pointer!r}")
        original[from_pointer(pointer)] = ABSENT if value is None else value
    return original


def undone(source: Mapping[str, Any], original: Original, allowed: Allowed) -> dict[str, Any]:
    """Return a copy of *source* with the submitted values put back, without a decision's marks.

    Raises:
        FieldError: the record has a path that is not in *allowed*, or a value of a wrong type.

    """
    _check(original, allowed)
    restored: dict[str, Any] = deepcopy(dict(source))
    # A decision edits only leaves, so a parent in the record is one that it had to create.
    parents = [path for path in original if isinstance(patch.match(path, allowed), dict)]
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
        pattern = patch.match(path, allowed)
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
        return isinstance(value, list) and all(isinstance(toleration, dict) for toleration in value)
    return isinstance(value, dict if last == "affinity" else str)


def _put_back(restored: dict[str, Any], path: Path, value: Json | Absent) -> None:
    node: Any = restored
    for part in path[:-1]:
        below = patch.step(node, part)
        if below is None:
            if value is ABSENT or not isinstance(node, dict):
                # There is nothing to remove, or the container is gone, and that is not recreated.
                return
            below = node[part] = patch.empty(part)
        node = below
    if isinstance(node, dict):
        if value is ABSENT:
            node.pop(path[-1], None)
        else:
            node[path[-1]] = deepcopy(value)
    elif isinstance(node, list):
        _put_element_back(node, path[-1], value)


def _put_element_back(elements: list[Any], name: str, value: Json | Absent) -> None:
    index = patch.place_of(elements, name)
    if value is ABSENT:
        elements[:] = [element for element in elements if patch.step(element, "name") != name]
    elif index is None:
        elements.append(deepcopy(value))
    else:
        elements[index] = deepcopy(value)


def _take_if_empty(restored: dict[str, Any], path: Path) -> None:
    parent, value = patch.value_at(restored, path[:-1]), patch.value_at(restored, path)
    if isinstance(parent, dict) and value in ({}, []):
        del parent[path[-1]]


def _take_marks(restored: dict[str, Any], original: Original, allowed: Allowed) -> None:
    for place in {pattern[:-1] for pattern in allowed if pattern[-2] in _TEXTS}:
        texts = patch.value_at(restored, place)
        if not isinstance(texts, dict):
            continue
        taken = [key for key in MARKS.intersection(texts) if (*place, key) not in original]
        for key in taken:
            del texts[key]
        if taken:
            _take_if_empty(restored, place)
