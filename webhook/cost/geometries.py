"""Into which slices one device can be cut: what fits beside what, as MIG places them. Pure.

A device has so many slices of memory (8, or 4), and a slice begins only where MIG lets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from webhook.model.costs.devices import Device, DeviceSlice

Geometry: TypeAlias = tuple[tuple[str, int], ...]
"""Resources and how many of each one device gives, sorted; empty: it is whole."""
WHOLE: Final[Geometry] = ()

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


def is_balanced(part: DeviceSlice, device: Device) -> bool:
    """Return whether it has about as much of a device's computing as of its memory.

    Others, such as ``1g.20gb``, are for who asks for them: many Jobs would be slow there.
    """
    of_memory = part.memory / (device.memory or part.memory)
    return part.compute / part.of >= _BALANCED * of_memory
