"""Pending Jobs, read from the Job objects that the controller follows while a policy reconsiders.

Whether and where a Job should move is not known here, only what of the Job itself forbids it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from webhook.api.resources import ReadObject, Resource, read_by
from webhook.decide.decision_record import Recorded
from webhook.flow import decided_job
from webhook.jobs import JOB
from webhook.model import fields, marks
from webhook.model.fields import FieldError
from webhook.model.job import UNDONE, UNDONE_FROM, Job, Left, Pending, read_left
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys

PENDING_JOBS: Final = "pendingjobs"
_OVER: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})


def read(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> ReadObject:
    """Read a Job for a ``Follower``; without a value where ``read_job`` returns None.

    A decision that is not signed with one of the *keys* keeps the Job from being moved.
    """
    return read_by(lambda found: read_job(found, keys), kind, source)


FOLLOWED: Final = Resource(kind=PENDING_JOBS, path=JOB.path(), required=False, read=read)


def read_job(source: Mapping[str, Any], keys: SigningKeys | None = None) -> Pending | None:
    """Read a Job that may be moved, or was; None: it is over, or runs and was never moved.

    *keys* are as for ``read``.

    Raises:
        FieldError: it cannot be read as a Job.

    """
    if _is_over(source):
        return None
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    created = fields.created_unix(source)
    found = decided_job.read(source, JOB, keys, created=created)
    raw, recorded = found.current, found.believed
    moves = recorded.moves if recorded is not None else 0
    obstacle = JOB.held_back(source) or found.doubt
    undone = marks.of(raw.annotations, UNDONE)
    # A moved or undone Job is followed on while it runs: Kueue may have admitted its Workload in
    # the queue that it left (decision 0013).
    if obstacle is Obstacle.NOT_SUSPENDED and not moves and not undone:
        return None
    if created == inf:
        raise FieldError("metadata.creationTimestamp", "expected a time")
    return Pending(
        uid=fields.text(metadata, "uid", "metadata"),
        version=fields.text(metadata, "resourceVersion", "metadata"),
        created=created,
        # Options are assessed on the submitted Job, as at its creation: adaptations do not add up.
        job=marks.unmarked(found.recovered_if_possible().submitted),
        queue=raw.queue,
        policy=recorded.policy if recorded is not None else "",
        option=(recorded.option or "") if recorded is not None else "",
        moves=moves,
        undone=undone,
        changed=max(recorded.unix, recorded.moved_unix) if recorded is not None else 0.0,
        obstacle=obstacle,
        left=_left(raw, recorded),
        has_ready_pods=bool(fields.integer(status, "ready", "status")),
        started=_started(status) if obstacle is Obstacle.NOT_SUSPENDED else 0.0,
    )


def has_left(job: Job, recorded: Recorded | None) -> bool:
    """Tell whether a Job was moved or undone while it was pending, and so may have left a queue."""
    return bool(job.annotations.get(UNDONE)) or (recorded is not None and recorded.moves > 0)


def _left(raw: Job, recorded: Recorded | None) -> Left | None:
    """Return the last move or undo of a Job, and the queues it may have left; None: not known."""
    # An undone Job carries no decision any more, so the undo has an annotation of its own.
    if UNDONE_FROM in raw.annotations:
        return read_left(raw.annotations[UNDONE_FROM])
    if recorded is None or not recorded.moves:
        return None
    # Its other options are taken from the decision: their queues may have been made anew since.
    return Left(unix=recorded.moved_unix, cluster_queues=recorded.elsewhere(raw.queue))


def _started(status: Mapping[str, Any]) -> float:
    """Return when a Job was started, in seconds since 1970; 0: it was not.

    Raises:
        FieldError: ``status.startTime`` is not a time.

    """
    time = fields.text(status, "startTime", "status")
    return fields.seconds_since_1970(time, "status.startTime") if time else 0.0


def _is_over(source: Mapping[str, Any]) -> bool:
    """Tell whether a Job has ended, or is bound to as soon as its pods are gone."""
    status = fields.mapping(source, "status", "")
    return any(
        each.get("status") == "True" and each.get("type") in _OVER
        for each, _ in fields.objects(status, "conditions", "status")
    )
