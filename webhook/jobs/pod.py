"""Pods: plain ones, each a Workload of its own, and those of a group, which are one together.

Single ones are decided; those of a group are only counted.

A Pod is its own template, so its labels and annotations are both the Job's and the template's.
Nothing of weight can change once it exists: it is decided at its creation only.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/pod/pod_webhook.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/pod/pod_controller.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.jobs import served_job, template
from webhook.jobs.job_kind import SUSPENDING_PARENT, JobKind, allowed_in, creation_only
from webhook.jobs.served_job import ServedPodSet
from webhook.model import fields
from webhook.model.edits import Edit, Path
from webhook.model.fields import FieldError
from webhook.model.job import (
    DECIDED_BY,
    DECISION_ID,
    ENV_PREFIX,
    JOB_CLASS,
    OPTION_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    Job,
    PodSets,
)
from webhook.model.marks import MARKS
from webhook.model.pods import PodTemplate
from webhook.model.reasons import Obstacle

_GROUP = "kueue.x-k8s.io/pod-group-name"
"""A label or an annotation of its pods, of which Kueue reads the annotation first."""
_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_ITSELF: Path = ()
_GATE = "kueue.x-k8s.io/admission"
"""Kueue's, on a Pod that waits."""
_MIRROR = "kubernetes.io/config.mirror"
"""On what stands for a static pod of a node."""
_OF_TEMPLATES = frozenset({DECISION_ID, DECIDED_BY, JOB_CLASS})
_OF_THE_JOB = frozenset(
    ("metadata", "labels", name) for name in (QUEUE_LABEL, PRIORITY_LABEL, OPTION_LABEL)
)
_OWNERS = frozenset({"DaemonSet", "Job", "Node"})
"""What makes pods for itself: a Job's are queued with it, and others belong to a node."""
_DIGITS = 6
"""Of the number of pods in a group."""
_MOUNTED = ("volumes", "volumeMounts")
"""What differs from Pod to Pod, as the API server mounts a token under a random name."""


def read_pod(source: Mapping[str, Any]) -> Job:
    """Return a Pod as the API server sends it; one that is not queued by itself has no pod sets.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    spec = fields.mapping(source, "spec", "")
    metadata = fields.mapping(source, "metadata", "")
    annotations = fields.texts(metadata, "annotations", "metadata")
    job = served_job.read_served(
        source,
        kind="Pod",
        pod_sets=PodSets(),
        active_deadline_seconds=fields.integer(spec, "activeDeadlineSeconds", "spec"),
    )
    group = _group_of(source)
    of_job = {key: text for key, text in job.annotations.items() if not _is_of_template(key)}
    endless = fields.text(spec, "restartPolicy", "spec", "Always") == "Always"
    job = replace(job, annotations=of_job, is_endless=endless, group=group)
    is_a_part = job.owner is not None and job.owner.kind in _OWNERS
    if is_a_part or not {SUSPENDING_PARENT, _MIRROR}.isdisjoint(annotations):
        return job
    count = _total(annotations) if group else 1
    return replace(job, pod_sets=_pod_sets(spec, job.labels, annotations, count))


def _group_of(source: Mapping[str, Any]) -> str:
    """Return the name of a Pod's group, as Kueue's ``GetPodGroupName`` does; empty: it has none.

    Raises:
        FieldError: its labels or annotations have a wrong type.

    """
    metadata = fields.mapping(source, "metadata", "")
    annotations = fields.texts(metadata, "annotations", "metadata")
    return annotations.get(_GROUP) or fields.texts(metadata, "labels", "metadata").get(_GROUP, "")


def _total(annotations: Mapping[str, str]) -> int:
    """Return how many pods a group has in all, which are taken to be like this one.

    Raises:
        FieldError: it is no number; Kueue's webhook refuses that, too.

    """
    text = annotations.get(_TOTAL, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) > 0):
        raise FieldError(f"metadata.annotations[{_TOTAL}]", f"expected a number, got {text!r}")
    return int(text)


def _is_of_template(key: str) -> bool:
    return key in _OF_TEMPLATES or key.startswith(ENV_PREFIX)


def _pod_sets(
    spec: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str], count: int
) -> PodSets:
    # With the marks of each Pod's own decision no two Pods would have equal pod sets.
    of_template = {
        key: text for key, text in annotations.items() if key not in MARKS - _OF_TEMPLATES
    }
    pods = {
        "metadata": {"labels": dict(labels), "annotations": of_template},
        "spec": _unmounted(spec),
    }
    return served_job.read_pod_sets([ServedPodSet("main", count, _ITSELF, pods)])


def _unmounted(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a PodSpec without its volumes, so that equal pods are read and decided once."""
    kept = {key: value for key, value in spec.items() if key not in _MOUNTED}
    for key in ("containers", "initContainers"):
        containers = fields.objects(spec, key, "spec")
        if containers:
            kept[key] = [
                {name: value for name, value in container.items() if name not in _MOUNTED}
                for container, _ in containers
            ]
    return kept


def _write(path: Path, before: PodTemplate, after: PodTemplate) -> Iterator[Edit]:
    """Yield the edits to a Pod but those of labels that are edited as the Job's own."""
    return (edit for edit in template.edits(path, before, after) if edit.path not in _OF_THE_JOB)


def _kept(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this Pod cannot be created anew; None: it waits, and is in no group.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    metadata, spec = (fields.mapping(source, key, "") for key in ("metadata", "spec"))
    gates = {gate.get("name") for gate in fields.mappings(spec, "schedulingGates", "spec")}
    if metadata.get("deletionTimestamp") is not None:
        return Obstacle.BEING_DELETED
    if _group_of(source):
        return Obstacle.CREATION_ONLY
    return None if _GATE in gates else Obstacle.NOT_SUSPENDED


def _unwritable(before: Job, after: Job) -> str:
    """Return what the API server would refuse: an overhead that fits no RuntimeClass."""
    # It is filled in from the RuntimeClass before any webhook is called, and compared afterwards.
    for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
        if old.template.overhead and old.template.runtime_class != new.template.runtime_class:
            return "the overhead that came with its RuntimeClass"
    return ""


POD: Final = JobKind(
    group="",
    version="v1",
    kind="Pod",
    plural="pods",
    framework="pod",
    templates=(_ITSELF,),
    # Its labels are the template's, too, so that their paths come twice.
    allowed=tuple(dict.fromkeys(allowed_in((_ITSELF,)))),
    # Kueue gates it, in place of suspending.
    suspend=("spec", "schedulingGates"),
    read=read_pod,
    held_back=creation_only,
    kept=_kept,
    immutable=creation_only,
    write=_write,
    unwritable=_unwritable,
    can_change_env=True,
    owns_queued=False,
    carries_marks=False,
)
