"""Lists the job kinds: how each is read into a Job, and how a changed Job becomes edits.

A new kind is a module and one entry of ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.jobs.appwrapper import APPWRAPPER
from webhook.jobs.batch import JOB
from webhook.jobs.job_kind import JobKind
from webhook.jobs.jobset import JOBSET
from webhook.jobs.kubeflow import KUBEFLOW_KINDS
from webhook.jobs.ray import RAYCLUSTER, RAYJOB
from webhook.jobs.services import DEPLOYMENT, LEADERWORKERSET, STATEFULSET

__all__ = ["BY_NAME", "JOB", "KINDS", "JobKind", "referred"]

KINDS: Final[Mapping[tuple[str, str, str], JobKind]] = {
    (kind.group, kind.version, kind.kind): kind
    for kind in (
        APPWRAPPER,
        DEPLOYMENT,
        JOB,
        JOBSET,
        *KUBEFLOW_KINDS,
        LEADERWORKERSET,
        RAYCLUSTER,
        RAYJOB,
        STATEFULSET,
    )
}
BY_NAME: Final[Mapping[str, JobKind]] = {kind.kind: kind for kind in KINDS.values()}
_BY_REFERENCE: Final = {kind.kind.lower(): kind for kind in KINDS.values()}


def referred(reference: str) -> tuple[JobKind, str]:
    """Return kind and name of a Job from its ``reference``, such as ``rayjob/train``."""
    kind, slash, name = reference.rpartition("/")
    return (_BY_REFERENCE[kind], name) if slash else (JOB, name)
