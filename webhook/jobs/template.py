"""What changed between two pod templates, as edits; every job kind has its templates somewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from webhook.model.edits import ABSENT, Absent, Edit, Path
from webhook.model.fields import Json
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
"""Below a pod template, the places that may be patched."""


def edits(path: Path, before: PodTemplate, after: PodTemplate) -> Iterator[Edit]:
    """List the differences between two templates that stand at *path*."""
    metadata, spec = (*path, "metadata"), (*path, "spec")
    yield from text_edits((*metadata, "labels"), before.labels, after.labels)
    yield from text_edits((*metadata, "annotations"), before.annotations, after.annotations)
    yield from _all_of((*spec, "containers"), before.containers, after.containers)
    yield from _all_of((*spec, "initContainers"), before.init_containers, after.init_containers)
    yield from text_edits((*spec, "nodeSelector"), before.node_selector, after.node_selector)
    yield from _whole((*spec, "tolerations"), _listed(before), _listed(after))
    yield from _whole((*spec, "affinity"), before.affinity, after.affinity)
    yield from _whole((*spec, "runtimeClassName"), before.runtime_class, after.runtime_class)


def text_edits(path: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Edit]:
    """List the differences between two objects of strings, key by key."""
    if before == after:
        return
    for key, value in after.items():
        if before.get(key) != value:
            yield Edit(path=(*path, key), value=value, was=before.get(key, ABSENT))
    for key, value in before.items():
        if key not in after:
            yield Edit(path=(*path, key), value=ABSENT, was=value)


def _all_of(path: Path, before: Sequence[Container], after: Sequence[Container]) -> Iterator[Edit]:
    for old, new in zip(before, after, strict=True):
        if old is not new:
            yield from _of_one((*path, new.name), old, new)


def _of_one(path: Path, before: Container, after: Container) -> Iterator[Edit]:
    resources = (*path, "resources")
    old, new = before.resources, after.resources
    yield from text_edits((*resources, "requests"), old.requests, new.requests)
    yield from text_edits((*resources, "limits"), old.limits, new.limits)
    yield from _env((*path, "env"), before, after)
    yield from _whole((*path, "image"), before.image or None, after.image or None)


def _env(path: Path, before: Container, after: Container) -> Iterator[Edit]:
    """Compare by name; of several entries with one name the last counts, as for the kubelet."""
    if before.env is after.env:
        return
    old = {str(entry.get("name")): entry for entry in before.env}
    new = {str(entry.get("name")): entry for entry in after.env}
    for name in {**old, **new}:
        was, value = old.get(name, ABSENT), new.get(name, ABSENT)
        if was != value:
            yield Edit(path=(*path, name), value=value, was=was)


def _whole(path: Path, before: Json, after: Json) -> Iterator[Edit]:
    if before != after:
        yield Edit(path=path, value=_or_absent(after), was=_or_absent(before))


def _or_absent(value: Json) -> Json | Absent:
    return ABSENT if value is None else value


def _listed(template: PodTemplate) -> Json:
    return list(template.tolerations) or None
