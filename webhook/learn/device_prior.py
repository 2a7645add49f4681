"""How much longer a run is expected to take on another device, by what data sheets say: a guess.

The formulas were fitted to published measurements, and are weak: for models that computing or
memory bounds they are off by a factor of 1.7 as often as not, so their spreads are wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, log
from typing import Final, NamedTuple

from webhook.model.costs.devices import Device
from webhook.model.quantity import Amounts

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
