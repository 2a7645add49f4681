"""Finds out which device each ResourceFlavor has: by a profile, by its labels, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device
from webhook.model.queues import ResourceFlavor

PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "accelerator",
)
"""Node labels whose value names a product, the most exact first."""
_SHARED: Final = "-SHARED"
_SLICED: Final = "-MIG-"
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "nvidia-tesla-t4": "Tesla-T4",
    "t4": "Tesla-T4",
    "nvidia-l4": "NVIDIA-L4",
    "l4": "NVIDIA-L4",
    "l40s": "NVIDIA-L40S",
    "nvidia-tesla-a100": "NVIDIA-A100-SXM4-40GB",
    "nvidia-a100-80gb": "NVIDIA-A100-SXM4-80GB",
    "nvidia-h100-80gb": "NVIDIA-H100-80GB-HBM3",
    "nvidia-h200-141gb": "NVIDIA-H200",
    "h200": "NVIDIA-H200",
    "nvidia-b200": "NVIDIA-B200",
}
"""What clouds call products, in lower case, to their names in the table. A name that stands for
several products, such as ``a100`` of 40 and of 80 GB, is not there."""


def devices_of(
    flavors: Iterable[ResourceFlavor], profiles: Sequence[AcceleratorProfile]
) -> Mapping[str, Device]:
    """Return the device of each flavor whose device is known.

    The first that answers counts: a profile that names the flavor (of several the first by name),
    one whose labels it has, the built-in table by the flavor's own labels.
    """
    ordered = sorted(profiles, key=lambda profile: profile.name)
    found = ((flavor.name, _device(flavor, ordered)) for flavor in flavors)
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
    return _of_table(flavor)


def _has_labels(flavor: ResourceFlavor, profile: AcceleratorProfile) -> bool:
    labels = profile.node_labels.items()
    return bool(labels) and labels <= flavor.node_labels.items()


def _of_table(flavor: ResourceFlavor) -> Device | None:
    for label in PRODUCT_LABELS:
        product = flavor.node_labels.get(label, "")
        whole = product.partition(_SLICED)[0].removesuffix(_SHARED)
        device = DEVICES.get(whole) or DEVICES.get(_SHORT_NAMES.get(whole.lower(), ""))
        if device is not None:
            return device
    return None
