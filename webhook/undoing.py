"""An undo: a pending Job put back as it was submitted, in the very UPDATE that asks for it.

It depends on the Job, and on what its Workload has against it: never on mode, policy or off switch.
What comes back has opted out, so that nobody decides it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook import recovered
from webhook.decide import explain, movable_env, warning
from webhook.decide.match import OPT_OUT, POLICY
from webhook.jobs import JobKind, movable
from webhook.model import job as jobs
from webhook.model import marks
from webhook.model.decision import Outcome
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.model.moves import Obstacle
from webhook.model.pending import left_written
from webhook.recovered import Recovered, Refusal

_PINNED = f"decided no more ({POLICY}: {OPT_OUT})"


def undo(
    source: Mapping[str, Any], kind: JobKind, *, time: str, blocked: Obstacle | None = None
) -> Outcome:
    """Take back what a decision and moves have changed, and pin the Job where it then is.

    *time* is now, as RFC 3339 in UTC; *blocked* is what the Job's Workload has against it, as far
    as that is known.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    raw = kind.read(source)
    if jobs.DECISION not in raw.annotations:
        sentence = f"nothing to undo, as it has no decision; {_PINNED}"
        return _pinned(raw, _unasked(raw), kind, sentence)
    try:
        found = _undone(source, raw, kind, time=time, blocked=blocked)
    except FieldError as error:
        found = Refusal(obstacle=Obstacle.UNREADABLE, detail=str(error))
    return recovered.to_outcome(raw, kind, found) if isinstance(found, Refusal) else found


def _undone(
    source: Mapping[str, Any], raw: Job, kind: JobKind, *, time: str, blocked: Obstacle | None
) -> Outcome | Refusal:
    found = recovered.recover(source, raw, kind)
    if isinstance(found, Refusal):
        return found
    if raw.queue and not found.clean.queue:
        # Kueue would keep it suspended, or not let the label go where there is a default queue.
        return Refusal(obstacle=Obstacle.NO_QUEUE)
    after = movable_env.still_movable(raw, marks.unmarked(found.clean))
    changes = kind.edits(raw, after)
    if obstacle := movable.obstacle(changes, workload=blocked):
        return Refusal(obstacle=obstacle)
    if not movable.changes_template(changes):
        after = replace(after, pod_sets=raw.pod_sets)
    where = f"in {after.queue} " if after.queue else ""
    sentence = f"undone: {where}as submitted, and {_PINNED}"
    after = replace(after, annotations={**after.annotations, jobs.REASON: explain.said(sentence)})
    return _pinned(raw, _remembered(raw, after, found, time), kind, sentence)


def _unasked(raw: Job) -> Job:
    """Take off the wish and our marks on the Job itself, but for what tells of an earlier undo."""
    told = (jobs.UNDONE, jobs.UNDONE_FROM, jobs.REASON)
    kept = {key: raw.annotations[key] for key in told if key in raw.annotations}
    left = marks.unmarked(raw)
    return replace(left, pod_sets=raw.pod_sets, annotations={**left.annotations, **kept})


def _remembered(raw: Job, after: Job, found: Recovered, time: str) -> Job:
    """Note whose decision it was: Kueue may just be admitting it in a queue that it has left."""
    recorded = found.recorded
    if recorded is None or (raw.queue == after.queue and not recorded.moves):
        return after
    noted = {jobs.UNDONE: recorded.policy}
    if elsewhere := recorded.elsewhere(after.queue):
        noted[jobs.UNDONE_FROM] = left_written(time, elsewhere)
    return replace(after, annotations={**after.annotations, **noted})


def _pinned(raw: Job, left: Job, kind: JobKind, sentence: str) -> Outcome:
    after = replace(
        left,
        labels=recovered.asked_about(left),
        annotations={**left.annotations, POLICY: OPT_OUT},
    )
    return Outcome(
        edits=kind.edits(raw, after), warnings=warning.sentence(sentence), undone=sentence
    )
