"""Giving decided values back where a manifest was applied again (UPDATE).

Whoever applies a manifest a second time sends the submitted values again. Each place that was
decided and now has its submitted value gets what the stored object has there, which also holds
what Kueue has injected since. Every other change passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.admission import places
from webhook.model import quantity
from webhook.model.edits import ABSENT, Absent, Edit, Original, Path
from webhook.model.fields import FieldError, Json

_FREE = frozenset({"nodeSelector", "requests", "limits", "env"})
"""Parents of which every member may be patched."""


def restoration(
    old: Mapping[str, Any], new: Mapping[str, Any], original: Original
) -> tuple[Edit, ...]:
    """List the edits to *new* that a repeated manifest calls for; *old* is the stored object.

    A container that one of the two lacks is skipped. The places are as recorded: whether they may
    be touched is checked where edits become a patch.
    """
    found: dict[Path, Edit] = {}
    above = {path[:end] for path in original for end in range(1, len(path))}
    for path, value in original.items():
        if path in above:
            found.update((edit.path, edit) for edit in _members(old, new, path, value))
        elif _reachable(old, new, path):
            edit = _restored(old, new, path, value)
            if edit is not None:
                found[path] = edit
    return tuple(found.values())


def _restored(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path, submitted: Json | Absent
) -> Edit | None:
    now, decided = places.look(new, path), places.look(old, path)
    comes_back = _same(path, now, submitted) or _is_merged(path, now, decided, submitted)
    if not comes_back or now == decided:
        return None
    return Edit(path=path, value=decided, was=now)


def _is_merged(path: Path, now: Any, decided: Any | Absent, submitted: Json | Absent) -> bool:
    """Recognise the submitted variable merged into the stored one, as ``kubectl apply`` does it.

    Of a stored ``valueFrom`` the manifest knows nothing, so it stays beside the ``value`` that
    comes back; the API server would refuse the two together.
    """
    if len(path) < 2 or path[-2] != "env":  # noqa: PLR2004
        return False
    if not isinstance(decided, Mapping) or not isinstance(submitted, Mapping):
        return False
    return bool(now == {**decided, **submitted})


def _members(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path, submitted: Json | Absent
) -> Iterator[Edit]:
    """Give a whole parent back that did not exist as submitted and is missing again."""
    if path[-1] not in _FREE or submitted is not ABSENT or not _reachable(old, new, path):
        return
    decided = places.look(old, path)
    if places.look(new, path) is not ABSENT or not isinstance(decided, (dict, list)):
        return
    for name, value in _named(decided):
        yield Edit(path=(*path, name), value=value, was=ABSENT)


def _named(parent: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(parent, dict):
        yield from parent.items()
        return
    for item in parent:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            yield item["name"], item


def _reachable(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> bool:
    """Tell whether both objects have the containers that *path* goes through."""
    for index, part in enumerate(path[:-2]):
        if part in ("containers", "initContainers"):
            upto = path[: index + 2]
            return ABSENT not in (places.look(old, upto), places.look(new, upto))
    return True


def _same(path: Path, value: Any, submitted: Json | Absent) -> bool:
    if value == submitted:
        return True
    if len(path) < 3 or path[-2] not in ("requests", "limits"):  # noqa: PLR2004
        return False
    try:
        return quantity.exact(str(value)) == quantity.exact(str(submitted))
    except FieldError:
        return False
