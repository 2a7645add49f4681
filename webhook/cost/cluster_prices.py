"""Joins what Tariffs and AcceleratorProfiles say into the prices of each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.cost.flavor_devices import devices_of
from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import CompiledTariff, Prices
from webhook.model.quantity import Amounts
from webhook.model.queues import ResourceFlavor

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
