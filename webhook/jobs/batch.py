"""Turns a batch/v1 Job as the API server serves it into a Job, and a changed Job into edits.

It must not know policies or queues.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, Final

from webhook.jobs import template
from webhook.model import fields
from webhook.model.edits import Edit, Path
from webhook.model.job import (
    JOB_CONTROLLER,
    OURS,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    Job,
    Owner,
    PodSet,
    PodSets,
)
from webhook.model.pods import Memo, read_template
from webhook.model.reasons import Obstacle

TEMPLATE: Path = ("spec", "template")
_MULTIKUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin"
_STOPPING = "kueue.x-k8s.io/stopping"
"""Set by Kueue while it stops a Job and deletes its pods."""
GENERATED: Final = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels of a pod template by which the Job controller finds its pods.

https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/batch/job/strategy.go#L241
"""
_ENDED = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
_WITHOUT_REFERENCES = 2
"""The version of ``marshal`` that writes equal values as equal bytes."""
_shared: Memo[PodSets] = Memo(most=512, most_bytes=192 * 1024)
"""A template of a few lines takes 1 to 2 kB: so many recur that at least a hundred are kept."""
_LONGEST_SHARED = 32 * 1024
"""Bytes of a template that is kept; a larger one would put many others out."""
_LONGEST_UNCHECKED = 16 * 1024
"""Bytes of a template that is too small to have too many entries, containers excepted."""

ALLOWED: tuple[Path, ...] = (
    ("metadata", "labels", QUEUE_LABEL),
    ("metadata", "labels", PRIORITY_LABEL),
    ("metadata", "labels", OURS + "*"),
    ("metadata", "annotations", OURS + "*"),
    *(TEMPLATE + pattern for pattern in template.ALLOWED),
)


def read(source: Mapping[str, Any]) -> Job:
    """Return a Job as the API server sends it.

    Raises:
        FieldError: a field that decisions depend on has a wrong type or an impossible value.

    """
    metadata, spec = fields.mapping(source, "metadata", ""), fields.mapping(source, "spec", "")
    return Job(
        namespace=fields.text(metadata, "namespace", "metadata"),
        name=fields.text(metadata, "name", "metadata"),
        generate_name=fields.text(metadata, "generateName", "metadata"),
        # Copies, because the review's own object is patched to prove that the patch applies.
        labels=dict(fields.texts(metadata, "labels", "metadata")),
        annotations=dict(fields.texts(metadata, "annotations", "metadata")),
        owner=_read_owner(metadata),
        managed_by=fields.text(spec, "managedBy", "spec") or None,
        active_deadline_seconds=fields.integer(spec, "activeDeadlineSeconds", "spec"),
        pod_sets=_read_pod_sets(spec),
        submitted=_submitted(metadata),
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


def edits(before: Job, after: Job) -> tuple[Edit, ...]:
    """List the differences between two versions of a Job, in all that an option may change."""
    changes = [
        *template.text_edits(("metadata", "labels"), before.labels, after.labels),
        *template.text_edits(("metadata", "annotations"), before.annotations, after.annotations),
    ]
    for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
        if old.template is not new.template:
            changes += template.edits(TEMPLATE, old.template, new.template)
    return tuple(changes)


def held_back(source: Mapping[str, Any]) -> Obstacle | None:
    """Return why this Job cannot be moved or undone, whatever would change; None: it can.

    https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/batch/job/strategy.go#L156

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    metadata, spec = fields.mapping(source, "metadata", ""), fields.mapping(source, "spec", "")
    status = fields.mapping(source, "status", "")
    labels = fields.texts(metadata, "labels", "metadata")
    annotations = fields.texts(metadata, "annotations", "metadata")
    conditions = _true_conditions(status)
    manager = fields.text(spec, "managedBy", "spec")
    # Kubernetes lets the template of a Job that ran once change only after it was suspended again.
    has_begun = status.get("startTime") is not None and "Suspended" not in conditions
    for obstacle, applies in (
        (Obstacle.BEING_DELETED, metadata.get("deletionTimestamp") is not None),
        (Obstacle.FINISHED, not _ENDED.isdisjoint(conditions)),
        (Obstacle.MANAGED_BY, manager not in ("", JOB_CONTROLLER) or _MULTIKUEUE_ORIGIN in labels),
        (Obstacle.NOT_SUSPENDED, not fields.flag(spec, "suspend", "spec")),
        (Obstacle.STOPPING, "true" in (annotations.get(_STOPPING), labels.get(_STOPPING))),
        (Obstacle.PODS_ACTIVE, _has_pods(status)),
        (Obstacle.FINISHED, _has_succeeded(spec, status)),
        (Obstacle.STARTED, has_begun),
    ):
        if applies:
            return obstacle
    return None


def _has_pods(status: Mapping[str, Any]) -> bool:
    """Tell whether pods exist, or have ended and are not counted yet: they may still succeed."""
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


def _has_succeeded(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Tell whether all completions have succeeded: Kubernetes ends the Job once it is resumed."""
    wanted = fields.integer(spec, "completions", "spec")
    return wanted is not None and (fields.integer(status, "succeeded", "status") or 0) >= wanted


def _true_conditions(status: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        fields.text(condition, "type", here)
        for condition, here in fields.objects(status, "conditions", "status")
        if fields.text(condition, "status", here) == "True"
    )


def _read_pod_sets(spec: Mapping[str, Any]) -> PodSets:
    # Kueue's podsCount: parallelism, which the API server defaults to 1, capped by completions.
    parallelism = fields.integer(spec, "parallelism", "spec")
    completions = fields.integer(spec, "completions", "spec")
    count = 1 if parallelism is None else parallelism
    if completions is not None:
        count = min(count, completions)
    source = dict(fields.mapping(spec, "template", "spec"))
    template.check_containers(source, "spec.template")
    written = marshal.dumps(source, _WITHOUT_REFERENCES)
    if len(written) > _LONGEST_UNCHECKED:
        template.check_entries(source, "spec.template")
    if len(written) > _LONGEST_SHARED:
        return _pod_sets(max(0, count), source)
    return _shared_pod_sets(max(0, count), written)


def forget() -> None:
    """Empty the cache of shared templates."""
    _shared.clear()


def _shared_pod_sets(count: int, written: bytes) -> PodSets:
    """Return the very same pod sets for equal templates, so work on them is done once."""

    def read() -> PodSets:
        # Read from the bytes, because the review's own object is patched later (decision 0008).
        return _pod_sets(count, marshal.loads(written))  # noqa: S302 - written above

    return _shared.recall((count, written), len(written), read)


def _pod_sets(count: int, source: Mapping[str, Any]) -> PodSets:
    template = read_template(source, "spec.template")
    return PodSets((PodSet(name="main", count=count, template=template),))


def _submitted(metadata: Mapping[str, Any]) -> str:
    # All times have one length, so the greatest text is the latest time.
    entries = fields.objects(metadata, "managedFields", "metadata")
    time = max((fields.text(entry, "time", here) for entry, here in entries), default="")
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{time} {name}" if time else ""


def _read_owner(metadata: Mapping[str, Any]) -> Owner | None:
    for reference, here in fields.objects(metadata, "ownerReferences", "metadata"):
        if fields.flag(reference, "controller", here):
            return Owner(
                api_version=fields.text(reference, "apiVersion", here),
                kind=fields.text(reference, "kind", here),
                name=fields.text(reference, "name", here),
            )
    return None
