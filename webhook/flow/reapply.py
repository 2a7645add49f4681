"""Turns the objects of an UPDATE into edits that put decided values back in a repeated manifest.

It also tells whether the UPDATE asks for a move or an undo. It depends on the old and the new
object and the signing keys: it must not know mode, policy, state or off switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.adapt import movable_env
from webhook.admission import original as originals
from webhook.decide import warning
from webhook.decide.decision_record import Recorded
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import decided_job
from webhook.jobs import JobKind
from webhook.model import fields, quantity
from webhook.model.edits import ABSENT, Absent, Edit, Operation, Original, Path
from webhook.model.fields import FieldError, Json
from webhook.model.job import DECISION, MOVE_TO, OPTION_LABEL, UNDO
from webhook.model.signatures import SigningKeys

_FREE = frozenset({"nodeSelector", "requests", "limits", "env"})
"""Fields of which every member may be patched, so that the whole field can be put back."""


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
    for path, value in original.items():
        if path in above:
            edits.update((edit.path, edit) for edit in _members(old, new, path, value))
        elif _reachable(old, new, path):
            edit = _restored(old, new, path, value)
            if edit is not None:
                edits[path] = edit
    return tuple(edits.values())


def _restored(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path, submitted: Json | Absent
) -> Edit | None:
    now, decided = originals.value_at(new, path), originals.value_at(old, path)
    # Only a submitted value that comes back is replaced (decision 0002).
    comes_back = _same(path, now, submitted) or _is_merged(path, now, decided, submitted)
    if not comes_back or now == decided:
        return None
    return Edit(path=path, value=decided, was=now)


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


def _members(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Path, submitted: Json | Absent
) -> Iterator[Edit]:
    """List the edits that refill a field that was not submitted and is missing again."""
    if path[-1] not in _FREE or submitted is not ABSENT or not _reachable(old, new, path):
        return
    decided = originals.value_at(old, path)
    if originals.value_at(new, path) is not ABSENT or not isinstance(decided, (dict, list)):
        return
    for name, value in _named(decided):
        yield Edit(path=(*path, name), value=value, was=ABSENT)


def _named(parent: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(parent, dict):
        yield from parent.items()
        return
    for entry in parent:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"], entry


def _reachable(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> bool:
    """Tell whether both objects have the container that *path* goes through, if any."""
    for index, part in enumerate(path[:-2]):
        if part in ("containers", "initContainers"):
            upto = path[: index + 2]
            return ABSENT not in (originals.value_at(old, upto), originals.value_at(new, upto))
    return True


def _same(path: Path, value: Any, submitted: Json | Absent) -> bool:
    if value == submitted:
        return True
    # Clients write one amount in several ways, such as 1 and 1000m.
    if len(path) < 3 or path[-2] not in ("requests", "limits"):  # noqa: PLR2004
        return False
    try:
        return quantity.exact(str(value)) == quantity.exact(str(submitted))
    except FieldError:
        return False


def restored(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None = None
) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return the edits that put decided values back in a repeated manifest, and warnings.

    There are none for a decision that is not signed with one of the *keys*, or that this very
    UPDATE changes.

    Raises:
        FieldError: the record of the submitted values cannot be read, or *old* is no Job.

    """
    if DECISION not in _annotations(old) and DECISION not in _annotations(new):
        # An undone Job has no record; what it reads from annotations tells what was submitted.
        return restoration(old, new, _read_variables(old, kind)), ()
    recorded = _unchanged_decision(old, new, kind, keys)
    if recorded is None:
        return (), ()
    if recorded.is_newer:
        return (), warning.newer(recorded.version)
    return restoration(old, new, originals.from_json(recorded.original)), ()


def asks_for_move(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether this very UPDATE sets or changes the annotation ``move-to``."""
    wanted = _annotations(new).get(MOVE_TO)
    return isinstance(wanted, str) and wanted != _annotations(old).get(MOVE_TO)


def asks_for_undo(new: Mapping[str, Any]) -> bool:
    """Tell whether the annotation ``move-to`` asks for an undo and not for an option."""
    return _annotations(new).get(MOVE_TO) == UNDO


def changes_decision(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return _annotations(old).get(DECISION) != _annotations(new).get(DECISION)


def disowned(job: Mapping[str, Any], kind: JobKind) -> list[Operation]:
    """List the operations after which any client can apply the manifest of an undone Job.

    They take the ownership of the variables that it reads from annotations out of its
    ``managedFields``.
    """
    # Server-side apply by others would conflict with the owner of the plain value (decision 0020).
    if _labels(job).get(OPTION_LABEL) != UNDO or DECISION in _annotations(job):
        return []
    return originals.disowned(job, _read_variables(job, kind))


def _read_variables(job: Mapping[str, Any], kind: JobKind) -> Original:
    """Return the submitted value of each variable that an undone Job reads from an annotation."""
    raw = kind.read(job)
    return {edit.path: edit.value for edit in kind.edits(raw, movable_env.as_literals(raw))}


def _unchanged_decision(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None
) -> Recorded | None:
    # A Job that opts out takes back all that its manifest says.
    if changes_decision(old, new) or _annotations(new).get(POLICY) == OPT_OUT:
        return None
    return decided_job.read(old, kind, keys, created=fields.created_unix(old)).recorded


def _annotations(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "annotations")


def _labels(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "labels")


def _texts(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    metadata = source.get("metadata")
    texts = metadata.get(key) if isinstance(metadata, dict) else None
    return texts if isinstance(texts, dict) else {}
