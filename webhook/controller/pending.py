"""Jobs as the controller follows them while some policy reconsiders: those that still wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from webhook.admission import original as originals
from webhook.cluster.reduce import Entry, key_of
from webhook.cluster.resources import Resource
from webhook.decide import explain
from webhook.jobs import KINDS
from webhook.model import fields, marks
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, UNDONE, UNDONE_FROM, Job
from webhook.model.moves import Obstacle
from webhook.model.pending import Left, Pending, read_left

KIND: Final = KINDS["batch", "v1", "Job"]
PENDING_JOBS: Final = "pendingjobs"
_OVER: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})


def read(kind: str, source: Mapping[str, Any]) -> Entry:
    """Read one, for a ``Follower``; without a value: it is over, or was never moved and runs."""
    key = ("", "")
    try:
        key = key_of(source)
        return Entry(key, read_job(source))
    except (FieldError, ValueError) as error:
        return Entry(key, None, f"{kind} {'/'.join(key)}: {error}")


FOLLOWED: Final = Resource(kind=PENDING_JOBS, path="/apis/batch/v1/jobs", required=False, read=read)


def read_job(source: Mapping[str, Any]) -> Pending | None:
    """Read a whole Job.

    Raises:
        FieldError: it cannot be read as a Job.
        ValueError: its creation time cannot be read.

    """
    if _is_over(source):
        return None
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    raw = KIND.read(source)
    recorded = _recorded(raw)
    moves = recorded.moves if recorded is not None else 0
    obstacle = KIND.held_back(source)
    undone = raw.annotations.get(UNDONE, "")
    if obstacle is Obstacle.NOT_SUSPENDED and not moves and not undone:
        return None
    created = fields.text(metadata, "creationTimestamp", "metadata")
    return Pending(
        uid=fields.text(metadata, "uid", "metadata"),
        version=fields.text(metadata, "resourceVersion", "metadata"),
        created=datetime.fromisoformat(created).timestamp(),
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


def has_left(job: Job) -> bool:
    """Tell by its annotations whether it was sent from one queue to another while it waited."""
    recorded = _recorded(job)
    return bool(job.annotations.get(UNDONE)) or (recorded is not None and recorded.moves > 0)


def _left(raw: Job, recorded: explain.Recorded | None) -> Left | None:
    """Read from where it was sent away last; of a Job whose decision was undone, by the undo."""
    if UNDONE_FROM in raw.annotations:
        return read_left(raw.annotations[UNDONE_FROM])
    if recorded is None or not recorded.moves:
        return None
    return Left(unix=recorded.moved_unix, cluster_queues=recorded.elsewhere(raw.queue))


def _started(status: Mapping[str, Any]) -> float:
    time = fields.text(status, "startTime", "status")
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def _is_over(source: Mapping[str, Any]) -> bool:
    status = fields.mapping(source, "status", "")
    return any(
        each.get("status") == "True" and each.get("type") in _OVER
        for each, _ in fields.objects(status, "conditions", "status")
    )


def _recorded(job: Job) -> explain.Recorded | None:
    text = job.annotations.get(DECISION)
    if text is None:
        return None
    try:
        found = explain.from_json(text)
    except FieldError:
        return None
    return None if found.is_newer else found


def _submitted(source: Mapping[str, Any], raw: Job, recorded: explain.Recorded | None) -> Job:
    if recorded is None:
        return marks.unmarked(raw)
    try:
        original = originals.from_json(recorded.original)
        return marks.unmarked(KIND.read(originals.undone(source, original, KIND.allowed)))
    except FieldError:
        return marks.unmarked(raw)
