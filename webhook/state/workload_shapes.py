"""Reads the shape of a Workload's pods: what resources and flavors depend on, and nothing else.

From pod sets as the API server writes them to those of the model. Thousands of Workloads have a
few shapes: equal ones are one object, and a shape seen before is not made again. It must not know
whose pods they are.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, Final, TypeAlias

from webhook.learn import workload_runs
from webhook.learn.workload_runs import WorkloadPodSet
from webhook.model import fields
from webhook.model.job import PodSet
from webhook.model.job_manifest import said_to_kueue
from webhook.model.pods import Memo, read_template
from webhook.state.workload_charges import read_reclaimable

_USED_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")
USED_OF_SPEC = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "runtimeClassName",
    "overhead",
    "resources",
    "resourceClaims",
)
_KEY_OF_SPEC: Final = tuple(dict.fromkeys((*USED_OF_SPEC, *workload_runs.USED_OF_SPEC)))
_KEY_OF_CONTAINERS: Final = tuple(
    dict.fromkeys((*_USED_OF_CONTAINERS, *workload_runs.USED_OF_CONTAINERS))
)
_Shape: TypeAlias = tuple[str, int, int | None, str, Mapping[str, Any]]
"""Name, pods, fewest pods, group and template of a pod set, without what differs by the Job."""


def read_shape(pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any]) -> tuple[PodSet, ...]:
    # Pods that have succeeded before an eviction do not run again: ``ReclaimablePods``.
    given_back = read_reclaimable(status)
    pruned = [
        (
            pod_set.name,
            max(0, pod_set.pod_count - given_back.get(pod_set.name, 0)),
            fields.integer(pod_set.source, "minCount", pod_set.path),
            fields.text(
                fields.mapping(pod_set.source, "topologyRequest", pod_set.path),
                "podSetGroupName",
                f"{pod_set.path}.topologyRequest",
            ),
            _pruned(pod_set),
        )
        for pod_set in pod_sets
    ]
    # A key takes less time so than as JSON.
    key = repr(pruned)
    return _shapes.recall(key, len(key), lambda: _shape(pruned))


def likeness(pod_sets: Sequence[WorkloadPodSet]) -> bytes:
    """Return a key of all that class and shape of pod sets depend on, and of nothing else.

    It is made for each Workload of a list, and so in the form that takes the least time.
    """
    return marshal.dumps(
        [
            (
                pod_set.name,
                pod_set.pod_count,
                pod_set.source.get("minCount"),
                pod_set.source.get("topologyRequest"),
                said_to_kueue(_annotations(pod_set.pod_metadata)),
                [*map(pod_set.pod_spec.get, _KEY_OF_SPEC)],
                [_key_of_containers(pod_set, key) for key in ("containers", "initContainers")],
            )
            for pod_set in pod_sets
        ],
        _WITHOUT_REFERENCES,
    )


def recall_shape(
    pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any], alike: bytes
) -> tuple[PodSet, ...]:
    """Return ``read_shape`` of *pod_sets*, whose likeness is *alike*."""
    if status.get("reclaimablePods"):
        return read_shape(pod_sets, status)
    return _shapes_of_likenesses.recall(alike, len(alike), lambda: read_shape(pod_sets, status))


_shapes_of_likenesses: Memo[tuple[PodSet, ...]] = Memo(most=4096, most_bytes=2 << 20, longest=4096)
"""Most Workloads are like one before, so that no text of their pods need be made. What differs in
its class alone still shares its shape by ``_shapes``."""
_WITHOUT_REFERENCES: Final = 2
"""The newest version of ``marshal`` in which the form of a value depends on the value alone."""


def _key_of_containers(pod_set: WorkloadPodSet, key: str) -> list[list[Any]]:
    here = f"{pod_set.path}.template.spec"
    containers = fields.mappings(pod_set.pod_spec, key, here)
    return [[*map(container.get, _KEY_OF_CONTAINERS)] for container in containers]


_shapes: Memo[tuple[PodSet, ...]] = Memo(most=4096, most_bytes=4 << 20, longest=4096)
"""Equal pod sets are one object, as thousands of Jobs have a few shapes."""


def _shape(pruned: Sequence[_Shape]) -> tuple[PodSet, ...]:
    return tuple(
        PodSet(
            name=intern(name),
            count=count,
            min_count=min_count,
            group=intern(group),
            template=read_template(template, f"spec.podSets[{index}].template"),
        )
        for index, (name, count, min_count, group, template) in enumerate(pruned)
    )


def _pruned(pod_set: WorkloadPodSet) -> Mapping[str, Any]:
    """Keep what resources and flavors depend on; what differs from Job to Job is dropped."""
    spec, here = pod_set.pod_spec, f"{pod_set.path}.template.spec"
    annotations = _annotations(pod_set.pod_metadata)
    kept: dict[str, Any] = {key: spec[key] for key in USED_OF_SPEC if key in spec}
    for key in ("containers", "initContainers"):
        kept[key] = [
            {name: container[name] for name in _USED_OF_CONTAINERS if name in container}
            for container in fields.mappings(spec, key, here)
        ]
    return {"metadata": {"annotations": said_to_kueue(annotations)}, "spec": kept}


def _annotations(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields.mapping(metadata, "annotations", "metadata")
