"""Which options with slices would save most, by what classes were measured to need. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from webhook.adapt import accelerators
from webhook.cost.device_shares import fraction
from webhook.cost.slice_geometry import smaller_slices
from webhook.hindsight.journal import JournalEntry
from webhook.model.costs.device_table import slice_by_name
from webhook.model.costs.devices import Device, DeviceSlice, DeviceUse
from webhook.model.costs.prices import NO_PRICES
from webhook.state.snapshot import Snapshot

_HOUR: Final = 3600.0
_ANY_QUEUE: Final = "a-queue-of-slices"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOptions:
    """What would have saved most, on one model of device."""

    device: Device
    hours: float
    """Device-hours of all Jobs of one whole device."""
    by_slice: Mapping[DeviceSlice, Sequence[float]]
    """Of these those of classes for which it is the smallest that is enough, class by class; by
    memory, ascending."""
    queues: Mapping[str, str]
    """Resource to a LocalQueue that leads to it."""

    @property
    def classes(self) -> int:
        return sum(map(len, self.by_slice.values()))

    @property
    def eligible(self) -> float:
        return sum(map(sum, self.by_slice.values()))

    @property
    def saved(self) -> float:
        """Return device-hours."""
        return sum(
            sum(hours) * (1 - (fraction(part.resource, self.device) or 1.0))
            for part, hours in self.by_slice.items()
        )


def most_saving(
    entries: Iterable[JournalEntry], uses: Mapping[str, DeviceUse], snapshot: Snapshot
) -> SliceOptions | None:
    """Return the options on the model where they would save most; None: nothing would be saved."""
    devices = snapshot.costs.prices.get("", NO_PRICES).devices
    hours: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for entry in entries:
        if not (entry.admitted and entry.finished):
            continue
        for flavor in _flavors_of_one_device(entry, devices):
            seconds = entry.finished - entry.admitted
            hours[devices[flavor].name][entry.job_class] += seconds / _HOUR
    by_name = {device.name: device for device in devices.values()}
    found = (_on(by_name[name], of_class, uses, snapshot) for name, of_class in hours.items())
    saving = (each for each in found if each.saved > 0)
    return max(saving, key=lambda each: (each.saved, each.device.name), default=None)


def _flavors_of_one_device(entry: JournalEntry, devices: Mapping[str, Device]) -> Sequence[str]:
    """Return the flavor on which it had one whole device; empty: it had not."""
    used = [
        (flavor, resource, amount)
        for (flavor, resource), amount in entry.used
        if amount and accelerators.is_accelerator(resource)
    ]
    if len(used) != 1:
        return ()
    flavor, resource, amount = used[0]
    is_whole = amount == 1 and flavor in devices and slice_by_name(resource) is None
    return (flavor,) if is_whole else ()


def _on(
    device: Device,
    hours: Mapping[str, float],
    uses: Mapping[str, DeviceUse],
    snapshot: Snapshot,
) -> SliceOptions:
    queues = _queues(snapshot)
    by_slice: defaultdict[DeviceSlice, list[float]] = defaultdict(list)
    for key, of_class in hours.items():
        use = uses.get(key)
        if use is not None and use.need is not None:
            part = _smallest(device, use.need, queues)
            if part is not None:
                by_slice[part].append(of_class)
    return SliceOptions(
        device=device,
        hours=sum(hours.values()),
        by_slice=dict(sorted(by_slice.items(), key=lambda item: item[0].memory)),
        queues=queues,
    )


def _smallest(device: Device, need: int, queues: Mapping[str, str]) -> DeviceSlice | None:
    """Return the smallest slice that is enough, of those that there are queues for if any is."""
    smaller = [*smaller_slices(device, need)]
    served = [part for part in smaller if part.resource in queues]
    return min(served or smaller, key=lambda part: (part.memory, part.compute), default=None)


def _queues(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a LocalQueue for each resource that its ClusterQueue covers; the first by name."""
    found: dict[str, str] = {}
    for _, local_queue in sorted(snapshot.setup.local_queues.items()):
        queue = snapshot.setup.cluster_queues.get(local_queue.cluster_queue)
        for group in queue.groups if queue is not None else ():
            for resource in group.resources:
                found.setdefault(resource, local_queue.name)
    return found


def fragment(found: SliceOptions) -> Mapping[str, Any]:
    """Return the options as a policy has them, to be put after its first."""
    return {
        "options": [
            {
                "name": "slice-" + part.resource.rpartition("mig-")[2].replace(".", "-"),
                "queue": found.queues.get(part.resource, _ANY_QUEUE),
                "adaptation": {"accelerator": "Replace", "by": {part.resource: 1}},
            }
            for part in found.by_slice
        ]
    }


def as_json(found: SliceOptions) -> dict[str, Any]:
    return {
        "model": found.device.name,
        "classes": found.classes,
        "deviceHours": round(found.hours, 1),
        "ofClasses": round(found.eligible, 1),
        "savedDeviceHours": round(found.saved, 1),
        "policy": fragment(found),
    }


def as_text(found: SliceOptions) -> str:
    largest = max(part.memory for part in found.by_slice)
    model, share = found.device.name, found.eligible / found.hours
    noun = "class needs" if found.classes == 1 else "classes need"
    enough = f"at most {_gibibytes(largest)} of {_gibibytes(found.device.memory or 0)} GiB."
    lines = [
        f"{found.classes} {noun} ({share:.0%} of the device-hours of Jobs of one {model})",
        f"{enough} In slices they would take {found.saved:.1f} device-hours less;",
        "as options of a policy, after its first:",
        "",
        *yaml.safe_dump(fragment(found), sort_keys=False).rstrip().split("\n"),
    ]
    if not all(part.resource in found.queues for part in found.by_slice):
        lines.append(f"# {_ANY_QUEUE}: no LocalQueue leads to such slices yet")
    return "\n".join(lines)


def _gibibytes(amount: int) -> str:
    return f"{amount / (1 << 30):.0f}"
