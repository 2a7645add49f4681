"""What one accelerator is: its memory, speed and power, as data sheets say, and how it is shared.

Frozen values, also of what runs were measured to use; which ResourceFlavor has which device is not
known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

_BUSY_SHARE: Final = 0.7


class Isolation(StrEnum):
    """What keeps those who share a device apart, from best to worst."""

    EXCLUSIVE = "Exclusive"
    HARDWARE = "Hardware"
    MEMORY = "Memory"
    NONE = "None"


def busy_watts(maximum: float) -> float:
    """Return what a device in use takes on average, of which the maximum alone is known."""
    return maximum * _BUSY_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlice:
    """A part of a device that is counted as a resource of its own."""

    resource: str
    memory: int
    """In bytes."""
    compute: int
    """How many of the device's ``of`` compute slices it has."""
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator. What is not known is None, and never 0."""

    name: str
    resource: str = ""
    """The resource that counts it; empty: each resource of its flavor that counts devices."""
    memory: int | None = None
    """In bytes."""
    bandwidth: float | None = None
    """Bandwidth of its memory, in GB/s."""
    compute: Mapping[str, float] = field(default_factory=dict)
    """Data type (``bf16``, ``int8``) to dense TFLOPS, or TOPS for integers."""
    busy_watts: float | None = None
    """The electric power that it takes while a Job uses it, on average."""
    link: str = ""
    """What joins it to others, such as NVLink; empty: nothing that is known."""
    isolation: Isolation = Isolation.EXCLUSIVE
    replicas: int = 1
    """Into how many resources one device is shared in time."""
    slices: tuple[DeviceSlice, ...] = ()
    source: str = ""
    """Source of its figures."""

    def slice_of(self, resource: str) -> DeviceSlice | None:
        """Return the slice that a resource counts; None: it counts whole devices, or shares."""
        return next((part for part in self.slices if part.resource == resource), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What the runs of one class were measured to use of one device."""

    runs: int
    """Of which it is known."""
    peak: int
    """The most memory in use, in bytes."""
    need: int | None
    """Bytes of a device's memory that are enough; None: too few runs, or they preallocate."""
    preallocates: bool = False
    """It takes most of a device's memory at once, whatever it needs."""
    watts: Mapping[str, float] = field(default_factory=dict)
    """Name of a device to the mean of what one of them takes."""
    bound: float | None = None
    """Which part of its work computing bounds, rather than the device's memory; None: unknown."""


class DeviceMeasure(StrEnum):
    """What is measured of devices; the names of the queries."""

    MEMORY = "memory"
    """In use, MiB."""
    POWER = "power"
    """Watts."""
    COMPUTE = "compute"
    """Part of the time, 0 to 1, in which what computes is busy."""
    BANDWIDTH = "bandwidth"
    """The same of the device's memory."""


class ServiceMeasure(StrEnum):
    """What is measured of the pods of services; the fields of ``ServingMetrics``."""

    REQUESTS = "requests"
    """Answered a second."""
    LATENCY = "latency"
    """Seconds, as the 95th percentile."""


class DeviceSample(NamedTuple):
    """One value of what a pod does or uses, of a device that of one model."""

    namespace: str
    pod: str
    model: str
    """As ResourceFlavors name it, with hyphens for spaces; empty: it is not said."""
    part: str
    """Which slice of the device it is; empty: all of it."""
    value: float | None
    """None: it is no number that can be true."""
