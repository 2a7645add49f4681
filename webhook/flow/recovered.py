"""A pending Job recovered as it was submitted, for whatever changes its decision; or why it is not.

A change that is refused takes off the wish for it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.adapt import movable_env
from webhook.admission import original as originals
from webhook.decide import decision_record, warning
from webhook.flow import create
from webhook.jobs import JobKind
from webhook.model import fields
from webhook.model import job as jobs
from webhook.model.decision import Outcome
from webhook.model.edits import Original
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, is_own_record

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    obstacle: Obstacle
    detail: str = ""
    """More than the words that every such refusal has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    recorded: decision_record.Recorded | None
    """None: it was created without a decision, and is taken as it stands."""
    original: Original
    clean_source: Mapping[str, Any]
    clean: Job


def recover(
    source: Mapping[str, Any], raw: Job, kind: JobKind, keys: SigningKeys | None
) -> Recovered | Refusal:
    """Undo the decision on a Job that waits; one that is not signed with *keys* undoes nothing.

    Raises:
        FieldError: what its decision has recorded cannot be put back.

    """
    text, created = raw.annotations.get(jobs.DECISION), fields.created_unix(source)
    recorded = create.recorded_on(raw, keys, created=created)
    is_own = text is None or is_own_record(text, raw.namespace, keys, created=created)
    if recorded is None and not is_own:
        return Refusal(obstacle=Obstacle.FOREIGN_DECISION)
    if recorded is None and jobs.DECISION in raw.annotations:
        return Refusal(obstacle=Obstacle.UNREADABLE, detail="its decision cannot be read")
    if recorded is not None and recorded.is_newer:
        return Refusal(obstacle=Obstacle.NEWER_DECISION)
    if obstacle := kind.held_back(source):
        return Refusal(obstacle=obstacle)
    original = originals.from_json(recorded.original) if recorded is not None else {}
    clean_source = originals.undone(source, original, kind.allowed)
    return Recovered(
        recorded=recorded,
        original=original,
        clean_source=clean_source,
        clean=kind.read(clean_source),
    )


def refused(source: Mapping[str, Any], kind: JobKind, obstacle: Obstacle) -> Outcome:
    """Take the wish off, and say why it is not granted.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    return to_outcome(kind.read(source), kind, Refusal(obstacle=obstacle))


def to_outcome(raw: Job, kind: JobKind, refusal: Refusal) -> Outcome:
    """Do as ``refused`` does, for a Job that has been read."""
    taken_off = {jobs.MOVE_TO, jobs.MOVE_REASON}
    left = replace(raw, annotations=_without(raw.annotations, taken_off))
    if _took_no_option(raw):
        # Set by whoever asked, so that the Job is sent here; it says nothing.
        left = replace(left, labels=asked_about(left))
    why = refusal.detail or refusal.obstacle.meaning
    return Outcome(
        edits=kind.edits(raw, left),
        warnings=warning.refused(_not_done(raw.annotations[jobs.MOVE_TO]), why),
        obstacle=refusal.obstacle,
    )


def asked_about(undecided: Job) -> Mapping[str, str]:
    """Give the labels of a Job that has no option; one, if the webhook shall see its updates.

    Its manifest sets as a value what is read from an annotation now, and both together would be
    refused (see ``flow.reapply``).
    """
    labels = _without(undecided.labels, {jobs.OPTION_LABEL})
    is_read = movable_env.as_literals(undecided) is not undecided
    return {**labels, jobs.OPTION_LABEL: jobs.UNDO} if is_read else labels


def _not_done(wish: str) -> str:
    if wish == jobs.UNDO:
        return "not undone"
    return f"not moved to {warning.shortened(' '.join(wish.split()), _LONGEST_NAME)}"


def _took_no_option(raw: Job) -> bool:
    """Tell whether it is sure that a label of an option was not left by a decision."""
    if jobs.DECISION not in raw.annotations:
        return True
    recorded = create.recorded_on(raw)
    if recorded is None:
        return False
    is_left = recorded.mode is Mode.ENFORCE and recorded.option is None
    return is_left or recorded.mode is Mode.ADVISE


def _without(texts: Mapping[str, str], names: set[str]) -> Mapping[str, str]:
    return {name: text for name, text in texts.items() if name not in names}
