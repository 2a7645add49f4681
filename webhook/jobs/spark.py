"""SparkApplications: a driver and executors, as fields of their own instead of pod templates.

Kueue builds pods from these fields, one container each and what stands beside it; it counts neither
``cores`` nor ``memoryOverhead``. Decided at creation only: Kueue's integration is alpha.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/sparkapplication/sparkapplication_podset.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.jobs import served_job, template
from webhook.jobs.job_kind import OF_THE_OBJECT, JobKind, creation_only, held_back_by
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields, quantity
from webhook.model.edits import Edit, Path
from webhook.model.fields import FieldError, Json, child
from webhook.model.job import ELASTIC, Job
from webhook.model.pods import Container, PodTemplate
from webhook.model.reasons import Obstacle

_ROLES: Final[Mapping[str, Path]] = {
    "driver": ("spec", "driver"),
    "executor": ("spec", "executor"),
}
_BESIDE: Final = (
    ("image",),
    ("env", "*"),
    ("resources", "requests", "*"),
    ("resources", "limits", "*"),
)
_FIELDS: Final[tuple[Path, ...]] = (
    *(("labels", "*"), ("annotations", "*"), ("nodeSelector", "*")),
    *((name,) for name in ("affinity", "coreLimit", "coreRequest", "gpu", "image", "memory")),
    *(("env", "*"), ("memoryLimit",), ("tolerations",)),
    *(("sidecars", "*", *path) for path in _BESIDE),
    *(("initContainers", "*", *path) for path in _BESIDE),
)
_UNITS: Final = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}
"""How Java writes units of memory, with or without a ``b``, and Kubernetes."""
_MEBI: Final = 1 << 20
_KNOWN: Final = frozenset({"cpu", "memory"})
_TOLD_OF_GPUS: Final = ".resource.gpu."


def read_application(source: Mapping[str, Any]) -> Job:
    """Return a SparkApplication as the API server sends it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    executors = fields.mapping(spec, "executor", "spec")
    counts = {
        "driver": 1,
        "executor": fields.integer(executors, "instances", "spec.executor") or 0,
    }
    pod_sets = [
        ServedPodSet(role, counts[role], path, _pods(spec, role)) for role, path in _ROLES.items()
    ]
    application = served_job.read_served(
        source,
        kind="SparkApplication",
        pod_sets=served_job.read_pod_sets(pod_sets),
        unmodelled=_unmodelled(spec),
    )
    refused = _refused_with_queue(spec, source)
    return replace(application, refused_with_queue=refused) if refused else application


def _pods(spec: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """Return the pods of a role as a template, as Kueue's ``mutateSparkPod`` builds them."""
    given, here = fields.mapping(spec, role, "spec"), child("spec", role)
    requests = {"cpu": given.get("coreRequest"), "memory": _memory(given, "memory", here)}
    limits = {
        "cpu": given.get("coreLimit"),
        "memory": _memory(given, "memoryLimit", here),
        **_gpus(given, here),
    }
    container: dict[str, Any] = {
        "name": f"spark-kubernetes-{role}",
        "image": given.get("image") or spec.get("image"),
        "args": spec.get("arguments"),
        "env": given.get("env"),
        "resources": {"requests": _given(requests), "limits": _given(limits)},
    }
    pods = {
        "containers": [_given(container), *fields.mappings(given, "sidecars", here)],
        **{
            name: given.get(name)
            for name in (*("affinity", "initContainers", "nodeSelector"), "tolerations")
        },
        "priorityClassName": given.get("priorityClassName"),
    }
    metadata = {"labels": given.get("labels"), "annotations": given.get("annotations")}
    return {"metadata": _given(metadata), "spec": _given(pods)}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "")}


def _gpus(given: Mapping[str, Any], path: str) -> Mapping[str, str]:
    gpu, here = fields.mapping(given, "gpu", path), child(path, "gpu")
    name, count = fields.text(gpu, "name", here), fields.integer(gpu, "quantity", here) or 0
    return {name: str(count)} if name and count > 0 else {}


def _memory(given: Mapping[str, Any], key: str, path: str) -> str:
    """Return an amount of memory as Kubernetes writes it; empty: none is given.

    Raises:
        FieldError: the spark-operator does not read its unit, as it is in capitals.

    """
    text = fields.text(given, key, path)
    number = text.removesuffix("b")
    if number[-1:] in _UNITS:
        return number[:-1] + _UNITS[number[-1]]
    if text and text.lower() != text and text.lower().removesuffix("b")[-1:] in _UNITS:
        raise FieldError(child(path, key), f"expected a unit in small letters, got {text!r}")
    return text


def _refused_with_queue(spec: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """Return what Kueue refuses in an application that names a queue; empty: nothing.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/sparkapplication/sparkapplication_webhook.go#L116
    """
    annotations = fields.texts(fields.mapping(source, "metadata", ""), "annotations", "metadata")
    mode = fields.text(spec, "mode", "spec")
    if mode != "cluster":
        return f"its mode is {mode or 'not set'}, and Kueue takes cluster alone"
    scaling = fields.mapping(spec, "dynamicAllocation", "spec")
    scales = fields.flag(scaling, "enabled", "spec.dynamicAllocation")
    if scales and annotations.get(ELASTIC) != "true":
        return "it uses dynamicAllocation and is no elastic Job"
    return ""


def _unmodelled(spec: Mapping[str, Any]) -> str:
    """Return what is not modelled of a SparkApplication, in words; empty: nothing."""
    if spec.get("nodeSelector"):
        return "its nodeSelector for all pods, which Kueue does not count,"
    if fields.mapping(spec, "dynamicAllocation", "spec").get("enabled"):
        return "its dynamic allocation"
    told = fields.mapping(spec, "sparkConf", "spec")
    if found := next((key for key in told if _TOLD_OF_GPUS in f"{key}."), ""):
        return f"its sparkConf {found}, which Spark would still ask for,"
    for role in _ROLES:
        given = fields.mapping(spec, role, "spec")
        if given.get("template"):
            return f"the template of its {role}, of which Kueue counts nothing,"
        if given.get("envVars"):
            return f"the envVars of its {role}, which are deprecated in favour of env,"
    return ""


def _write(path: Path, before: PodTemplate, after: PodTemplate) -> Iterator[Edit]:
    """Yield the edits to the fields of a role at *path*."""
    yield from template.text_edits((*path, "labels"), before.labels, after.labels)
    yield from template.text_edits((*path, "annotations"), before.annotations, after.annotations)
    selectors = before.node_selector, after.node_selector
    yield from template.text_edits((*path, "nodeSelector"), *selectors)
    tolerations = template.listed(before), template.listed(after)
    yield from template.whole_edit((*path, "tolerations"), *tolerations)
    yield from template.whole_edit((*path, "affinity"), before.affinity, after.affinity)
    old, *old_beside = before.containers
    new, *new_beside = after.containers
    yield from _of_spark(path, old, new)
    for key, olds, news in (
        ("sidecars", old_beside, new_beside),
        ("initContainers", before.init_containers, after.init_containers),
    ):
        for was, now in zip(olds, news, strict=True):
            yield from template.container_edits((*path, key, now.name), was, now)


def _of_spark(path: Path, before: Container, after: Container) -> Iterator[Edit]:
    """Yield the edits that change the container of a driver or an executor."""
    yield from template.whole_edit((*path, "image"), before.image or None, after.image or None)
    yield from template.env_edits((*path, "env"), before, after)
    old, new = before.resources, after.resources
    for field, resource, was, now in (
        ("coreRequest", "cpu", old.requests, new.requests),
        ("coreLimit", "cpu", old.limits, new.limits),
        ("memory", "memory", old.requests, new.requests),
        ("memoryLimit", "memory", old.limits, new.limits),
    ):
        if was.get(resource) != now.get(resource):
            values = (_written(resource, amounts.get(resource)) for amounts in (was, now))
            yield from template.whole_edit((*path, field), *values)
    yield from template.whole_edit((*path, "gpu"), _gpu_of(old.limits), _gpu_of(new.limits))


def _written(resource: str, amount: str | None) -> str | None:
    """Return an amount as Spark reads it: memory in MiB, as Java writes these, rounded up."""
    if amount is None or resource != "memory":
        return amount
    return f"{-(-quantity.parse(amount, resource=resource) // _MEBI)}m"


def _gpu_of(limits: Mapping[str, str]) -> Json:
    for name, amount in limits.items():
        if name not in _KNOWN:
            return {"name": name, "quantity": quantity.parse(amount, resource=name)}
    return None


def _unwritable(before: Job, after: Job) -> str:
    """Return what has no field in a SparkApplication, in words; empty: all has one."""
    for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
        was, now = old.template, new.template
        if was.runtime_class != now.runtime_class:
            return "the RuntimeClass"
        container = now.containers[0]
        others = [name for name in container.resources.limits if name not in _KNOWN]
        requested = [name for name in container.resources.requests if name not in _KNOWN]
        if len(others) > 1 or requested:
            return f"the resource {(requested or others)[-1]}"
    return ""


def _kept(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this SparkApplication cannot be created anew; None: it waits.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.mapping(source, "status", "")
    application = fields.mapping(status, "applicationState", "status")
    state = fields.text(application, "state", "status.applicationState")
    return held_back_by(
        source,
        SPARKAPPLICATION.suspend,
        controller="",
        is_over=state in ("COMPLETED", "FAILED"),
        has_pods=state not in ("", "SUSPENDED"),
    )


SPARKAPPLICATION: Final = JobKind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="SparkApplication",
    plural="sparkapplications",
    framework="sparkoperator.k8s.io/sparkapplication",
    gate="SparkApplicationIntegration",
    templates=tuple(_ROLES.values()),
    allowed=(
        *OF_THE_OBJECT,
        *((*path, *below) for path in _ROLES.values() for below in _FIELDS),
    ),
    suspend=("spec", "suspend"),
    read=read_application,
    held_back=creation_only,
    kept=_kept,
    immutable=creation_only,
    write=_write,
    unwritable=_unwritable,
    can_change_env=True,
)
