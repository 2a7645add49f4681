"""Keeps the prices of all clusters compiled, anew each hour and when what they rest on changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from webhook.cost.cluster_prices import prices_by_cluster
from webhook.cost.flavor_devices import devices_of
from webhook.cost.rates import compile_tariff
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.queues import Snapshot

_NO_PRICES: Final[Mapping[str, Prices]] = {}


class PriceCompiler:
    """Remembers what it compiled, so that a snapshot in which no price changed costs nothing."""

    def __init__(self) -> None:
        self._from: tuple[object, ...] = ()
        self._hour = -1.0
        self._prices = _NO_PRICES

    def of(self, snapshot: Snapshot, unix: float) -> Mapping[str, Prices]:
        """Return the prices of each cluster from *unix*, in seconds since 1970, on."""
        sources = snapshot.tariffs, snapshot.accelerator_profiles, snapshot.flavors
        hour = unix // HOUR if snapshot.tariffs else 0.0
        unchanged = len(self._from) == len(sources) and all(map(_is, self._from, sources))
        if unchanged and hour == self._hour:
            return self._prices
        self._from, self._hour = sources, hour
        compiled = (
            (tariff, compile_tariff(tariff, now=unix, zone=zone_of(tariff.spec.time_zone)).prices)
            for tariff in snapshot.tariffs
        )
        devices = devices_of(snapshot.flavors.values(), snapshot.accelerator_profiles)
        self._prices = prices_by_cluster(compiled, devices)
        return self._prices


def _is(one: object, other: object) -> bool:
    return one is other


def zone_of(name: str) -> tzinfo | None:
    """Return a time zone of the IANA database; None: it has none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; no such name; the name of a folder
        return None
