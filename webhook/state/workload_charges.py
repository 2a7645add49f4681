"""Reads which quota a Workload is charged, and what Kueue has counted of its pods.

From its status to amounts by flavor and resource; equal ones are one object. It must not know what
state the Workload is in, nor in which ClusterQueue it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias

from webhook.learn.workload_runs import WorkloadPodSet, read_count
from webhook.model import fields, quantity
from webhook.model.fields import EMPTY, child
from webhook.model.queues import FlavorResource

Charge: TypeAlias = tuple[tuple[FlavorResource, int], ...]
KueueCounts: TypeAlias = tuple[tuple[tuple[str, int], ...], ...]
"""For each pod set, what Kueue has counted that one of its pods asks for, by resource."""


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
