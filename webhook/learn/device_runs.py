"""What ended runs used of their devices, packed, and what follows for their class. Pure.

Needs are learned from runs that had whole devices to themselves. Frameworks that take most of a
device's memory at once, whatever they need, are recognized: of their classes no need is known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Final, NamedTuple

from webhook.model.costs.devices import DeviceUse

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
