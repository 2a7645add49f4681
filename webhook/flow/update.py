"""Turns the UPDATE of a Job into an outcome: decided values put back, moved or undone as asked.

What is put back in a manifest that is applied again depends on the old and the new object, who
writes, and the signing keys alone, never on mode, policy, state or off switch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from webhook.adapt import movable_env
from webhook.admission import patch
from webhook.decide import warning
from webhook.decide.applicant import Moment
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import decided_job, moving
from webhook.flow.create import Rules
from webhook.flow.decided_job import DecidedJob
from webhook.jobs import JobKind
from webhook.model import fields
from webhook.model.decision import Declined, Moved, Restored, Undone, UpdateOutcome
from webhook.model.edits import (
    ABSENT,
    KEYED_BY_NAME,
    Edit,
    Operation,
    Original,
    Path,
)
from webhook.model.fields import FieldError
from webhook.model.holds import GATE, HELD, is_released
from webhook.model.job import (
    DECISION,
    MOVE_REASON,
    MOVE_TO,
    OPTION_LABEL,
    PODS_QUEUE,
    QUEUE_LABEL,
    UNDO,
    Requester,
)
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, own_words
from webhook.state.occupancy import Occupancy


def respond(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    kind: JobKind,
    occupancy: Occupancy,
    moment: Moment,
    rules: Rules,
) -> UpdateOutcome:
    """Return the outcome of an UPDATE from *old* to *new*; its edits are to *new*.

    Raises:
        FieldError: *old* or *new* cannot be read as a Job of *kind*, or the record of the submitted
            values cannot be read.
        PatchError: the decided values cannot be put back.

    """
    keys = occupancy.snapshot.fallback.signing
    wanted = asked(old, new)
    edits: tuple[Edit, ...] = ()
    warnings: tuple[str, ...] = ()
    if not _is_kueues(moment.requester, rules):
        edits, warnings = restored(old, new, kind, keys)
    if kind.rolls:
        edits = (*edits, *_of_rolled(old, patch.patched(new, edits, kind.allowed), kind, keys))
    if wanted is None:
        if moment.manager in _BY_HAND and _QUEUE in {edit.path for edit in edits}:
            # A person meant to change the queue, and learns how that is done.
            warnings = (*warnings, *warning.queue_kept(kind, kind.read(old), kind.held_back(old)))
        return Restored(edits=edits, warnings=warnings)
    # What is asked for is done to the Job as it is with the decided values put back.
    source = patch.patched(new, edits, kind.allowed)
    source = kind.completed(source, occupancy.snapshot.cluster.training_runtimes)
    job = decided_job.read_stored(source, kind, keys)
    outcome = _obeyed(wanted, job, occupancy, moment, rules)
    # A value that comes back and is then changed by the move gets one edit.
    by_path = {edit.path: edit for edit in (*edits, *outcome.edits)}
    return replace(outcome, edits=tuple(by_path.values()))


_BY_HAND: Final = frozenset({"kubectl-label", "kubectl-edit", "kubectl-patch"})
"""Field managers of who changes one thing and means it; others apply a whole manifest again."""
_QUEUE: Final = ("metadata", "labels", QUEUE_LABEL)


def _is_kueues(requester: Requester | None, rules: Rules) -> bool:
    """Return whether Kueue writes, whose node selectors and tolerations are no manifest's."""
    accounts = f"system:serviceaccount:{rules.kueue_namespace}:"
    return requester is not None and requester.name.startswith(accounts)


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
    if is_released(*(source.get("metadata") or {} for source in (old, new))):
        original = {path: value for path, value in original.items() if path not in _OF_A_HOLD}
    edits = patch.restoration(old, new, original, starts=kind.is_started(old, new))
    return () if patch.too_large(new, edits) else edits, warnings


def _of_rolled(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None
) -> Iterator[Edit]:
    """Yield the edits that keep the pods of a moved Deployment in their queue.

    Kueue's webhook writes that of the Deployment's own label over it in each update.
    """
    text = _annotations(new).get(PODS_QUEUE)
    if not isinstance(text, str):
        return
    namespace = fields.text(fields.mapping(new, "metadata", ""), "namespace", "metadata")
    said = own_words(text, namespace, keys, created=fields.created_unix(new))
    # Beside the queue is a signature that nobody may have to verify.
    queue = None if said is None else said.partition(" ")[0]
    was, own = patch.value_at(old, _QUEUE), patch.value_at(new, _QUEUE)
    if queue is None or own not in (was, queue):
        # It is forged, or Kueue lets the author give the Deployment another queue.
        yield Edit(path=("metadata", "annotations", PODS_QUEUE), value=ABSENT, was=text)
        return
    if own != was:
        # The manifest as it was submitted, which Kueue would refuse while a pod is ready.
        yield Edit(path=_QUEUE, value=was, was=own)
    path = (*kind.templates[0], *_QUEUE)
    if (now := patch.value_at(new, path)) != queue:
        yield Edit(path=path, value=queue, was=now)


_OF_A_HOLD: Final = frozenset({("metadata", "annotations", GATE), ("metadata", "labels", HELD)})
"""What a release takes off a Job, and nobody puts back."""


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
    # That a decision is foreign was said when the Job was created.
    return job.original, job.warnings if job.doubt is Obstacle.NEWER_DECISION else ()


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


def _obeyed(
    wanted: Asked, job: DecidedJob, occupancy: Occupancy, moment: Moment, rules: Rules
) -> Moved | Undone | Declined:
    """Return the outcome of the move or the undo that is asked for, or why it is not made."""
    if wanted is Asked.DECISION_CHANGED:
        return _declined(job, Declined(obstacle=Obstacle.DECISION_CHANGED))
    outcome: Moved | Undone | Declined
    try:
        if wanted is Asked.UNDO:
            outcome = moving.undo(job, occupancy.snapshot, moment, rules)
        else:
            outcome = moving.move(job, occupancy, moment, rules)
    except FieldError as error:
        outcome = Declined(obstacle=Obstacle.UNREADABLE, detail=str(error))
    return _declined(job, outcome) if isinstance(outcome, Declined) else outcome


def _declined(job: DecidedJob, declined: Declined) -> Declined:
    """Return it with edits that take ``move-to`` off the Job, and with a warning that says why."""
    raw = job.current
    wish = (MOVE_TO, MOVE_REASON)
    annotations = {name: text for name, text in raw.annotations.items() if name not in wish}
    left = replace(raw, annotations=annotations)
    if _took_no_option(job):
        # The asker set the option label only so that the API server sends the Job here: the
        # webhook's objectSelector leaves out updates of Jobs without it.
        left = replace(left, labels=moving.asked_about(left))
    why = declined.detail or declined.obstacle.meaning
    warnings = warning.refused(raw.annotations[MOVE_TO], why)
    return replace(declined, edits=job.kind.edits(raw, left), warnings=warnings)


def _took_no_option(job: DecidedJob) -> bool:
    """Return whether it is certain that no decision left the option label on the Job."""
    if DECISION not in job.current.annotations:
        return True
    recorded = job.recorded
    if recorded is None:
        return False
    # Only a decision that was carried out under Enforce writes the label.
    is_left = recorded.mode is Mode.ENFORCE and recorded.option is None
    return is_left or recorded.mode is Mode.ADVISE


def _changes_decision(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return _annotations(old).get(DECISION) != _annotations(new).get(DECISION)


def disowned(job: Mapping[str, Any], kind: JobKind) -> list[Operation]:
    """List the operations after which any client can apply the manifest of an undone Job.

    They take the ownership of the variables that it reads from annotations out of its
    ``managedFields``.
    """
    # Server-side apply by others would conflict with the owner of the plain value (decision 0020).
    if _texts(job, "labels").get(OPTION_LABEL) != UNDO or DECISION in _annotations(job):
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
        {"op": "remove", "path": patch.to_pointer(("metadata", "managedFields", *path))}
        for path in owned
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


def _texts(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    metadata = source.get("metadata")
    texts = metadata.get(key) if isinstance(metadata, dict) else None
    return texts if isinstance(texts, dict) else {}
