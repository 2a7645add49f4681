"""TrainJobs: the pods of a (Cluster)TrainingRuntime, with what the TrainJob says instead.

The runtime is another object: ``completed`` puts it beside the TrainJob before that is read. What
an option changes is written into ``spec.trainer``, which is immutable from then on, and into a
runtime patch of our own, whose metadata, node selectors and tolerations may change while the
TrainJob is suspended.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/trainjob/trainjob_controller.go
https://github.com/kubeflow/trainer/blob/v2.2.1/pkg/runtime/core/trainingruntime.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.jobs import batch, served_job, template
from webhook.jobs.job_kind import OF_THE_OBJECT, JobKind, held_back_by, true_conditions
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import ABSENT, Edit, Path
from webhook.model.job import Job
from webhook.model.pods import Container, PodTemplate
from webhook.model.reasons import Obstacle

MANAGER: Final = "kueue-fallback.dev/manager"
"""The key of our own runtime patch."""
_KUEUES_MANAGER = "kueue.x-k8s.io/manager"
_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
_CLUSTER_RUNTIME = "ClusterTrainingRuntime"
_RUNTIME = "kueue-fallback.dev/runtime"
"""Where ``completed`` puts the runtime; the API server knows no such field of a TrainJob."""
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Path = ("spec", "trainer")
_STEPS = frozenset({"trainer", "dataset-initializer", "model-initializer"})
_NODE = "node"
"""The container that trains; ``spec.trainer`` is about it alone."""
_OTHERWISE_COUNTED = ("mpi", "flux")
_PATCHES: Path = ("spec", "runtimePatches", MANAGER, "trainingRuntimeSpec", "template", "spec")
_POD_PATCH: Path = ("template", "spec", "template")
_PATCHED: Path = (*_PATCHES, "replicatedJobs", "*", *_POD_PATCH)


def completed(
    source: Mapping[str, Any], runtimes: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a TrainJob with the runtime that it names, if that is among the *runtimes*.

    These are by namespace, which is empty for a ClusterTrainingRuntime, and name.

    Raises:
        FieldError: what it refers to has a wrong type.

    """
    without = {key: value for key, value in source.items() if key != _RUNTIME}
    kind, name = _reference(fields.mapping(source, "spec", ""))
    namespace = fields.text(fields.mapping(source, "metadata", ""), "namespace", "metadata")
    runtime = runtimes.get(("" if kind == _CLUSTER_RUNTIME else namespace, name))
    return without if runtime is None else {**without, _RUNTIME: runtime}


def _reference(spec: Mapping[str, Any]) -> tuple[str, str]:
    reference, here = fields.mapping(spec, "runtimeRef", "spec"), "spec.runtimeRef"
    kind = fields.text(reference, "kind", here) or _CLUSTER_RUNTIME
    return kind, fields.text(reference, "name", here)


def read_trainjob(source: Mapping[str, Any]) -> Job:
    """Return a TrainJob as the API server sends it, with its runtime beside it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    runtime = fields.mapping(source, _RUNTIME, "")
    manager = fields.text(spec, "managedBy", "spec")
    unmodelled = _unmodelled(runtime, *_reference(spec))
    if not unmodelled and _is_quantized(fields.mapping(spec, "trainer", "spec")):
        unmodelled = "QLoRA, for which the trainer wants a GPU,"
    served = () if unmodelled else tuple(_pod_sets(spec, runtime))
    return served_job.read_served(
        source,
        kind="TrainJob",
        # A plain tuple: what is prepared for equal templates does not fit equal TrainJobs.
        pod_sets=tuple(served_job.read_pod_sets(served)),
        # The API server fills it in before any webhook is called.
        managed_by=None if manager in ("", _CONTROLLER) else manager,
        active_deadline_seconds=served_job.ends_after(
            fields.integer(spec, "activeDeadlineSeconds", "spec"), served
        ),
        unmodelled=unmodelled,
    )


def _unmodelled(runtime: Mapping[str, Any], kind: str, name: str) -> str:
    """Return what is not modelled of a TrainJob's runtime, in words; empty: nothing."""
    if not runtime:
        return f"its {kind} {name}, which is not there,"
    policy = fields.mapping(_spec_of(runtime), "mlPolicy", "spec")
    used = next((key for key in _OTHERWISE_COUNTED if policy.get(key) is not None), "")
    return f"the mlPolicy {used} of its {kind} {name}" if used else ""


def _is_quantized(trainer: Mapping[str, Any]) -> bool:
    """Tell whether torchtune is to fine-tune by QLoRA, as ``isUseQLoraFinetune`` does.

    The trainer's webhook then refuses some models without one GPU:
    https://github.com/kubeflow/trainer/blob/v2.2.1/pkg/runtime/framework/plugins/torch/torchtune.go
    """
    here = "spec.trainer"
    words = [*fields.sequence(trainer, "command", here), *fields.sequence(trainer, "args", here)]
    text = " ".join(word for word in words if isinstance(word, str))
    return "quantize_base" in text and "use_dora" not in text


def _spec_of(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields.mapping(runtime, "spec", "")


def _pod_sets(spec: Mapping[str, Any], runtime: Mapping[str, Any]) -> Iterator[ServedPodSet]:
    """Yield the pod sets of the JobSet that the trainer makes (``getChildJobSet`` in Kueue)."""
    policy = fields.mapping(_spec_of(runtime), "mlPolicy", "spec")
    jobs = fields.mapping(fields.mapping(_spec_of(runtime), "template", "spec"), "spec", "spec")
    trainer = fields.mapping(spec, "trainer", "spec")
    for job, here in fields.objects(jobs, "replicatedJobs", "spec.template.spec"):
        name = fields.text(job, "name", here)
        merged = fields.mapping(job, "template", here)
        for patch in _patches_of(spec, name):
            merged = _merged(merged, patch)
        metadata = fields.mapping(merged, "metadata", here)
        step = fields.texts(metadata, "labels", here).get(_STEP, "")
        within = fields.mapping(merged, "spec", here)
        pods = fields.mapping(within, "template", here)
        replicas = fields.integer(job, "replicas", here)
        count = batch.pods_of(within, here) * (1 if replicas is None else replicas)
        if step in _STEPS:
            count = _nodes(within, policy, trainer, step, here)
        if step == "trainer":
            pods = _trained(pods, trainer)
        yield ServedPodSet(
            name=name.lower(),
            pods=count,
            path=(*_PATCHES, "replicatedJobs", name, *_POD_PATCH) if step == "trainer" else None,
            template=pods,
            limit_seconds=fields.integer(within, "activeDeadlineSeconds", here),
        )


def _nodes(
    within: Mapping[str, Any],
    policy: Mapping[str, Any],
    trainer: Mapping[str, Any],
    step: str,
    path: str,
) -> int:
    """Count the pods of a step, each of which is one replica, whatever the runtime says."""
    parallelism = fields.integer(within, "parallelism", path)
    count = 1 if parallelism is None else parallelism
    if step != "trainer":
        return count
    if policy:
        nodes = fields.integer(policy, "numNodes", "spec.mlPolicy")
        count = 1 if nodes is None else nodes
    asked = fields.integer(trainer, "numNodes", "spec.trainer")
    return count if asked is None else asked


def _patches_of(spec: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield what the runtime patches of a TrainJob say of a replicated Job, in their order."""
    for patch, here in fields.objects(spec, "runtimePatches", "spec"):
        runtime = fields.mapping(patch, "trainingRuntimeSpec", here)
        job_set = fields.mapping(fields.mapping(runtime, "template", here), "spec", here)
        for job, where in fields.objects(job_set, "replicatedJobs", here):
            if job.get("name") == name:
                yield fields.mapping(job, "template", where)


def _merged(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge a patch into a Job template, as a strategic merge does with the fields it may have."""
    merged = dict(before)
    for key, value in patch.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list) and key not in _REPLACED:
            merged[key] = _merged_by_name(old, value)
        elif value is not None:
            merged[key] = value
    return merged


_REPLACED = frozenset({"tolerations", "nodeSelectorTerms", "matchExpressions", "values"})
"""Lists that a strategic merge replaces as a whole."""


def _merged_by_name(before: list[Any], patch: list[Any]) -> list[Any]:
    """Merge elements of equal names, and append the others."""
    merged = {_name_of(element): element for element in before}
    for element in patch:
        name, old = _name_of(element), merged.get(_name_of(element))
        if isinstance(old, dict) and isinstance(element, dict):
            merged[name] = _merged(old, element)
        else:
            merged[name] = element
    return list(merged.values())


def _name_of(element: Any) -> str:
    named = isinstance(element, dict) and "name" in element
    return str(element["name"]) if named else repr(element)


def _trained(pods: Mapping[str, Any], trainer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pods of the training step as ``spec.trainer`` has them."""
    spec = fields.mapping(pods, "spec", "spec")
    containers = [
        _overridden(container, trainer) if container.get("name") == _NODE else container
        for container, _ in fields.objects(spec, "containers", "spec")
    ]
    return {**pods, "spec": {**spec, "containers": containers}}


def _overridden(container: Mapping[str, Any], trainer: Mapping[str, Any]) -> Mapping[str, Any]:
    given = {
        key: trainer[key] for key in ("image", "command", "args") if trainer.get(key) is not None
    }
    resources = fields.mapping(trainer, "resourcesPerNode", "spec.trainer")
    if resources.get("limits") is not None or resources.get("requests") is not None:
        given["resources"] = resources
    env = [
        *fields.sequence(container, "env", "env"),
        *fields.sequence(trainer, "env", "spec.trainer"),
    ]
    return {**container, **given, "env": _merged_by_name([], env)}


def _write(path: Path, before: PodTemplate, after: PodTemplate) -> Iterator[Edit]:
    """Yield the edits to our runtime patch at *path*, and to ``spec.trainer``."""
    metadata, spec = (*path, "metadata"), (*path, "spec")
    yield from template.text_edits((*metadata, "labels"), before.labels, after.labels)
    yield from template.text_edits(
        (*metadata, "annotations"), before.annotations, after.annotations
    )
    yield from template.text_edits(
        (*spec, "nodeSelector"), before.node_selector, after.node_selector
    )
    if after.tolerations:
        tolerations = template.listed(before), template.listed(after)
        yield from template.whole_edit((*spec, "tolerations"), *tolerations)
    for old, new in zip(before.containers, after.containers, strict=True):
        if new.name == _NODE and old is not new:
            yield from _of_node(old, new)


def _of_node(before: Container, after: Container) -> Iterator[Edit]:
    yield from template.whole_edit((*_TRAINER, "image"), before.image or None, after.image or None)
    yield from template.env_edits((*_TRAINER, "env"), before, after)
    if before.resources == after.resources:
        return
    # They replace those of the runtime as a whole, so what stays the same is written, too.
    for field, was, now in (
        ("requests", before.resources.requests, after.resources.requests),
        ("limits", before.resources.limits, after.resources.limits),
    ):
        for name in {**was, **now}:
            path = (*_TRAINER, "resourcesPerNode", field, name)
            yield Edit(path=path, value=now.get(name, ABSENT), was=was.get(name, ABSENT))


def _unwritable(before: Job, after: Job) -> str:
    """Return what a TrainJob cannot change of its runtime's pods, in words; empty: nothing."""
    for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
        was, now = old.template, new.template
        if gone := sorted(was.node_selector.keys() - now.node_selector.keys()):
            return f"the nodeSelector {gone[0]} of its runtime or runtimePatches"
        if was.affinity != now.affinity:
            return "the affinity of its runtime or runtimePatches"
        if was.runtime_class != now.runtime_class:
            return "the RuntimeClass of its runtime"
        containers = zip(
            (*was.init_containers, *was.containers),
            (*now.init_containers, *now.containers),
            strict=True,
        )
        if what := _unwritable_container(containers):
            return what
    return ""


def _unwritable_container(containers: Iterable[tuple[Container, Container]]) -> str:
    for old, new in containers:
        if old == new:
            continue
        if new.name != _NODE:
            return f"the container {new.name} of its runtime"
        if not (new.resources.requests or new.resources.limits):
            return "all resources of its runtime"
    return ""


def _held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this TrainJob cannot be moved or undone; None: it can.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    status = fields.mapping(source, "status", "")
    running = fields.objects(status, "jobsStatus", "status")
    return held_back_by(
        source,
        TRAINJOB.suspend,
        controller=_CONTROLLER,
        is_over=not {"Complete", "Failed"}.isdisjoint(true_conditions(status)),
        has_pods=any(fields.integer(job, "active", where) for job, where in running),
    )


def _immutable(_below: Path, edit: Edit) -> Obstacle | None:
    """Return why an edit is refused once a TrainJob exists: all of ``spec.trainer`` is."""
    match edit.path[:3]:
        case ("spec", "trainer", "image"):
            return Obstacle.IMMUTABLE_IMAGE
        case ("spec", "trainer", "env"):
            return Obstacle.IMMUTABLE_ENV
        case ("spec", "trainer", _):
            return Obstacle.IMMUTABLE_RESOURCES
    return None


def _without_kueues(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a TrainJob without Kueue's runtime patch, beside which it would add another."""
    spec = fields.mapping(source, "spec", "")
    patches = [patch for patch, _ in fields.objects(spec, "runtimePatches", "spec")]
    own = [patch for patch in patches if patch.get("manager") != _KUEUES_MANAGER]
    rest = {key: value for key, value in spec.items() if key != "runtimePatches"}
    return {**source, "spec": {**rest, "runtimePatches": own} if own else rest}


def _allowed() -> Iterator[Path]:
    yield from OF_THE_OBJECT
    yield (*_TRAINER, "image")
    yield (*_TRAINER, "env", "*")
    for key in ("requests", "limits"):
        yield (*_TRAINER, "resourcesPerNode", key, "*")
    for key in ("labels", "annotations"):
        yield (*_PATCHED, "metadata", key, "*")
    yield (*_PATCHED, "spec", "nodeSelector", "*")
    yield (*_PATCHED, "spec", "tolerations")


TRAINJOB: Final = JobKind(
    group="trainer.kubeflow.org",
    version="v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    framework="trainer.kubeflow.org/trainjob",
    templates=(_PATCHED, _TRAINER),
    allowed=tuple(_allowed()),
    suspend=("spec", "suspend"),
    read=read_trainjob,
    completed=completed,
    without_kueues=_without_kueues,
    held_back=_held_back,
    immutable=_immutable,
    write=_write,
    unwritable=_unwritable,
)
