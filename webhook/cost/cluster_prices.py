"""Joins what Tariffs and AcceleratorProfiles say into the prices of each cluster.

They are kept compiled, anew each hour and when what they rest on changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from math import inf
from typing import Final
from zoneinfo import ZoneInfo

from webhook.cost.rates import PAST_DAYS, SeriesTexts, compile_tariff, series_of
from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.device_table import DEVICES, NVIDIA, slice_by_name
from webhook.model.costs.devices import Device, DeviceSlice, Isolation
from webhook.model.costs.prices import DAY, HOUR, CompiledTariff, Prices
from webhook.model.costs.tariff import Tariff
from webhook.model.quantity import Amounts
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


NUMBERS: Final[Mapping[str, str]] = {
    "overhead": "spec.overhead",
    "core_watts": "spec.watts.core",
    "gibibyte_watts": "spec.watts.gibibyte",
    "transfer": "spec.transfer",
}
"""Fields of Prices that are one number for a cluster, and where a Tariff says it."""
_DEFAULT: Final = Prices()


def prices_by_cluster(
    compiled: Iterable[CompiledTariff], devices: Mapping[str, Device]
) -> Mapping[str, Prices]:
    """Return the prices of each cluster that a Tariff or a device is known for.

    *compiled* is in the order of names: where several Tariffs of a cluster say the same, the first
    counts. *devices* are those of this cluster's ResourceFlavors; where a worker cluster's own are
    not known, flavors of the same names have them, too.
    """
    found: dict[str, Prices] = {"": Prices(devices=devices)} if devices else {}
    for priced in compiled:
        for cluster in priced.tariff.spec.clusters:
            before = found.get(cluster)
            new = replace(priced.prices, devices=devices)
            found[cluster] = new if before is None else _both(before, new)
    return found


def in_worker(
    prices: Prices,
    usage: Amounts,
    flavors: Mapping[str, ResourceFlavor],
    profiles: Sequence[AcceleratorProfile],
) -> Prices:
    """Return a worker cluster's prices with the devices of *flavors*, its own ResourceFlavors.

    Only of those in *usage*: a decision needs no others.
    """
    used = {flavor for flavor, _ in usage} & flavors.keys()
    devices = devices_of((flavors[name] for name in used), profiles)
    if not devices and not used & prices.devices.keys():
        return prices
    return replace(prices, devices=devices)


def _both(first: Prices, second: Prices) -> Prices:
    """Return the first one's prices, and the second one's where the first has none.

    A number that is the default is not said, as API servers write defaults into objects.
    """
    numbers = {name: getattr(second, name) for name in NUMBERS if not is_stated(first, name)}
    return replace(
        first,
        rates={**second.rates, **first.rates},
        electricity=first.electricity or second.electricity,
        carbon=first.carbon or second.carbon,
        interruptions={**second.interruptions, **first.interruptions},
        holds=first.holds | second.holds,
        **numbers,
    )


def is_stated(prices: Prices, number: str) -> bool:
    """Tell whether one of ``NUMBERS`` is another than the default."""
    return bool(getattr(prices, number) != getattr(_DEFAULT, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSources:
    """What prices rest on. What has not changed is the same object again."""

    tariffs: Mapping[str, Tariff] = field(default_factory=dict)
    profiles: tuple[AcceleratorProfile, ...] = ()
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    series: SeriesTexts = field(default_factory=dict)
    node_labels: Sequence[Mapping[str, str]] = ()

    def is_same(self, other: PriceSources) -> bool:
        """Tell whether nothing has changed."""
        return (
            self.tariffs == other.tariffs
            and self.profiles is other.profiles
            and self.flavors is other.flavors
            and self.series == other.series
            and self.node_labels == other.node_labels
        )


_NONE: Final = PriceSources()


class PriceCompiler:
    """Remembers what it compiled, so that a snapshot in which no price changed costs nothing."""

    def __init__(self, currency: str = "") -> None:
        """Money is in *currency*; empty: in any, as it is not known."""
        self._currency = currency
        self._sources = _NONE
        self._hour = -1.0
        self._tariffs: tuple[CompiledTariff, ...] = ()
        self._prices: Mapping[str, Prices] = {}

    def compile(
        self, sources: PriceSources, unix: float
    ) -> tuple[tuple[CompiledTariff, ...], Mapping[str, Prices]]:
        """Return the Tariffs by name, and each cluster's prices, around *unix*.

        *unix* is in seconds since 1970; the last ``PAST_DAYS`` are priced, too.
        """
        hour = unix // HOUR if sources.tariffs else 0.0
        if hour != self._hour or not sources.is_same(self._sources):
            self._sources, self._hour = sources, hour
            self._tariffs = tuple(
                self._compiled(tariff, sources.series, unix)
                for _, tariff in sorted(sources.tariffs.items())
            )
            devices = devices_of(sources.flavors.values(), sources.profiles, sources.node_labels)
            self._prices = prices_by_cluster(self._tariffs, devices)
        return self._tariffs, self._prices

    def _compiled(self, tariff: Tariff, series: SeriesTexts, unix: float) -> CompiledTariff:
        return compile_tariff(
            tariff,
            now=unix - PAST_DAYS * DAY,
            zone=zone_of(tariff.spec.time_zone),
            series=series_of(tariff, series, unix),
            currency=self._currency,
        )


def zone_of(name: str) -> tzinfo | None:
    """Return a time zone of the IANA database; None: it has none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; no such name; the name of a folder
        return None
