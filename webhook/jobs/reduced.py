"""Reads Jobs as records have them: of any kind, with their pod sets in one list.

Journal and decision log reduce a Job to what deciding about it needs (``model.job_manifest``); the
object itself, which has them where its kind does, is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from webhook import jobs
from webhook.jobs import served_job
from webhook.jobs.batch import JOB
from webhook.jobs.job_kind import JobKind, allowed_in
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Path
from webhook.model.fields import child
from webhook.model.job import PLAIN, Job
from webhook.model.pods import read_template

_POD_SETS: Path = ("spec", "podSets")
_TEMPLATES: tuple[Path, ...] = ((*_POD_SETS, "*", "template"),)


@lru_cache(maxsize=64)
def kind_named(name: str) -> JobKind:
    """Return the kind of reduced Jobs that says of itself *name*; batch Jobs are as they are.

    A kind that is not known is like a batch Job in all but its name, which no policy matches.
    """
    if name in ("", PLAIN):
        return JOB
    return replace(
        jobs.BY_NAME.get(name, JOB),
        kind=name,
        templates=_TEMPLATES,
        allowed=allowed_in(_TEMPLATES),
        read=partial(_read, name),
    )


def kind_of(source: Mapping[str, Any]) -> JobKind:
    """Return how a Job is read, reduced or not: only whole objects name a version of the API.

    Raises:
        FieldError: it is a whole object of an unknown kind or version.

    """
    if "apiVersion" in source:
        return jobs.kind_of(source)
    return kind_named(fields.text(source, "kind", ""))


def _read(kind: str, source: Mapping[str, Any]) -> Job:
    """Return the Job.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    pod_sets = [_pod_set(*listed) for listed in fields.objects(spec, "podSets", "spec")]
    job = served_job.read_served(
        source,
        kind=kind,
        pod_sets=served_job.read_pod_sets(pod_sets),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=fields.integer(spec, "activeDeadlineSeconds", "spec"),
        unmodelled=fields.text(spec, "unmodelled", "spec"),
    )
    workloads = fields.integer(spec, "workloads", "spec")
    return replace(
        job,
        priority_class=fields.text(spec, "priorityClass", "spec"),
        workloads=1 if workloads is None else workloads,
    )


def _pod_set(source: Mapping[str, Any], path: str) -> ServedPodSet:
    name, count = fields.text(source, "name", path), fields.integer(source, "count", path)
    added = {"spec": {"containers": source.get("added")}}
    is_made = fields.flag(source, "made", path)
    return ServedPodSet(
        name=name,
        pods=1 if count is None else count,
        path=() if is_made else (*_POD_SETS, name, "template"),
        template=fields.mapping(source, "template", path),
        added=read_template(added, child(path, "added")).containers,
    )
