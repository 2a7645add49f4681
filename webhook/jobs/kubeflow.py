"""Kubeflow's kinds, which share one shape: a template and a number of pods for each replica type.

All of a suspended one may change but ``managedBy``, and an MPIJob's launcher: the operator makes
the launcher's Job at once, and later takes over only what schedules its pods.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/mpijob/mpijob_controller.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/kubeflow/kubeflowjob/kubeflowjob_controller.go
https://github.com/kubeflow/mpi-operator/blob/v0.8.2/pkg/controller/mpi_job_controller.go#L1685
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from webhook.jobs import batch, served_job
from webhook.jobs.job_kind import JobKind, allowed_in, held_back_by, true_conditions
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Edit, Path
from webhook.model.fields import child
from webhook.model.job import MOST_REPLICAS, Job, Replicas
from webhook.model.reasons import Obstacle

_SUSPEND: Path = ("spec", "runPolicy", "suspend")
_ENDED = frozenset({"Succeeded", "Failed"})
_LAUNCHER = "Launcher"
_MASTER_AND_WORKERS = ("Master", "Worker")
_SCALED = frozenset({"PS", "Worker"})
"""Replica types of which there may be several."""


def _read(kind: str, replicas: str, types: Sequence[str], source: Mapping[str, Any]) -> Job:
    """Return a Job of one of these kinds as the API server sends it.

    *replicas* is the field with the replica types, *types* those that Kueue counts, in its order.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    policy, here = fields.mapping(spec, "runPolicy", "spec"), "spec.runPolicy"
    scheduling = fields.mapping(policy, "schedulingPolicy", here)
    given = fields.mapping(spec, replicas, "spec")
    unknown = [name for name in given if name not in types]
    unmodelled = f"its replicas {unknown[0]}, which Kueue does not count," if unknown else ""
    # With "auto" it is one for each CPU where there is no GPU.
    if spec.get("nprocPerNode") == "gpu":
        unmodelled = "its nprocPerNode, which starts a process for each GPU,"
    served = tuple(_pod_sets(spec, replicas, types, served_job.name_of(source)))
    job = served_job.read_served(
        source,
        kind=kind,
        pod_sets=served_job.read_pod_sets(served),
        managed_by=fields.text(policy, "managedBy", here) or None,
        active_deadline_seconds=served_job.ends_after(
            fields.integer(policy, "activeDeadlineSeconds", here), served
        ),
        unmodelled=unmodelled,
    )
    named = fields.text(scheduling, "priorityClass", child(here, "schedulingPolicy"))
    return replace(job, priority_class=named) if named else job


def _pod_sets(
    spec: Mapping[str, Any], replicas: str, types: Sequence[str], job: str
) -> Iterator[ServedPodSet]:
    """Yield the pod sets; operators name their pods by the *job*, the type and a number.

    https://github.com/kubeflow/mpi-operator/blob/v0.8.2/pkg/apis/kubeflow/validation/validation.go#L55
    """
    given, here = fields.mapping(spec, replicas, "spec"), child("spec", replicas)
    elastic = fields.mapping(spec, "elasticPolicy", "spec")
    least = fields.integer(elastic, "minReplicas", "spec.elasticPolicy")
    most = fields.integer(elastic, "maxReplicas", "spec.elasticPolicy")
    for name in types:
        if given.get(name) is None:
            continue
        replica = fields.mapping(given, name, here)
        count = fields.integer(replica, "replicas", child(here, name))
        pods = 1 if count is None else count
        scaled = Replicas(
            path=("spec", replicas, name, "replicas"),
            number=pods,
            given=count,
            least=max(1, least or 1),
            most=min(
                most or MOST_REPLICAS,
                served_job.most_by_name(f"{job}-{name.lower()}-", now=pods),
            ),
        )
        yield ServedPodSet(
            # ``NewPodSetReference`` writes names of pod sets in small letters.
            name=name.lower(),
            pods=pods,
            path=("spec", replicas, name, "template"),
            template=fields.mapping(replica, "template", child(here, name)),
            replicas=scaled if name in _SCALED else None,
        )


def _held_back(controller: str, source: Mapping[str, Any]) -> Obstacle | None:
    """Return why a Job of one of these kinds cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.mapping(source, "status", "")
    return held_back_by(
        source,
        _SUSPEND,
        controller=controller,
        is_over=not _ENDED.isdisjoint(true_conditions(status)),
        has_pods=_has_running_pods(source),
    )


def _has_running_pods(source: Mapping[str, Any]) -> bool:
    """Tell whether pods run: the operators count as active those that do."""
    status, here = fields.mapping(source, "status", ""), "status.replicaStatuses"
    counts = fields.mapping(status, "replicaStatuses", "status")
    return any(
        fields.integer(fields.mapping(counts, name, here), "active", child(here, name))
        for name in counts
    )


def _immutable(below: Path, edit: Edit) -> Obstacle | None:
    """Return why an edit is not taken over: the launcher's Job exists already."""
    return batch.immutable_but_scheduling(below, edit) if _LAUNCHER in edit.path[:3] else None


def _kind(
    kind: str,
    replicas: str,
    types: Sequence[str] = _MASTER_AND_WORKERS,
    *,
    version: str = "v1",
    controller: str = "kubeflow.org/training-operator",
) -> JobKind:
    templates: tuple[Path, ...] = (("spec", replicas, "*", "template"),)
    numbers: tuple[Path, ...] = (("spec", replicas, "*", "replicas"),)
    return JobKind(
        group="kubeflow.org",
        version=version,
        kind=kind,
        plural=f"{kind.lower()}s",
        framework=f"kubeflow.org/{kind.lower()}",
        templates=templates,
        replicas=numbers,
        allowed=(*allowed_in(templates), *numbers),
        suspend=_SUSPEND,
        read=partial(_read, kind, replicas, types),
        held_back=partial(_held_back, controller),
        immutable=_immutable,
        has_ready_pods=_has_running_pods,
        can_change_env=_LAUNCHER not in types,
    )


MPIJOB: Final = _kind(
    "MPIJob",
    "mpiReplicaSpecs",
    (_LAUNCHER, "Worker"),
    version="v2beta1",
    controller="kubeflow.org/mpi-operator",
)
KUBEFLOW_KINDS: Final = (
    _kind("JAXJob", "jaxReplicaSpecs", ("Worker",)),
    MPIJOB,
    _kind("PaddleJob", "paddleReplicaSpecs"),
    _kind("PyTorchJob", "pytorchReplicaSpecs"),
    _kind("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    _kind("XGBoostJob", "xgbReplicaSpecs"),
)
