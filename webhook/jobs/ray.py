"""RayJobs and RayClusters: a head, groups of workers, and what KubeRay adds that Kueue counts.

All of them but ``managedBy`` may change while they are suspended. It must not know policies.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/raycluster/common.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/rayjob/rayjob_controller.go
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.jobs import served_job
from webhook.jobs.job_kind import JobKind, allowed_in, held_back_by
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields, quantity
from webhook.model.device_names import names_accelerator
from webhook.model.edits import Edit, Path
from webhook.model.fields import FieldError, child
from webhook.model.job import ELASTIC, MOST_REPLICAS, Job, Replicas
from webhook.model.pods import Container, Resources, read_resources
from webhook.model.reasons import Obstacle

_CLUSTER: Path = ("spec", "rayClusterSpec")
_SUBMITTER: Path = ("spec", "submitterPodTemplate")
_CONTROLLER = "ray.io/kuberay-operator"
_AUTOSCALER = Resources(
    requests={"cpu": "500m", "memory": "512Mi"}, limits={"cpu": "500m", "memory": "512Mi"}
)
_SUBMITTING = Resources(
    requests={"cpu": "500m", "memory": "200Mi"}, limits={"cpu": "1", "memory": "1Gi"}
)
_CLEANUP: Final = {"cpu": "200m", "memory": "256Mi"}
"""What Kueue counts at least for the head where a job cleans up Redis afterwards."""
_SURVIVES = "ray.io/ft-enabled"
_GPUS = ("GPU", "num-gpus")
_RESOURCES = "resources"
"""How Ray itself is told of devices: they would still be expected of pods that have lost theirs."""


def read_job(source: Mapping[str, Any]) -> Job:
    """Return a RayJob as the API server sends it; one for a cluster that exists has no pod sets.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    cluster = fields.mapping(spec, "rayClusterSpec", "spec")
    pod_sets = () if spec.get("clusterSelector") or not cluster else _pod_sets(cluster, _CLUSTER)
    unmodelled = _unmodelled(cluster, source, ".".join(_CLUSTER))
    refused = _refused_with_queue(cluster, source, ".".join(_CLUSTER))
    # Kueue's webhook takes none whose cluster, and so its pods, would stay after it.
    if not fields.flag(spec, "shutdownAfterJobFinishes", "spec"):
        refused = "it does not set spec.shutdownAfterJobFinishes"
    if _is_positive(spec.get("entrypointNumGpus")):
        unmodelled = "its entrypointNumGpus, which Ray would still ask for,"
    if _names_devices(fields.text(spec, "entrypointResources", "spec")):
        unmodelled = "its entrypointResources, which Ray would still ask for,"
    served = _with_submitter(tuple(pod_sets), spec)
    job = served_job.read_served(
        source,
        kind="RayJob",
        pod_sets=served_job.read_pod_sets(served),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=served_job.ends_after(
            fields.integer(spec, "activeDeadlineSeconds", "spec"), served
        ),
        unmodelled=unmodelled,
    )
    return replace(job, refused_with_queue=refused) if refused else job


def read_cluster(source: Mapping[str, Any]) -> Job:
    """Return a RayCluster as the API server sends it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    served = tuple(_pod_sets(spec, ("spec",)))
    job = served_job.read_served(
        source,
        kind="RayCluster",
        pod_sets=served_job.read_pod_sets(served),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=served_job.ends_after(None, served),
        unmodelled=_unmodelled(spec, source, "spec"),
    )
    refused = _refused_with_queue(spec, source, "spec")
    return replace(job, refused_with_queue=refused) if refused else job


def _pod_sets(cluster: Mapping[str, Any], path: Path) -> Iterator[ServedPodSet]:
    """Yield the pod sets of a RayClusterSpec at *path*, as Kueue's ``BuildPodSets`` does."""
    here = ".".join(path)
    head = fields.mapping(cluster, "headGroupSpec", here)
    yield ServedPodSet(
        name="head",
        pods=1,
        path=(*path, "headGroupSpec", "template"),
        template=fields.mapping(head, "template", child(here, "headGroupSpec")),
        added=_autoscaler(cluster, here),
    )
    names: set[str] = set()
    for group, where in _groups(cluster, here):
        name = fields.text(group, "groupName", where)
        if not name or name in names:
            raise FieldError(child(where, "groupName"), "expected a name of its own")
        names.add(name)
        replicas = _replicas(group, (*path, "workerGroupSpecs", name, "replicas"), where)
        yield ServedPodSet(
            # ``NewPodSetReference`` writes names of pod sets in small letters.
            name=name.lower(),
            pods=replicas.number * replicas.pods_each,
            replicas=replicas,
            path=(*path, "workerGroupSpecs", name, "template"),
            template=fields.mapping(group, "template", where),
        )


def _groups(cluster: Mapping[str, Any], path: str) -> Sequence[tuple[Mapping[str, Any], str]]:
    """Return the groups of workers, each with its path."""
    return fields.objects(cluster, "workerGroupSpecs", path, most=served_job.MOST_POD_SETS)


def _replicas(group: Mapping[str, Any], path: Path, where: str) -> Replicas:
    """Read how many replicas a group of workers has, with a pod for each host of each."""
    given = fields.integer(group, "replicas", where)
    most = fields.integer(group, "maxReplicas", where)
    return Replicas(
        path=path,
        number=1 if given is None else given,
        given=given,
        pods_each=max(1, fields.integer(group, "numOfHosts", where) or 1),
        least=max(1, fields.integer(group, "minReplicas", where) or 1),
        most=MOST_REPLICAS if most is None else most,
    )


def _autoscaler(cluster: Mapping[str, Any], path: str) -> tuple[Container, ...]:
    """Return the container that KubeRay adds to the head for autoscaling, if it does."""
    if not fields.flag(cluster, "enableInTreeAutoscaling", path):
        return ()
    options, here = fields.mapping(cluster, "autoscalerOptions", path), child(path, "autoscaler")
    given = options.get("resources") is not None
    resources = read_resources(options, here) if given else _AUTOSCALER
    return (Container(name="autoscaler", resources=resources),)


def _with_submitter(
    pod_sets: tuple[ServedPodSet, ...], spec: Mapping[str, Any]
) -> Sequence[ServedPodSet]:
    """Add what submits a RayJob: a pod of its own, a container of the head, or nothing."""
    mode = fields.text(spec, "submissionMode", "spec", "K8sJobMode")
    if not pod_sets:
        return ()
    head, *workers = pod_sets
    if mode == "SidecarMode":
        container = Container(name="ray-job-submitter", resources=_SUBMITTING)
        return (head._replace(added=(*head.added, container)), *workers)
    if mode != "K8sJobMode":
        return pod_sets
    given = spec.get("submitterPodTemplate") is not None
    pods = fields.mapping(spec, "submitterPodTemplate", "spec") if given else _submitter(head)
    path = _SUBMITTER if given else None
    return (*pod_sets, ServedPodSet(name="submitter", pods=1, path=path, template=pods))


def _submitter(head: ServedPodSet) -> Mapping[str, Any]:
    """Return the template that KubeRay makes where a RayJob has none for its submitter."""
    containers = fields.objects(fields.mapping(head.template, "spec", ""), "containers", "spec")
    resources = {"requests": _SUBMITTING.requests, "limits": _SUBMITTING.limits}
    first = {"name": "ray-job-submitter", "resources": resources}
    if containers and containers[0][0].get("image"):
        first["image"] = containers[0][0]["image"]
    return {"spec": {"containers": [first]}}


def _unmodelled(cluster: Mapping[str, Any], source: Mapping[str, Any], path: str) -> str:
    """Return what is not modelled of a RayClusterSpec at *path*, in words; empty: nothing."""
    annotations = fields.texts(fields.mapping(source, "metadata", ""), "annotations", "metadata")
    head = fields.mapping(cluster, "headGroupSpec", path)
    survives = annotations.get(_SURVIVES, "").lower() == "true"
    if (survives or cluster.get("gcsFaultToleranceOptions")) and _is_below_cleanup(head):
        return "the Redis clean-up, which asks for more than its head,"
    for group, where in ((head, "head"), *_groups(cluster, path)):
        for key in ("rayStartParams", "resources"):
            told = fields.mapping(group, key, where)
            if any(_is_positive(told.get(name)) for name in _GPUS):
                return f"the GPUs that Ray is given in {key}"
            named = told if key == _RESOURCES else _read_resources(told.get(_RESOURCES))
            if any(_is_positive(named[name]) for name in named if names_accelerator(name)):
                return f"the devices that Ray is given in {key}"
    return ""


def _refused_with_queue(cluster: Mapping[str, Any], source: Mapping[str, Any], path: str) -> str:
    """Return what Kueue refuses in a RayClusterSpec at *path* that names a queue; empty: nothing.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/raycluster/raycluster_webhook.go#L133
    """
    annotations = fields.texts(fields.mapping(source, "metadata", ""), "annotations", "metadata")
    scales = fields.flag(cluster, "enableInTreeAutoscaling", path)
    if scales and annotations.get(ELASTIC) != "true":
        return f"it sets {path}.enableInTreeAutoscaling and is no elastic Job"
    for group, where in _groups(cluster, path):
        if fields.text(group, "groupName", where) == "head":
            return f"{where}.groupName is head"
    return ""


def _is_below_cleanup(head: Mapping[str, Any]) -> bool:
    """Return whether the first container of the head asks for less than the clean-up."""
    here = "headGroupSpec.template.spec"
    pods = fields.mapping(fields.mapping(head, "template", here), "spec", here)
    for container, where in fields.objects(pods, "containers", here)[:1]:
        asked = read_resources(container, where)
        requests = {**asked.limits, **asked.requests}
        return any(
            quantity.nano(requests.get(name, "0")) < quantity.nano(least)
            for name, least in _CLEANUP.items()
        )
    return False


def _names_devices(resources: str) -> bool:
    named = _read_resources(resources)
    return any(_is_positive(named[name]) for name in named if names_accelerator(name))


def _read_resources(text: Any) -> Mapping[str, Any]:
    """Read resources as Ray's command line takes them: JSON, within quotes for a shell or not.

    What cannot be read counts as one device of a name that stands there.
    """
    written = text if isinstance(text, str) else ""
    try:
        read = json.loads(written or "{}")
        read = json.loads(read) if isinstance(read, str) else read
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {written: 1}


def _is_positive(amount: Any) -> bool:
    """Return whether a number, or its text, is more than zero; what is no number may be."""
    if amount is None or isinstance(amount, bool):
        return False
    try:
        return float(amount) > 0
    except (OverflowError, TypeError, ValueError):
        return True


def _held_back_job(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this RayJob cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.text(fields.mapping(source, "status", ""), "jobDeploymentStatus", "status")
    return held_back_by(
        source,
        RAYJOB.suspend,
        controller=_CONTROLLER,
        is_over=status in ("Complete", "Failed"),
        has_pods=status not in ("", "Suspended"),
    )


def _held_back_cluster(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this RayCluster cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.text(fields.mapping(source, "status", ""), "state", "status")
    return held_back_by(
        source,
        RAYCLUSTER.suspend,
        controller=_CONTROLLER,
        is_over=False,
        has_pods=status not in ("", "suspended"),
    )


def _is_ready_job(source: Mapping[str, Any]) -> bool:
    status = fields.mapping(source, "status", "")
    return _is_ready(fields.mapping(status, "rayClusterStatus", "status"))


def _is_ready_cluster(source: Mapping[str, Any]) -> bool:
    return _is_ready(fields.mapping(source, "status", ""))


def _is_ready(status: Mapping[str, Any]) -> bool:
    """Tell whether the head or a worker is ready, from the status of a RayCluster."""
    return bool(status.get("state") == "ready" or status.get("readyWorkerReplicas"))


def _immutable(_below: Path, _edit: Edit) -> Obstacle | None:
    """Return nothing: no field of a suspended RayCluster's pods is immutable."""
    return None


def _templates(path: Path) -> tuple[Path, ...]:
    head = (*path, "headGroupSpec", "template")
    return head, (*path, "workerGroupSpecs", "*", "template")


def _numbers(path: Path) -> tuple[Path, ...]:
    return ((*path, "workerGroupSpecs", "*", "replicas"),)


RAYJOB: Final = JobKind(
    group="ray.io",
    version="v1",
    kind="RayJob",
    plural="rayjobs",
    framework="ray.io/rayjob",
    templates=(*_templates(_CLUSTER), _SUBMITTER),
    replicas=_numbers(_CLUSTER),
    allowed=(*allowed_in((*_templates(_CLUSTER), _SUBMITTER)), *_numbers(_CLUSTER)),
    suspend=("spec", "suspend"),
    read=read_job,
    held_back=_held_back_job,
    immutable=_immutable,
    has_ready_pods=_is_ready_job,
    can_change_env=True,
)
RAYCLUSTER: Final = replace(
    RAYJOB,
    kind="RayCluster",
    plural="rayclusters",
    framework="ray.io/raycluster",
    templates=_templates(("spec",)),
    replicas=_numbers(("spec",)),
    allowed=(*allowed_in(_templates(("spec",))), *_numbers(("spec",))),
    read=read_cluster,
    held_back=_held_back_cluster,
    has_ready_pods=_is_ready_cluster,
    finishes=False,
)
