"""Turns edits into a minimal JSON Patch (RFC 6902).

A patch that does not apply is an error for the user even under ``failurePolicy: Ignore``: it is
applied to the review's object as proof, and on any doubt there is a PatchError and no patch. It
must not know what edits are for.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from webhook.admission.original import original_json, original_of
from webhook.admission.paths import (
    Allowed,
    copy_of,
    empty,
    escaped,
    from_pointer,
    pattern_in,
    place_of,
    step,
    to_pointer,
    tree_of,
    value_at,
)
from webhook.model.edits import ABSENT, HOLE, KEYED_BY_NAME, Edit, Operation, Path, Prepared
from webhook.model.job import DECISION_ID
from webhook.model.pods import recalling


class CannotApplyError(ValueError):
    """An operation does not apply; its text says where and why."""


def apply(operation: Mapping[str, Any], source: dict[str, Any]) -> None:
    """Change *source* as *operation* says.

    Raises:
        CannotApplyError: it does not apply.

    """
    pointer = operation["path"]
    above, last = _parts(pointer)
    node: Any = source
    for part in above:
        # Nearly all steps go this way, and a function call for each would double their cost.
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
    # A copy: prepared values are shared by many reviews, each of which changes its own object.
    return value if type(value) is str else marshal.loads(marshal.dumps(value))  # noqa: S302


@recalling(most=2048, longest=1024)
def _parts(pointer: str) -> tuple[tuple[str, ...], str]:
    """Split a JSON Pointer (RFC 6901) into the parts that lead to the parent, and the last one.

    Raises:
        CannotApplyError: it is no pointer into an object.

    """
    if not pointer.startswith("/"):
        raise CannotApplyError(f"{pointer!r} points to no place in the object")
    *above, last = from_pointer(pointer)
    return tuple(above), last


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


class PatchError(Exception):
    """The edits make no patch that is certain to apply."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{to_pointer(self.path)}: {self.message}"


def operations(
    edits: Sequence[Edit],
    source: dict[str, Any],
    allowed: Allowed,
    prepared: Prepared | None = None,
) -> list[Operation]:
    """Return *edits* as operations, applied to *source* in place as proof.

    An edit whose value is there already needs no operation. With *prepared*, the first edits are
    its own, and its operations are used. After an error *source* may be changed in part.

    Raises:
        PatchError: a path is not in *allowed*, is edited twice, cannot be reached, or does not have
            its value after the patch.

    """
    written: list[Operation] = []
    if prepared is not None:
        written += prepared.operations
        _apply(written, source)
        edits = edits[len(prepared.edits) :]
    if not edits:
        return written
    _check(edits, allowed)
    # Paths name elements of lists; their indices hold only for the object under review.
    plan = _Operations(source)
    for edit in edits:
        plan.add(edit)
    added = plan.operations()
    _apply(added, source)
    _verify(edits, source)
    return written + added


def patched(
    source: Mapping[str, Any], edits: Sequence[Edit], allowed: Allowed
) -> Mapping[str, Any]:
    """Return *source* with *edits*, as a copy if there are any.

    Raises:
        PatchError: as for ``operations``.

    """
    if not edits:
        return source
    copied = copy_of(source)
    operations(edits, copied, allowed)
    return copied


def prepare(
    edits: tuple[Edit, ...], source: Mapping[str, Any], allowed: Allowed
) -> Prepared | None:
    """Return the operations that fit every object equal to *source*; None: there is no patch."""
    try:
        written = operations(edits, copy_of(source), allowed)
    except PatchError:
        return None
    original = original_of(edits, source)
    return Prepared(
        edits=edits,
        original=original,
        record=original_json(original),
        operations=tuple(written),
        open_edits=tuple(n for n, edit in enumerate(edits) if _is_hole(edit.path[-1], edit.value)),
        open_operations=tuple(n for n, operation in enumerate(written) if _is_open(operation)),
    )


def filled(prepared: Prepared, text: str) -> Prepared:
    """Return *prepared* with *text*, a decision's id, in the place of ``HOLE``."""
    edits, written = list(prepared.edits), list(prepared.operations)
    for index in prepared.open_edits:
        edits[index] = replace(edits[index], value=text)
    for index in prepared.open_operations:
        key, value = _last(written[index]), written[index]["value"]
        written[index] = {**written[index], "value": _filled(key, value, text)}
    return Prepared(
        edits=tuple(edits),
        original=prepared.original,
        record=prepared.record,
        operations=tuple(written),
    )


def _is_open(operation: Operation) -> bool:
    return _holds_hole(_last(operation), operation.get("value"))


def _last(operation: Operation) -> str:
    return from_pointer(operation["path"])[-1]


def _holds_hole(key: str, value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_hole(name, below) for name, below in value.items())
    return _is_hole(key, value)


def _filled(key: str, value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {name: _filled(name, below, text) for name, below in value.items()}
    return text if _is_hole(key, value) else value


def _is_hole(key: str, value: Any) -> bool:
    # Under another key the same text is the submitter's own.
    return key == DECISION_ID and value == HOLE


def _check(edits: Sequence[Edit], allowed: Allowed) -> None:
    seen: set[Path] = set()
    tree = tree_of(allowed)
    for edit in edits:
        # A record on the Job may have been forged: it must not open any other path.
        if not isinstance(pattern_in(edit.path, tree), tuple):
            raise PatchError(edit.path, "may not be patched")
        if edit.path in seen:
            raise PatchError(edit.path, "edited twice")
        seen.add(edit.path)


def _apply(added: Sequence[Operation], source: dict[str, Any]) -> None:
    try:
        for operation in added:
            apply(operation, source)
    except CannotApplyError as error:
        raise PatchError((), f"does not apply: {error}") from error


def _verify(edits: Sequence[Edit], source: dict[str, Any]) -> None:
    reached: dict[Path, Any] = {}
    for edit in edits:
        parent = edit.path[:-1]
        if parent not in reached:
            reached[parent] = value_at(source, parent)
        value = step(reached[parent], edit.path[-1])
        if (ABSENT if value is None else value) != edit.value:
            raise PatchError(edit.path, "does not have its value after the patch")


class _Operations:
    """The operations for one object, collected before any of them is applied."""

    def __init__(self, source: dict[str, Any]) -> None:
        self._source = source
        self._operations: list[Operation] = []
        self._reached: dict[Path, tuple[Any, str]] = {}
        """Parents that exist, by path: (value, pointer); most are shared by several edits."""
        self._created: dict[str, Any] = {}
        """Parents that do not exist yet, by pointer: each is added whole, in one operation."""
        self._members: dict[str, tuple[Mapping[str, Any], list[Operation]]] = {}
        """By pointer of an object: what it is, and the operations on its members."""
        self._removals: list[tuple[str, int]] = []
        """(pointer of a list, index): done last and from the end, because indices shift."""

    def operations(self) -> list[Operation]:
        return [
            *chain.from_iterable(
                _together(pointer, *members) for pointer, members in self._members.items()
            ),
            *self._operations,
            *(
                {"op": "remove", "path": f"{pointer}/{index}"}
                for pointer, index in sorted(self._removals, key=lambda item: -item[1])
            ),
        ]

    def add(self, edit: Edit) -> None:
        parent = edit.path[:-1]
        if parent not in self._reached:
            pointer, node = "", self._source
            for depth, part in enumerate(parent):
                if _is_missing_element(node, part, parent[:depth]):
                    self._create(edit, depth, f"{pointer}/-", is_new=True)
                    return
                below, last = self._below(node, part, pointer, edit)
                pointer = f"{pointer}/{last}"
                if below is None:
                    self._create(edit, depth, pointer, is_new=part not in node)
                    return
                node = below
            self._reached[parent] = node, pointer
        self._set(edit, *self._reached[parent])

    def _below(self, node: Any, part: str, pointer: str, edit: Edit) -> tuple[Any, str]:
        """Return the value one part further down (None: nothing) and the pointer's last part."""
        if isinstance(node, dict):
            return node.get(part), escaped(part)
        index = place_of(node, part) if isinstance(node, list) else None
        if index is None:
            raise PatchError(edit.path, f"nothing called {part} at {pointer}")
        return node[index], str(index)

    def _create(self, edit: Edit, depth: int, pointer: str, *, is_new: bool) -> None:
        if edit.value is ABSENT:
            return
        if pointer not in self._created:
            value = _new(edit.path, depth)
            self._created[pointer] = value
            op = "add" if is_new else "replace"
            self._operations.append({"op": op, "path": pointer, "value": value})
        node = self._created[pointer]
        for at, part in enumerate(edit.path[depth + 1 : -1], start=depth + 1):
            below = step(node, part)
            if below is None:
                below = _new(edit.path, at)
                _insert(edit, node, part, below, pointer)
            node = below
        if isinstance(node, list):
            node.append(edit.value)
        else:
            node[edit.path[-1]] = edit.value

    def _set(self, edit: Edit, node: Any, pointer: str) -> None:
        if isinstance(node, dict):
            self._set_member(edit, node, pointer)
        elif isinstance(node, list):
            self._set_element(edit, node, pointer)
        else:
            raise PatchError(edit.path, f"no object at {pointer}")

    def _set_member(self, edit: Edit, node: Mapping[str, Any], pointer: str) -> None:
        key = edit.path[-1]
        path = f"{pointer}/{escaped(key)}"
        _, members = self._members.setdefault(pointer, (node, []))
        if edit.value is ABSENT:
            if node.get(key) is not None:
                members.append({"op": "remove", "path": path})
        elif key not in node:
            members.append({"op": "add", "path": path, "value": edit.value})
        elif node[key] != edit.value:
            members.append({"op": "replace", "path": path, "value": edit.value})

    def _set_element(self, edit: Edit, node: list[Any], pointer: str) -> None:
        name = edit.path[-1]
        if edit.value is ABSENT:
            # All entries of that name go: with the last one gone, the one before it would count.
            self._removals += [
                (pointer, index)
                for index, element in enumerate(node)
                if isinstance(element, dict) and element.get("name") == name
            ]
            return
        index = place_of(node, name)
        if index is None:
            self._operations.append({"op": "add", "path": f"{pointer}/-", "value": edit.value})
        elif node[index] != edit.value:
            path = f"{pointer}/{index}"
            self._operations.append({"op": "replace", "path": path, "value": edit.value})


def _new(path: Path, depth: int) -> Any:
    """Return what has to be created at *depth* of a path: a field, or an element of a list."""
    above, part = path[depth - 1] if depth else "", path[depth]
    if above not in KEYED_BY_NAME or _OWN_ELEMENTS not in path[:depth]:
        return empty(part)
    return {"manager" if above == _OWN_ELEMENTS else "name": part}


def _insert(edit: Edit, node: Any, part: str, below: Any, pointer: str) -> None:
    """Put *below* into what is being created at *pointer*."""
    if isinstance(node, dict):
        node[part] = below
    elif isinstance(node, list) and _OWN_ELEMENTS in edit.path:
        node.append(below)
    else:
        raise PatchError(edit.path, f"nothing called {part} at {pointer}")


def _is_missing_element(node: Any, name: str, path: Path) -> bool:
    """Tell whether the list at *path* may get an element of ours, and has none of that name."""
    return isinstance(node, list) and _OWN_ELEMENTS in path and place_of(node, name) is None


def _together(pointer: str, node: Mapping[str, Any], members: list[Operation]) -> list[Operation]:
    """Return one operation in the place of several on the members of the object at *pointer*."""
    # The API server applies the patch to the very object that is reviewed, so nobody else's member
    # is lost. Each operation costs both ends more than the text of a few members.
    if len(members) < _SEVERAL or pointer.rpartition("/")[2] not in _FLAT:
        return members
    if len(marshal.dumps(dict(node), _WITHOUT_REFERENCES)) > _REPEATED:
        return members
    after = dict(node)
    for operation in members:
        apply({**operation, "path": operation["path"][len(pointer) :]}, after)
    return [{"op": "replace", "path": pointer, "value": after}]


_OWN_ELEMENTS = "runtimePatches"
"""A list of which elements are our own; so are lists below these. Elsewhere none is made."""
_FLAT = frozenset({"labels", "annotations", "nodeSelector", "requests", "limits"})
"""Objects below whose members nothing is edited."""
_SEVERAL = 2
_REPEATED = 512
"""Bytes of an object that may be sent again as a whole."""
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
