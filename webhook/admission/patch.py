"""Turns edits into a JSON Patch (RFC 6902), applied to the reviewed object as proof.

A patch that does not apply is an error for the user even under ``failurePolicy: Ignore``: on any
doubt there is a PatchError and no patch. It must not know what edits are for.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from webhook.admission.paths import Allowed, empty, pattern_of, place_of, to_pointer, value_at
from webhook.model.edits import ABSENT, KEYED_BY_NAME, Edit, Operation, Path


class PatchError(Exception):
    """The edits make no patch that is certain to apply."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{to_pointer(self.path)}: {self.message}"


def operations(edits: Sequence[Edit], source: dict[str, Any], allowed: Allowed) -> list[Operation]:
    """Return *edits* as operations, applied to *source* in place as proof.

    An edit whose value is there already needs no operation. After an error *source* may be changed
    in part.

    Raises:
        PatchError: a path is not in *allowed*, is edited twice, cannot be reached, or does not have
            its value after the patch.

    """
    _check(edits, allowed)
    written: list[Operation] = []
    for edit in edits:
        # One after another, as the API server applies them: an operation may create the parent of
        # the next one, or shift the indices that it names.
        for operation in _operations(edit, source):
            _apply(operation, edit.path, source)
            written.append(operation)
    for edit in edits:
        if value_at(source, edit.path) != edit.value:
            raise PatchError(edit.path, "does not have its value after the patch")
    return written


def patched(
    source: Mapping[str, Any], edits: Sequence[Edit], allowed: Allowed
) -> Mapping[str, Any]:
    """Return *source* with *edits*, as a copy if there are any.

    Raises:
        PatchError: as for ``operations``.

    """
    if not edits:
        return source
    copied = deepcopy(dict(source))
    operations(edits, copied, allowed)
    return copied


def _check(edits: Sequence[Edit], allowed: Allowed) -> None:
    seen: set[Path] = set()
    for edit in edits:
        # A record on the Job may have been forged: it must not open any other path.
        if not isinstance(pattern_of(edit.path, allowed), tuple):
            raise PatchError(edit.path, "may not be patched")
        if edit.path in seen:
            raise PatchError(edit.path, "edited twice")
        seen.add(edit.path)


def _apply(operation: Operation, path: Path, source: dict[str, Any]) -> None:
    try:
        JsonPatch.operations[operation["op"]](operation).apply(source)
    except (JsonPatchException, JsonPointerException) as error:
        # The library's text holds the object, which nobody may read in a log.
        raise PatchError(path, f"does not apply: {type(error).__name__}") from None


def _operations(edit: Edit, source: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations that carry out one edit of *source* as it is now."""
    above: list[str] = []
    node: Any = source
    for depth, part in enumerate(edit.path[:-1]):
        key, below = _found(node, part, edit, depth)
        above.append(key)
        if below is None:
            if edit.value is not ABSENT:
                op = "replace" if isinstance(node, dict) and part in node else "add"
                yield {"op": op, "path": to_pointer(above), "value": _created(edit, depth)}
            return
        node = below
    if isinstance(node, dict):
        yield from _of_member(edit, node, above)
    elif isinstance(node, list):
        yield from _of_element(edit, node, above)
    else:
        raise PatchError(edit.path, f"no object at {to_pointer(above)}")


def _found(node: Any, part: str, edit: Edit, depth: int) -> tuple[str, Any]:
    """Return a part of the edit's path as a pointer has it, and what is there (None: nothing)."""
    if isinstance(node, dict):
        return part, node.get(part)
    index = place_of(node, part) if isinstance(node, list) else None
    if index is not None:
        return str(index), node[index]
    if isinstance(node, list) and _OWN_ELEMENTS in edit.path[:depth]:
        return "-", None
    raise _missing(edit, depth)


def _missing(edit: Edit, depth: int) -> PatchError:
    where = to_pointer(edit.path[:depth])
    return PatchError(edit.path, f"nothing called {edit.path[depth]} at {where}")


def _created(edit: Edit, depth: int) -> Any:
    """Return what has to be created at *depth* of the edit's path, with its value in it."""
    value = edit.value
    for at in range(len(edit.path) - 1, depth, -1):
        parent = _new(edit.path, at - 1)
        if isinstance(parent, dict):
            parent[edit.path[at]] = value
        elif at == len(edit.path) - 1 or _OWN_ELEMENTS in edit.path:
            parent.append(value)
        else:
            raise _missing(edit, at)
        value = parent
    return value


def _new(path: Path, depth: int) -> Any:
    """Return what has to be created at *depth* of a path: a field, or an element of a list."""
    above, part = path[depth - 1] if depth else "", path[depth]
    if above not in KEYED_BY_NAME or _OWN_ELEMENTS not in path[:depth]:
        return empty(part)
    return {"manager" if above == _OWN_ELEMENTS else "name": part}


def _of_member(edit: Edit, node: Mapping[str, Any], above: Sequence[str]) -> Iterator[Operation]:
    key = edit.path[-1]
    path = to_pointer((*above, key))
    if edit.value is ABSENT:
        if node.get(key) is not None:
            yield {"op": "remove", "path": path}
    elif key not in node:
        yield {"op": "add", "path": path, "value": edit.value}
    elif node[key] != edit.value:
        yield {"op": "replace", "path": path, "value": edit.value}


def _of_element(edit: Edit, node: list[Any], above: Sequence[str]) -> Iterator[Operation]:
    name = edit.path[-1]
    if edit.value is ABSENT:
        # All entries of that name go: with the last one gone, the one before it would count. From
        # the end, because indices shift.
        for index in range(len(node) - 1, -1, -1):
            if isinstance(node[index], dict) and node[index].get("name") == name:
                yield {"op": "remove", "path": to_pointer((*above, str(index)))}
        return
    place = place_of(node, name)
    if place is None:
        yield {"op": "add", "path": to_pointer((*above, "-")), "value": edit.value}
    elif node[place] != edit.value:
        yield {"op": "replace", "path": to_pointer((*above, str(place))), "value": edit.value}


_OWN_ELEMENTS = "runtimePatches"
"""A list of which elements are our own; so are lists below these. Elsewhere none is made."""
_ANNOTATIONS = (256 << 10) - (16 << 10)
"""Bytes of an object's annotations, keys and values: what Kubernetes allows, less room for Kueue
and for the record of later moves.
https://github.com/kubernetes/kubernetes/blob/v1.37.2/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go#L39
"""
_OBJECT = 1 << 20
"""Bytes of an object as it came: etcd takes 1.5 MiB, what is added included."""
_WITHOUT_REFERENCES = 2
_CHARACTER = 4
"""Most bytes of one."""


def too_large(source: Mapping[str, Any], edits: Sequence[Edit]) -> str:
    """Return what of *source* would be too large with *edits*, in words; empty: nothing."""
    size = len(marshal.dumps(dict(source), _WITHOUT_REFERENCES))
    added = sum(len(edit.value) for edit in edits if isinstance(edit.value, str))
    # Most Jobs are far smaller, and then no annotations need be counted.
    if size + _CHARACTER * added <= _ANNOTATIONS:
        return ""
    changed: dict[Path, dict[str, Any]] = {}
    for edit in edits:
        if edit.path[-2] == "annotations":
            changed.setdefault(edit.path[:-1], {})[edit.path[-1]] = edit.value
    for path, values in changed.items():
        before = value_at(source, path)
        after = {**(before if isinstance(before, dict) else {}), **values}
        if _bytes(after) > _ANNOTATIONS:
            return f"{'.'.join(path)} would have more than {_ANNOTATIONS >> 10} KiB"
    # The size that marshal makes is about that of JSON, in a tenth of the time.
    if changed and size > _OBJECT:
        return f"the Job has more than {_OBJECT >> 20} MiB"
    return ""


def _bytes(texts: Mapping[str, Any]) -> int:
    return sum(
        len(text.encode(errors="replace"))
        for pair in texts.items()
        if isinstance(pair[1], str)
        for text in pair
    )
