"""What the reservation of a Workload holds, as its status tells.

The rule is that of ``totalRequestsFromAdmission`` in Kueue's ``pkg/workload``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias

from webhook.model import fields, quantity
from webhook.model.fields import child
from webhook.model.queues import FlavorResource

Charge: TypeAlias = tuple[tuple[FlavorResource, int], ...]


def read_charge(
    spec: Mapping[str, Any], status: Mapping[str, Any], admission: Mapping[str, Any]
) -> Charge:
    """Sum what the reservation holds, scaled down to the pods that are not given back."""
    counts = {
        fields.text(item, "name", here): read_count(item, here)
        for item, here in fields.objects(spec, "podSets", "spec")
    }
    given_back = {
        fields.text(item, "name", here): read_count(item, here)
        for item, here in fields.objects(status, "reclaimablePods", "status")
    }
    charge: dict[FlavorResource, int] = {}
    for item, here in fields.objects(admission, "podSetAssignments", "status.admission"):
        name = fields.text(item, "name", here)
        total = counts.get(name, 1)
        assigned = fields.integer(item, "count", here)
        count = total if assigned is None else assigned
        left = total - given_back.get(name, 0)
        for cell, amount in _assigned(item, here).items():
            scaled = amount // count * left if left < count else amount
            charge[cell] = charge.get(cell, 0) + scaled
    return _shared_charge(tuple(charge.items()))


def read_count(item: Mapping[str, Any], path: str) -> int:
    count = fields.integer(item, "count", path)
    return 1 if count is None else count


def _assigned(item: Mapping[str, Any], path: str) -> dict[FlavorResource, int]:
    """Read one assignment's amounts; a resource without a flavor is charged to none."""
    flavors = fields.texts(item, "flavors", path)
    here = child(path, "resourceUsage")
    return {
        (intern(flavors[resource]), intern(resource)): _amount(
            str(written), resource, child(here, resource)
        )
        for resource, written in fields.mapping(item, "resourceUsage", path).items()
        if resource in flavors
    }


@lru_cache(maxsize=4096)
def _amount(written: str, resource: str, path: str) -> int:
    return quantity.parse(written, resource=resource, path=path)


@lru_cache(maxsize=4096)
def _shared_charge(charge: Charge) -> Charge:
    return charge
