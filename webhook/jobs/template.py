"""Turns two versions of a pod template into edits, and refuses templates too large to decide.

Every job kind has its templates at paths of its own, which this must not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.model import fields
from webhook.model.edits import ABSENT, Absent, Edit, Path
from webhook.model.fields import FieldError, Json, child
from webhook.model.pods import Container, PodTemplate

_CONTAINER: tuple[Path, ...] = (
    ("image",),
    ("env", "*"),
    ("resources", "requests", "*"),
    ("resources", "limits", "*"),
)

ALLOWED: tuple[Path, ...] = (
    ("metadata", "labels", "*"),
    ("metadata", "annotations", "*"),
    ("spec", "nodeSelector", "*"),
    ("spec", "tolerations"),
    ("spec", "affinity"),
    ("spec", "runtimeClassName"),
    *(("spec", "containers", "*", *pattern) for pattern in _CONTAINER),
    *(("spec", "initContainers", "*", *pattern) for pattern in _CONTAINER),
)
"""The paths below a pod template that may be patched."""

_MOST_CONTAINERS = 100
"""In all pod templates of a Job."""
_MOST_ENTRIES = 2000
"""Names and values in one of the fields below. A decision reads each of them, and each container,
several times for each option; no pod that could run has more of them."""
_LONGEST_ENTRY = 317
"""Characters of a key with its prefix: Kubernetes allows nothing longer in these fields."""
_LISTED = ("nodeSelector", "tolerations", "affinity", "overhead", "resourceClaims")


def check_containers(source: Mapping[str, Any], path: str, *, others: int = 0) -> int:
    """Refuse a pod template with containers that no patch could name, or with very many.

    *others*: containers of the Job's other templates. Return how many this one has.

    Raises:
        FieldError: there are so many that other reviews would have to wait, or one has no name of
            its own; the API server refuses the latter after us.

    """
    spec, here = fields.mapping(source, "spec", path), child(path, "spec")
    count = sum(len(fields.sequence(spec, key, here)) for key in ("containers", "initContainers"))
    if others + count > _MOST_CONTAINERS:
        total = f"{others + count} containers"
        raise FieldError(here, f"{total}, too many to decide (most: {_MOST_CONTAINERS})")
    names: set[str] = set()
    for key in ("containers", "initContainers"):
        for container, where in fields.objects(spec, key, here):
            name = fields.text(container, "name", where)
            if not name or name in names:
                raise FieldError(child(where, "name"), "expected a name of its own")
            names.add(name)
    return count


def check_entries(source: Mapping[str, Any], path: str) -> None:
    """Refuse a pod template with too many or too long entries in fields that a decision reads.

    Raises:
        FieldError: its path is that of the field.

    """
    spec, here = fields.mapping(source, "spec", path), child(path, "spec")
    listed = [(spec.get(key), child(here, key)) for key in _LISTED]
    for key in ("containers", "initContainers"):
        for container, where in fields.objects(spec, key, here):
            listed.append((container.get("resources"), child(where, "resources")))
            if len(fields.sequence(container, "env", where)) > _MOST_ENTRIES:
                raise FieldError(child(where, "env"), "too many variables to decide")
    listed.append((spec.get("resources"), child(here, "resources")))
    for value, where in listed:
        entries = _entries(value)
        if len(entries) > _MOST_ENTRIES:
            raise FieldError(where, f"more than {_MOST_ENTRIES} entries are too many to decide")
        if any(isinstance(entry, str) and len(entry) > _LONGEST_ENTRY for entry in entries):
            raise FieldError(where, f"an entry of more than {_LONGEST_ENTRY} characters")


def _entries(value: Any) -> list[Any]:
    """List the values and keys in nested lists and objects; stop once they are too many."""
    entries: list[Any] = []
    left = [value]
    while left and len(entries) <= _MOST_ENTRIES:
        nested = left.pop()
        if isinstance(nested, dict):
            entries += nested
            left += nested.values()
        elif isinstance(nested, list):
            left += nested
        else:
            entries.append(nested)
    return entries


def edits(path: Path, before: PodTemplate, after: PodTemplate) -> list[Edit]:
    """List the differences between two versions of the template at *path*."""
    metadata, spec = (*path, "metadata"), (*path, "spec")
    return [
        *text_edits((*metadata, "labels"), before.labels, after.labels),
        *text_edits((*metadata, "annotations"), before.annotations, after.annotations),
        *_all_of((*spec, "containers"), before.containers, after.containers),
        *_all_of((*spec, "initContainers"), before.init_containers, after.init_containers),
        *text_edits((*spec, "nodeSelector"), before.node_selector, after.node_selector),
        # These have no keys by which their parts could be named, so each is replaced as a whole.
        *whole_edit((*spec, "tolerations"), listed(before), listed(after)),
        *whole_edit((*spec, "affinity"), before.affinity, after.affinity),
        *whole_edit((*spec, "runtimeClassName"), before.runtime_class, after.runtime_class),
    ]


def text_edits(path: Path, before: Mapping[str, str], after: Mapping[str, str]) -> list[Edit]:
    """List the differences between two objects of strings, key by key."""
    if before == after:
        return []
    changes = []
    for key, value in after.items():
        if before.get(key) != value:
            changes.append(Edit(path=(*path, key), value=value, was=before.get(key, ABSENT)))
    for key, value in before.items():
        if key not in after:
            changes.append(Edit(path=(*path, key), value=ABSENT, was=value))
    return changes


def _all_of(path: Path, before: Sequence[Container], after: Sequence[Container]) -> Iterator[Edit]:
    for old, new in zip(before, after, strict=True):
        # Adapting keeps the containers and their order, and those that it does not change as such.
        if old is not new:
            yield from container_edits((*path, new.name), old, new)


def container_edits(path: Path, before: Container, after: Container) -> Iterator[Edit]:
    """Yield the differences between two versions of the container at *path*."""
    resources = (*path, "resources")
    old, new = before.resources, after.resources
    yield from text_edits((*resources, "requests"), old.requests, new.requests)
    yield from text_edits((*resources, "limits"), old.limits, new.limits)
    yield from env_edits((*path, "env"), before, after)
    yield from whole_edit((*path, "image"), before.image or None, after.image or None)


def env_edits(path: Path, before: Container, after: Container) -> Iterator[Edit]:
    """Yield the differences between variables by name; of several with one name the last counts."""
    if before.env is after.env:
        return
    old = {str(entry.get("name")): entry for entry in before.env}
    new = {str(entry.get("name")): entry for entry in after.env}
    for name in {**old, **new}:
        was, value = old.get(name, ABSENT), new.get(name, ABSENT)
        if was != value:
            yield Edit(path=(*path, name), value=value, was=was)


def whole_edit(path: Path, before: Json, after: Json) -> Iterator[Edit]:
    """Yield the edit that replaces a field as a whole, if it differs; None: it is not there."""
    if before != after:
        yield Edit(path=path, value=_or_absent(after), was=_or_absent(before))


def _or_absent(value: Json) -> Json | Absent:
    return ABSENT if value is None else value


def listed(template: PodTemplate) -> Json:
    """Return the tolerations as the object has them; None: there are none."""
    return list(template.tolerations) or None
