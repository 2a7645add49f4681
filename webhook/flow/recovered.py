"""Turns a pending Job into what was submitted, for a move or an undo; or into a refusal.

A refusal takes the annotations off that asked for the change, and leaves the decision as it is. It
must not know what a recovered Job is turned into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.adapt import movable_env
from webhook.decide import decision_record, warning
from webhook.flow import decided_job
from webhook.flow.decided_job import RecoveredJob
from webhook.jobs import JobKind
from webhook.model import fields
from webhook.model import job as jobs
from webhook.model.decision import Declined
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    obstacle: Obstacle
    detail: str = ""
    """Why, in this case; empty: the obstacle's own words say it."""


def recover(
    source: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None
) -> RecoveredJob | Refusal:
    """Return a pending Job as it was submitted, or why its decision cannot be changed.

    A decision that is not signed with one of the *keys* is foreign.

    Raises:
        FieldError: what the decision has recorded cannot be put back, or the Job cannot be read.

    """
    found = decided_job.read(source, kind, keys, created=fields.created_unix(source))
    if found.doubt is not None:
        unread = "its decision cannot be read" if found.doubt is Obstacle.UNREADABLE else ""
        return Refusal(obstacle=found.doubt, detail=unread)
    if obstacle := kind.held_back(source):
        return Refusal(obstacle=obstacle)
    return found.recovered()


def refused(source: Mapping[str, Any], kind: JobKind, obstacle: Obstacle) -> Declined:
    """Return the outcome that takes ``move-to`` off a Job and warns why it is not obeyed.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    return to_outcome(kind.read(source), kind, Refusal(obstacle=obstacle))


def to_outcome(raw: Job, kind: JobKind, refusal: Refusal) -> Declined:
    """Return the outcome of ``refused`` for a Job that has been read already."""
    taken_off = {jobs.MOVE_TO, jobs.MOVE_REASON}
    left = replace(raw, annotations=_without(raw.annotations, taken_off))
    if _took_no_option(raw):
        # The asker set the option label only so that the API server sends the Job here: the
        # webhook's objectSelector leaves out updates of Jobs without it.
        left = replace(left, labels=asked_about(left))
    why = refusal.detail or refusal.obstacle.meaning
    return Declined(
        edits=kind.edits(raw, left),
        warnings=warning.refused(_not_done(raw.annotations[jobs.MOVE_TO]), why),
        obstacle=refusal.obstacle,
    )


def asked_about(undecided: Job) -> Mapping[str, str]:
    """Return the labels of a Job without an option; ``option: none`` if it needs restoration.

    By this label the API server sends its updates to the webhook. A manifest that is applied again
    sets as a value what the Job reads from an annotation, and both together would be refused.
    """
    labels = _without(undecided.labels, {jobs.OPTION_LABEL})
    is_read = movable_env.as_literals(undecided) is not undecided
    return {**labels, jobs.OPTION_LABEL: jobs.UNDO} if is_read else labels


def _not_done(wish: str) -> str:
    if wish == jobs.UNDO:
        return "not undone"
    return f"not moved to {warning.shortened(' '.join(wish.split()), _LONGEST_NAME)}"


def _took_no_option(raw: Job) -> bool:
    """Tell whether it is certain that no decision left the option label on the Job."""
    if jobs.DECISION not in raw.annotations:
        return True
    try:
        recorded = decision_record.from_json(raw.annotations[jobs.DECISION])
    except FieldError:
        return False
    # Only a decision that was carried out under Enforce writes the label.
    is_left = recorded.mode is Mode.ENFORCE and recorded.option is None
    return is_left or recorded.mode is Mode.ADVISE


def _without(texts: Mapping[str, str], names: set[str]) -> Mapping[str, str]:
    return {name: text for name, text in texts.items() if name not in names}
