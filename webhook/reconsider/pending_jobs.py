"""Pending Jobs, read from the Job objects that the controller follows while a policy reconsiders.

Whether and where a Job should move is not known here, only what of the Job itself forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any, Final

from webhook.api.resources import ReadObject, Resource, read_by
from webhook.decide import decision_record
from webhook.decide.decision_record import Recorded
from webhook.flow.decided_job import DecidedJob, read_decided_job
from webhook.jobs import JobKind
from webhook.model import fields, job_manifest, marks
from webhook.model.fields import FieldError
from webhook.model.job import (
    LONGEST_LEFT,
    PUT_BACK,
    UNDONE,
    UNDONE_FROM,
    Job,
    Left,
    Pending,
    PodSets,
    Rollout,
    read_left,
    reference_of,
)
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, own_words

UNSERVED_SECONDS: Final = 30.0
"""Between attempts to list a kind that is not served."""
MOST_CHARACTERS: Final = 65_536
"""Of the texts in a Job's pod templates: a Job with more of them is not moved."""


def followed(kind: JobKind, keys: Callable[[], SigningKeys | None] = lambda: None) -> Resource:
    """Return the Jobs of a kind, whole; ``read_job`` says which of them have a value.

    A decision that is not signed with one of the *keys* keeps the Job from being moved.
    """
    return resource_of(kind, f"pending{kind.plural}", lambda job: read_job(job, kind, keys()))


def resource_of(kind: JobKind, name: str, reader: Callable[[Mapping[str, Any]], Any]) -> Resource:
    """Return the Jobs of a kind as what is watched under *name*.

    The key of each is its namespace and its reference, which carries the kind.
    """

    def read(name: str, source: Mapping[str, Any]) -> ReadObject:
        entry = read_by(reader, name, source)
        namespace, job = entry.key
        return entry._replace(key=(namespace, reference_of(kind.kind, job)))

    return Resource(
        kind=name,
        path=kind.path(),
        required=False,
        read=read,
        # Its definition may never be installed.
        unserved_seconds=UNSERVED_SECONDS,
    )


def read_job(
    source: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None = None
) -> Pending | None:
    """Read a Job that may be moved, or was; None: it is over, or runs and was never moved.

    *keys* are as for ``read_decided_job``.

    Raises:
        FieldError: it cannot be read as a Job of *kind*.

    """
    found = read_unfinished(source, kind, keys)
    # A moved or undone Job is followed on while it runs: Kueue may have admitted its Workload in
    # the queue that it left (decision 0013).
    if found is not None and found.obstacle is Obstacle.NOT_SUSPENDED and not found.has_left:
        return None
    return found


def read_unfinished(
    source: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None = None
) -> Pending | None:
    """Read a Job that waits or runs, as ``read_job`` does; None: it is over."""
    held_back = kind.held_back(source)
    if held_back is Obstacle.FINISHED:
        return None
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    created = fields.created_unix(source)
    # So that Jobs from one template share its pod sets, and what is worked out of them.
    job = read_decided_job(kind.ungenerated(source), kind, keys, created=created)
    raw, recorded = job.current, job.believed
    moves = recorded.moves if recorded is not None else 0
    submitted = marks.unmarked(job.recovered_if_possible().submitted)
    is_large = _characters(submitted) > MOST_CHARACTERS
    obstacle = held_back or job.doubt or (Obstacle.TOO_LARGE if is_large else None)
    left = left_of(job, keys, created=created)
    if created == inf:
        raise FieldError("metadata.creationTimestamp", "expected a time")
    return Pending(
        uid=fields.text(metadata, "uid", "metadata"),
        version=fields.text(metadata, "resourceVersion", "metadata"),
        created=created,
        # Options are assessed on the submitted Job, as at its creation: adaptations do not add up.
        job=_kept(submitted, is_large=is_large),
        queue=raw.queue,
        policy=recorded.policy if recorded is not None else "",
        option=(recorded.option or "") if recorded is not None else "",
        moves=moves,
        undone=marks.mark_of(raw.annotations, UNDONE),
        changed=max(recorded.unix, recorded.moved_unix) if recorded is not None else 0.0,
        obstacle=obstacle,
        left=left,
        has_ready_pods=kind.has_ready_pods(source),
        started=_started(status) if obstacle is Obstacle.NOT_SUSPENDED else 0.0,
        rollout=_rollout(source, kind, recorded),
    )


def _rollout(source: Mapping[str, Any], kind: JobKind, recorded: Recorded | None) -> Rollout | None:
    """Return how far a service is, and what came of its moves; None: it is none that rolls."""
    if kind.rolled_out is None:
        return None
    stays = recorded.history if recorded is not None else ()
    moves = list(pairwise(stays))
    back = [(left, taken) for left, taken in moves if f": {PUT_BACK}" in taken.reason]
    return Rollout(
        is_done=kind.rolled_out(source),
        left=moves[-1][0].option if moves and moves[-1] not in back else "",
        moved=tuple(taken.unix for _, taken in moves),
        failed={left.option: taken.unix for left, taken in back},
    )


def left_of(job: DecidedJob, keys: SigningKeys | None, *, created: float) -> Left | None:
    """Return the last move or undo of a Job, and the queues it may have left; None: there is none.

    One that is not proven by the *keys* is none; *created* as for ``is_own_record``.
    """
    # An undone Job carries no decision any more, so the undo has an annotation of its own.
    text = job.current.annotations.get(UNDONE_FROM)
    if text is not None:
        own = own_words(text[:LONGEST_LEFT], job.current.namespace, keys, created=created)
        return None if own is None else read_left(own)
    recorded = job.believed
    if recorded is None or not recorded.moves:
        return None
    # Its other options are taken from the decision: their queues may have been made anew since.
    elsewhere = decision_record.elsewhere(recorded, job.current.queue)
    return Left(unix=recorded.moved_unix, cluster_queues=elsewhere)


def _kept(job: Job, *, is_large: bool) -> Job:
    """Leave out what is read no more: a tenant may write a megabyte into each Job."""
    # A text that is too long stays so, as who reads it says what is wrong with it.
    most = job_manifest.LONGEST_SAID + 1
    annotations = {key: text[:most] for key, text in job_manifest.meant(job.annotations)}
    pod_sets = PodSets() if is_large else job.pod_sets
    return replace(job, annotations=annotations, pod_sets=pod_sets)


def _characters(job: Job) -> int:
    """Count the characters of the texts in a Job's pod templates, about."""
    templates = [pod_set.template for pod_set in job.pod_sets]
    texts = [text for template in templates for text in template.annotations.values()]
    for template in templates:
        for container in (*template.init_containers, *template.containers):
            texts += map(str, (*container.env, *container.args, *container.command))
    return sum(map(len, texts))


def _started(status: Mapping[str, Any]) -> float:
    """Return when a Job was started, in seconds since 1970; 0: its status does not say.

    Raises:
        FieldError: ``status.startTime`` is not a time.

    """
    time = fields.text(status, "startTime", "status")
    return fields.seconds_since_1970(time, "status.startTime") if time else 0.0
