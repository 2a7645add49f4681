"""What ended runs used of their devices, packed, and what is expected on others. Pure.

Needs are learned from runs that had whole devices to themselves. Frameworks that take most of a
device's memory at once, whatever they need, are recognized: of their classes no need is known. How
much longer a run is expected to take on another device is a guess by what data sheets say. The
formulas were fitted to published measurements, and are weak: for models that computing or memory
bounds they are off by a factor of 1.7 as often as not, so their spreads are wide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import hypot, log
from statistics import fmean
from typing import Final, NamedTuple

from webhook.model.costs.devices import Device, DeviceUse
from webhook.model.quantity import Amounts

MOST_DEVICE_RUNS: Final = 40
"""Kept of a class on one model."""
DEVICE_RUN: Final = struct.Struct("<IHIHHB")
_ENOUGH_FOR_NEED: Final = 5
_ENOUGH_FOR_BOUND: Final = 3
_HEADROOM: Final = 1.15
_MIB: Final = 1 << 20
_SPARE: Final = 512 * _MIB
_TAKES_ALL: Final = 700
"""Thousandths of a device's memory, above which peaks that are alike are taken ahead of need."""
_ALIKE: Final = 1.03
UNKNOWN_PART: Final = 0xFFFF
UNKNOWN_WATTS: Final = 0xFFFF
UNKNOWN_BOUND: Final = 0xFF


class DeviceRun(NamedTuple):
    """What one run used of each of its devices; equal values in all fields are the same run."""

    finished: int
    """Seconds since 1970."""
    uid: int
    """As in a ``Run``."""
    mebibytes: int
    """The most memory in use of one device."""
    part: int
    """The same in thousandths of the device's memory."""
    watts: int
    """On average of one device."""
    bound: int
    """Per cent of its work that computing bounds; the rest the device's memory does."""


def pack(runs: Iterable[DeviceRun]) -> bytes:
    return b"".join(DEVICE_RUN.pack(*run) for run in runs)


def unpack(packed: bytes) -> tuple[DeviceRun, ...]:
    """Unpack runs.

    Raises:
        ValueError: it is not what ``pack`` made.

    """
    if len(packed) % DEVICE_RUN.size:
        raise ValueError(f"expected a multiple of {DEVICE_RUN.size} bytes, got {len(packed)}")
    return tuple(map(DeviceRun._make, DEVICE_RUN.iter_unpack(packed)))


def merged_device_runs(one: bytes, other: bytes) -> bytes:
    if one == other:
        return one
    return pack(sorted({*unpack(one), *unpack(other)})[-MOST_DEVICE_RUNS:])


def use_of(measured: Mapping[str, bytes]) -> DeviceUse | None:
    """Return what a class uses of a device, by its runs on each model; None: none was measured."""
    by_model = {model: unpack(packed) for model, packed in measured.items() if packed}
    runs = [run for of_model in by_model.values() for run in of_model]
    if not runs:
        return None
    peak = max(run.mebibytes for run in runs) * _MIB
    preallocates = any(map(_takes_ahead, by_model.values())) or _takes_ahead(runs)
    is_known = len(runs) >= _ENOUGH_FOR_NEED and not preallocates
    bounds = [run.bound for run in runs if run.bound != UNKNOWN_BOUND]
    return DeviceUse(
        runs=len(runs),
        peak=peak,
        need=int(peak * _HEADROOM) + _SPARE if is_known else None,
        preallocates=preallocates,
        watts=_watts(by_model),
        bound=fmean(bounds) / 100 if len(bounds) >= _ENOUGH_FOR_BOUND else None,
    )


def _watts(by_model: Mapping[str, tuple[DeviceRun, ...]]) -> Mapping[str, float]:
    """Return the mean of each model's watts in use."""
    known = {
        model: [run.watts for run in runs if run.watts != UNKNOWN_WATTS]
        for model, runs in by_model.items()
    }
    return {model: fmean(watts) for model, watts in known.items() if watts}


def _takes_ahead(runs: Iterable[DeviceRun]) -> bool:
    """Return whether all runs took about the same, and most of a device.

    On a device whose size is not known, about the same is enough: better no need than a wrong one.
    """
    runs = tuple(runs)
    if len(runs) == 1:
        return False
    parts = [run.part for run in runs]
    if UNKNOWN_PART in parts:
        peaks = [run.mebibytes for run in runs]
        return max(peaks) <= _ALIKE * min(peaks)
    return min(parts) > _TAKES_ALL and max(parts) <= _ALIKE * min(parts)


_DATA_TYPES: Final = ("bf16", "fp16", "fp32")
_HALF: Final = 0.5
_DEVICE_SIGMA: Final = 0.55
"""Error (of ln) of the geometric mean of the ratios of bandwidth and computing speed between
devices: 0.23 to 0.56 in the published throughputs of 26 models on three GPUs (Gavel, OSDI 2020)."""
_SLICE_POWER: Final = 0.45
_SLICE_SIGMA: Final = 0.36
"""Of ln(of/compute). Both fit 323 pairs of published measurements of MIG (ParvaGPU, SC 2024)."""
_SHARED_POWER: Final = 0.5
_SHARED_SIGMA: Final = 0.35
_SHARED_LEAST: Final = 0.3


class Guess(NamedTuple):
    ratio: float
    """How many times as long a run takes."""
    sigma: float
    """Standard deviation of its natural logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """What a Job would get: so many of a device, of a slice of one, or of a share of one."""

    device: Device
    resource: str
    amount: int

    @property
    def vendor(self) -> str:
        return self.resource.partition("/")[0]

    @property
    def loss(self) -> Guess:
        """Return how much longer a run takes on this part than on the whole device."""
        if part := self.device.slice_of(self.resource):
            share = part.of / part.compute
            return Guess(share**_SLICE_POWER, _SLICE_SIGMA * log(share))
        if self.device.replicas > 1:
            shares = self.device.replicas
            return Guess(shares**_SHARED_POWER, _SHARED_SIGMA * log(shares) + _SHARED_LEAST)
        return Guess(1.0, 0.0)


def part_of(usage: Amounts, devices: Mapping[str, Device]) -> DevicePart | None:
    """Return the part of a device that is used; None: none, several kinds, or it is not known."""
    parts = [
        DevicePart(device=devices[flavor], resource=resource, amount=amount)
        for (flavor, resource), amount in usage.items()
        if amount and "/" in resource and flavor in devices
    ]
    unknown = any(
        amount and "/" in resource and flavor not in devices
        for (flavor, resource), amount in usage.items()
    )
    return parts[0] if len(parts) == 1 and not unknown else None


def guess(
    first: DevicePart | None, other: DevicePart | None, bound: float | None = None
) -> Guess | None:
    """Return how much longer a run takes on *other* than on *first*; None: nothing tells.

    *bound*: which part of its work computing bounds, as measured; None: not known, so half.
    """
    if first is None or other is None:
        return None
    if first.amount != other.amount or first.vendor != other.vendor:
        return None
    between = _between(first.device, other.device, _HALF if bound is None else bound)
    if between is None:
        return None
    ratio = between.ratio * other.loss.ratio / first.loss.ratio
    parts_differ = other.resource != first.resource or other.loss != first.loss
    sigmas = (other.loss.sigma, first.loss.sigma) if parts_differ else ()
    return Guess(ratio, hypot(between.sigma, *sigmas))


def _between(first: Device, other: Device, bound: float) -> Guess | None:
    if (first.bandwidth, first.compute) == (other.bandwidth, other.compute) and first.compute:
        return Guess(1.0, 0.0)
    known = (kind for kind in _DATA_TYPES if kind in first.compute and kind in other.compute)
    kind = next(known, None)
    if kind is None or not first.bandwidth or not other.bandwidth:
        return None
    by_memory, by_computing = (
        first.bandwidth / other.bandwidth,
        first.compute[kind] / other.compute[kind],
    )
    return Guess(by_memory ** (1 - bound) * by_computing**bound, _DEVICE_SIGMA)
