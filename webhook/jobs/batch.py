"""A batch/v1 Job: what Kueue counts of it, and what Kubernetes lets change while it is suspended.

It must not know policies or queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.jobs import served_job
from webhook.jobs.job_kind import JobKind, allowed_in, held_back_by, true_conditions
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Absent, Edit, Path
from webhook.model.fields import Json
from webhook.model.holds import GATE
from webhook.model.job import JOB_CONTROLLER, Job
from webhook.model.reasons import Obstacle

TEMPLATE: Path = ("spec", "template")
GENERATED: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels of a pod template by which the Job controller finds its pods.

https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/registry/batch/job/strategy.go#L209
"""
_ENDED = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})


def read_job(source: Mapping[str, Any]) -> Job:
    """Return a Job as the API server sends it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    pods = fields.mapping(spec, "template", "spec")
    at_once = pods_of(spec, "spec")
    rounds = rounds_of(spec, "spec", at_once)
    served = ServedPodSet("main", at_once, TEMPLATE, pods, rounds=rounds)
    return served_job.read_served(
        source,
        kind="Job",
        pod_sets=served_job.read_pod_sets([served]),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=served_job.ends_after(
            fields.integer(spec, "activeDeadlineSeconds", "spec"), [served]
        ),
    )


def ungenerated(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Job without the labels that the API server generated for its pods.

    They are each Job's own, so with them no two Jobs would have equal pod sets. What is read from
    here must not be patched.

    Raises:
        FieldError: its spec, its template or their metadata are no objects.

    """
    spec = fields.mapping(source, "spec", "")
    pods = fields.mapping(spec, "template", "spec")
    metadata = fields.mapping(pods, "metadata", "spec.template")
    labels = fields.mapping(metadata, "labels", "spec.template.metadata")
    own = {name: text for name, text in labels.items() if name not in GENERATED}
    if len(own) == len(labels):
        return source
    pods = {**pods, "metadata": {**metadata, "labels": own}}
    return {**source, "spec": {**spec, "template": pods}}


def held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this Job cannot be moved or undone, whatever would change; None: it can.

    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/registry/batch/job/strategy.go#L146

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    spec, status = fields.mapping(source, "spec", ""), fields.mapping(source, "status", "")
    conditions = true_conditions(status)
    obstacle = held_back_by(
        source,
        ("spec", "suspend"),
        controller=JOB_CONTROLLER,
        is_over=not _ENDED.isdisjoint(conditions),
        has_pods=_has_pods(status),
    )
    if obstacle is not None:
        return obstacle
    # Kubernetes ends a Job of which all completions have succeeded once it is resumed.
    wanted = fields.integer(spec, "completions", "spec")
    if wanted is not None and (fields.integer(status, "succeeded", "status") or 0) >= wanted:
        return Obstacle.FINISHED
    # It lets the template of a Job that ran once change only after it was suspended again.
    has_begun = status.get("startTime") is not None and "Suspended" not in conditions
    return Obstacle.STARTED if has_begun else None


def _has_pods(status: Mapping[str, Any]) -> bool:
    """Return whether pods exist, or have ended and are not counted yet: they may still succeed."""
    uncounted = fields.mapping(status, "uncountedTerminatedPods", "status")
    here = "status.uncountedTerminatedPods"
    return any(
        (
            fields.integer(status, "active", "status"),
            fields.integer(status, "terminating", "status"),
            fields.strings(uncounted, "succeeded", here),
            fields.strings(uncounted, "failed", here),
        )
    )


def _has_ready_pods(source: Mapping[str, Any]) -> bool:
    return bool(fields.integer(fields.mapping(source, "status", ""), "ready", "status"))


def pods_of(spec: Mapping[str, Any], path: str) -> int:
    """Count the pods of a JobSpec at *path* that run at once, as Kueue's ``podsCount`` does.

    Raises:
        FieldError: a number has a wrong type.

    """
    # The API server defaults parallelism to 1.
    parallelism = fields.integer(spec, "parallelism", path)
    completions = fields.integer(spec, "completions", path)
    count = 1 if parallelism is None else parallelism
    return count if completions is None else min(count, completions)


def rounds_of(spec: Mapping[str, Any], path: str, at_once: int) -> int:
    """Return how many pods of a JobSpec at *path* run one after the other in one place.

    *at_once*: how many there are of these places, as ``pods_of`` has it.

    Raises:
        FieldError: a number has a wrong type.

    """
    completions = fields.integer(spec, "completions", path)
    return -(-completions // at_once) if completions and at_once > 0 else 1


def immutable(below: Path, edit: Edit) -> Obstacle | None:
    """Return why Kubernetes refuses an edit at a path *below* a suspended Job's pod template.

    Resources and scheduling directives alone may change, and metadata.
    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/apis/batch/validation/validation.go#L742
    """
    match below:
        case ("spec", "containers" | "initContainers", _, "image"):
            return Obstacle.IMMUTABLE_IMAGE
        case ("spec", "containers" | "initContainers", _, "env", _):
            return Obstacle.IMMUTABLE_ENV
        case ("spec", "runtimeClassName"):
            return Obstacle.IMMUTABLE_RUNTIME_CLASS
        case ("spec", "affinity") if _between_pods(edit.was) != _between_pods(edit.value):
            return Obstacle.IMMUTABLE_AFFINITY
    return None


def immutable_but_scheduling(below: Path, edit: Edit) -> Obstacle | None:
    """Return why an edit is refused where only scheduling directives of a template may change.

    These are metadata, node selectors and tolerations. *below* is as ``immutable`` has it.
    """
    match below:
        case () | ("metadata", *_) | ("spec", "nodeSelector" | "tolerations", *_):
            return None
        case ("spec", "containers" | "initContainers", _, "resources", *_):
            return Obstacle.IMMUTABLE_RESOURCES
        case ("spec", "affinity"):
            return Obstacle.IMMUTABLE_AFFINITY
        case ("replicas",):
            return Obstacle.IMMUTABLE_REPLICAS
    return immutable(below, edit)


def _between_pods(affinity: Json | Absent) -> Mapping[str, Json]:
    """Return the parts of an affinity that are immutable: all but node affinity."""
    if not isinstance(affinity, Mapping):
        return {}
    return {
        kind: terms
        for kind, terms in affinity.items()
        if kind != "nodeAffinity" and terms is not None
    }


JOB: Final = JobKind(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    framework="batch/job",
    templates=(TEMPLATE,),
    # Jobs of no other kind are ever held for a better hour (decision 0039).
    allowed=(*allowed_in((TEMPLATE,)), ("metadata", "annotations", GATE)),
    suspend=("spec", "suspend"),
    read=read_job,
    held_back=held_back,
    immutable=immutable,
    ungenerated=ungenerated,
    has_ready_pods=_has_ready_pods,
    # From Kubernetes 1.36 on (decision 0020).
    changes_with_kubernetes=True,
    owns_queued=False,
)
