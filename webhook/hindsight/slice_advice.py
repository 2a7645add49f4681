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
from itertools import chain, islice, repeat
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.adapt import accelerators
from webhook.cost.cluster_prices import device_of_node, devices_of
from webhook.cost.device_shares import fraction
from webhook.cost.slice_geometry import (
    USABLE,
    WHOLE,
    Geometry,
    NeededMemory,
    cut_of,
    geometries,
    smaller_slices,
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
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Jobs whose pods on this Node use devices, ``namespace/name``: of each resource how many."""

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted(self.used))


class DeviceDemand(NamedTuple):
    """What one Job asked for."""

    at: float
    """Seconds since 1970."""
    seconds: float
    need: float
    """Bytes of one device's memory; infinite: a whole device, or several."""
    devices: int = 1


Waits: TypeAlias = Mapping[int, float]
"""Device-hours that were waited, by the day of arrival, counted since 1970; infinite where some Job
could never start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutAdvice:
    """How the devices of one model are better cut."""

    nodes: tuple[DeviceNode, ...]
    """Those first that are best cut anew first."""
    after: tuple[Geometry, ...]
    """Of their devices, in order; the same as before: nothing is to be gained."""
    now: Waits
    then: Waits
    """The same where devices are cut so."""
    needed: NeededMemory
    """Of all Jobs."""
    why_not: str
    """Why there is no advice; empty: there is."""

    @property
    def device(self) -> Device:
        return self.nodes[0].device

    @property
    def jobs(self) -> int:
        return sum(self.needed.values())

    @property
    def before(self) -> tuple[Geometry, ...]:
        return tuple(cut for node in self.nodes for cut in node.cuts)

    @property
    def saved(self) -> float:
        """Return which part of what was waited would not have been."""
        return _saved(sum(self.now.values()), sum(self.then.values()))

    @property
    def saved_by_day(self) -> tuple[float, float]:
        """Return the same of the worst day, and of the best."""
        waits = [(now, self.then.get(day, 0.0)) for day, now in self.now.items() if now > 0]
        shares = [_saved(now, then) for now, then in waits]
        return min(shares, default=0.0), max(shares, default=0.0)

    def fragmentation(self, cuts: Iterable[Geometry]) -> float:
        """Return which part of the devices, all free and so cut, is of no use to the average Job.

        A lower bound: where Jobs run, what they leave may be of less use.
        """
        memory, parts = memory_of(self.device), parts_of(self.device)
        units = units_of(cuts, self.device)
        useless = (
            n * parts[name] * useless_to(memory[name], self.needed) for name, n in units.items()
        )
        return sum(useless) / len(self.before)

    def changed(self) -> Iterator[tuple[DeviceNode, tuple[Geometry, ...]]]:
        """Yield the Nodes that change with their new cuts; their Jobs would have to end."""
        after = iter(self.after)
        for node in self.nodes:
            cuts = tuple(islice(after, len(node.cuts)))
            if cuts != node.cuts:
                yield node, cuts


def _saved(now: float, then: float) -> float:
    # Equal are also nothing and nothing, and two infinite ones.
    return 0.0 if then == now else 1 - then / now


def slice_advice(
    objects: Iterable[Mapping[str, Any]],
    entries: Iterable[JournalEntry],
    flavors: Iterable[ResourceFlavor],
    uses: Mapping[str, DeviceUse],
) -> tuple[Sequence[CutAdvice], Sequence[str]]:
    """Return advice for each model of device, by what ran, and what was left out, and why.

    *objects*: Nodes, and Pods to say which Jobs must end. *uses*: what classes were measured to
    use.
    """
    by_kind: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for source in objects:
        by_kind[str(source.get("kind"))].append(source)
    nodes, left_out = device_nodes(by_kind["Node"], by_kind["Pod"])
    by_model: defaultdict[str, list[DeviceNode]] = defaultdict(list)
    for node in nodes:
        by_model[node.device.name].append(node)
    labels = [
        fields.texts(fields.mapping(source, "metadata", ""), "labels", "")
        for source in by_kind["Node"]
    ]
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
    return [advise(of, asked[model]) for model, of in sorted(by_model.items())], left_out


def device_nodes(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> tuple[list[DeviceNode], list[str]]:
    """Return the Nodes whose devices can be cut, what Jobs use of them, and what is left out."""
    used: defaultdict[str, defaultdict[str, Counter[str]]]
    used = defaultdict(lambda: defaultdict(Counter))
    for pod in pods:
        _note_use(pod, used)
    left_out: list[str] = []
    found = [_node(source, used, left_out) for source in nodes]
    return [node for node in found if node is not None], left_out


def advise(nodes: Iterable[DeviceNode], demands: Iterable[DeviceDemand]) -> CutAdvice:
    """Return how the devices of Nodes, all of one model, are better cut, by the Jobs they had."""
    # How long a Node's devices will be in use is not known: as few Jobs as may be are to end.
    first = sorted(nodes, key=lambda node: (len(node.jobs), node.name))
    before = tuple(cut for node in first for cut in node.cuts)
    device, ordered = first[0].device, sorted(demands)
    now = simulated(device, before, ordered)
    after, then = _improved(device, before, ordered)
    waited, left = sum(now.values()), sum(then.values())
    why_not = ""
    if waited < _LEAST_WAITED:
        why_not = "not one device-hour was waited, all together" if waited else "nobody waited"
    elif _saved(waited, left) < WORTH:
        why_not = f"no cut that was tried would have saved {WORTH:.0%} of what was waited"
    elif not _is_stable(device, before, ordered):
        why_not = "what would have helped in one half of the time would not in the other"
    if why_not:
        after, then = before, now
    return CutAdvice(
        nodes=tuple(first),
        after=after,
        now=now,
        then=then,
        needed=Counter(each.need for each in ordered),
        why_not=why_not,
    )


def _improved(
    device: Device, before: tuple[Geometry, ...], ordered: Sequence[DeviceDemand]
) -> tuple[tuple[Geometry, ...], Waits]:
    """Return the best cut on the way to what was asked for, of equals the nearest to that.

    One that is just enough for the past would seldom be for what comes.
    """
    packed = _packed(device, len(before), ordered)
    surplus, missing = Counter(before) - packed, iter((packed - Counter(before)).elements())
    ways, each = [before], max(1, surplus.total() // _STEPS)
    cuts = list(before)
    for place, cut in enumerate(before):
        if surplus[cut] > 0:
            surplus[cut] -= 1
            cuts[place] = next(missing)
            if surplus.total() % each == 0:
                ways.append(tuple(cuts))
    waits = [simulated(device, way, ordered) for way in ways]
    best = min(range(len(ways)), key=lambda number: (sum(waits[number].values()), -number))
    return ways[best], waits[best]


def _packed(device: Device, count: int, demands: Sequence[DeviceDemand]) -> Counter[Geometry]:
    """Return cuts of so many devices in proportion to the device-hours that were asked for."""
    wanted: defaultdict[str, float] = defaultdict(float)
    for demand in demands:
        wanted[_smallest(device, demand.need)] += demand.seconds * demand.devices
    parts = parts_of(device)
    load = sum(seconds * parts[name] for name, seconds in wanted.items())
    # Units of each that would be as busy as all others.
    left = {name: seconds * count / (load or 1.0) for name, seconds in wanted.items()}
    gang = max((demand.devices for demand in demands if demand.need == inf), default=0)
    found = Counter({WHOLE: min(gang, count)})
    left[device.resource] = left.get(device.resource, 0.0) - found[WHOLE]

    filled = filling(device, left, (WHOLE, *geometries(device, wanted)))
    found.update(islice(chain(filled, repeat(WHOLE)), count - found.total()))
    return found


def filling(
    device: Device, wanted: Mapping[str, float], ways: Sequence[Geometry]
) -> Iterator[Geometry]:
    """Yield for one device after another the way to cut it that gives most of what is wanted yet.

    *wanted*: units of each resource. It ends where no way gives any.
    """
    left, parts = dict(wanted), parts_of(device)

    def covered(way: Geometry) -> float:
        return sum(
            min(units, max(0.0, left.get(name, 0.0))) * parts[name]
            for name, units in units_of((way,), device).items()
        )

    while ways and covered(best := max(ways, key=covered)):
        yield best
        for name, units in units_of((best,), device).items():
            left[name] = left.get(name, 0.0) - units


def _smallest(device: Device, need: float) -> str:
    """Return the resource of the smallest units that are enough; else that of whole devices."""
    enough = smaller_slices(device, need)
    smallest = min(enough, key=lambda part: (part.memory, part.compute), default=None)
    return smallest.resource if smallest is not None else device.resource


def parts_of(device: Device) -> Mapping[str, float]:
    """Return which part of a device a unit of each of its resources is."""
    slices = [part.resource for part in device.slices]
    return {name: fraction(name, device) or 1.0 for name in (device.resource, *slices)}


def memory_of(device: Device) -> Mapping[str, float]:
    """Return how much memory of a unit may be used; of a whole device all that there is."""
    slices = {part.resource: USABLE * part.memory for part in device.slices}
    return {**slices, device.resource: inf}


def units_of(cuts: Iterable[Geometry], device: Device) -> Counter[str]:
    """Return how many units of each resource devices give that are so cut."""
    units: Counter[str] = Counter()
    for cut in cuts:
        units.update(dict(cut or ((device.resource, 1),)))
    return units


def _is_stable(
    device: Device, before: tuple[Geometry, ...], ordered: Sequence[DeviceDemand]
) -> bool:
    """Return whether advice from either half of the time would have helped in the other.

    Devices can be cut again only after their Jobs have ended.
    """
    middle = (ordered[0].at + ordered[-1].at) / 2
    halves = [[each for each in ordered if (each.at < middle) is first] for first in (True, False)]
    for learned, tried in (halves, reversed(halves)):
        best, _ = _improved(device, before, learned)
        now, then = (sum(simulated(device, cuts, tried).values()) for cuts in (before, best))
        if learned and now > 0 and _saved(now, then) < WORTH:
            return False
    return True


def simulated(device: Device, cuts: Iterable[Geometry], ordered: Sequence[DeviceDemand]) -> Waits:
    """Return what Jobs, in the order in which they came, wait where devices are cut so."""
    units, memory, parts = units_of(cuts, device), memory_of(device), parts_of(device)
    # Each unit is a flavor of one ClusterQueue: those that are enough are tried in this order.
    names = tuple(sorted(units, key=lambda name: (memory[name], parts[name], name)))
    quotas = {(name, _UNITS): Quota(nominal=units[name]) for name in names}
    group = ResourceGroup(resources=(_UNITS,), flavors=names, quotas=quotas)
    queue = ClusterQueue(name=_POOL, groups=(group,))
    (tree,) = quota.plant({_POOL: queue}, {}).trees
    # Nobody is to wait for Kueue's requeue batch.
    simulation = Simulation(tree, [queue], kueue=KueueConfig(requeue_seconds=0.0))
    for place, (at, seconds, need, devices) in enumerate(ordered):
        enough = [name for name in names if memory[name] >= need]
        if all(units[name] < devices for name in enough):
            return {0: inf}
        choices = (Flavor(usage=(((n, _UNITS), devices),)) for n in enough)
        simulation.add_waiting(
            PendingGroup(
                cluster_queue=_POOL,
                demand=Demand(parts=(tuple(choices),), combinations=()),
                seconds=seconds,
                at=at - ordered[0].at,
                key=str(place),
            )
        )
    simulation.run()
    by_day: defaultdict[int, float] = defaultdict(float)
    for start in simulation.begun:
        asked = ordered[int(start.key)]
        waited = start.at - (asked.at - ordered[0].at)
        by_day[int(asked.at // _DAY)] += waited * asked.devices / _HOUR
    return by_day


def _node(
    source: Mapping[str, Any],
    used: Mapping[str, Mapping[str, Mapping[str, int]]],
    left_out: list[str],
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
    if not cuts:
        left_out.append(f"Node {name}: {why_not or 'how its devices are cut is not known'}")
        return None
    return DeviceNode(name=name, device=device, cuts=cuts, used=used.get(name, {}))


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


def _note_use(
    pod: Mapping[str, Any], used: defaultdict[str, defaultdict[str, Counter[str]]]
) -> None:
    """Add what a pod has of its Node's devices, by its Node and its Job."""
    metadata, spec, status = (
        fields.mapping(pod, key, "") for key in ("metadata", "spec", "status")
    )
    node = fields.text(spec, "nodeName", "spec")
    if not node or status.get("phase") in _ENDED or not (devices := devices_asked(spec)):
        return
    labels = fields.texts(metadata, "labels", "metadata")
    name = next((labels[key] for key in _JOB_NAME if key in labels), None)
    namespace = fields.text(metadata, "namespace", "metadata")
    used[node][f"{namespace}/{name or fields.text(metadata, 'name', 'metadata')}"] += devices


def devices_asked(spec: Mapping[str, Any]) -> Counter[str]:
    """Return which devices a pod's containers ask for."""
    asked: Counter[str] = Counter()
    for container, here in fields.objects(spec, "containers", "spec"):
        limits = fields.mapping(fields.mapping(container, "resources", here), "limits", here)
        for resource, amount in limits.items():
            if accelerators.is_accelerator(resource):
                asked[resource] += quantity.parse(str(amount), resource=resource)
    return asked
