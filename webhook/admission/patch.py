"""Edits a Job's JSON by paths: a JSON Patch (RFC 6902) of edits, what stood there before, put back.

A path has names in the place of list indices. A patch is applied to the reviewed object as proof,
because one that does not apply is an error for the user even under ``failurePolicy: Ignore``: on
any doubt there is a PatchError and no patch. The record of what was submitted comes back on the
Job, where its owner may have changed it, so it is checked before it is used. This must not know
what edits are for, nor why a decision is undone.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from webhook.model import job as jobs
from webhook.model import quantity
from webhook.model.edits import (
    ABSENT,
    KEYED_BY_NAME,
    LISTED,
    Absent,
    Edit,
    Operation,
    Original,
    Path,
)
from webhook.model.fields import FieldError, Json
from webhook.model.job import ENV_PREFIX
from webhook.model.marks import MARKS, MARKS_OF_EDITS

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


_RECORD = f"metadata.annotations[{jobs.DECISION}].original"
_NAMED_TEXTS = frozenset({"labels", "annotations"})
_TEXTS = _NAMED_TEXTS | {"nodeSelector"}
_AMOUNTS = frozenset({"requests", "limits"})


def original_of(edits: Iterable[Edit], source: Mapping[str, Any]) -> Original:
    """Return the values of *source* at the paths of *edits*, with parents that are missing.

    What is missing or null is ABSENT.
    """
    values: dict[Path, Json | Absent] = {}
    for edit in edits:
        node: Any = source
        for depth, part in enumerate(edit.path, start=1):
            node = node.get(part) if isinstance(node, dict) else value_below(node, part)
            if node is None:
                for end in range(depth, len(edit.path) + 1):
                    values[edit.path[:end]] = ABSENT
                break
        else:
            values[edit.path] = node
    return values


def original_json(original: Original) -> dict[str, Json]:
    """Return the record as JSON Pointers with names for indices; ABSENT becomes null.

    What ``completed`` finds again by the object itself is left out.
    """
    missing = {path for path, value in original.items() if value is ABSENT}
    # What is between a missing parent and a path below it is recorded, too.
    above = {path[:-1] for path in missing if {path[:-1], path[:-2]} <= missing}
    ours = _read_by_variables(original)
    return {
        to_pointer(path): None if value is ABSENT else value
        for path, value in original.items()
        if path not in missing
        or not (
            path in above
            or path in ours
            or path[-1] in _NAMED_TEXTS
            or (path[-1] in MARKS_OF_EDITS and len(path) > 1 and path[-2] in _TEXTS)
        )
    }


def _read_by_variables(original: Original) -> frozenset[Path]:
    """Return the places of annotations from which literal variables may be read since."""
    return frozenset(
        (*path[:-5], "metadata", "annotations", ENV_PREFIX + path[-1])
        for path, value in original.items()
        if path[-2:-1] == ("env",)
        and path[-5:-3] in (("spec", "containers"), ("spec", "initContainers"))
        and isinstance(value, Mapping)
        and "valueFrom" not in value
    )


def original_from_json(record: Mapping[str, Any]) -> Original:
    """Read what ``original_json`` wrote; whether its paths may be edited is not checked here.

    Raises:
        FieldError: a key of *record* is no JSON Pointer.

    """
    values: dict[Path, Json | Absent] = {}
    for pointer, value in record.items():
        try:
            path = from_pointer(pointer)
        except JsonPointerException:
            path = ()
        if not path:
            raise FieldError(_RECORD, f"expected a JSON Pointer, got {pointer!r}")
        values[path] = ABSENT if value is None else value
    return values


def completed(original: Original, source: Mapping[str, Any], allowed: Allowed) -> Original:
    """Return *original* with what ``original_json`` leaves out, found by the decided *source*."""
    values = dict(original)
    for place in _read_by_variables(original):
        if value_at(source, place) is not ABSENT:
            values.setdefault(place, ABSENT)
    for place, texts in _texts_in(source, allowed):
        for mark in MARKS_OF_EDITS.intersection(texts):
            values.setdefault((*place, mark), ABSENT)
        # Kubernetes does not tell labels that are empty from none.
        if place[-1] in _NAMED_TEXTS and all(values.get((*place, key)) is ABSENT for key in texts):
            values.setdefault(place, ABSENT)
    _fill_parents(values)
    return values


def _fill_parents(values: dict[Path, Json | Absent]) -> None:
    """Record what is between a missing parent and a path below it as missing, too."""
    missing = [path for path, value in values.items() if value is ABSENT]
    for path in missing:
        tops = (end for end in range(1, len(path)) if values.get(path[:end]) is ABSENT)
        top = next(tops, len(path))
        values.update((path[:end], ABSENT) for end in range(top + 1, len(path)))


def _texts_in(source: Mapping[str, Any], allowed: Allowed) -> Iterator[tuple[Path, dict[str, Any]]]:
    """List the labels, annotations and node selectors of *source* that may be edited."""
    for pattern in {pattern[:-1] for pattern in allowed if pattern[-2] in _TEXTS}:
        for place in _expanded(source, pattern):
            texts = value_at(source, place)
            if isinstance(texts, dict):
                yield place, texts


def _expanded(node: Any, pattern: Path) -> Iterator[Path]:
    """List the paths of *pattern* below *node*, with names in the place of ``*``."""
    if not pattern:
        yield ()
        return
    part, rest = pattern[0], pattern[1:]
    for name in _names_in(node) if part == "*" else (part,):
        below = value_below(node, name)
        if below is not None:
            yield from ((name, *path) for path in _expanded(below, rest))


def _names_in(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from node
    elif isinstance(node, list):
        for index, element in enumerate(node):
            named = element if isinstance(element, dict) else {}
            names = (named[key] for key in NAMES if isinstance(named.get(key), str))
            yield next(names, str(index))


def undone(source: Mapping[str, Any], original: Original, allowed: Allowed) -> dict[str, Any]:
    """Return a copy of *source* with the submitted values put back, without a decision's marks.

    Raises:
        FieldError: the record has a path that is not in *allowed*, or a value of a wrong type.

    """
    _check_original(original, allowed)
    original = completed(original, source, allowed)
    restored = deepcopy(dict(source))
    # A decision edits only leaves, so a parent in the record is one that it had to create.
    parents = [path for path in original if isinstance(pattern_of(path, allowed), dict)]
    for path, value in original.items():
        if path not in parents:
            _put_back(restored, path, value)
    _take_marks(restored, original, allowed)
    # The deepest first: a parent is empty only after the ones below it are gone.
    for path in sorted(parents, key=len, reverse=True):
        _take_if_empty(restored, path)
    return restored


def _check_original(original: Original, allowed: Allowed) -> None:
    for path, value in original.items():
        pattern = pattern_of(path, allowed)
        fits = value is ABSENT if isinstance(pattern, dict) else _fits_pattern(path, value, pattern)
        if not fits:
            what = "may not be restored" if pattern is None else "has a value of a wrong type"
            raise FieldError(_RECORD, f"{to_pointer(path)} {what}")


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
    if last == "replicas":
        return type(value) is int
    if parent == "rollingUpdate":
        return type(value) in (int, str)
    if last == "tolerations":
        return isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict if last in ("affinity", "gpu") else str)


def _put_back(restored: dict[str, Any], path: Path, value: Json | Absent) -> None:
    node: Any = restored
    for part in path[:-1]:
        below = value_below(node, part)
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
        elements[:] = [item for item in elements if value_below(item, "name") != name]
    elif index is None:
        elements.append(deepcopy(value))
    else:
        elements[index] = deepcopy(value)


def _take_if_empty(restored: dict[str, Any], path: Path) -> None:
    parent, value = value_at(restored, path[:-1]), value_at(restored, path)
    if isinstance(parent, dict) and value in ({}, []):
        del parent[path[-1]]
    elif isinstance(parent, list) and isinstance(value, dict) and not value.keys() - {*NAMES}:
        parent.remove(value)


def _take_marks(restored: dict[str, Any], original: Original, allowed: Allowed) -> None:
    for place, texts in list(_texts_in(restored, allowed)):
        taken = [key for key in MARKS.intersection(texts) if (*place, key) not in original]
        for key in taken:
            del texts[key]
        if taken:
            _take_if_empty(restored, place)


_FREE = frozenset({"nodeSelector", "requests", "limits", "env"})
"""Fields of which every member may be patched, so that the whole field can be put back."""


_QUEUE: Path = ("metadata", "labels", jobs.QUEUE_LABEL)


def restoration(
    old: Mapping[str, Any], new: Mapping[str, Any], original: Original, *, starts: bool = False
) -> tuple[Edit, ...]:
    """List the edits to *new* that give back the values of *old*, the stored object.

    *original* is what was submitted; a value that differs from it is the user's own change and
    passes. *starts*: *new* lets the Job run, as an apply does if its manifest does not suspend it,
    and as Kueue does. A container that one of the two lacks is skipped. Whether the recorded places
    may be edited is checked where edits become a patch.
    """
    changes = _recorded_changes(old, new, original)
    if not _is_manifest(changes, starts=starts):
        # Nobody wants pods of one option in the queue of another, and Kueue never writes the queue.
        changes = [change for change in changes if change.path == _QUEUE]
    edits: dict[Path, Edit] = {}
    for change in changes:
        if change.is_parent:
            is_missing = change.submitted is ABSENT and change.now is ABSENT
            members = _members(change.path, change.decided) if is_missing else ()
            edits.update((edit.path, edit) for edit in members)
        # Only a submitted value that comes back is replaced (decision 0002).
        elif change.is_written and change.is_back:
            path = change.path
            edits[path] = Edit(path=path, value=change.decided, was=change.now)
    return tuple(edits.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What an update does at a recorded place."""

    path: Path
    submitted: Json | Absent
    decided: Any | Absent
    now: Any | Absent
    is_parent: bool
    """Whether the decision had to create it, for other places below it."""

    @property
    def is_written(self) -> bool:
        return bool(self.now != self.decided)

    @property
    def is_merged(self) -> bool:
        """Whether ``kubectl apply`` has merged the submitted variable into the stored one.

        The manifest does not know the stored ``valueFrom``, so that stays beside the ``value`` that
        comes back; the API server would refuse the two together.
        """
        if self.path[-2:-1] != ("env",):
            return False
        if not isinstance(self.decided, Mapping) or not isinstance(self.submitted, Mapping):
            return False
        return self.now in (
            {**self.decided, **self.submitted},
            # An empty value leaves the variable as it is.
            {**self.decided, **_without_empty(self.submitted)},
        )

    @property
    def is_back(self) -> bool:
        return self.is_merged or same_value(self.path, self.now, self.submitted)

    @property
    def is_settled(self) -> bool:
        """Whether the stored value is the submitted one."""
        return same_value(self.path, self.decided, self.submitted)

    @property
    def is_refused(self) -> bool:
        """Whether the API server would refuse the merged variable."""
        now = self.now if self.is_merged and isinstance(self.now, Mapping) else {}
        return "value" in now and "valueFrom" in now

    @property
    def is_of_pods(self) -> bool:
        """Whether it is of what pods are made of, and not of where they are scheduled."""
        *_, above, parent, last = ("", *self.path)
        # An element may have any name, such as that of a field.
        if parent in _AMOUNTS or parent == "env" or above in LISTED:
            return True
        is_elsewhere = parent in _TEXTS or parent == "rollingUpdate"
        return not is_elsewhere and last not in ("tolerations", "affinity")


def _recorded_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], original: Original
) -> list[_Change]:
    # A parent that a decision had to create is recorded as ABSENT, beside the leaves in it.
    above = {path[:end] for path in original for end in range(1, len(path))}
    return [
        _Change(path=path, submitted=submitted, decided=decided, now=now, is_parent=path in above)
        for path, submitted in original.items()
        for decided, now in _in_both(old, new, path)
    ]


def _is_manifest(changes: Iterable[_Change], *, starts: bool) -> bool:
    """Return whether an update writes the submitted manifest again.

    That writes all that it said of the pods' containers and of their number, which nobody else
    changes. If the decision changed none of it, the update has to write all submitted values:
    one alone is somebody's change. A place that holds its submitted value already, such as one
    that an earlier option had changed or that Kueue gave back, says nothing. So are a node
    selector and tolerations in an update that starts the Job, because Kueue then writes those
    of the flavor.
    """
    leaves = [change for change in changes if not (change.is_parent or change.is_settled)]
    said = [change for change in leaves if change.submitted is not ABSENT]
    of_pods = [change for change in said if change.is_of_pods]
    # If nothing was submitted there, the manifest takes off again what the decision has added.
    needed = of_pods or said or leaves
    if starts and not any(_is_never_kueues(change) for change in needed):
        return False
    # Nothing else merges two variables.
    if any(change.is_refused for change in changes):
        return True
    is_whole = all(change.is_written or change.is_merged for change in needed)
    return is_whole and any(change.is_written for change in needed)


def _is_never_kueues(change: _Change) -> bool:
    """Return whether Kueue does not write this place when it starts a Job."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/podset/podset.go#L135
    return change.is_of_pods or change.path[:1] == ("metadata",)


def _in_both(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path
) -> Iterator[tuple[Any | Absent, Any | Absent]]:
    """Yield the value at *path* in both, unless one lacks the container that *path* is in.

    Likewise for the group of pods that it is in.
    """
    for index, part in enumerate(path[:-2]):
        if part in LISTED:
            element = path[: index + 2]
            if ABSENT in (value_at(old, element), value_at(new, element)):
                return
    yield value_at(old, path), value_at(new, path)


def _without_empty(variable: Any) -> Any:
    """Return a variable as the API server sends it: without a value that is empty."""
    if isinstance(variable, Mapping) and variable.get("value") == "":
        return {key: value for key, value in variable.items() if key != "value"}
    return variable


def _members(path: Path, decided: Any | Absent) -> Iterator[Edit]:
    """List the edits that refill a field that was not submitted and is missing again."""
    if path[-1] in _FREE and isinstance(decided, (dict, list)):
        for name, value in _named(decided):
            yield Edit(path=(*path, name), value=value, was=ABSENT)


def _named(parent: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(parent, dict):
        yield from parent.items()
        return
    for entry in parent:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"], entry


def same_value(path: Path, value: Any, submitted: Json | Absent) -> bool:
    """Return whether two values at *path* are one, as amounts such as 1 and 1000m are."""
    if value == submitted or _without_empty(value) == _without_empty(submitted):
        return True
    # Clients write one amount in several ways.
    is_amount = len(path) > 2 and path[-2] in ("requests", "limits")  # noqa: PLR2004
    return is_amount and quantity.is_same(value, submitted)
