"""Finds out which device each ResourceFlavor has: by a profile, by its labels, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.device_table import DEVICES, NVIDIA, slice_by_name
from webhook.model.costs.devices import Device, DeviceSlice, Isolation
from webhook.model.queues import ResourceFlavor

PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "accelerator",
)
"""Node labels whose value names a product, the most exact first."""
_DISCOVERED: Final = "nvidia.com/"
"""Begins the labels that GPU feature discovery writes."""
_PRODUCT: Final = "nvidia.com/gpu.product"
_MEMORY: Final = "nvidia.com/gpu.memory"
"""In MiB."""
_REPLICAS: Final = "nvidia.com/gpu.replicas"
_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
_MIG: Final = "nvidia.com/mig-"
_SLICES_OF_A_DEVICE: Final = 7
_MIB: Final = 1 << 20
_ISOLATIONS: Final = {
    "time-slicing": Isolation.NONE,
    "time-sharing": Isolation.NONE,
    "mps": Isolation.MEMORY,
}
_SHARED: Final = "-SHARED"
_SLICED: Final = "-MIG-"
_SLICED_GKE: Final = "cloud.google.com/gke-gpu-partition-size"
_SHARING_GKE: Final = "cloud.google.com/gke-gpu-sharing-strategy"
_REPLICAS_GKE: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "nvidia-tesla-t4": "Tesla-T4",
    "t4": "Tesla-T4",
    "nvidia-l4": "NVIDIA-L4",
    "l4": "NVIDIA-L4",
    "l40": "NVIDIA-L40",
    "l40s": "NVIDIA-L40S",
    "nvidia-tesla-a100": "NVIDIA-A100-SXM4-40GB",
    "nvidia-a100-80gb": "NVIDIA-A100-SXM4-80GB",
    "nvidia-h100-80gb": "NVIDIA-H100-80GB-HBM3",
    "nvidia-h200-141gb": "NVIDIA-H200",
    "h200": "NVIDIA-H200",
    "nvidia-b200": "NVIDIA-B200",
    "b200": "NVIDIA-B200",
    "nvidia-gb200": "NVIDIA-GB200",
    "gb200": "NVIDIA-GB200",
    "nvidia-b300": "NVIDIA-B300",
    "nvidia-b300-sxm6-ac": "NVIDIA-B300",
    "b300": "NVIDIA-B300",
    "mi325x": "AMD-Instinct-MI325X",
    "mi300x": "AMD-Instinct-MI300X",
}
"""What clouds call products, in lower case, to their names in the table. A name that stands for
several products, such as ``a100`` of 40 and of 80 GB, is not there."""


def tells_device(label: str) -> bool:
    """Tell whether a label of Nodes may say which devices they have."""
    return label.startswith(_DISCOVERED) or label in PRODUCT_LABELS


def devices_of(
    flavors: Iterable[ResourceFlavor],
    profiles: Sequence[AcceleratorProfile],
    node_labels: Sequence[Mapping[str, str]] = (),
) -> Mapping[str, Device]:
    """Return the device of each flavor whose device is known.

    The first that answers counts: a profile that names the flavor (of several the first by name),
    one whose labels it has, the built-in table by the flavor's own labels, and what *node_labels*
    say of the Nodes that the flavor selects.
    """
    ordered = sorted(profiles, key=lambda profile: profile.name)
    found = (
        (flavor.name, _device(flavor, ordered) or _of_nodes(flavor, node_labels))
        for flavor in flavors
    )
    return {name: device for name, device in found if device is not None}


def claimed(flavor: ResourceFlavor, profiles: Iterable[AcceleratorProfile]) -> tuple[str, ...]:
    """Return the names of the profiles that name a flavor or whose labels it has, in order."""
    return tuple(
        profile.name
        for profile in profiles
        if flavor.name in profile.flavors or _has_labels(flavor, profile)
    )


def _device(flavor: ResourceFlavor, profiles: Sequence[AcceleratorProfile]) -> Device | None:
    for profile in profiles:
        if flavor.name in profile.flavors:
            return profile.device
    for profile in profiles:
        if _has_labels(flavor, profile):
            return profile.device
    known = _of_table(flavor.node_labels)
    return None if known is None else _as_cut(known, flavor.node_labels)


def _has_labels(flavor: ResourceFlavor, profile: AcceleratorProfile) -> bool:
    labels = profile.node_labels.items()
    return bool(labels) and labels <= flavor.node_labels.items()


def _of_nodes(flavor: ResourceFlavor, node_labels: Sequence[Mapping[str, str]]) -> Device | None:
    """Return the device of the Nodes that a flavor selects; where they differ, the smallest."""
    chosen = flavor.node_labels.items()
    devices = [
        device_of_node(labels) for labels in node_labels if chosen and chosen <= labels.items()
    ]
    known = [device for device in devices if device is not None]
    return min(known, key=_size, default=None)


def _size(device: Device) -> tuple[float, str]:
    return (inf if device.memory is None else device.memory), device.name


def device_of_node(labels: Mapping[str, str]) -> Device | None:
    """Return the device of a Node by what GPU feature discovery wrote; None: nothing of it."""
    product = _whole(labels.get(_PRODUCT, ""))
    known = _of_table(labels)
    if known is None and not product:
        return None
    device = known or Device(name=product, resource=NVIDIA)
    # Where all devices of a Node are cut alike, the memory there is that of a part.
    is_cut = _profile_of(labels) != ""
    memory = 0 if is_cut else _number(labels, _MEMORY)
    device = replace(
        device,
        memory=memory * _MIB if memory else device.memory,
        slices=tuple(_slices(labels)) or device.slices,
        source=f"{device.source}, and labels of Nodes".removeprefix(", and "),
    )
    return _as_cut(device, labels)


def _as_cut(device: Device, labels: Mapping[str, str]) -> Device:
    """Return a device as labels say that it is shared, or cut so that its resource is a slice."""
    product, profile = labels.get(_PRODUCT, ""), _profile_of(labels)
    strategy = labels.get(_SHARING) or labels.get(_SHARING_GKE, "")
    isolation = _ISOLATIONS.get(strategy, device.isolation)
    if isolation is Isolation.EXCLUSIVE and product.endswith(_SHARED):
        isolation = Isolation.NONE
    slices = device.slices
    if profile and (part := slice_by_name(f"{_MIG}{profile}", device)):
        slices = (replace(part, resource=device.resource), *slices)
    return replace(
        device,
        isolation=isolation,
        replicas=_number(labels, _REPLICAS) or _number(labels, _REPLICAS_GKE) or device.replicas,
        slices=slices,
    )


def _profile_of(labels: Mapping[str, str]) -> str:
    """Return the MIG profile into which all devices of a Node are cut; empty: none is known."""
    product = labels.get(_PRODUCT, "").removesuffix(_SHARED)
    return product.partition(_SLICED)[2] or labels.get(_SLICED_GKE, "")


def _slices(labels: Mapping[str, str]) -> Iterator[DeviceSlice]:
    """Yield the parts into which the devices of a Node are cut."""
    for label in sorted(labels):
        resource, memory = label.removesuffix(".memory"), _number(labels, label)
        compute = _number(labels, f"{resource}.slices.gi")
        if label.startswith(_MIG) and resource != label and memory and compute:
            yield DeviceSlice(
                resource=resource, memory=memory * _MIB, compute=compute, of=_SLICES_OF_A_DEVICE
            )


def _number(labels: Mapping[str, str], label: str) -> int:
    """Return a label's number; 0: it says none."""
    written = labels.get(label, "")
    return int(written) if written.isascii() and written.isdigit() else 0


def _whole(product: str) -> str:
    return product.partition(_SLICED)[0].removesuffix(_SHARED)


def _of_table(labels: Mapping[str, str]) -> Device | None:
    for label in PRODUCT_LABELS:
        whole = _whole(labels.get(label, ""))
        device = DEVICES.get(whole) or DEVICES.get(_SHORT_NAMES.get(whole.lower(), ""))
        if device is not None:
            return device
    return None
