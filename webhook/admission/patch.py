"""Turns edits into a JSON Patch (RFC 6902), applied to the reviewed object as proof.

A path has names in the place of list indices. A patch that does not apply is an error for the user
even under ``failurePolicy: Ignore``: on any doubt there is a PatchError and no patch. It must not
know what edits are for.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeAlias, cast

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from webhook.model.edits import (
    ABSENT,
    KEYED_BY_NAME,
    Absent,
    Edit,
    Operation,
    Path,
)

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
        # Most nodes are objects, of each of which many paths are asked.
        node = node.get(part) if isinstance(node, dict) else value_below(node, part)
        if node is None:
            return ABSENT
    return node


def value_below(node: Any, part: str) -> Any:
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
    pointer = ""
    for part in path:
        pointer += "/" + part.replace("~", "~0").replace("/", "~1")
    return pointer


def from_pointer(pointer: str) -> Path:
    """Return the path that a JSON Pointer says.

    Raises:
        JsonPointerException: it is none.

    """
    return tuple(JsonPointer(pointer).parts)


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
        text = operation["path"]
        pointer = _kept_pointer(text) if len(text) <= _LONGEST_KEPT else _Pointer(text)
        read = {**operation, "path": pointer}
        JsonPatch.operations[operation["op"]](read).apply(source)
    except (JsonPatchException, JsonPointerException) as error:
        # The library's text holds the object, which nobody may read in a log.
        raise PatchError(path, f"does not apply: {type(error).__name__}") from None


_LONGEST_KEPT = 256
"""Characters of a pointer that is read once for all Jobs: few differ from Job to Job."""


class _Pointer(JsonPointer):
    """A pointer that remembers its text, and steps through objects by one look-up."""

    path = ""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path = text

    def to_last(self, doc: Any) -> tuple[Any, Any]:
        # The library asks four times what kind of value it has before it does the same.
        *above, last = self.parts
        for part in above:
            doc = doc[part] if type(doc) is dict and part in doc else self.walk(doc, part)
        return doc, last if type(doc) is dict else self.get_part(doc, last)


_kept_pointer = lru_cache(maxsize=1024)(_Pointer)


def _operations(edit: Edit, source: dict[str, Any]) -> list[Operation]:
    """List the operations that carry out one edit of *source* as it is now."""
    above: list[str] = []
    node: Any = source
    for depth, part in enumerate(edit.path[:-1]):
        is_object = isinstance(node, dict)
        key, below = (part, node.get(part)) if is_object else _found(node, part, edit, depth)
        above.append(key)
        if below is None:
            if edit.value is ABSENT:
                return []
            op = "replace" if isinstance(node, dict) and part in node else "add"
            return [{"op": op, "path": to_pointer(above), "value": _created(edit, depth)}]
        node = below
    if isinstance(node, dict):
        return _of_member(edit, node, above)
    if isinstance(node, list):
        return _of_element(edit, node, above)
    raise PatchError(edit.path, f"no object at {to_pointer(above)}")


def _found(node: Any, part: str, edit: Edit, depth: int) -> tuple[str, Any]:
    """Return an element's name in the edit's path as a pointer has it, and the element.

    None: there is none.
    """
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


def _of_member(edit: Edit, node: Mapping[str, Any], above: Sequence[str]) -> list[Operation]:
    key = edit.path[-1]
    path = to_pointer((*above, key))
    if edit.value is ABSENT:
        return [{"op": "remove", "path": path}] if node.get(key) is not None else []
    if key not in node:
        return [{"op": "add", "path": path, "value": edit.value}]
    if node[key] != edit.value:
        return [{"op": "replace", "path": path, "value": edit.value}]
    return []


def _of_element(edit: Edit, node: list[Any], above: Sequence[str]) -> list[Operation]:
    name = edit.path[-1]
    if edit.value is ABSENT:
        # All entries of that name go: with the last one gone, the one before it would count. From
        # the end, because indices shift.
        return [
            {"op": "remove", "path": to_pointer((*above, str(index)))}
            for index in range(len(node) - 1, -1, -1)
            if isinstance(node[index], dict) and node[index].get("name") == name
        ]
    place = place_of(node, name)
    if place is None:
        return [{"op": "add", "path": to_pointer((*above, "-")), "value": edit.value}]
    if node[place] != edit.value:
        return [{"op": "replace", "path": to_pointer((*above, str(place))), "value": edit.value}]
    return []


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
    added = sum([len(edit.value) for edit in edits if isinstance(edit.value, str)])
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
