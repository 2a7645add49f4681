"""A Job as far as its metadata tells of it, which is all that is watched of Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from webhook.api.resources import Entry, Resource, read_by
from webhook.api.watch import Message
from webhook.controller.job_events import Happening, happening_of
from webhook.flow import create
from webhook.hindsight.journal_keeper import Known, known_of
from webhook.jobs import KINDS
from webhook.model import fields, job_manifest
from webhook.model.job import DECISION, OURS, Job
from webhook.model.signatures import SigningKeys
from webhook.reconsider import pending_jobs

KIND: Final = KINDS["batch", "v1", "Job"]
_MEANT: Final = (OURS, "kueue.x-k8s.io/")
"""Prefixes of the annotations that anything depends on; others can be long."""


class Glimpse(NamedTuple):
    uid: str
    created: float
    """Seconds since 1970, by the API server's clock, which tells whole ones."""
    job: Job | None
    """Without anything of its spec; None where a decision stands on it."""
    known: Known | None = None
    """What the journal needs of it."""
    has_left: bool = False
    """Whether it was sent from one queue to another while it waited."""
    happening: Happening | None = None
    """What was last done to it, for its Events."""


class Leavers:
    """Notes whether some Job was sent to another queue while it waited.

    Its Workload may have to be repaired, though no policy reconsiders any more.
    """

    def __init__(self) -> None:
        self.seen = False

    def take(self, message: Message) -> tuple[str, ...]:
        """Take over what the follower of Jobs has found out; there is nothing to log."""
        found = [*(message.entries or ()), *((message.event[1],) if message.event else ())]
        self.seen = self.seen or any(
            each.value is not None and each.value.has_left for each in found
        )
        return ()


def read(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> Entry:
    """Read one, for a ``Follower``; a decision that *keys* did not sign counts for nothing."""
    return read_by(lambda found: _glimpse(found, keys), kind, source)


JOBS: Final = Resource(kind="jobs", path="/apis/batch/v1/jobs", required=False, read=read)


def _glimpse(source: Mapping[str, Any], keys: SigningKeys | None) -> Glimpse:
    metadata = fields.mapping(source, "metadata", "")
    created = fields.text(metadata, "creationTimestamp", "metadata")
    job = KIND.read({"metadata": source["metadata"]})
    recorded = create.recorded_on(job, keys, created=fields.created_unix(source))
    is_own = recorded is not None or DECISION not in job.annotations
    return Glimpse(
        uid=fields.text(metadata, "uid", "metadata"),
        created=fields.seconds_since_1970(created, "metadata.creationTimestamp"),
        job=_undecided(job),
        known=known_of(source),
        has_left=pending_jobs.has_left(job, recorded),
        happening=happening_of(job, recorded) if is_own else None,
    )


def _undecided(job: Job) -> Job | None:
    if DECISION in job.annotations:
        return None
    meant = {
        key: text
        for key, text in job.annotations.items()
        if key.startswith(_MEANT) and len(text) <= job_manifest.LONGEST_SAID
    }
    return replace(job, annotations=meant)
