"""JobSets: a pod set for each of their replicated Jobs.

While they are suspended, only metadata, node selectors and tolerations of their pods may change.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/jobset/jobset_controller.go
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go#L371
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.jobs import batch, served_job
from webhook.jobs.job_kind import JobKind, allowed_in, held_back_by, true_conditions
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Path
from webhook.model.fields import FieldError, child
from webhook.model.job import Job, Replicas
from webhook.model.reasons import Obstacle

_JOBS: Path = ("spec", "replicatedJobs")
_BELOW: Path = ("template", "spec", "template")
_TEMPLATES: tuple[Path, ...] = ((*_JOBS, "*", *_BELOW),)
_REPLICAS: tuple[Path, ...] = ((*_JOBS, "*", "replicas"),)
_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_ENDED = frozenset({"Completed", "Failed"})


def read_jobset(source: Mapping[str, Any]) -> Job:
    """Return a JobSet as the API server sends it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    replicated = fields.objects(spec, "replicatedJobs", "spec", most=served_job.MOST_POD_SETS)
    names = [fields.text(job, "name", where) for job, where in replicated]
    if len({*names, ""}) <= len(names):
        raise FieldError(".".join(_JOBS), "expected a name of its own for each")
    name = served_job.name_of(source)
    served = [_pod_set(job, where, _coordinator(spec), name) for job, where in replicated]
    return served_job.read_served(
        source,
        kind="JobSet",
        pod_sets=served_job.read_pod_sets(served),
        active_deadline_seconds=served_job.ends_after(None, served),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
    )


def _coordinator(spec: Mapping[str, Any]) -> tuple[str, int]:
    """Return the replicated Job in which the coordinator is, and the index of its Job there."""
    coordinator, here = fields.mapping(spec, "coordinator", "spec"), "spec.coordinator"
    name = fields.text(coordinator, "replicatedJob", here)
    return name, fields.integer(coordinator, "jobIndex", here) or 0


def _pod_set(
    replicated: Mapping[str, Any], path: str, coordinator: tuple[str, int], jobset: str
) -> ServedPodSet:
    """Read a replicated Job; Kueue counts its pods as those of a Job, for each replica.

    JobSet's webhook refuses replicas whose pods would have too long names:
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go#L243
    """
    name = fields.text(replicated, "name", path)
    here = child(child(path, "template"), "spec")
    job = fields.mapping(fields.mapping(replicated, "template", path), "spec", path)
    given = fields.integer(replicated, "replicas", path)
    pods_each = batch.pods_of(job, here)
    number = 1 if given is None else given
    last_pod = (fields.integer(job, "completions", here) or 1) - 1
    suffix = f"-{last_pod}-{served_job.GENERATED_SUFFIX}"
    replicas = Replicas(
        path=(*_JOBS, name, "replicas"),
        number=number,
        given=given,
        pods_each=pods_each,
        least=coordinator[1] + 1 if name == coordinator[0] else 1,
        most=served_job.most_by_name(f"{jobset}-{name}-", suffix, now=number),
    )
    return ServedPodSet(
        name=name.lower(),
        pods=replicas.number * pods_each,
        replicas=replicas,
        path=(*_JOBS, name, *_BELOW),
        template=fields.mapping(job, "template", here),
        limit_seconds=fields.integer(job, "activeDeadlineSeconds", here),
        rounds=batch.rounds_of(job, here, pods_each),
    )


def _held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this JobSet cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.mapping(source, "status", "")
    running = fields.objects(status, "replicatedJobsStatus", "status")
    return held_back_by(
        source,
        JOBSET.suspend,
        controller=_CONTROLLER,
        is_over=not _ENDED.isdisjoint(true_conditions(status)),
        has_pods=any(fields.integer(job, "active", where) for job, where in running),
    )


def _has_ready_pods(source: Mapping[str, Any]) -> bool:
    status = fields.mapping(source, "status", "")
    running = fields.objects(status, "replicatedJobsStatus", "status")
    return any(fields.integer(job, "ready", where) for job, where in running)


JOBSET: Final = JobKind(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    plural="jobsets",
    framework="jobset.x-k8s.io/jobset",
    templates=_TEMPLATES,
    replicas=_REPLICAS,
    allowed=(*allowed_in(_TEMPLATES), *_REPLICAS),
    suspend=("spec", "suspend"),
    read=read_jobset,
    held_back=_held_back,
    has_ready_pods=_has_ready_pods,
    immutable=batch.immutable_but_scheduling,
)
