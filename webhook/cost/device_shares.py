"""Tells what one unit of a resource is of a device: its memory, its isolation, its part, its rate.

A resource counts whole devices, slices of them, or shares that several use in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.model.costs.device_table import slice_by_name
from webhook.model.costs.devices import Device, DeviceSlice, Isolation
from webhook.model.costs.prices import Curve, Prices
from webhook.model.quantity import FlavorResource

_SHARED: Final = ".shared"
"""Ends the names under which the device plugin counts shares of devices, if told to rename them."""
_IN_TURN: Final = (Isolation.MEMORY, Isolation.NONE)
_FROM_BEST: Final = list(Isolation)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """What a Job gets with one unit of a resource."""

    resource: str
    memory: int | None
    """In bytes; None: not known."""
    isolation: Isolation
    bandwidth: float | None = None
    """Of its memory, in GB/s; None: not known."""
    compute: Mapping[str, float] = field(default_factory=dict)
    """Dense TFLOPS by data type, or TOPS; of others it is not known."""


def is_worse(one: Isolation, other: Isolation) -> bool:
    """Return whether *one* keeps those who share a device apart less than *other*."""
    return _FROM_BEST.index(one) > _FROM_BEST.index(other)


def worst(*isolations: Isolation) -> Isolation:
    return max(isolations, key=_FROM_BEST.index)


def share_of(resource: str, device: Device | None) -> DeviceShare:
    """Return what a unit of a resource is, in a ResourceFlavor with this device; None: unknown."""
    isolation = device.isolation if device is not None else Isolation.EXCLUSIVE
    if _SHARED in resource and isolation is Isolation.EXCLUSIVE:
        isolation = Isolation.NONE
    memory = device.memory if device is not None else None
    bandwidth = device.bandwidth if device is not None else None
    of_compute = 1.0
    if part := _slice(resource, device):
        # MIG gives each slice of the memory its part of the bandwidth.
        bandwidth = bandwidth * part.memory / memory if bandwidth and memory else None
        of_compute = part.compute / part.of
        memory, isolation = part.memory, worst(isolation, Isolation.HARDWARE)
    if isolation in _IN_TURN and device is not None:
        bandwidth = None if bandwidth is None else bandwidth / device.replicas
        of_compute /= device.replicas
        memory = _split(memory, device)
    compute = device.compute if device is not None else {}
    return DeviceShare(
        resource=resource,
        memory=memory,
        isolation=isolation,
        bandwidth=bandwidth,
        compute={kind: speed * of_compute for kind, speed in compute.items()},
    )


def fraction(resource: str, device: Device) -> float | None:
    """Return which part of a device a unit is, as it is charged; None: it is not known.

    Of a slice the larger of its parts of computing and of memory, as either leaves less to others.
    """
    replicas = device.replicas if _SHARED in resource or device.isolation in _IN_TURN else 1
    if part := _slice(resource, device):
        of_memory = part.memory / device.memory if device.memory else 0.0
        return max(part.compute / part.of, of_memory) / replicas
    if _SHARED in resource and replicas == 1:
        return None
    return 1 / replicas


def rate_of(cell: FlavorResource, prices: Prices) -> tuple[Curve, float] | None:
    """Return the rate of a cell, and which part of it one unit costs; None: no rate is known.

    A slice or a share without a rate of its own costs its part of its device's.
    """
    if (own := prices.rates.get(cell)) is not None:
        return own, 1.0
    flavor, resource = cell
    device = prices.devices.get(flavor)
    part = fraction(resource, device) if device is not None and "/" in resource else None
    # A whole device without a rate of its own has none.
    if device is None or part is None or part == 1:
        return None
    whole = _whole_rate(flavor, device, prices)
    return None if whole is None else (whole, part)


def _whole_rate(flavor: str, device: Device, prices: Prices) -> Curve | None:
    """Return a device's rate: in its own flavor, or the one that it has in all others."""
    own = prices.rates.get((flavor, device.resource))
    if own is not None:
        return own
    same = [name for name, other in prices.devices.items() if other.name == device.name]
    found = [
        prices.rates[cell] for name in same if (cell := (name, device.resource)) in prices.rates
    ]
    # On spot and on demand, for example, one device has two rates, and which is meant nobody says.
    return found[0] if found and all(rate == found[0] for rate in found) else None


def _slice(resource: str, device: Device | None) -> DeviceSlice | None:
    return slice_by_name(resource.partition(_SHARED)[0], device)


def _split(memory: int | None, device: Device | None) -> int | None:
    """Return what each of those who share some memory may use; None: it is not known."""
    if memory is None or device is None or device.replicas == 1:
        return None
    return memory // device.replicas
