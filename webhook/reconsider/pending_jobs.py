"""Jobs as the controller follows them while some policy reconsiders: those that still wait."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from webhook.admission import original as originals
from webhook.api.resources import ReadObject, Resource, read_by
from webhook.decide import decision_record
from webhook.flow import create
from webhook.jobs import KINDS
from webhook.model import fields, marks
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, UNDONE, UNDONE_FROM, Job
from webhook.model.pending import Left, Pending, read_left
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, is_own_record

KIND: Final = KINDS["batch", "v1", "Job"]
PENDING_JOBS: Final = "pendingjobs"
_OVER: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})


def read(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> ReadObject:
    """Read one, for a ``Follower``; without a value: it is over, or was never moved and runs.

    A decision that is not signed with one of the *keys* keeps the Job from being moved.
    """
    return read_by(lambda found: read_job(found, keys), kind, source)


FOLLOWED: Final = Resource(kind=PENDING_JOBS, path="/apis/batch/v1/jobs", required=False, read=read)


def read_job(source: Mapping[str, Any], keys: SigningKeys | None = None) -> Pending | None:
    """Read a whole Job; *keys* as for ``read``.

    Raises:
        FieldError: it cannot be read as a Job.

    """
    if _is_over(source):
        return None
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    raw = KIND.read(source)
    created = fields.created_unix(source)
    recorded = recorded_on(raw, keys, created=created)
    moves = recorded.moves if recorded is not None else 0
    obstacle = KIND.held_back(source) or _foreign(raw, keys, created)
    undone = marks.of(raw.annotations, UNDONE)
    if obstacle is Obstacle.NOT_SUSPENDED and not moves and not undone:
        return None
    if created == inf:
        raise FieldError("metadata.creationTimestamp", "expected a time")
    return Pending(
        uid=fields.text(metadata, "uid", "metadata"),
        version=fields.text(metadata, "resourceVersion", "metadata"),
        created=created,
        job=_submitted(source, raw, recorded),
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


def has_left(job: Job, recorded: decision_record.Recorded | None) -> bool:
    """Tell whether it was sent from one queue to another while it waited."""
    return bool(job.annotations.get(UNDONE)) or (recorded is not None and recorded.moves > 0)


def _left(raw: Job, recorded: decision_record.Recorded | None) -> Left | None:
    """Read from where it was sent away last; of a Job whose decision was undone, by the undo."""
    if UNDONE_FROM in raw.annotations:
        return read_left(raw.annotations[UNDONE_FROM])
    if recorded is None or not recorded.moves:
        return None
    return Left(unix=recorded.moved_unix, cluster_queues=recorded.elsewhere(raw.queue))


def _started(status: Mapping[str, Any]) -> float:
    time = fields.text(status, "startTime", "status")
    return fields.seconds_since_1970(time, "status.startTime") if time else 0.0


def _is_over(source: Mapping[str, Any]) -> bool:
    status = fields.mapping(source, "status", "")
    return any(
        each.get("status") == "True" and each.get("type") in _OVER
        for each, _ in fields.objects(status, "conditions", "status")
    )


def recorded_on(
    job: Job, keys: SigningKeys | None, *, created: float
) -> decision_record.Recorded | None:
    """Read the decision on a Job as ``create.recorded_on`` does, but for one of a newer version."""
    found = create.recorded_on(job, keys, created=created)
    return None if found is None or found.is_newer else found


def _foreign(job: Job, keys: SigningKeys | None, created: float) -> Obstacle | None:
    text = job.annotations.get(DECISION)
    is_own = text is None or is_own_record(text, job.namespace, keys, created=created)
    return None if is_own else Obstacle.FOREIGN_DECISION


def _submitted(
    source: Mapping[str, Any], raw: Job, recorded: decision_record.Recorded | None
) -> Job:
    if recorded is None:
        return marks.unmarked(raw)
    try:
        original = originals.from_json(recorded.original)
        return marks.unmarked(KIND.read(originals.undone(source, original, KIND.allowed)))
    except FieldError:
        return marks.unmarked(raw)
