"""Into which slices devices can be cut, and what is lost to others where one is taken. Pure.

What fits beside what is as MIG places it: a device has so many slices of memory (8, or 4), and a
slice begins only where MIG lets it. What is free is of no use to those who need more memory than
one unit has: the idea is that of fragmentation gradient descent (FGD, USENIX ATC 2023), at the
level of quotas: a Job best takes what the fewest of those who ask could have used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from webhook.cost.device_shares import fraction, share_of
from webhook.model.costs.devices import Device, DeviceSlice
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import ClusterQueue
from webhook.model.snapshot_parts import KueueSetup, QueuedWorkloads

Geometry: TypeAlias = tuple[tuple[str, int], ...]
"""Resources and how many of each one device gives, sorted; empty: it is whole."""
WHOLE: Final[Geometry] = ()
USABLE: Final = 0.95
"""Usable part of a device's or a slice's memory; the driver takes the rest."""
NeededMemory: TypeAlias = Mapping[float, int]
"""Bytes of one unit that are asked for, to how many units hold or ask for as much."""

_OF_EIGHT: Final = 8
_HALF_OF_EIGHT: Final = 4
_BALANCED: Final = 0.75


def geometry(counts: Mapping[str, int]) -> Geometry:
    return tuple(sorted((name, count) for name, count in counts.items() if count))


def geometries(device: Device, wanted: Collection[str]) -> tuple[Geometry, ...]:
    """Return the ways to cut a device into slices of these resources, none of which holds more.

    Without slices of these resources there is none; whole devices are not among them.
    """
    slices = tuple(part for part in device.slices if part.resource in wanted)
    found = {geometry(placed) for placed in _placements(device, slices)} if device.memory else set()
    return tuple(sorted(cut for cut in found if cut and not _is_less(cut, found)))


def cut_of(device: Device, counts: Mapping[str, int], devices: int) -> tuple[Geometry, ...] | None:
    """Return how so many devices are cut that together give these slices.

    None: they cannot give them.
    """
    if devices and not any(count % devices for count in counts.values()):
        each = {name: count // devices for name, count in counts.items()}
        if _fits(device, each):
            return (geometry(each),) * devices
    cuts: list[Counter[str]] = [Counter() for _ in range(devices)]
    sizes = {part.resource: _length(part, device) for part in device.slices}
    for name in sorted(counts, key=lambda name: -sizes.get(name, 0)):
        for _ in range(counts[name]):
            for cut in cuts:
                if _fits(device, cut + Counter([name])):
                    cut[name] += 1
                    break
            else:
                return None
    return tuple(map(geometry, cuts))


def _fits(device: Device, counts: Mapping[str, int]) -> bool:
    wanted = geometry(counts)
    return any(_holds(cut, wanted) for cut in geometries(device, [name for name, _ in wanted]))


def _holds(cut: Geometry, wanted: Geometry) -> bool:
    known = dict(cut)
    return all(known.get(name, 0) >= count for name, count in wanted)


def _is_less(cut: Geometry, others: Collection[Geometry]) -> bool:
    return any(other != cut and _holds(other, cut) for other in others)


def _placements(device: Device, slices: tuple[DeviceSlice, ...]) -> Iterator[Mapping[str, int]]:
    """Yield what is placed on a device, from the first slice of memory on."""
    known = tuple(
        (part.resource, part.compute, _length(part, device), _starts(part, device))
        for part in slices
    )
    places = _memory_slices(device)
    for placed in _placed(known, 0, places, slices[0].of if slices else 0):
        yield Counter(placed)


@lru_cache(maxsize=4096)
def _placed(
    known: tuple[tuple[str, int, int, frozenset[int]], ...], at: int, places: int, computing: int
) -> frozenset[tuple[str, ...]]:
    if at >= places:
        return frozenset({()})
    found = set(_placed(known, at + 1, places, computing))
    for resource, compute, length, starts in known:
        if at in starts and at + length <= places and compute <= computing:
            rest = _placed(known, at + length, places, computing - compute)
            found |= {tuple(sorted((resource, *names))) for names in rest}
    return frozenset(found)


def _memory_slices(device: Device) -> int:
    """Return of how many slices the memory is: four where the smallest has a quarter, else 8."""
    smallest = min((part.memory for part in device.slices), default=0)
    quarter = (device.memory or 0) / 5
    return 4 if smallest > quarter else _OF_EIGHT


def _length(part: DeviceSlice, device: Device) -> int:
    """Return how many slices of memory it takes: a power of two."""
    places = _memory_slices(device)
    share = places * part.memory / (device.memory or part.memory)
    return next((length for length in (1, 2, 4) if share <= length * 1.25), places)


def _starts(part: DeviceSlice, device: Device) -> frozenset[int]:
    places, length = _memory_slices(device), _length(part, device)
    last = places - length
    if places == _OF_EIGHT and part.compute >= _HALF_OF_EIGHT:
        last = 0
    elif places == _OF_EIGHT and part.compute == length:
        # The last slice of memory has no computing of its own: 2g begins at 0, 2 and 4.
        last -= 1
    return frozenset(range(0, last + 1, length))


def smaller_slices(device: Device, need: float) -> Iterator[DeviceSlice]:
    """Yield the parts of a device, none of them all of it, whose memory is enough.

    Only those that have about as much of its computing as of its memory: others, such as
    ``1g.20gb``, are for who asks for them, as many Jobs would be slow there.
    """
    for part in device.slices:
        if part.compute < part.of and need <= USABLE * part.memory and _is_balanced(part, device):
            yield part


def _is_balanced(part: DeviceSlice, device: Device) -> bool:
    of_memory = part.memory / (device.memory or part.memory)
    return part.compute / part.of >= _BALANCED * of_memory


def needed_memory(
    names: Iterable[str],
    setup: KueueSetup,
    workloads: QueuedWorkloads,
    devices: Mapping[str, Device],
) -> NeededMemory:
    """Return what is held and asked for in these ClusterQueues, by the memory of a unit."""
    needed: Counter[float] = Counter()
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
    taken = 0.0
    known = False
    for (flavor, resource), amount in usage.items():
        device = devices.get(flavor)
        if not amount or "/" not in resource or device is None:
            continue
        memory, part = share_of(resource, device).memory, fraction(resource, device)
        if memory is None or part is None or not any(needed.values()):
            return None
        taken += amount * part * useless_to(memory, needed)
        known = True
    return -taken if known else None


def useless_to(memory: float, needed: NeededMemory) -> float:
    """Return to which part of those who ask a unit with so much memory is of no use."""
    return sum(n for need, n in needed.items() if need > memory) / max(1, sum(needed.values()))
