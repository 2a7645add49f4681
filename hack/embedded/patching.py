"""Patches of an object, and who has set which of its fields (``managedFields``). Pure.

Server-side apply takes over what it sets: there are no conflicts with other managers, as with
``force``. Lists of maps are merged by the keys below, wherever a field has such a name; all other
lists are replaced whole.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jsonpatch

from hack.api import JSON_PATCH, MERGE_PATCH, Object
from hack.embedded.refusals import RefusedCall

UNSUPPORTED_MEDIA_TYPE: Final = 415
_UNPROCESSABLE: Final = 422
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "admissionChecks": ("name",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "matchConditions": ("name",),
    "ownerReferences": ("uid",),
    "podSets": ("name",),
    "podSetAssignments": ("name",),
    "versions": ("name",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
_OF_NOBODY: Final = frozenset(
    {
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)
"""In the metadata."""
Fields = dict[str, Any]
"""As ``fieldsV1`` writes them: ``{"f:status": {"f:admission": {}}}``."""


def patched(item: Object, patch: Any, content_type: str) -> Object:
    """Return the object after a JSON Patch or a merge patch."""
    if content_type == JSON_PATCH:
        try:
            found: Object = jsonpatch.apply_patch(item, patch)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise RefusedCall(_UNPROCESSABLE, "Invalid", str(error)) from error
        return found
    if content_type == MERGE_PATCH:
        return dict(_merged(item, patch))
    # Strategic ones, which kubectl apply sends, are for none of our processes.
    message = f"the body of the request was in an unknown format: {content_type}"
    raise RefusedCall(UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)


def _merged(value: Any, patch: Any) -> Any:
    """Merge as RFC 7386 does."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), change)
    return found


# Server-side apply.


def applied(live: Object, config: Object, *, manager: str, subresource: str, at: str) -> Object:
    """Return the object with a manager's configuration, without what it has set before only."""
    config = _set_by_managers(config)
    fields = fields_of(config)
    entries = list(live["metadata"].get("managedFields") or ())
    mine = [entry for entry in entries if _is_of(entry, manager, "Apply", subresource)]
    others = [entry for entry in entries if entry not in mine]
    found: Object = _overlaid(copy.deepcopy(live), config)
    for entry in mine:
        dropped = _without(entry["fieldsV1"], fields)
        for other in others:
            dropped = _without(dropped, other.get("fieldsV1") or {})
        _remove(found, dropped)
    if [entry["fieldsV1"] for entry in mine] == [fields] and found == live:
        return live
    entry = _entry(live, manager, "Apply", subresource, fields, at)
    found["metadata"]["managedFields"] = [*others, entry]
    return found


def created_by(item: Object, *, manager: str, operation: str, at: str) -> list[Object]:
    """Return ``managedFields`` of an object that a manager has just created."""
    config = _set_by_managers(item)
    return [_entry(item, manager, operation, "", fields_of(config), at)]


def updated_by(
    before: Object, after: Object, *, manager: str, subresource: str, at: str
) -> list[Object]:
    """Return ``managedFields`` after a manager has changed fields."""
    entries = list(before.get("metadata", {}).get("managedFields") or ())
    changed = _changed(_set_by_managers(before), _set_by_managers(after))
    if not changed:
        return entries
    mine = [entry for entry in entries if _is_of(entry, manager, "Update", subresource)]
    for entry in mine:
        changed = _union(entry.get("fieldsV1") or {}, changed)
    others = [entry for entry in entries if entry not in mine]
    return [*others, _entry(after, manager, "Update", subresource, changed, at)]


def fields_of(value: Any, name: str = "") -> Fields:
    """Return the fields of a value; a list that is replaced whole is one field."""
    if isinstance(value, dict):
        return {f"f:{key}": fields_of(below, key) for key, below in value.items()}
    if isinstance(value, list) and value and (keys := _keys(name, value)):
        return {_path(item, keys): {".": {}, **fields_of(item)} for item in value}
    return {}


def _set_by_managers(item: Object) -> Object:
    """Return the part of an object that managers set."""
    metadata = {k: v for k, v in item.get("metadata", {}).items() if k not in _OF_NOBODY}
    others = {k: v for k, v in item.items() if k not in {"apiVersion", "kind", "metadata"}}
    return {"metadata": metadata, **others} if metadata else others


def _entry(
    item: Object, manager: str, operation: str, subresource: str, fields: Fields, at: str
) -> Object:
    found: Object = {
        "manager": manager,
        "operation": operation,
        "apiVersion": item["apiVersion"],
        "time": at,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**found, "subresource": subresource} if subresource else found


def _is_of(entry: Object, manager: str, operation: str, subresource: str) -> bool:
    found = entry.get("manager"), entry.get("operation"), entry.get("subresource", "")
    return found == (manager, operation, subresource)


def _keys(name: str, items: Sequence[Any]) -> tuple[str, ...]:
    """Return by what the items of such a list are told apart; empty: it is replaced whole."""
    keys = _KEYS.get(name, ())
    has_keys = all(isinstance(item, dict) and item.keys() >= set(keys) for item in items)
    return keys if has_keys else ()


def _path(item: Object, keys: Sequence[str]) -> str:
    return f"k:{json.dumps({key: item[key] for key in keys}, separators=(',', ':'))}"


def _overlaid(live: Any, config: Any, name: str = "") -> Any:
    if isinstance(config, dict) and isinstance(live, dict):
        for key, value in config.items():
            live[key] = _overlaid(live.get(key), value, key)
        return live
    if isinstance(config, list) and isinstance(live, list) and (keys := _keys(name, config + live)):
        places = {_path(item, keys): place for place, item in enumerate(live)}
        for item in config:
            place = places.get(_path(item, keys))
            if place is None:
                live.append(item)
            else:
                live[place] = _overlaid(live[place], item)
        return live
    return config


def _without(fields: Fields, others: Fields) -> Fields:
    """Return those fields that are not among others."""
    found = {}
    for path, below in fields.items():
        if path not in others:
            found[path] = below
        elif below and (left := _without(below, others[path])):
            found[path] = left
    return found


def _union(fields: Fields, others: Fields) -> Fields:
    found = dict(fields)
    for path, below in others.items():
        found[path] = _union(found.get(path, {}), below)
    return found


def _remove(value: Any, fields: Fields) -> None:
    for path, below in fields.items():
        kind, _, key = path.partition(":")
        leaf = not below or "." in below
        if kind == "f" and isinstance(value, dict) and key in value:
            if below and not leaf:
                _remove(value[key], below)
            if leaf or not value[key]:
                del value[key]
        elif kind == "k" and isinstance(value, list):
            named = json.loads(key)
            for item in [each for each in value if named.items() <= each.items()]:
                if leaf:
                    value.remove(item)
                else:
                    _remove(item, below)


def _changed(before: Any, after: Any, name: str = "") -> Fields:
    """Return the fields of *after* that differ."""
    if isinstance(after, dict) and isinstance(before, dict):
        return dict(_changed_keys(before, after))
    if isinstance(after, list) and isinstance(before, list) and after:
        if keys := _keys(name, before + after):
            earlier = {_path(item, keys): item for item in before}
            found = {p: _changed(earlier.get(p), i) for i in after for p in [_path(i, keys)]}
            return {path: below for path, below in found.items() if below}
        return {}
    return fields_of(after, name)


def _changed_keys(before: Object, after: Object) -> Iterator[tuple[str, Fields]]:
    for key, value in after.items():
        if key not in before:
            yield f"f:{key}", fields_of(value, key)
        elif before[key] != value:
            yield f"f:{key}", _changed(before[key], value, key)
