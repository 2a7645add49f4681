"""Turns the objects of an UPDATE into edits that put decided values back in a repeated manifest.

It also tells whether the UPDATE asks for a move or an undo. It depends on the old and the new
object and the signing keys: it must not know mode, policy, state or off switch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from webhook.adapt import movable_env
from webhook.admission import patch
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import decided_job
from webhook.jobs import JobKind
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
    to_pointer,
)
from webhook.model.fields import Json
from webhook.model.job import DECISION, MOVE_TO, OPTION_LABEL, UNDO
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys

_FREE = frozenset({"nodeSelector", "requests", "limits", "env"})
"""Fields of which every member may be patched, so that the whole field can be put back."""


def restored(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None = None
) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return the edits that put decided values back in a repeated manifest, and warnings.

    There are none for a decision that is not signed with one of the *keys*, or that this very
    UPDATE changes; nor any that would make the object too large.

    Raises:
        FieldError: the record of the submitted values cannot be read, or *old* is no Job.

    """
    original, warnings = _submitted(old, new, kind, keys)
    edits = restoration(old, new, original)
    return () if patch.too_large(new, edits) else edits, warnings


def _submitted(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None
) -> tuple[Original, tuple[str, ...]]:
    """Return what was submitted of a Job that is decided or was undone, and warnings."""
    if DECISION not in _annotations(old) and DECISION not in _annotations(new):
        # An undone Job has no record; what it reads from annotations tells what was submitted.
        return _read_variables(old, kind), ()
    # A Job that opts out takes back all that its manifest says.
    if _changes_decision(old, new) or _annotations(new).get(POLICY) == OPT_OUT:
        return {}, ()
    job = decided_job.read_stored(old, kind, keys)
    if job.believed is not None:
        return patch.original_from_json(job.believed.original), ()
    # That a decision is foreign was said when the Job was created.
    return {}, job.warnings if job.doubt is Obstacle.NEWER_DECISION else ()


def restoration(
    old: Mapping[str, Any], new: Mapping[str, Any], original: Original
) -> tuple[Edit, ...]:
    """List the edits to *new* that give back the values of *old*, the stored object.

    *original* is what was submitted; a value that differs from it is the user's own change and
    passes. A container that one of the two lacks is skipped. Whether the recorded places may be
    edited is checked where edits become a patch.
    """
    edits: dict[Path, Edit] = {}
    # A parent that a decision had to create is recorded as ABSENT, beside the leaves in it.
    above = {path[:end] for path in original for end in range(1, len(path))}
    for path, submitted in original.items():
        values = _in_both(old, new, path)
        if values is None:
            continue
        decided, now = values
        if path in above:
            is_missing = submitted is ABSENT and now is ABSENT
            edits.update((edit.path, edit) for edit in _members(path, decided) if is_missing)
        # Only a submitted value that comes back is replaced (decision 0002).
        elif now != decided and (
            _is_merged(path, now, decided, submitted) or _same(path, now, submitted)
        ):
            edits[path] = Edit(path=path, value=decided, was=now)
    return tuple(edits.values())


def _in_both(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path
) -> tuple[Any | Absent, Any | Absent] | None:
    """Return the value at *path* in both; None: one lacks the container that *path* is in.

    Likewise for the group of pods that it is in.
    """
    for index, part in enumerate(path[:-2]):
        if part in LISTED:
            element = path[: index + 2]
            if ABSENT in (patch.value_at(old, element), patch.value_at(new, element)):
                return None
    return patch.value_at(old, path), patch.value_at(new, path)


def _is_merged(path: Path, now: Any, decided: Any | Absent, submitted: Json | Absent) -> bool:
    """Tell whether the submitted variable is merged into the stored one, as by ``kubectl apply``.

    The manifest does not know the stored ``valueFrom``, so that stays beside the ``value`` that
    comes back; the API server would refuse the two together.
    """
    if len(path) < 2 or path[-2] != "env":  # noqa: PLR2004
        return False
    if not isinstance(decided, Mapping) or not isinstance(submitted, Mapping):
        return False
    return bool(now == {**decided, **submitted})


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


def _same(path: Path, value: Any, submitted: Json | Absent) -> bool:
    if value == submitted:
        return True
    # Clients write one amount in several ways, such as 1 and 1000m.
    is_amount = len(path) > 2 and path[-2] in ("requests", "limits")  # noqa: PLR2004
    return is_amount and quantity.is_same(value, submitted)


class Asked(Enum):
    """What an UPDATE asks for by the annotation ``move-to``."""

    MOVE = "move"
    UNDO = "undo"
    DECISION_CHANGED = "decision-changed"
    """A move or an undo of a decision that the same UPDATE changes: it is refused."""


def asked(old: Mapping[str, Any], new: Mapping[str, Any]) -> Asked | None:
    """Return what this very UPDATE asks for; None: it does not set or change ``move-to``."""
    wanted = _annotations(new).get(MOVE_TO)
    if not isinstance(wanted, str) or wanted == _annotations(old).get(MOVE_TO):
        return None
    if _changes_decision(old, new):
        return Asked.DECISION_CHANGED
    return Asked.UNDO if wanted == UNDO else Asked.MOVE


def _changes_decision(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return _annotations(old).get(DECISION) != _annotations(new).get(DECISION)


def disowned(job: Mapping[str, Any], kind: JobKind) -> list[Operation]:
    """List the operations after which any client can apply the manifest of an undone Job.

    They take the ownership of the variables that it reads from annotations out of its
    ``managedFields``.
    """
    # Server-side apply by others would conflict with the owner of the plain value (decision 0020).
    if _labels(job).get(OPTION_LABEL) != UNDO or DECISION in _annotations(job):
        return []
    variables = _read_variables(job, kind)
    return without_owner(job, variables)


_VALUE = "f:value"


def without_owner(source: Mapping[str, Any], variables: Iterable[Path]) -> list[Operation]:
    """List the operations after which nobody owns the literal value of these variables."""
    metadata = source.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    owned = [
        (str(index), *path)
        for path in ((*_fields_of(variable), _VALUE) for variable in variables)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if _is_there(entry, path)
    ]
    return [
        {"op": "remove", "path": to_pointer(("metadata", "managedFields", *path))} for path in owned
    ]


def _fields_of(path: Path) -> Iterator[str]:
    """Yield the parts of a path as managed fields write it: ``f:env``, ``k:{"name":"A"}``."""
    yield "fieldsV1"
    above = ""
    for part in path:
        is_name = above in KEYED_BY_NAME
        key = json.dumps({"name": part}, separators=(",", ":"), ensure_ascii=False)
        yield f"k:{key}" if is_name else f"f:{part}"
        above = "" if is_name else part


def _is_there(node: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _read_variables(job: Mapping[str, Any], kind: JobKind) -> Original:
    """Return the submitted value of each variable that an undone Job reads from an annotation."""
    raw = kind.read(job)
    return {edit.path: edit.value for edit in kind.edits(raw, movable_env.as_literals(raw))}


def _annotations(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "annotations")


def _labels(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "labels")


def _texts(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    metadata = source.get("metadata")
    texts = metadata.get(key) if isinstance(metadata, dict) else None
    return texts if isinstance(texts, dict) else {}
