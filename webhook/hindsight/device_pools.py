"""Reads from Nodes how devices are cut, and from the journal what Jobs asked of them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.adapt import accelerators
from webhook.cost.flavor_devices import device_of_node
from webhook.cost.geometries import WHOLE, Geometry, cut_of
from webhook.decide.wishes import GPU_MEMORY
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import submitted_manifest
from webhook.hindsight.repartition import USABLE, DeviceDemand
from webhook.jobs import reduced
from webhook.kueue.requests import declared
from webhook.model import fields, quantity
from webhook.model.costs.device_table import DEVICES, slice_by_name
from webhook.model.costs.devices import Device, DeviceUse, Isolation
from webhook.model.fields import FieldError
from webhook.model.queues import ResourceFlavor

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """The devices of one model, and what was asked of them."""

    device: Device
    nodes: tuple[DeviceNode, ...]
    demands: tuple[DeviceDemand, ...]

    @property
    def before(self) -> Mapping[Geometry, int]:
        return Counter(cut for node in self.nodes for cut in node.cuts)


@dataclass(slots=True)
class DevicePools:
    pools: tuple[DevicePool, ...] = ()
    left_out: list[str] = field(default_factory=list)
    """Nodes and Jobs that are not looked at, and why."""


def read_pools(
    nodes: Sequence[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    entries: Iterable[JournalEntry],
    flavors: Mapping[str, ResourceFlavor],
    uses: Mapping[str, DeviceUse],
) -> DevicePools:
    """Return the pools of devices that can be cut, with the Jobs that used them.

    *uses*: what classes were measured to use.
    """
    found = DevicePools()
    jobs = _jobs_by_node(pods)
    read = [node for source in nodes if (node := _node(source, jobs, found.left_out))]
    models = {flavor.name: _model(flavor, nodes) for flavor in flavors.values()}
    demands: defaultdict[str, list[DeviceDemand]] = defaultdict(list)
    unread = 0
    for entry in entries:
        model = next((models[f] for f in entry.flavors.split(",") if models.get(f)), "")
        if not model or not entry.admitted or not entry.finished:
            continue
        try:
            demands[model] += _demands(entry, uses)
        except FieldError:
            unread += 1
    if unread:
        found.left_out.append(f"{unread} Jobs cannot be read")
    by_model: defaultdict[str, list[DeviceNode]] = defaultdict(list)
    for node in read:
        by_model[node.device.name].append(node)
    found.pools = tuple(
        DevicePool(
            device=of_model[0].device,
            nodes=tuple(sorted(of_model, key=lambda node: node.name)),
            demands=tuple(sorted(demands[model], key=lambda demand: demand.rank)),
        )
        for model, of_model in sorted(by_model.items())
    )
    return found


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


def _model(flavor: ResourceFlavor, nodes: Iterable[Mapping[str, Any]]) -> str:
    """Return the model of the Nodes that a flavor selects; empty: none is known."""
    chosen = flavor.node_labels.items()
    for source in nodes:
        labels = fields.texts(fields.mapping(source, "metadata", ""), "labels", "metadata")
        if chosen and chosen <= labels.items() and (device := device_of_node(labels)):
            return device.name
    return ""


def _demands(entry: JournalEntry, uses: Mapping[str, DeviceUse]) -> Iterator[DeviceDemand]:
    """Yield what a Job asked for, as it was submitted.

    Raises:
        FieldError: it cannot be read.

    """
    job = reduced.kind_named(entry.kind).read(submitted_manifest(entry))
    seconds = float(entry.finished - entry.admitted)
    asked: Counter[str] = Counter()
    for pod_set in job.pod_sets:
        amounts = declared(pod_set.template)
        for resource, amount in amounts.items():
            if accelerators.counts_devices(resource) and amount:
                asked[resource] += amount * pod_set.count
    whole = sum(count for name, count in asked.items() if slice_by_name(name) is None)
    for resource, count in asked.items():
        part = slice_by_name(resource)
        for _ in range(count if part is not None else 0):
            need = int(USABLE * part.memory) if part is not None else None
            yield DeviceDemand(entry.created, seconds, need)
    if whole:
        need = _need(entry, uses) if whole == 1 else None
        yield DeviceDemand(entry.created, seconds, need, whole)


def _need(entry: JournalEntry, uses: Mapping[str, DeviceUse]) -> int | None:
    """Return how much memory a Job of one device needs; None: it is not known."""
    if said := entry.annotations.get(GPU_MEMORY):
        return quantity.parse(said, resource="memory")
    use = uses.get(entry.job_class)
    if use is not None and use.need is not None:
        return use.need
    # What it ran on was enough for it.
    slices = [slice_by_name(resource) for (_, resource), amount in entry.used if amount]
    return next((int(USABLE * part.memory) for part in slices if part is not None), None)


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
