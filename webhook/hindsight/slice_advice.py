"""How the devices of Nodes are better cut, by what Jobs asked of them; nothing is applied. Pure.

A model's devices are packed with slices in proportion to the device-hours that Jobs asked for.
What that is worth is what Kueue's simulation makes of the same arrivals, each Job on the smallest
unit that is enough and free: of the ways from the present cut to that packing the best is advised.
It need not be the best of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from webhook.adapt import accelerators
from webhook.cost.device_shares import fraction
from webhook.cost.flavor_devices import device_of_node, devices_of
from webhook.cost.slice_geometry import (
    USABLE,
    WHOLE,
    Geometry,
    cut_of,
    geometries,
    is_balanced,
    useless_to,
)
from webhook.decide.wishes import GPU_MEMORY
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import submitted_manifest
from webhook.jobs import reduced
from webhook.kueue import quota
from webhook.kueue.flavor_plan import Demand, Flavor
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.requests import declared
from webhook.kueue.simulation import Simulation
from webhook.model import fields, quantity
from webhook.model.costs.device_table import DEVICES, slice_by_name
from webhook.model.costs.devices import Device, DeviceUse, Isolation
from webhook.model.fields import FieldError
from webhook.model.queues import ClusterQueue, KueueConfig, Quota, ResourceFlavor, ResourceGroup

_HOUR: Final = 3600.0
_DAY: Final = 86_400
_FRAGMENTED: Final = 0.1
"""What an hour of a device that is free and of no use counts beside one that is waited for."""
WORTH: Final = 0.2
"""Advice is given that saves so much of what is waited, and would have in each half of the time."""
_LEAST_WAITED: Final = 1.0
"""Device-hours; for less nobody stops Jobs to cut devices anew."""
_STEPS: Final = 16
"""Ways from the present cut to the packing that are simulated: 20 ms each for 1,000 Jobs."""
_POOL: Final = "pool"
_UNITS: Final = "units"
"""The one resource of the simulated ClusterQueue, of which each unit of a device is a flavor."""
_COUNT: Final = "nvidia.com/gpu.count"
_SLICED: Final = "/mig-"
_JOB_NAME: Final = ("batch.kubernetes.io/job-name", "job-name")
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A Node with devices of one model, each cut somehow."""

    name: str
    device: Device
    cuts: tuple[Geometry, ...]
    jobs: tuple[str, ...] = ()
    """Jobs whose pods on this Node use devices: ``namespace/name``."""


class DeviceDemand(NamedTuple):
    """What one Job asked for."""

    at: float
    """Seconds since 1970."""
    seconds: float
    need: float
    """Bytes of one device's memory; infinite: a whole device, or several."""
    devices: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a simulation comes to, in device-hours."""

    waited: float
    """Infinite where some Job could never start."""
    by_day: Mapping[int, float] = field(default_factory=dict)
    """Waiting by the day of arrival, counted since 1970."""
    fragmented: float = 0.0
    """Free, and of no use to the average Job."""
    free: float = 0.0

    @property
    def objective(self) -> float:
        return self.waited + _FRAGMENTED * self.fragmented

    @property
    def fragmentation(self) -> float:
        """Return which part of what is free is of no use to the average Job."""
        return self.fragmented / self.free if self.free else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutAdvice:
    """How the devices of one model are better cut."""

    nodes: tuple[DeviceNode, ...]
    """Those first that are best cut anew first."""
    after: tuple[Geometry, ...]
    """Of their devices, in order; the same as before: nothing is to be gained."""
    now: Waits
    then: Waits
    jobs: int
    why_not: str
    """Why there is no advice; empty: there is."""

    @property
    def device(self) -> Device:
        return self.nodes[0].device

    @property
    def before(self) -> tuple[Geometry, ...]:
        return tuple(cut for node in self.nodes for cut in node.cuts)

    @property
    def saved(self) -> float:
        """Return which part of what was waited would not have been."""
        # Equal are also nothing and nothing, and two infinite ones.
        same = self.then.waited == self.now.waited
        return 0.0 if same else 1 - self.then.waited / self.now.waited

    @property
    def saved_by_day(self) -> tuple[float, float]:
        """Return the same of the worst day, and of the best."""
        waits = ((self.then.by_day.get(day, 0.0), now) for day, now in self.now.by_day.items())
        shares = [1 - then / now for then, now in waits if now > 0]
        return min(shares, default=0.0), max(shares, default=0.0)

    def changed(self) -> Iterator[tuple[DeviceNode, tuple[Geometry, ...]]]:
        """Yield the Nodes that change with their new cuts; their Jobs would have to end."""
        after = iter(self.after)
        for node in self.nodes:
            cuts = tuple(islice(after, len(node.cuts)))
            if cuts != node.cuts:
                yield node, cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceAdvice:
    models: tuple[CutAdvice, ...]
    left_out: tuple[str, ...]
    """Nodes and Jobs that do not count, and why."""


def slice_advice(
    objects: Iterable[Mapping[str, Any]],
    entries: Iterable[JournalEntry],
    flavors: Iterable[ResourceFlavor],
    uses: Mapping[str, DeviceUse],
) -> SliceAdvice:
    """Return advice for the devices of Nodes, by what ran.

    *objects*: Nodes, and Pods to say which Jobs must end. *uses*: what classes were measured to
    use.
    """
    left_out: list[str] = []
    by_kind: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for source in objects:
        by_kind[str(source.get("kind"))].append(source)
    nodes, jobs = by_kind["Node"], _jobs_by_node(by_kind["Pod"])
    by_model: defaultdict[str, list[DeviceNode]] = defaultdict(list)
    for source in nodes:
        if node := _node(source, jobs, left_out):
            by_model[node.device.name].append(node)
    labels = [fields.texts(fields.mapping(node, "metadata", ""), "labels", "") for node in nodes]
    devices = devices_of(flavors, (), labels)
    asked: defaultdict[str, list[DeviceDemand]] = defaultdict(list)
    unread = 0
    for entry in entries:
        models = [devices[name].name for name in entry.flavors.split(",") if name in devices]
        if models and entry.admitted and entry.finished:
            try:
                asked[models[0]] += _demands(entry, uses)
            except FieldError:
                unread += 1
    if unread:
        left_out.append(f"{unread} Jobs cannot be read")
    return SliceAdvice(
        models=tuple(advise(of, asked[model]) for model, of in sorted(by_model.items())),
        left_out=tuple(left_out),
    )


def advise(nodes: Iterable[DeviceNode], demands: Iterable[DeviceDemand]) -> CutAdvice:
    """Return how the devices of Nodes, all of one model, are better cut, by the Jobs they had."""
    # How long a Node's devices will be in use is not known: as few Jobs as may be are to end.
    first = sorted(nodes, key=lambda node: (len(node.jobs), node.name))
    before = tuple(cut for node in first for cut in node.cuts)
    device, ordered = first[0].device, sorted(demands)
    now = simulated(device, before, ordered)
    best, why_not = before, ""
    if now.waited < _LEAST_WAITED:
        why_not = "not one device-hour was waited, all together" if now.waited else "nobody waited"
    else:
        best = _improved(device, before, ordered)
        then = simulated(device, best, ordered)
        if best == before or then.waited > now.waited * (1 - WORTH):
            why_not = f"no cut that was tried would have saved {WORTH:.0%} of what was waited"
        elif not _is_stable(device, before, ordered):
            why_not = "what would have helped in one half of the time would not in the other"
    after = before if why_not else best
    return CutAdvice(
        nodes=tuple(first),
        after=after,
        now=now,
        then=simulated(device, after, ordered),
        jobs=len(ordered),
        why_not=why_not,
    )


def _improved(
    device: Device, before: tuple[Geometry, ...], demands: Sequence[DeviceDemand]
) -> tuple[Geometry, ...]:
    """Return the best cut on the way to what was asked for, of equals that with least changes."""
    packed = _packed(device, len(before), demands)
    surplus, missing = Counter(before) - packed, iter((packed - Counter(before)).elements())
    ways, each = [before], max(1, surplus.total() // _STEPS)
    cuts = list(before)
    for place, cut in enumerate(before):
        if surplus[cut] > 0:
            surplus[cut] -= 1
            cuts[place] = next(missing)
            if surplus.total() % each == 0:
                ways.append(tuple(cuts))
    return min(ways, key=lambda way: simulated(device, way, demands).objective)


def _packed(device: Device, count: int, demands: Sequence[DeviceDemand]) -> Counter[Geometry]:
    """Return cuts of so many devices in proportion to the device-hours that were asked for."""
    wanted: defaultdict[str, float] = defaultdict(float)
    for demand in demands:
        wanted[_smallest(device, demand.need)] += demand.seconds * demand.devices
    parts = _parts(device)
    load = sum(seconds * parts[name] for name, seconds in wanted.items())
    # Units of each that would be as busy as all others.
    left = {name: seconds * count / (load or 1.0) for name, seconds in wanted.items()}
    gang = max((demand.devices for demand in demands if demand.need == inf), default=0)
    found = Counter({WHOLE: min(gang, count)})
    left[device.resource] = left.get(device.resource, 0.0) - found[WHOLE]

    def covered(way: Geometry) -> float:
        return sum(
            min(units, max(0.0, left.get(name, 0.0))) * parts[name]
            for name, units in units_of(way, device)
        )

    ways = (WHOLE, *geometries(device, wanted))
    while found.total() < count:
        best = max(ways, key=covered)
        found[best] += 1
        for name, units in units_of(best, device):
            left[name] = left.get(name, 0.0) - units
    return found


def _smallest(device: Device, need: float) -> str:
    """Return the resource of the smallest units that are enough; else that of whole devices."""
    enough = (
        part for part in device.slices if need <= USABLE * part.memory and is_balanced(part, device)
    )
    smallest = min(enough, key=lambda part: (part.memory, part.compute), default=None)
    return smallest.resource if smallest is not None else device.resource


def _parts(device: Device) -> Mapping[str, float]:
    """Return which part of a device a unit of each of its resources is."""
    slices = [part.resource for part in device.slices]
    return {name: fraction(name, device) or 1.0 for name in (device.resource, *slices)}


def units_of(cut: Geometry, device: Device) -> Geometry:
    """Return what one device so cut gives: slices, or itself."""
    return cut or ((device.resource, 1),)


def _is_stable(
    device: Device, before: tuple[Geometry, ...], ordered: Sequence[DeviceDemand]
) -> bool:
    """Return whether advice from either half of the time would have helped in the other.

    Devices can be cut again only after their Jobs have ended.
    """
    middle = (ordered[0].at + ordered[-1].at) / 2
    halves = [[each for each in ordered if (each.at < middle) is first] for first in (True, False)]
    for learned, tried in (halves, reversed(halves)):
        now = simulated(device, before, tried).waited
        then = simulated(device, _improved(device, before, learned), tried).waited
        if learned and now > 0 and then > now * (1 - WORTH):
            return False
    return True


def simulated(device: Device, cuts: Iterable[Geometry], ordered: Sequence[DeviceDemand]) -> Waits:
    """Return what Jobs, in the order in which they came, wait where a pool is cut so."""
    units: Counter[str] = Counter()
    for cut in cuts:
        units.update(dict(units_of(cut, device)))
    memory = {part.resource: USABLE * part.memory for part in device.slices}
    memory[device.resource] = inf
    parts = _parts(device)
    names = sorted(units, key=lambda name: (memory[name], parts[name], name))
    fitting = {each.need: [name for name in names if memory[name] >= each.need] for each in ordered}
    if any(all(units[name] < each.devices for name in fitting[each.need]) for each in ordered):
        return Waits(waited=inf)
    simulation = _simulation(units, names)
    began = ordered[0].at if ordered else 0.0
    kinds = dict.fromkeys((each.need, each.devices) for each in ordered)
    choices = {(need, devices): _demand(fitting[need], devices) for need, devices in kinds}
    for place, each in enumerate(ordered):
        simulation.add_waiting(
            PendingGroup(
                cluster_queue=_POOL,
                demand=choices[each.need, each.devices],
                seconds=each.seconds,
                at=each.at - began,
                key=str(place),
            )
        )
    simulation.run()
    by_day: defaultdict[int, float] = defaultdict(float)
    used: defaultdict[str, float] = defaultdict(float)
    for start in simulation.begun:
        each = ordered[int(start.key)]
        by_day[int(each.at // _DAY)] += (began + start.at - each.at) * each.devices / _HOUR
        used[start.flavors[0]] += each.devices * each.seconds
    hours = max((start.finish for start in simulation.begun), default=0.0) / _HOUR
    free = {name: (units[name] * hours - used[name] / _HOUR) * parts[name] for name in names}
    needed = Counter(each.need for each in ordered)
    return Waits(
        waited=sum(by_day.values()),
        by_day=by_day,
        fragmented=sum(free[name] * useless_to(memory[name], needed) for name in names),
        free=sum(free.values()),
    )


def _simulation(units: Mapping[str, int], names: Sequence[str]) -> Simulation:
    """Return one of a ClusterQueue whose flavors are units of a device, the smallest first."""
    quotas = {(name, _UNITS): Quota(nominal=units[name]) for name in names}
    group = ResourceGroup(resources=(_UNITS,), flavors=tuple(names), quotas=quotas)
    queue = ClusterQueue(name=_POOL, groups=(group,))
    (tree,) = quota.plant({_POOL: queue}, {}).trees
    # Nobody is to wait for Kueue's requeue batch.
    return Simulation(tree, [queue], kueue=KueueConfig(requeue_seconds=0.0))


def _demand(names: Iterable[str], devices: int) -> Demand:
    choices = (Flavor(usage=(((name, _UNITS), devices),)) for name in names)
    return Demand(parts=(tuple(choices),), combinations=())


def _node(
    source: Mapping[str, Any], jobs: Mapping[str, tuple[str, ...]], left_out: list[str]
) -> DeviceNode | None:
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    name, labels = fields.text(metadata, "name", ""), fields.texts(metadata, "labels", "metadata")
    seen = device_of_node(labels)
    if seen is None:
        return None
    device = DEVICES.get(seen.name, seen)
    why_not = ""
    if not device.slices:
        why_not = f"{device.name} cannot be cut, or it is not known how"
    elif seen.isolation is not Isolation.EXCLUSIVE or seen.replicas > 1:
        why_not = "its devices are shared in time"
    elif (part := seen.slice_of(seen.resource)) is not None:
        why_not = f"all its devices are cut alike, and {part.resource} counts slices"
    cuts = None if why_not else _cuts(device, labels, fields.mapping(status, "allocatable", ""))
    if cuts is None:
        left_out.append(f"Node {name}: {why_not or 'how its devices are cut is not known'}")
        return None
    return DeviceNode(name=name, device=device, cuts=cuts, jobs=jobs.get(name, ()))


def _cuts(
    device: Device, labels: Mapping[str, str], allocatable: Mapping[str, Any]
) -> tuple[Geometry, ...] | None:
    counts = {
        resource: quantity.parse(str(amount), resource=resource)
        for resource, amount in allocatable.items()
        if resource == device.resource or _SLICED in resource
    }
    whole = counts.pop(device.resource, 0)
    written = labels.get(_COUNT, "")
    devices = int(written) if written.isascii() and written.isdigit() else whole
    sliced = cut_of(device, counts, devices - whole) if devices >= whole else None
    return None if sliced is None else (*sliced, *(WHOLE,) * whole)


def _demands(entry: JournalEntry, uses: Mapping[str, DeviceUse]) -> Iterator[DeviceDemand]:
    """Yield what a Job asked for, as it was submitted.

    Raises:
        FieldError: it cannot be read.

    """
    seconds = float(entry.finished - entry.admitted)
    job = reduced.kind_named(entry.kind).read(submitted_manifest(entry))
    whole = 0
    for pod_set in job.pod_sets:
        for resource, amount in declared(pod_set.template).items():
            if part := slice_by_name(resource):
                demand = DeviceDemand(entry.created, seconds, USABLE * part.memory)
                yield from (demand,) * (amount * pod_set.count)
            elif accelerators.counts_devices(resource):
                whole += amount * pod_set.count
    if whole:
        need = _need(entry, uses) if whole == 1 else inf
        yield DeviceDemand(entry.created, seconds, need, whole)


def _need(entry: JournalEntry, uses: Mapping[str, DeviceUse]) -> float:
    """Return how much memory a Job of one device needs; infinite: it is not known."""
    if said := entry.annotations.get(GPU_MEMORY):
        return quantity.parse(said, resource="memory")
    use = uses.get(entry.job_class)
    if use is not None and use.need is not None:
        return use.need
    # What it ran on was enough for it.
    slices = [slice_by_name(resource) for (_, resource), amount in entry.used if amount]
    return next((USABLE * part.memory for part in slices if part is not None), inf)


def _jobs_by_node(pods: Iterable[Mapping[str, Any]]) -> Mapping[str, tuple[str, ...]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pod in pods:
        metadata, spec, status = (
            fields.mapping(pod, key, "") for key in ("metadata", "spec", "status")
        )
        node = fields.text(spec, "nodeName", "spec")
        if not node or status.get("phase") in _ENDED or not _uses_devices(spec):
            continue
        labels = fields.texts(metadata, "labels", "metadata")
        name = next((labels[key] for key in _JOB_NAME if key in labels), None)
        namespace = fields.text(metadata, "namespace", "metadata")
        found[node].add(f"{namespace}/{name or fields.text(metadata, 'name', 'metadata')}")
    return {node: tuple(sorted(names)) for node, names in found.items()}


def _uses_devices(spec: Mapping[str, Any]) -> bool:
    return any(
        accelerators.is_accelerator(resource)
        for container, here in fields.objects(spec, "containers", "spec")
        for resource in fields.mapping(fields.mapping(container, "resources", here), "limits", here)
    )
