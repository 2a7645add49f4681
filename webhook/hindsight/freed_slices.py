"""Whose end frees a slice that waits, and how devices are cut for what waits. Pure.

A slice comes free where a Job ends that has one like it, or where a device is cut anew, for which
all its Jobs must have ended. Pods do not say on which device of their Node they are: all that have
slices of some cut count for each device that is cut so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final

from webhook.cost.slice_geometry import WHOLE, Geometry, cut_of, geometries
from webhook.hindsight.slice_advice import (
    DeviceNode,
    devices_asked,
    filling,
    memory_of,
    parts_of,
    units_of,
)
from webhook.kueue.requests import declared
from webhook.model import fields
from webhook.model.costs.device_table import slice_by_name
from webhook.model.pods import PodTemplate

_ROUNDED: Final = 1e-9
_MOST_NAMED: Final = 5
UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects the Pods that may have devices, by their fields, or wait for some."""
MOST_CUTS: Final = 16
"""Devices that are cut anew for what waits; of more it is advised when these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Devices of one Node that can be cut anew when Jobs have ended."""

    node: DeviceNode
    cut: Geometry
    """As they are cut now."""
    devices: int
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedSlices:
    """Where slices come free."""

    node: str
    jobs: tuple[str, ...]
    """Those that must end, as few as can be; empty: none."""
    is_cut: bool
    """A device must be cut anew, too."""

    @property
    def words(self) -> str:
        ended = f"{named(self.jobs)} {'has' if len(self.jobs) == 1 else 'have'} ended"
        first = [ended] * bool(self.jobs) + ["one of its devices is cut anew"] * self.is_cut
        return f"on Node {self.node} {'when' if first else 'now'} {' and '.join(first)}".rstrip()

    def figures(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"node": self.node, "mustEnd": list(self.jobs), "cutAnew": self.is_cut}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCut:
    """A device that is better cut otherwise for what waits."""

    node: str
    before: Geometry
    after: Geometry
    jobs: tuple[str, ...]
    """Those that must end first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSize:
    """Slices that wait, or into which devices are cut, and what there is for them."""

    resource: str
    waiting: int
    free: int
    unusable: Mapping[str, float]
    """Node to how much of its devices is free in smaller slices; 0 is left out."""
    blocked: int
    """How many wait although as much is free on one Node in other sizes; less may be of use, as
    that may be on several of its devices."""
    freed: tuple[FreedSlices, ...]
    """Where one comes free, if none is, as ``freed_slices`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """What is free of devices and of no use to what waits."""

    sizes: tuple[SliceSize, ...]
    cuts: tuple[NewCut, ...]
    """What would give the slices that wait and are not free."""


def named(jobs: Sequence[str]) -> str:
    """Return the names of Jobs, the first of many."""
    more = len(jobs) - _MOST_NAMED
    names = ", ".join(jobs[:_MOST_NAMED])
    return f"{names} and {more} more" if more > 0 else names


def cut_in_words(cut: Mapping[str, int]) -> str:
    """Return into which slices a device is cut; *cut*: of each resource or profile how many."""
    names = {name.rpartition("/mig-")[2]: count for name, count in cut.items()}
    return ", ".join(f"{count} x {name}" for name, count in names.items()) or "whole"


def slices_asked(template: PodTemplate) -> Mapping[str, int]:
    """Return of each resource how many slices of devices one pod asks for.

    Raises:
        FieldError: a quantity cannot be read.

    """
    return {
        name: count for name, count in declared(template).items() if count and slice_by_name(name)
    }


def slices_to_schedule(pod: Mapping[str, Any]) -> Mapping[str, int]:
    """Return which slices a pod asks for that only a Node is missing; those of others are none.

    Kueue has admitted it, or knows nothing of it; what is gated waits with its Workload.
    """
    spec = fields.mapping(pod, "spec", "")
    if spec.get("nodeName") or spec.get("schedulingGates"):
        return {}
    return {name: count for name, count in devices_asked(spec).items() if slice_by_name(name)}


def fragmentation(nodes: Sequence[DeviceNode], waiting: Mapping[str, int]) -> Fragmentation:
    """Return it; *waiting*: of each resource how many slices are asked for and not given."""
    free = [free_units(node) for node in nodes]
    known = {part.resource for node in nodes for part in node.device.slices}
    names = {
        *(name for node in nodes for cut in node.cuts for name, _ in cut),
        *(name for name, count in waiting.items() if count and name in known),
    }
    sizes = tuple(_size(name, nodes, free, waiting.get(name, 0)) for name in sorted(names))
    missing = {
        size.resource: size.waiting - size.free for size in sizes if size.waiting > size.free
    }
    return Fragmentation(sizes=sizes, cuts=tuple(_new_cuts(nodes, missing, waiting)))


def free_units(node: DeviceNode) -> Counter[str]:
    """Return how many units of each resource of a Node no Job has."""
    used: Counter[str] = Counter()
    for devices in node.used.values():
        used.update(devices)
    return units_of(node.cuts, node.device) - used


def _size(
    resource: str, nodes: Sequence[DeviceNode], free: Sequence[Counter[str]], waiting: int
) -> SliceSize:
    unusable: dict[str, float] = {}
    others = 0
    for node, units in zip(nodes, free, strict=True):
        parts, memory = parts_of(node.device), memory_of(node.device)
        if resource not in parts:
            continue
        smaller = (n * parts[name] for name, n in units.items() if memory[name] < memory[resource])
        if of_node := sum(smaller):
            unusable[node.name] = of_node
        in_others = sum(n * parts[name] for name, n in units.items() if name != resource)
        others += int(in_others / parts[resource] + _ROUNDED)
    has = sum(units[resource] for units in free)
    return SliceSize(
        resource=resource,
        waiting=waiting,
        free=has,
        unusable=unusable,
        blocked=min(max(0, waiting - has), others),
        freed=() if has else freed_slices(nodes, resource),
    )


def freed_slices(
    nodes: Iterable[DeviceNode], resource: str, count: int = 1
) -> tuple[FreedSlices, ...]:
    """Return where so many slices for one pod come free with the fewest Jobs that must end.

    First as devices are cut, then, if fewer Jobs must end for that, where one is cut anew.
    """
    nodes = tuple(nodes)
    as_cut = min(_as_cut(nodes, resource, count), key=_cheapest, default=None)
    anew = min(_cut_anew(nodes, resource, count), key=_cheapest, default=None)
    if as_cut and anew and len(anew.jobs) >= len(as_cut.jobs):
        anew = None
    return tuple(found for found in (as_cut, anew) if found is not None)


def _cheapest(found: FreedSlices) -> tuple[int, str]:
    return len(found.jobs), found.node


def _as_cut(nodes: Iterable[DeviceNode], resource: str, count: int) -> Iterator[FreedSlices]:
    for node in nodes:
        if units_of(node.cuts, node.device)[resource] < count:
            continue
        missing, jobs = count - free_units(node)[resource], list[str]()
        # Those that have most first: no fewer are enough.
        for job in sorted(node.used, key=lambda job: (-node.used[job].get(resource, 0), job)):
            if missing <= 0:
                break
            jobs.append(job)
            missing -= node.used[job].get(resource, 0)
        yield FreedSlices(node=node.name, jobs=tuple(sorted(jobs)), is_cut=False)


def _cut_anew(nodes: Iterable[DeviceNode], resource: str, count: int) -> Iterator[FreedSlices]:
    for node in nodes:
        if not cut_of(node.device, {resource: count}, 1):
            continue
        for opening in _openings(node):
            if resource not in dict(opening.cut):
                yield FreedSlices(node=node.name, jobs=opening.jobs, is_cut=True)


def _openings(node: DeviceNode) -> Iterator[Opening]:
    for cut in dict.fromkeys(node.cuts):
        if cut != WHOLE:
            names = dict(cut)
            jobs = (job for job in node.jobs if any(map(node.used[job].get, names)))
            yield Opening(node=node, cut=cut, devices=node.cuts.count(cut), jobs=tuple(jobs))
            continue
        whole = node.device.resource
        if free := free_units(node)[whole]:
            yield Opening(node=node, cut=cut, devices=free)
        for job in node.jobs:
            if has := node.used[job].get(whole, 0):
                yield Opening(node=node, cut=cut, devices=has, jobs=(job,))


def _new_cuts(
    nodes: Sequence[DeviceNode], missing: Mapping[str, int], waiting: Mapping[str, int]
) -> Iterator[NewCut]:
    """Yield how devices are cut anew, those first for which the fewest Jobs must end.

    What is cut into slices for which others wait is left as it is.
    """
    for model in sorted({node.device.name for node in nodes}):
        of_model = [node for node in nodes if node.device.name == model]
        device = of_model[0].device
        openings = sorted(
            (
                opening
                for opening in chain.from_iterable(map(_openings, of_model))
                if not any(waiting.get(name) for name, _ in opening.cut)
            ),
            key=lambda opening: (len(opening.jobs), opening.node.name),
        )
        places = chain.from_iterable(repeat(opening, opening.devices) for opening in openings)
        cuts = filling(device, missing, geometries(device, missing))
        for opening, cut in islice(zip(places, cuts, strict=False), MOST_CUTS):
            yield NewCut(node=opening.node.name, before=opening.cut, after=cut, jobs=opening.jobs)
