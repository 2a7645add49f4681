"""Deployments, StatefulSets and LeaderWorkerSets: what serves, and never ends by itself.

Kueue queues a Deployment's pods one by one, a StatefulSet's together, and each replica of a
LeaderWorkerSet with its workers. The queue's name stands on the object, and Kueue hands it on to
the pods. A Deployment can be moved later, by a rolling update: Kueue keeps the queue of the object
while a pod is ready, so only that of the pods changes. The others are decided at creation only.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/deployment/deployment_webhook.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/statefulset/statefulset_reconciler.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/leaderworkerset/leaderworkerset_reconciler.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from webhook.jobs import served_job
from webhook.jobs.job_kind import SUSPENDING_PARENT, JobKind, allowed_in, creation_only
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import ABSENT, Path
from webhook.model.fields import child
from webhook.model.job import MOVE_TO, PODS_QUEUE, QUEUE_LABEL, Job, Replicas, Rolling
from webhook.model.reasons import Obstacle

_TEMPLATE: Path = ("spec", "template")
_REPLICAS: Path = ("spec", "replicas")
ROLLING: Final[Path] = ("spec", "strategy", "rollingUpdate")
_GROUP: Path = ("spec", "leaderWorkerTemplate")
_LEADER, _WORKER = (*_GROUP, "leaderTemplate"), (*_GROUP, "workerTemplate")


def _read(source: Mapping[str, Any], *, kind: str, framework: str) -> Job:
    """Return a Deployment, each pod of which is a Workload, or a StatefulSet, which is one.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    pods = fields.mapping(spec, "template", "spec")
    replicas = _number(spec, "replicas", "spec")
    metadata = fields.mapping(pods, "metadata", "spec.template")
    annotations = fields.texts(metadata, "annotations", "spec.template.metadata")
    # The StatefulSets that a LeaderWorkerSet makes are queued with it.
    is_a_part = annotations.get(SUSPENDING_PARENT, framework) != framework
    one_by_one = kind == "Deployment"
    pod_set = ServedPodSet(
        "main",
        1 if one_by_one else replicas,
        _TEMPLATE,
        pods,
        replicas=_replicas(spec, are_workloads=one_by_one),
    )
    pod_sets = served_job.read_pod_sets([] if is_a_part or not replicas else [pod_set])
    job = served_job.read_served(source, kind=kind, pod_sets=pod_sets)
    return replace(job, workloads=replicas) if one_by_one else job


def _replicas(spec: Mapping[str, Any], *, are_workloads: bool) -> Replicas:
    return Replicas(
        path=_REPLICAS,
        number=_number(spec, "replicas", "spec"),
        given=fields.integer(spec, "replicas", "spec"),
        are_workloads=are_workloads,
    )


def _read_deployment(source: Mapping[str, Any]) -> Job:
    """Return a Deployment, with the queue of its pods where it was moved or is to be.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    job = _read(source, kind="Deployment", framework="deployment")
    strategy = fields.mapping(fields.mapping(source, "spec", ""), "strategy", "spec")
    if strategy.get("rollingUpdate") is not None:
        rolling = fields.mapping(strategy, "rollingUpdate", "spec.strategy")
        surge, unavailable = (rolling.get(key, ABSENT) for key in ("maxSurge", "maxUnavailable"))
        job = replace(job, rolling=Rolling(path=ROLLING, surge=surge, unavailable=unavailable))
    # Only a stored object has a UID: a new one gets its queue as any other.
    is_stored = bool(fields.mapping(source, "metadata", "").get("uid"))
    queue = next((each.template.labels.get(QUEUE_LABEL) for each in job.pod_sets), None)
    if not (is_stored and queue) or {MOVE_TO, PODS_QUEUE}.isdisjoint(job.annotations):
        return job
    return replace(job, labels={**job.labels, QUEUE_LABEL: queue}, own_queue=job.queue)


def read_lws(source: Mapping[str, Any]) -> Job:
    """Return a LeaderWorkerSet, each replica of which is a Workload.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec, where = fields.mapping(source, "spec", ""), ".".join(_GROUP)
    group = fields.mapping(spec, "leaderWorkerTemplate", "spec")
    size, replicas = _number(group, "size", where), _number(spec, "replicas", "spec")
    workers = fields.mapping(group, "workerTemplate", where)
    scaled = _replicas(spec, are_workloads=True)
    pod_sets = [ServedPodSet("main", size, _WORKER, workers, replicas=scaled)]
    if group.get("leaderTemplate") is not None:
        leader = fields.mapping(group, "leaderTemplate", where)
        fields.mapping(leader, "spec", child(where, "leaderTemplate"))
        pod_sets = [
            ServedPodSet("leader", 1, _LEADER, leader, replicas=scaled),
            ServedPodSet("worker", size - 1, _WORKER, workers),
        ]
    pod_sets = pod_sets if replicas else []
    job = served_job.read_served(
        source, kind="LeaderWorkerSet", pod_sets=served_job.read_pod_sets(pod_sets)
    )
    return replace(job, workloads=replicas)


def _number(source: Mapping[str, Any], key: str, path: str) -> int:
    """Read a count of pods or groups, which the API server defaults to 1."""
    number = fields.integer(source, key, path)
    return 1 if number is None else max(0, number)


def _kept(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this object cannot be created anew; None: none of its pods serves yet.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    if fields.mapping(source, "metadata", "").get("deletionTimestamp") is not None:
        return Obstacle.BEING_DELETED
    serves = fields.integer(fields.mapping(source, "status", ""), "readyReplicas", "status")
    return Obstacle.PODS_ACTIVE if serves else None


def _held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why a Deployment cannot be moved by a rolling update; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    if fields.mapping(source, "metadata", "").get("deletionTimestamp") is not None:
        return Obstacle.BEING_DELETED
    spec = fields.mapping(source, "spec", "")
    if spec.get("paused") is True:
        return Obstacle.PAUSED
    strategy = fields.mapping(spec, "strategy", "spec")
    recreates = fields.text(strategy, "type", "spec.strategy") == "Recreate"
    return Obstacle.RECREATES if recreates else None


def _rolled_out(source: Mapping[str, Any]) -> bool:
    """Return whether the last rollout of a Deployment has come to its end.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    metadata, spec, status = (fields.mapping(source, key, "") for key in _PARTS)
    if status.get("observedGeneration") != metadata.get("generation"):
        return False
    for condition, where in fields.objects(status, "conditions", "status"):
        if condition.get("type") == "Progressing":
            # It stays so when a pod fails later.
            return fields.text(condition, "reason", where) == "NewReplicaSetAvailable"
    # Without a deadline for its progress there is no such condition.
    numbers = {fields.integer(status, key, "status") or 0 for key in _COUNTS}
    return numbers == {_number(spec, "replicas", "spec")}


_PARTS: Final = ("metadata", "spec", "status")
_COUNTS: Final = ("replicas", "updatedReplicas", "availableReplicas")
_SERVICE: Final = JobKind(
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    framework="statefulset",
    templates=(_TEMPLATE,),
    replicas=(_REPLICAS,),
    allowed=(*allowed_in((_TEMPLATE,)), _REPLICAS),
    # Kueue writes it in place of suspending; its pods then come with a scheduling gate.
    suspend=(*_TEMPLATE, "metadata", "annotations", SUSPENDING_PARENT),
    read=partial(_read, kind="StatefulSet", framework="statefulset"),
    held_back=creation_only,
    kept=_kept,
    immutable=creation_only,
    can_change_env=True,
    finishes=False,
    # Its pods are queued by themselves.
    owns_queued=False,
    carries_marks=False,
)
STATEFULSET: Final = replace(_SERVICE, resizes=False)
DEPLOYMENT: Final = replace(
    _SERVICE,
    kind="Deployment",
    plural="deployments",
    framework="deployment",
    allowed=(*_SERVICE.allowed, (*ROLLING, "maxSurge"), (*ROLLING, "maxUnavailable")),
    read=_read_deployment,
    held_back=_held_back,
    immutable=lambda *_: None,
    rolled_out=_rolled_out,
)
LEADERWORKERSET: Final = replace(
    _SERVICE,
    group="leaderworkerset.x-k8s.io",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    templates=(_LEADER, _WORKER),
    allowed=(*allowed_in((_LEADER, _WORKER)), _REPLICAS),
    suspend=(*_WORKER, "metadata", "annotations", SUSPENDING_PARENT),
    read=read_lws,
    owns_queued=True,
    carries_marks=True,
)
