"""Reads ``managedFields``: which parts of an object one field manager has applied.

Who applies again for that manager must repeat them, or the API server takes them away:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.model import fields

_ITSELF = "."


class AppliedFields(NamedTuple):
    """One entry of ``managedFields``."""

    paths: Mapping[str, Any]
    """As ``fieldsV1`` writes them: ``{"f:status": {"f:admission": {}}}``."""
    time: str


def applied_by(
    manager: str, source: Mapping[str, Any], subresource: str = ""
) -> AppliedFields | None:
    """Return what a manager has applied in the version in which *source* was read; None: nothing.

    Raises:
        FieldError: it cannot be read.

    """
    version = source.get("apiVersion")
    metadata = fields.mapping(source, "metadata", "")
    for entry, here in fields.objects(metadata, "managedFields", "metadata"):
        named = entry.get("manager"), entry.get("operation"), entry.get("subresource", "")
        if named == (manager, "Apply", subresource) and entry.get("apiVersion") == version:
            paths = fields.mapping(entry, "fieldsV1", here)
            return AppliedFields(paths, fields.text(entry, "time", here))
    return None


def part_of(value: Any, paths: Mapping[str, Any]) -> Any:
    """Return the part of a value that *paths* names; all of it where they name nothing below it."""
    below = {path: further for path, further in paths.items() if path != _ITSELF}
    if not below:
        return type(value)() if paths and isinstance(value, dict | list) else value
    if isinstance(value, Mapping):
        names = {path.partition(":")[2]: further for path, further in below.items()}
        return {
            name: part_of(value[name], further) for name, further in names.items() if name in value
        }
    if isinstance(value, list):
        return list(_items(value, below))
    return value


def _items(items: Sequence[Any], paths: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the parts of the items that paths name by their keys or, in a set, by themselves."""
    for path, further in paths.items():
        kind, _, written = path.partition(":")
        named = json.loads(written)
        for item in items:
            if kind == "v" and item == named:
                yield item
            elif kind == "k" and isinstance(item, dict) and named.items() <= item.items():
                yield {**named, **part_of(item, further)}
