"""A Job as far as its metadata tells of it, which is all that is watched of Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from webhook.cluster.reduce import Entry, key_of
from webhook.cluster.resources import Resource
from webhook.controller.journal import Known, known_of
from webhook.jobs import KINDS
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, OURS, Job

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


def read(kind: str, source: Mapping[str, Any]) -> Entry:
    """Read one, for a ``Follower``."""
    key = ("", "")
    try:
        key = key_of(source)
        return Entry(key, _glimpse(source))
    except (FieldError, ValueError) as error:
        return Entry(key, None, f"{kind} {'/'.join(key)}: {error}")


JOBS: Final = Resource(kind="jobs", path="/apis/batch/v1/jobs", required=False, read=read)


def _glimpse(source: Mapping[str, Any]) -> Glimpse:
    metadata = fields.mapping(source, "metadata", "")
    created = fields.text(metadata, "creationTimestamp", "metadata")
    return Glimpse(
        uid=fields.text(metadata, "uid", "metadata"),
        created=datetime.fromisoformat(created).timestamp(),
        job=_undecided(source),
        known=known_of(source),
    )


def _undecided(source: Mapping[str, Any]) -> Job | None:
    job = KIND.read({"metadata": source["metadata"]})
    if DECISION in job.annotations:
        return None
    meant = {key: text for key, text in job.annotations.items() if key.startswith(_MEANT)}
    return replace(job, annotations=meant)
