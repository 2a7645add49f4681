"""How much of devices others could no longer use where a Job takes a part of one. Pure.

What is free in a cell is of no use to those who need more memory than one unit there has. The idea
is that of fragmentation gradient descent (FGD, USENIX ATC 2023), at the level of quotas: a Job best
takes what the fewest of those who ask could have used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from webhook.cost.device_shares import fraction, share_of
from webhook.model.costs.devices import Device
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import ClusterQueue
from webhook.model.snapshot_parts import KueueSetup, QueuedWorkloads

NeededMemory = Mapping[int, int]
"""Bytes of one unit that are asked for, to how many units hold or ask for as much."""


def needed_memory(
    names: Iterable[str],
    setup: KueueSetup,
    workloads: QueuedWorkloads,
    devices: Mapping[str, Device],
) -> NeededMemory:
    """Return what is held and asked for in these ClusterQueues, by the memory of a unit."""
    needed: Counter[int] = Counter()
    for name in names:
        queue = setup.cluster_queues.get(name)
        if queue is None:
            continue
        for cell, amount in _asked(queue, workloads).items():
            flavor, resource = cell
            memory = share_of(resource, devices.get(flavor)).memory if "/" in resource else None
            if memory is not None and amount > 0:
                needed[memory] += amount
    return needed


def _asked(queue: ClusterQueue, workloads: QueuedWorkloads) -> Counter[FlavorResource]:
    """Return what a ClusterQueue's Workloads hold, and what they wait for in its first flavor."""
    held = workloads.held.get(queue.name)
    asked: Counter[FlavorResource] = Counter(held.usage if held is not None else {})
    first = {resource: group.flavors[0] for group in queue.groups for resource in group.resources}
    for arrival in workloads.competing.get(queue.name, ()):
        for pod_set in arrival.needs:
            for resource, amount in pod_set.total.items():
                if resource in first:
                    asked[first[resource], resource] += amount * arrival.count
    return asked


def rise(usage: Amounts, needed: NeededMemory, devices: Mapping[str, Device]) -> float | None:
    """Return by how many devices what others cannot use rises; below 0, it falls.

    None: it is not known, or nothing of a device is used.
    """
    everybody = sum(needed.values())
    taken = 0.0
    known = False
    for (flavor, resource), amount in usage.items():
        device = devices.get(flavor)
        if not amount or "/" not in resource or device is None:
            continue
        memory, part = share_of(resource, device).memory, fraction(resource, device)
        if memory is None or part is None or not everybody:
            return None
        too_small = sum(count for need, count in needed.items() if need > memory)
        taken += amount * part * too_small / everybody
        known = True
    return -taken if known else None
