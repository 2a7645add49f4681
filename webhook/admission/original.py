"""Records what stood on a Job where a decision edits it, and puts it back.

The record comes back on the Job, where its owner may have changed it, so it is checked before it is
used. It must not know why a decision is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from jsonpointer import JsonPointerException

from webhook.admission.patch import (
    NAMES,
    Allowed,
    empty,
    from_pointer,
    pattern_of,
    place_of,
    to_pointer,
    value_at,
    value_below,
)
from webhook.model import job as jobs
from webhook.model import quantity
from webhook.model.edits import ABSENT, LISTED, Absent, Edit, Original, Path
from webhook.model.fields import FieldError, Json
from webhook.model.job import ENV_PREFIX
from webhook.model.marks import MARKS, MARKS_OF_EDITS

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
    below = {path for path in missing if path[:-1] in missing}
    above = {path[:-1] for path in below} & below
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
        return parent not in _TEXTS and last not in ("tolerations", "affinity")


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
