"""Reads what a Workload's pods ask for, which quota they are charged, and where they are placed.

From pod sets and status as the API server writes them to values of the model. Thousands of
Workloads have a few shapes and charges: equal ones are one object, and a shape seen before is not
made again. It must not know whose pods they are, nor in which ClusterQueue they count.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Final, TypeAlias

from webhook.kueue.requests import declared
from webhook.learn import workload_runs
from webhook.learn.workload_runs import WorkloadPodSet, read_count
from webhook.model import fields, quantity
from webhook.model.fields import EMPTY, child
from webhook.model.job import PodSet
from webhook.model.job_manifest import said_to_kueue
from webhook.model.pods import Memo, read_template
from webhook.model.quantity import FlavorResource
from webhook.model.topologies import HOSTNAME, PODS, Domain, PlacedPods

Charge: TypeAlias = tuple[tuple[FlavorResource, int], ...]
KueueCounts: TypeAlias = tuple[tuple[tuple[str, int], ...], ...]
"""For each pod set, what Kueue has counted that one of its pods asks for, by resource."""
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
_ADMISSION = "status.admission"
_MOST_DOMAINS = 100_000
"""Of one part of an assignment; that of Kueue's schema."""


def read_charge(
    pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any], admission: Mapping[str, Any]
) -> Charge:
    """Return the reservation's usage, scaled down to the pods that are not reclaimable.

    Without a *status* none is taken for reclaimable.
    """
    charge: dict[FlavorResource, int] = {}
    for _, of_pod_set in _charges(pod_sets, status, admission):
        for cell, amount in of_pod_set.items():
            charge[cell] = charge.get(cell, 0) + amount
    return _shared_charge(tuple(charge.items()))


def read_held(
    pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any], admission: Mapping[str, Any]
) -> tuple[Charge, ...]:
    """Return the reservation's usage of each pod set, scaled down likewise."""
    charges = dict(_charges(pod_sets, status, admission))
    return _shared_charges(tuple(tuple(charges.get(each.name, EMPTY).items()) for each in pod_sets))


def read_counted(
    metadata: Mapping[str, Any], pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any]
) -> KueueCounts:
    """Read ``status.resourceRequests``: what Kueue counts by its own configuration.

    Empty where it is not there, or where the Workload has changed since, as by a move.
    """
    # ``PropagateResourceRequests`` writes it together with the condition QuotaReserved:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L1174
    if not status.get("resourceRequests"):
        return ()
    totals = dict(_totals(status))
    counts = [(pod_set.name, pod_set.pod_count) for pod_set in pod_sets]
    generation = metadata.get("generation")
    if generation is None or _judged(status) != generation or totals.keys() != dict(counts).keys():
        return ()
    # Requests are multiplied by the count, less the pods that are reclaimable; then they are not
    # shared out here.
    if status.get("reclaimablePods") or any(count < 1 for _, count in counts):
        return ()
    shared = tuple(
        tuple(sorted((name, -(-amount // count)) for name, amount in totals[pod_set].items()))
        for pod_set, count in counts
    )
    return _shared_counts(shared)


def read_reclaimable(status: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many pods of each pod set are reclaimable."""
    return {
        fields.text(reclaimable, "name", here): read_count(reclaimable, here)
        for reclaimable, here in fields.objects(status, "reclaimablePods", "status")
    }


def _charges(
    pod_sets: Sequence[WorkloadPodSet], status: Mapping[str, Any], admission: Mapping[str, Any]
) -> Iterator[tuple[str, dict[FlavorResource, int]]]:
    """Yield name and usage of each pod set."""
    counts = {pod_set.name: pod_set.pod_count for pod_set in pod_sets}
    given_back = read_reclaimable(status)
    for assignment, here in fields.objects(admission, "podSetAssignments", "status.admission"):
        name = fields.text(assignment, "name", here)
        total = counts.get(name, 1)
        assigned = fields.integer(assignment, "count", here)
        count = total if assigned is None else assigned
        left = total - given_back.get(name, 0)
        yield (
            name,
            {
                # Kueue's ``ScaledTo`` divides by the old count before it multiplies, too.
                cell: amount // count * left if left < count else amount
                for cell, amount in _assigned(assignment, here).items()
            },
        )


def _assigned(assignment: Mapping[str, Any], path: str) -> dict[FlavorResource, int]:
    """Return one assignment's amounts; a resource without a flavor is charged to none."""
    flavors = fields.texts(assignment, "flavors", path)
    here = child(path, "resourceUsage")
    return {
        (intern(flavors[resource]), intern(resource)): _amount(
            str(written), resource, child(here, resource)
        )
        for resource, written in fields.mapping(assignment, "resourceUsage", path).items()
        if resource in flavors
    }


def _totals(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, int]]]:
    for requests, here in fields.objects(status, "resourceRequests", "status"):
        path = child(here, "resources")
        amounts = fields.mapping(requests, "resources", here)
        yield (
            fields.text(requests, "name", here),
            {
                intern(resource): _amount(str(written), resource, path)
                for resource, written in amounts.items()
            },
        )


def _judged(status: Mapping[str, Any]) -> Any:
    """Return the generation of which the condition QuotaReserved tells; None: of none."""
    conditions = fields.objects(status, "conditions", "status")
    reserved = (c for c, _ in conditions if c.get("type") == "QuotaReserved")
    return next((condition.get("observedGeneration") for condition in reserved), None)


@lru_cache(maxsize=4096)
def _amount(written: str, resource: str, path: str) -> int:
    return quantity.parse(written, resource=resource, path=path)


@lru_cache(maxsize=4096)
def _shared_charge(charge: Charge) -> Charge:
    return charge


@lru_cache(maxsize=4096)
def _shared_charges(charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    return charges


@lru_cache(maxsize=4096)
def _shared_counts(counted: KueueCounts) -> KueueCounts:
    return counted


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


def read_placed(spec: Mapping[str, Any], admission: Mapping[str, Any]) -> tuple[PlacedPods, ...]:
    """Return the pods of a Workload by domain; empty: Kueue has not placed them.

    Raises:
        FieldError: the assignment, or what a pod asks for, cannot be read.

    """
    assignments = fields.objects(admission, "podSetAssignments", _ADMISSION)
    placed = [(each, here) for each, here in assignments if each.get("topologyAssignment")]
    if not placed:
        return ()
    asked = dict(_asked(spec, {fields.text(each, "name", here) for each, here in placed}))
    return _shared(
        tuple(
            pods
            for each, here in placed
            for pods in _of_pod_set(each, here, asked.get(fields.text(each, "name", here), EMPTY))
        )
    )


@lru_cache(maxsize=4096)
def _shared(placed: tuple[PlacedPods, ...]) -> tuple[PlacedPods, ...]:
    return placed


def _asked(spec: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield what one pod of each of these pod sets takes of its Node, itself among it."""
    for pod_set, here in fields.objects(spec, "podSets", "spec"):
        name = fields.text(pod_set, "name", here)
        if name in names:
            path = child(here, "template")
            template = read_template(fields.mapping(pod_set, "template", here), path)
            asked = declared(template, path)
            yield name, {**asked, PODS: asked.get(PODS, 0) + 1}


def _of_pod_set(
    assignment: Mapping[str, Any], path: str, asked: Mapping[str, int]
) -> Iterator[PlacedPods]:
    here = child(path, "topologyAssignment")
    topology = fields.mapping(assignment, "topologyAssignment", path)
    levels = fields.strings(topology, "levels", here)
    # Flavors share Nodes, but not domains of other levels.
    is_node = levels[-1:] == (HOSTNAME,)
    names = fields.texts(assignment, "flavors", path).values()
    flavors = [""] if is_node else [intern(name) for name in dict.fromkeys(names)]
    for domain, count in _domains(topology, here, len(levels)):
        amounts = tuple((intern(name), amount * count) for name, amount in asked.items())
        for flavor in flavors:
            yield PlacedPods(flavor=flavor, domain=domain, amounts=amounts)


def _domains(topology: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[Domain, int]]:
    # ``InternalSeqFrom``, by which Kueue reads its own compact form:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/tas/tas_assignment.go#L129
    # Kueue's v1beta1 lists the domains one by one.
    for each, here in fields.objects(topology, "domains", path):
        values = tuple(map(intern, fields.strings(each, "values", here)))
        if len(values) == depth:
            yield values, fields.integer(each, "count", here) or 0
    for part, here in fields.objects(topology, "slices", path):
        number = min(fields.integer(part, "domainCount", here) or 0, _MOST_DOMAINS)
        levels = [
            _values(level, at, number) for level, at in fields.objects(part, "valuesPerLevel", here)
        ]
        counts = _counts(fields.mapping(part, "podCounts", here), number)
        if len(levels) == depth:
            yield from zip(zip(*levels, strict=False), counts, strict=False)


def _values(level: Mapping[str, Any], path: str, number: int) -> Sequence[str]:
    """Return the value of a level for each domain."""
    if "universal" in level:
        return [intern(fields.text(level, "universal", path))] * number
    each, here = fields.mapping(level, "individual", path), child(path, "individual")
    prefix, suffix = (fields.text(each, end, here) for end in ("prefix", "suffix"))
    roots = fields.strings(each, "roots", here)
    return [intern(f"{prefix}{root}{suffix}") for root in roots]


def _counts(counts: Mapping[str, Any], number: int) -> Sequence[int]:
    if isinstance(universal := counts.get("universal"), int):
        return [universal] * number
    individual = counts.get("individual")
    return [each for each in individual if isinstance(each, int)] if individual else []
