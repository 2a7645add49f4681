"""What an UPDATE of a Job with a decision calls for: submitted values decided again, or a move.

Also of one whose decision was undone. It depends on the two objects alone: never on mode, policy,
state or off switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.adapt import movable_env
from webhook.admission import original as originals
from webhook.admission import ownership
from webhook.decide import decision_record, warning
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import restore
from webhook.jobs import JobKind
from webhook.model import fields
from webhook.model.edits import Edit, Operation, Original
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, MOVE_TO, OPTION_LABEL, UNDO
from webhook.model.signatures import SigningKeys, is_own_record


def restored(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None = None
) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """List the edits that a repeated manifest calls for, and warnings.

    A decision that is not signed with one of the *keys* calls for none.

    Raises:
        FieldError: the decision's record of what stood there is none, or *old* is no Job.

    """
    if DECISION not in _annotations(old) and DECISION not in _annotations(new):
        return restore.restoration(old, new, _read_variables(old, kind)), ()
    recorded = _unchanged_decision(old, new, keys)
    if recorded is None:
        return (), ()
    if recorded.is_newer:
        return (), warning.newer(recorded.version)
    return restore.restoration(old, new, originals.from_json(recorded.original)), ()


def asks_for_move(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether the Job shall be in another option, as of this very update."""
    wanted = _annotations(new).get(MOVE_TO)
    return isinstance(wanted, str) and wanted != _annotations(old).get(MOVE_TO)


def asks_for_undo(new: Mapping[str, Any]) -> bool:
    """Tell what a Job that is to be moved shall be instead: what it was before its decision."""
    return _annotations(new).get(MOVE_TO) == UNDO


def changes_decision(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return _annotations(old).get(DECISION) != _annotations(new).get(DECISION)


def disowned(job: Mapping[str, Any], kind: JobKind) -> list[Operation]:
    """List the operations that let others than its creator apply an undone Job's manifest."""
    if _labels(job).get(OPTION_LABEL) != UNDO or DECISION in _annotations(job):
        return []
    return ownership.disowned(job, _read_variables(job, kind))


def _read_variables(job: Mapping[str, Any], kind: JobKind) -> Original:
    """Tell what was submitted where an undone Job reads its variables from annotations."""
    raw = kind.read(job)
    return {edit.path: edit.value for edit in kind.edits(raw, movable_env.as_literals(raw))}


def _unchanged_decision(
    old: Mapping[str, Any], new: Mapping[str, Any], keys: SigningKeys | None
) -> decision_record.Recorded | None:
    text = _annotations(old).get(DECISION)
    if not isinstance(text, str) or changes_decision(old, new):
        return None
    namespace = fields.text(fields.mapping(old, "metadata", ""), "namespace", "metadata")
    if not is_own_record(text, namespace, keys, created=fields.created_unix(old)):
        return None
    if _annotations(new).get(POLICY) == OPT_OUT:
        return None
    try:
        return decision_record.from_json(text)
    except FieldError:
        return None


def _annotations(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "annotations")


def _labels(source: Mapping[str, Any]) -> Mapping[str, Any]:
    return _texts(source, "labels")


def _texts(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    metadata = source.get("metadata")
    texts = metadata.get(key) if isinstance(metadata, dict) else None
    return texts if isinstance(texts, dict) else {}
