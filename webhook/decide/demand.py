"""What Workloads of one shape may use in a ClusterQueue: for each group of resources, its flavors.

Taints, selectors and affinity are looked at once, here; what is free is looked at again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from webhook.decide.flavors import flavor_refusal, uncovered
from webhook.model.queues import (
    ClusterQueue,
    FlavorResource,
    PodSetNeeds,
    ResourceGroup,
    Snapshot,
)

_PODS = "pods"
_COMBINATIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One flavor that a part of a Workload may get, and what it would use of it."""

    flavor: str
    usage: tuple[tuple[FlavorResource, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Parts of a Workload, each with its choices in the order in which Kueue tries them."""

    parts: tuple[tuple[Choice, ...], ...]

    combinations: tuple[str, ...]
    """The flavors that a Workload may get, as ``model.forecasts.Estimates`` names them; Kueue's
    first choice is the first. At most so many that looking each up is cheap."""

    @property
    def is_possible(self) -> bool:
        """Tell whether some flavor is there for each part."""
        return all(self.parts)


_NOWHERE = Demand(parts=((),), combinations=())


def demand(needs: Sequence[PodSetNeeds], cluster_queue: ClusterQueue, snapshot: Snapshot) -> Demand:
    """Find the flavors that each pod set may get from each group of resources.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    parts: list[tuple[Choice, ...]] = []
    for pod_set in needs:
        total = pod_set.total
        if uncovered(pod_set, cluster_queue, snapshot) is not None:
            return _NOWHERE
        for group in cluster_queue.groups:
            wanted = {name: total[name] for name in total if name in group.resources}
            if _PODS in group.resources:
                wanted[_PODS] = pod_set.count
            if wanted:
                parts.append(_choices(pod_set, group, wanted, cluster_queue, snapshot))
    return Demand(parts=tuple(parts), combinations=_combinations(parts))


def _combinations(parts: Sequence[tuple[Choice, ...]]) -> tuple[str, ...]:
    names = product(*([choice.flavor for choice in part] for part in parts))
    found = {",".join(sorted(set(each))): None for each in islice(names, _COMBINATIONS)}
    return tuple(found)


def _choices(
    pod_set: PodSetNeeds,
    group: ResourceGroup,
    wanted: Mapping[str, int],
    queue: ClusterQueue,
    snapshot: Snapshot,
) -> tuple[Choice, ...]:
    template = pod_set.template
    return tuple(
        Choice(
            flavor=name,
            usage=tuple(((name, resource), amount) for resource, amount in wanted.items()),
        )
        for name in group.flavors
        if flavor_refusal(template, name, queue, snapshot) is None
    )
