"""Joins what Tariffs and AcceleratorProfiles say into the prices of each cluster.

They are kept compiled, anew each hour and when what they rest on changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from webhook.cost.flavor_devices import devices_of
from webhook.cost.rates import PAST_DAYS, compile_tariff
from webhook.cost.series import SeriesTexts, series_of
from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import DAY, HOUR, CompiledTariff, Prices
from webhook.model.costs.tariff import Tariff
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
