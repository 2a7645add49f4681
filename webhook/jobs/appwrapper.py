"""AppWrappers: the pods of the objects that they wrap, where these declare them or are well known.

Nothing below a wrapped object may change once the AppWrapper exists.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/appwrapper/appwrapper_controller.go
https://github.com/project-codeflare/appwrapper/blob/v1.2.2/pkg/utils/utils.go
https://github.com/project-codeflare/appwrapper/blob/v1.2.2/internal/webhook/appwrapper_webhook.go#L221
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.jobs import batch, served_job
from webhook.jobs.batch import JOB
from webhook.jobs.job_kind import JobKind, allowed_in, held_back_by, true_conditions
from webhook.jobs.jobset import JOBSET
from webhook.jobs.kubeflow import KUBEFLOW_KINDS
from webhook.jobs.ray import RAYCLUSTER, RAYJOB
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Edit, Path
from webhook.model.fields import FieldError, child
from webhook.model.job import Job
from webhook.model.reasons import Obstacle

_CONTROLLER = "workload.codeflare.dev/appwrapper-controller"
_WRAPPED: Final = {
    (kind.api_version, kind.kind): kind
    for kind in (JOB, JOBSET, *KUBEFLOW_KINDS, RAYCLUSTER, RAYJOB)
}
_ENDLESS = frozenset({"Deployment", "StatefulSet", "RayCluster"})
_COMPONENT: Path = ("spec", "components", "*", "template")
# The template of a wrapped Pod is last: all others lie below it.
_TEMPLATES: tuple[Path, ...] = (
    *dict.fromkeys(_COMPONENT + path for kind in _WRAPPED.values() for path in kind.templates),
    _COMPONENT,
)
_UNCOUNTED = ("resources", "resourceClaims", "runtimeClassName")
"""Fields of a pod that AppWrapper's ``GetPodTemplateSpec`` leaves out of what Kueue counts."""
_LONGEST_PATH = 500
"""Characters of a declared path; the longest within the kinds that are known has some sixty."""
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,4})\]")


class _Found(NamedTuple):
    """A pod set within a component: AppWrapper's ``AppWrapperPodSet``."""

    path: str
    """Where its template is, such as ``template.spec.template``."""
    pods: int


def read_appwrapper(source: Mapping[str, Any]) -> Job:
    """Return an AppWrapper as the API server sends it.

    Its pod sets go by their places, from ``0``, without the name that Kueue puts before these: that
    is not known yet where it is generated.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    found: list[ServedPodSet] = []
    unmodelled, deadlines = "", []
    for index, (component, here) in enumerate(fields.objects(spec, "components", "spec")):
        wrapped = fields.mapping(component, "template", here)
        pod_sets = list(_pod_sets(component, index, here))
        found += pod_sets
        served_job.check_pod_sets(found)
        job = _read_wrapped(wrapped, child(here, "template")) if pod_sets else None
        unmodelled = unmodelled or _unmodelled(wrapped, job, pod_sets)
        if job is not None and job.active_deadline_seconds is not None:
            deadlines.append(job.active_deadline_seconds)
    numbered = [pod_set._replace(name=str(number)) for number, pod_set in enumerate(found)]
    return served_job.read_served(
        source,
        kind="AppWrapper",
        pod_sets=served_job.read_pod_sets(numbered),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=min(deadlines, default=None),
        unmodelled=unmodelled,
    )


def _read_wrapped(wrapped: Mapping[str, Any], path: str) -> Job | None:
    """Return a wrapped object at *path* as its own kind reads it; None: it is no Job."""
    kind = _WRAPPED.get(_type_of(wrapped, path))
    try:
        return None if kind is None else kind.read(wrapped)
    except FieldError as error:
        raise FieldError(f"{path}.{error.path}", error.message) from error


def _type_of(wrapped: Mapping[str, Any], path: str) -> tuple[str, str]:
    return fields.text(wrapped, "apiVersion", path), fields.text(wrapped, "kind", path)


def _pod_sets(component: Mapping[str, Any], index: int, path: str) -> Iterator[ServedPodSet]:
    """Yield the pod sets of a component: those that it declares, else those that are inferred."""
    wrapped, here = fields.mapping(component, "template", path), child(path, "template")
    declared = fields.objects(component, "podSets", path, most=served_job.MOST_POD_SETS)
    for found in [_declared(*pod_set) for pod_set in declared] or _inferred(wrapped, here):
        steps, template = _reach(wrapped, found.path, path)
        place = ("spec", "components", str(index), "template", *steps)
        yield ServedPodSet(name="", pods=found.pods, path=place, template=template)


def _declared(pod_set: Mapping[str, Any], path: str) -> _Found:
    replicas = fields.integer(pod_set, "replicas", path)
    return _Found(fields.text(pod_set, "path", path), 1 if replicas is None else replicas)


def _inferred(wrapped: Mapping[str, Any], path: str) -> Iterator[_Found]:
    """Yield the pod sets of an object of a well-known kind (``InferPodSets``)."""
    spec, here = fields.mapping(wrapped, "spec", path), child(path, "spec")
    match _type_of(wrapped, path):
        case ("v1", "Pod"):
            yield _Found("template", 1)
        case ("apps/v1", "Deployment" | "StatefulSet"):
            yield _Found("template.spec.template", _replicas(spec, here))
        case ("batch/v1", "Job"):
            yield _Found("template.spec.template", batch.pods_of(spec, here))
        case ("jobset.x-k8s.io/v1alpha2", "JobSet"):
            yield from _of_jobset(spec, here)
        case ("kubeflow.org/v1", "PyTorchJob"):
            replicas = fields.mapping(spec, "pytorchReplicaSpecs", here)
            for name in ("Master", "Worker"):
                if name in replicas:
                    pods = _replicas(fields.mapping(replicas, name, here), child(here, name))
                    yield _Found(f"template.spec.pytorchReplicaSpecs.{name}.template", pods)
        case ("ray.io/v1", "RayCluster"):
            yield from _of_ray(spec, "template.spec.", here)
        case ("ray.io/v1", "RayJob"):
            cluster = fields.mapping(spec, "rayClusterSpec", here)
            yield from _of_ray(cluster, "template.spec.rayClusterSpec.", here)


def _of_jobset(spec: Mapping[str, Any], path: str) -> Iterator[_Found]:
    jobs = fields.objects(spec, "replicatedJobs", path, most=served_job.MOST_POD_SETS)
    for index, (job, where) in enumerate(jobs):
        within = fields.mapping(fields.mapping(job, "template", where), "spec", where)
        pods = _replicas(job, where) * batch.pods_of(within, where)
        yield _Found(f"template.spec.replicatedJobs[{index}].template.spec.template", pods)


def _of_ray(cluster: Mapping[str, Any], prefix: str, path: str) -> Iterator[_Found]:
    """Yield head and workers; AppWrapper counts no submitter, and one host a replica."""
    yield _Found(f"{prefix}headGroupSpec.template", 1)
    groups = fields.objects(cluster, "workerGroupSpecs", path, most=served_job.MOST_POD_SETS)
    for index, (group, where) in enumerate(groups):
        yield _Found(f"{prefix}workerGroupSpecs[{index}].template", _replicas(group, where))


def _replicas(source: Mapping[str, Any], path: str) -> int:
    replicas = fields.integer(source, "replicas", path)
    return 1 if replicas is None else replicas


def _reach(wrapped: Mapping[str, Any], path: str, where: str) -> tuple[Path, Mapping[str, Any]]:
    """Return the path of a pod template within a wrapped object, and the template.

    Elements of lists go by their names, as in all edits, and by their index where they have none.

    Raises:
        FieldError: there is no pod template at *path*; AppWrapper's webhook refuses that, too.

    """
    if len(path) > _LONGEST_PATH:
        raise FieldError(where, f"a path of {len(path)} characters to a pod template")
    rest = path.removeprefix("template")
    parts = [found.groups() for found in _STEP.finditer(rest)]
    written = "".join(f".{key}" if key else f"[{index}]" for key, index in parts)
    node: Any = wrapped if path.startswith("template") and written == rest else None
    steps: list[str] = []
    for key, index in parts:
        if key:
            node = node.get(key) if isinstance(node, dict) else None
            steps.append(key)
        else:
            place = int(index)
            node = node[place] if isinstance(node, list) and place < len(node) else None
            named = node if isinstance(node, dict) else {}
            steps.append(str(named.get("name") or named.get("groupName") or place))
    if not isinstance(node, dict) or not isinstance(node.get("spec"), dict):
        raise FieldError(where, f"no pod template at {path}")
    return tuple(steps), node


def _unmodelled(
    wrapped: Mapping[str, Any], job: Job | None, pod_sets: Sequence[ServedPodSet]
) -> str:
    """Return what is not modelled of a component, in words; empty: nothing."""
    kind = str(wrapped.get("kind"))
    if job is not None and job.unmodelled:
        return job.unmodelled
    if pod_sets and kind in _ENDLESS:
        return f"its {kind}, which never ends,"
    for pod_set in pod_sets:
        if APPWRAPPER.below_template((*(pod_set.path or ()), "spec")) != ("spec",):
            return f"the pods of its {kind}"
        pods = fields.mapping(pod_set.template, "spec", ".".join(pod_set.path or ()))
        if uncounted := next((key for key in _UNCOUNTED if pods.get(key)), ""):
            return f"the {uncounted} of its pods, which Kueue does not count,"
        for container, _ in fields.objects(pods, "initContainers", "spec"):
            if container.get("restartPolicy"):
                return "its sidecars, which Kueue counts as other containers,"
    return ""


def _held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this AppWrapper cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.mapping(source, "status", "")
    phase, conditions = fields.text(status, "phase", "status"), true_conditions(status)
    return held_back_by(
        source,
        APPWRAPPER.suspend,
        controller=_CONTROLLER,
        is_over=phase in ("Succeeded", "Failed"),
        has_pods=not conditions.isdisjoint(("QuotaReserved", "ResourcesDeployed")),
    )


def _has_ready_pods(source: Mapping[str, Any]) -> bool:
    return "PodsReady" in true_conditions(fields.mapping(source, "status", ""))


def _immutable(below: Path, edit: Edit) -> Obstacle | None:
    """Return why an edit below a wrapped object is refused: AppWrapper's webhook takes none."""
    if not below:
        return None
    return batch.immutable_but_scheduling(below, edit) or Obstacle.IMMUTABLE_TEMPLATE


APPWRAPPER: Final = JobKind(
    group="workload.codeflare.dev",
    version="v1beta2",
    kind="AppWrapper",
    plural="appwrappers",
    framework="workload.codeflare.dev/appwrapper",
    templates=_TEMPLATES,
    allowed=allowed_in(_TEMPLATES),
    suspend=("spec", "suspend"),
    read=read_appwrapper,
    held_back=_held_back,
    has_ready_pods=_has_ready_pods,
    immutable=_immutable,
)
