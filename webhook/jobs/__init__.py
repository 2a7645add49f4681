"""Lists the job kinds: how each is read into a Job, and how a changed Job becomes edits.

A new kind is a module and one entry of ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.jobs.appwrapper import APPWRAPPER
from webhook.jobs.batch import JOB
from webhook.jobs.job_kind import JobKind
from webhook.jobs.jobset import JOBSET
from webhook.jobs.kubeflow import KUBEFLOW_KINDS
from webhook.jobs.pod import POD
from webhook.jobs.ray import RAYCLUSTER, RAYJOB
from webhook.jobs.services import DEPLOYMENT, LEADERWORKERSET, STATEFULSET
from webhook.jobs.spark import SPARKAPPLICATION
from webhook.jobs.trainjob import TRAINJOB
from webhook.model.fields import FieldError

__all__ = ["BY_NAME", "FRAMEWORKS", "JOB", "KINDS", "JobKind", "kind_of", "referred"]

KINDS: Final[Mapping[tuple[str, str, str], JobKind]] = {
    (kind.group, kind.version, kind.kind): kind
    for kind in (
        APPWRAPPER,
        DEPLOYMENT,
        JOB,
        JOBSET,
        *KUBEFLOW_KINDS,
        LEADERWORKERSET,
        POD,
        RAYCLUSTER,
        RAYJOB,
        SPARKAPPLICATION,
        STATEFULSET,
        TRAINJOB,
    )
}
BY_NAME: Final[Mapping[str, JobKind]] = {kind.kind: kind for kind in KINDS.values()}
_BY_REFERENCE: Final = {kind.kind.lower(): kind for kind in KINDS.values()}
FRAMEWORKS: Final = tuple(dict.fromkeys(kind.framework for kind in KINDS.values()))
"""The names of all of them in ``integrations.frameworks`` of Kueue's configuration."""


def referred(reference: str) -> tuple[JobKind, str]:
    """Return kind and name of a Job from its ``reference``, such as ``rayjob/train``."""
    kind, slash, name = reference.rpartition("/")
    return (_BY_REFERENCE[kind], name) if slash else (JOB, name)


def kind_of(source: Mapping[str, Any]) -> JobKind:
    """Return how a Job is read; what names no kind is a batch Job.

    Raises:
        FieldError: it is of an unknown kind or version.

    """
    named = source.get("kind", JOB.kind)
    known = BY_NAME.get(named) if isinstance(named, str) else None
    if known is None:
        raise FieldError("kind", f"expected one of {', '.join(BY_NAME)}, got {named}")
    api_version = str(source.get("apiVersion", known.api_version))
    group, _, version = api_version.rpartition("/")
    kind = KINDS.get((group, version, known.kind))
    if kind is None:
        raise FieldError("apiVersion", f"expected {known.api_version}, got {api_version}")
    return kind
