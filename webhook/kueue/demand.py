"""What Workloads of one shape may use in a ClusterQueue: for each group of resources, its flavors.

Taints, selectors and affinity are looked at once, here; what is free is looked at again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from webhook.kueue import flavor_plan
from webhook.kueue.flavor_plan import Flavor
from webhook.model.fields import FieldError
from webhook.model.queues import ClusterQueue, FlavorResource, PodSetNeeds, Snapshot

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

    @property
    def cells(self) -> frozenset[FlavorResource]:
        """List what it may use."""
        parts = (choice.usage for part in self.parts for choice in part)
        return frozenset(cell for usage in parts for cell, amount in usage if amount)


NOWHERE = Demand(parts=((),), combinations=())
"""That of a Workload that can only wait."""


def demand(needs: Sequence[PodSetNeeds], cluster_queue: ClusterQueue, snapshot: Snapshot) -> Demand:
    """Find the flavors that each pod set may get from each group of resources.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    parts: list[tuple[Choice, ...]] = []
    for pod_set in needs:
        plan = flavor_plan.of(pod_set, cluster_queue, snapshot)
        if plan.rejection is not None:
            return NOWHERE
        parts += [tuple(_choices(flavors)) for flavors in plan.groups]
    return Demand(parts=tuple(parts), combinations=_combinations(parts))


def _choices(flavors: Sequence[Flavor]) -> Iterator[Choice]:
    for flavor in flavors:
        if flavor.unreadable is not None:
            raise FieldError(flavor.unreadable.path, flavor.unreadable.message)
        if flavor.refusal is None:
            (name, _), *_ = flavor.amounts
            yield Choice(flavor=name, usage=tuple(flavor.amounts.items()))


def _combinations(parts: Sequence[tuple[Choice, ...]]) -> tuple[str, ...]:
    names = product(*([choice.flavor for choice in part] for part in parts))
    found = {",".join(sorted(set(each))): None for each in islice(names, _COMBINATIONS)}
    return tuple(found)
