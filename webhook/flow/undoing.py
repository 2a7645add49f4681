"""An undo: a pending Job put back as it was submitted, in the very UPDATE that asks for it.

It depends on the Job, on what its Workload has against it, and on which queues are MultiKueue's:
never on mode, policy, the age of the state or the off switch. What comes back has opted out, so
that nobody decides it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.adapt import movable_env
from webhook.decide import decision_record, warning
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import recovered
from webhook.flow.recovered import Recovered, Refusal
from webhook.jobs import JobKind, movable
from webhook.kueue import multikueue
from webhook.model import job as jobs
from webhook.model import marks
from webhook.model.decision import Outcome
from webhook.model.fields import FieldError
from webhook.model.job import Job
from webhook.model.pending import left_written
from webhook.model.queues import MULTIKUEUE, Snapshot
from webhook.model.reasons import Obstacle

_NOTHING_KNOWN = Snapshot()
_CROSSING = "its queue is MultiKueue's, and who runs a Job (managedBy) is fixed at creation"
_PINNED = f"decided no more ({POLICY}: {OPT_OUT})"


def undo(
    source: Mapping[str, Any],
    kind: JobKind,
    snapshot: Snapshot = _NOTHING_KNOWN,
    *,
    time: str,
    blocked: Obstacle | None = None,
) -> Outcome:
    """Take back what a decision and moves have changed, and pin the Job where it then is.

    *snapshot* tells, as far as it goes, which queues stand for other clusters; *time* is now, as
    RFC 3339 in UTC; *blocked* is what the Job's Workload has against it, as far as that is known.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    raw = kind.read(source)
    if jobs.DECISION not in raw.annotations:
        sentence = f"nothing to undo, as it has no decision; {_PINNED}"
        return _pinned(raw, _unasked(raw), kind, sentence)
    try:
        found = _undone(source, raw, kind, snapshot, time=time, blocked=blocked)
    except FieldError as error:
        found = Refusal(obstacle=Obstacle.UNREADABLE, detail=str(error))
    return recovered.to_outcome(raw, kind, found) if isinstance(found, Refusal) else found


def _undone(
    source: Mapping[str, Any],
    raw: Job,
    kind: JobKind,
    snapshot: Snapshot,
    *,
    time: str,
    blocked: Obstacle | None,
) -> Outcome | Refusal:
    found = recovered.recover(source, raw, kind, snapshot.signing)
    if isinstance(found, Refusal):
        return found
    if raw.queue and not found.clean.queue:
        # Kueue would keep it suspended, or not let the label go where there is a default queue.
        return Refusal(obstacle=Obstacle.NO_QUEUE)
    if _would_cross(raw, found.clean, snapshot):
        return Refusal(obstacle=Obstacle.MANAGED_BY, detail=_CROSSING)
    after = put_back(raw, found.clean, kind, blocked=blocked)
    if isinstance(after, Obstacle):
        return Refusal(obstacle=after)
    where = f"in {after.queue} " if after.queue else ""
    sentence = f"undone: {where}as submitted, and {_PINNED}"
    after = replace(
        after, annotations={**after.annotations, jobs.REASON: decision_record.said(sentence)}
    )
    return _pinned(raw, _remembered(raw, after, found, time), kind, sentence)


def _would_cross(raw: Job, clean: Job, snapshot: Snapshot) -> bool:
    """Tell whether it would go to where other clusters run Jobs, and was not created for that."""
    local_queue = snapshot.local_queues.get((raw.namespace, clean.queue))
    if local_queue is None or raw.queue == clean.queue or raw.managed_by == MULTIKUEUE:
        return False
    cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    return cluster_queue is not None and multikueue.is_multikueue(cluster_queue, snapshot)


def put_back(
    raw: Job, clean: Job, kind: JobKind, *, blocked: Obstacle | None = None
) -> Job | Obstacle:
    """Turn *raw* into what was submitted, by such edits alone as a Job that waits can take."""
    after = movable_env.still_movable(raw, marks.unmarked(clean))
    changes = kind.edits(raw, after)
    if obstacle := movable.obstacle(changes, workload=blocked):
        return obstacle
    return after if movable.changes_template(changes) else replace(after, pod_sets=raw.pod_sets)


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
