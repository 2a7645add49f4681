"""A Job cut down to what deciding about it needs, as a manifest that a replay can submit again.

A batch Job is written as it is, one of another kind with its pod sets in one list, as
``jobs.reduced`` reads it. Of environment, command and arguments only what policies name is kept,
and of that only numbers and the policies' own texts; the class stands where the image stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from webhook.model import flags
from webhook.model.flags import Named
from webhook.model.job import OURS, PLAIN, Job, PodSet
from webhook.model.marks import MARKS
from webhook.model.pods import Container, PodTemplate, Resources

T = TypeVar("T")

_NONE: Final = Named()
KUEUES: Final = "kueue.x-k8s.io/"
LONGEST_SAID: Final = 1000
"""Characters of an annotation by which something is decided; longer ones are not kept."""
MOST_SAID: Final = 100
"""Annotations of ours and Kueue's that are kept of a Job; there are about forty."""
_SOME: Final = [{"name": "some"}]
"""Which resource claims there are does not matter, but whether there are any."""


def manifest(job: Job, job_class: str, named: Named = _NONE) -> dict[str, Any]:
    """Write a Job as it was submitted; its name is left out where it has none.

    *named*: the flags and variables that policies name.
    """
    metadata: dict[str, Any] = {"namespace": job.namespace}
    names = {"name": job.name, "generateName": job.generate_name}
    metadata |= {key: text for key, text in names.items() if text}
    kept = {"labels": labels_of(job), "annotations": annotations_of(job)}
    metadata |= {key: texts for key, texts in kept.items() if texts}
    if job.owner is not None:
        owner = {"apiVersion": job.owner.api_version, "kind": job.owner.kind, "controller": True}
        metadata["ownerReferences"] = [owner]
    kind = {} if job.kind == PLAIN else {"kind": job.kind}
    return {**kind, "metadata": metadata, "spec": spec(job, job_class, named)}


def labels_of(job: Job) -> dict[str, str]:
    return {key: text for key, text in job.labels.items() if key not in MARKS}


def annotations_of(job: Job) -> dict[str, str]:
    """Return a Job's annotations for Kueue and for us, without those of a decision."""
    return _meant(job.annotations)


def spec(job: Job, job_class: str, named: Named = _NONE) -> dict[str, Any]:
    """Return the part of ``spec`` that Jobs from one template share."""
    written: dict[str, Any] = {}
    if job.managed_by is not None:
        written["managedBy"] = job.managed_by
    if job.active_deadline_seconds is not None:
        written["activeDeadlineSeconds"] = job.active_deadline_seconds
    if job.kind != PLAIN:
        pod_sets = [_pod_set(pod_set, job_class, named) for pod_set in job.pod_sets]
        return {**written, **_of_kind(job), "podSets": pod_sets}
    for pod_set in job.pod_sets[:1]:
        template = _template(pod_set.template, job_class, named)
        written |= {"parallelism": pod_set.count, "template": template}
    return written


def _of_kind(job: Job) -> dict[str, Any]:
    """Return what Jobs of some kinds have besides their pod sets."""
    written = {"priorityClass": job.priority_class, "unmodelled": job.unmodelled}
    workloads = {} if job.workloads == 1 else {"workloads": job.workloads}
    return {**{key: text for key, text in written.items() if text}, **workloads}


def _pod_set(pod_set: PodSet, job_class: str, named: Named) -> dict[str, Any]:
    written: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count}
    written["template"] = _template(pod_set.template, job_class, named)
    if pod_set.added:
        written["added"] = _containers(pod_set.added, job_class, named)
    return written if pod_set.path else {**written, "made": True}


def _template(template: PodTemplate, job_class: str, named: Named) -> dict[str, Any]:
    pods = {
        "containers": _containers(template.containers, job_class, named),
        "initContainers": _containers(template.init_containers, job_class, named),
        "nodeSelector": dict(template.node_selector),
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "affinity": template.affinity,
        "runtimeClassName": template.runtime_class,
        "overhead": dict(template.overhead),
        "resources": _resources(template.resources) if template.resources else None,
        "resourceClaims": _SOME if template.claims else None,
    }
    written: dict[str, Any] = {"spec": {key: value for key, value in pods.items() if value}}
    if said := said_to_kueue(template.annotations):
        written["metadata"] = {"annotations": said}
    return written


def _containers(
    containers: Iterable[Container], job_class: str, named: Named
) -> list[dict[str, Any]]:
    return [dict(_container(container, job_class, named)) for container in containers]


def _container(container: Container, job_class: str, named: Named) -> Iterator[tuple[str, Any]]:
    yield "name", container.name
    # Records keep no image; replays need to know which Jobs are alike (decision 0015).
    yield "image", job_class
    if named.flags or named.env:
        yield from flags.recorded(container, named).items()
    resources = _resources(container.resources)
    if container.claims:
        resources["claims"] = _SOME
    if resources:
        yield "resources", resources
    if container.sidecar:
        yield "restartPolicy", "Always"


def _resources(resources: Resources) -> dict[str, Any]:
    both = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {key: amounts for key, amounts in both.items() if amounts}


def said_to_kueue(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations for Kueue, which are names and numbers, without any that is longer."""
    return {
        key: text
        for key, text in meant(annotations, (KUEUES,))
        if isinstance(text, str) and len(text) <= LONGEST_SAID
    }


def meant(
    annotations: Mapping[str, T], prefixes: tuple[str, ...] = (OURS, KUEUES)
) -> Iterator[tuple[str, T]]:
    """Yield the annotations by which something is decided; others can be long.

    At most ``MOST_SAID``: a tenant may write thousands, which take a megabyte in each process.
    """
    said = ((key, text) for key, text in annotations.items() if key.startswith(prefixes))
    return islice(said, MOST_SAID)


def _meant(texts: Mapping[str, str]) -> dict[str, str]:
    return {
        key: text for key, text in meant(texts) if key not in MARKS and len(text) <= LONGEST_SAID
    }
