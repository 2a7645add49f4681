"""Turns the UPDATE that asks for an undo into edits that put a pending Job back as submitted.

It depends on the Job, on what its Workload rules out, and on which queues are MultiKueue's; it must
not know mode, policy, the age of the state or the off switch. The Job is pinned by the annotation
``policy: none``, so that it is neither decided nor moved again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webhook.adapt import movable_env
from webhook.decide import decision_record, warning
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import decided_job
from webhook.flow.decided_job import RecoveredJob, Refusal
from webhook.jobs import JobKind, movable
from webhook.kueue import multikueue
from webhook.model import job as jobs
from webhook.model import marks
from webhook.model.decision import Declined, Undone
from webhook.model.fields import FieldError
from webhook.model.job import Job, left_written
from webhook.model.queues import MULTIKUEUE, Snapshot
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, signed_words

_NOTHING_KNOWN = Snapshot()
_CROSSING = "its queue is MultiKueue's, and who runs a Job (managedBy) is fixed at creation"
_PINNED = f"decided no more ({POLICY}: {OPT_OUT})"


def undo(
    source: Mapping[str, Any],
    kind: JobKind,
    snapshot: Snapshot = _NOTHING_KNOWN,
    *,
    time: str,
) -> Undone | Declined:
    """Return the outcome that takes back a decision and its moves, and pins the Job.

    *snapshot* gives the signing keys, the queues that are MultiKueue's and what in the Job's
    Workload rules the undo out; what is not known may be missing. *time* is now, as RFC 3339 in
    UTC. An undo that cannot be made is declined.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    raw = kind.read(source)
    if jobs.DECISION not in raw.annotations:
        sentence = f"nothing to undo, as it has no decision; {_PINNED}"
        return _pinned(raw, _unasked(raw), kind, sentence)
    try:
        outcome = _undone(source, raw, kind, snapshot, time=time)
    except FieldError as error:
        outcome = Refusal(obstacle=Obstacle.UNREADABLE, detail=str(error))
    return decided_job.to_outcome(raw, kind, outcome) if isinstance(outcome, Refusal) else outcome


def _undone(
    source: Mapping[str, Any],
    raw: Job,
    kind: JobKind,
    snapshot: Snapshot,
    *,
    time: str,
) -> Undone | Refusal:
    case = decided_job.recover(source, kind, snapshot.signing)
    if isinstance(case, Refusal):
        return case
    if raw.queue and not case.submitted.queue:
        # Without the label, Kueue would keep the Job suspended for ever; and where the namespace
        # has a default queue, Kueue does not let the label be removed.
        return Refusal(obstacle=Obstacle.NO_QUEUE)
    if _would_cross(raw, case.submitted, snapshot):
        return Refusal(obstacle=Obstacle.MANAGED_BY, detail=_CROSSING)
    blocked = snapshot.obstacles.get((raw.namespace, raw.reference))
    after = put_back(raw, case.submitted, kind, blocked=blocked)
    if isinstance(after, Obstacle):
        return Refusal(obstacle=after)
    where = f"in {after.queue} " if after.queue else ""
    sentence = f"undone: {where}as submitted, and {_PINNED}"
    after = replace(
        after, annotations={**after.annotations, jobs.REASON: decision_record.said(sentence)}
    )
    after = _remembered(raw, after, case, time, snapshot.signing)
    return _pinned(raw, after, kind, sentence)


def _would_cross(raw: Job, clean: Job, snapshot: Snapshot) -> bool:
    """Tell whether the Job would enter a MultiKueue queue without having been created in one."""
    local_queue = snapshot.local_queues.get((raw.namespace, clean.queue))
    # Kueue sets spec.managedBy for MultiKueue at creation; it is immutable afterwards.
    if local_queue is None or raw.queue == clean.queue or raw.managed_by == MULTIKUEUE:
        return False
    cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    return cluster_queue is not None and multikueue.is_multikueue(cluster_queue, snapshot)


def put_back(
    raw: Job, clean: Job, kind: JobKind, *, blocked: Obstacle | None = None
) -> Job | Obstacle:
    """Return *raw* as submitted (*clean*), or the obstacle if a pending Job cannot become that.

    *blocked* is why its Workload rules the change out; None: it does not.
    """
    # Variables stay references to annotations: a Job's environment is immutable (decision 0020).
    after = movable_env.still_movable(raw, marks.unmarked(clean))
    changes = kind.edits(raw, after)
    if obstacle := movable.obstacle(changes, kind, workload=blocked):
        return obstacle
    # Kueue does not take over a template in which only our marks change.
    if movable.changes_template(changes, kind):
        return after
    return replace(after, pod_sets=raw.pod_sets)


def _unasked(raw: Job) -> Job:
    """Return the Job without ``move-to`` and our other marks, but with those of an earlier undo."""
    kept_marks = (jobs.UNDONE, jobs.UNDONE_FROM, jobs.REASON)
    kept = {key: raw.annotations[key] for key in kept_marks if key in raw.annotations}
    left = marks.unmarked(raw)
    return replace(left, pod_sets=raw.pod_sets, annotations={**left.annotations, **kept})


def _remembered(
    raw: Job, after: Job, case: RecoveredJob, time: str, keys: SigningKeys | None
) -> Job:
    """Note on the Job which policy had decided it, when it was undone, and what queues it left.

    Kueue may be admitting it in one of these at this moment; the controller then repairs that.
    """
    recorded = case.recorded
    if recorded is None or (raw.queue == after.queue and not recorded.moves):
        return after
    noted = {jobs.UNDONE: recorded.policy}
    if elsewhere := recorded.elsewhere(after.queue):
        # Signed, as it makes the controller follow Jobs and Workloads (decision 0024).
        text = left_written(time, elsewhere)
        noted[jobs.UNDONE_FROM] = signed_words(text, raw.namespace, keys)
    return replace(after, annotations={**after.annotations, **noted})


def _pinned(raw: Job, left: Job, kind: JobKind, sentence: str) -> Undone:
    after = replace(
        left,
        labels=decided_job.asked_about(left),
        annotations={**left.annotations, POLICY: OPT_OUT},
    )
    return Undone(
        edits=kind.edits(raw, after), warnings=warning.sentence(sentence), sentence=sentence
    )
