"""What resources cost in one cluster over time, compiled from its Tariffs, and what is scarce.

Moments are seconds since 1970. Money has the cluster's one unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Final, NamedTuple

from webhook.model.costs.devices import Device
from webhook.model.costs.tariff import Tariff
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.reasons import StatusProblem

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
UNKNOWN: Final = nan
"""Of a value that is not known for a while; nor is what is summed up over that while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A value that changes at moments: from ``times[i]`` on it is ``values[i]``, until ``end``.

    Before, it is the first one; after, the mean of the whole, as nothing better is known.
    """

    times: tuple[float, ...]
    """Ascending; at least one."""
    values: tuple[float, ...]
    sums: tuple[float, ...]
    """The integral from ``times[0]`` to each of ``times``, in value times seconds, without what is
    not known."""
    gaps: tuple[float, ...]
    """For how many seconds from ``times[0]`` to each of ``times`` it is not known."""
    end: float

    @property
    def mean(self) -> float:
        """Return the mean from the beginning to the end."""
        length = self.end - self.times[0]
        whole, unknown = self._until(self.end)
        if unknown:
            return UNKNOWN
        return whole / length if length > 0 else self.values[-1]

    def at(self, moment: float) -> float:
        """Return the value at a moment."""
        if moment >= self.end:
            return self.mean
        return self.values[max(bisect_right(self.times, moment) - 1, 0)]

    def over(self, begin: float, end: float) -> float:
        """Return the integral from *begin* to *end*, in value times hours."""
        (low, unknown_before), (high, unknown_after) = self._until(begin), self._until(end)
        return UNKNOWN if unknown_after > unknown_before else (high - low) / HOUR

    def _until(self, moment: float) -> tuple[float, float]:
        """Return the integral from the first of ``times`` to *moment*, negative before it.

        Beside it, for how many seconds of that time the value is not known.
        """
        last = min(moment, self.end)
        index = max(bisect_right(self.times, last) - 1, 0)
        value, length = self.values[index], last - self.times[index]
        unknown = self.gaps[index] + (length if isnan(value) else 0.0)
        whole = self.sums[index] + (0.0 if isnan(value) else value * length)
        if moment > self.end:
            mean, beyond = self.mean, moment - self.end
            return (whole, unknown + beyond) if isnan(mean) else (whole + mean * beyond, unknown)
        return whole, unknown


def curve(steps: Mapping[float, float], end: float) -> Curve:
    """Return the curve of moments and the values from each on; equal neighbours are merged.

    *steps* is not empty, and its moments ascend.
    """
    times: list[float] = []
    values: list[float] = []
    sums = [0.0]
    gaps = [0.0]
    for moment, value in steps.items():
        if values and (values[-1] == value or (isnan(values[-1]) and isnan(value))):
            continue
        if values:
            length, known = moment - times[-1], not isnan(values[-1])
            sums.append(sums[-1] + (values[-1] * length if known else 0.0))
            gaps.append(gaps[-1] + (0.0 if known else length))
        times.append(moment)
        values.append(value)
    return Curve(
        times=tuple(times), values=tuple(values), sums=tuple(sums), gaps=tuple(gaps), end=end
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What resources cost in one cluster. A rate that no Tariff gives is not there."""

    rates: Mapping[FlavorResource, Curve] = field(default_factory=dict)
    """Money for one unit and hour: a device, a core, a GiB."""
    electricity: Curve | None = None
    """Money for a kWh; None: not known."""
    carbon: Curve | None = None
    """Grams of CO2 for a kWh; None: not known."""
    overhead: float = 1.0
    core_watts: float = 4.0
    gibibyte_watts: float = 0.4
    interruptions: Mapping[str, float] = field(default_factory=dict)
    """ResourceFlavor to how many an hour are expected; "" stands for all others."""
    transfer: float = 0.0
    """Money for a GiB of data that is not here."""
    holds: frozenset[str] = frozenset()
    devices: Mapping[str, Device] = field(default_factory=dict)
    """ResourceFlavor to its device; a flavor whose device is not known is not there."""

    def interrupted(self, flavors: Iterable[str]) -> float:
        """Return how often in an hour what runs on these flavors is interrupted."""
        elsewhere = self.interruptions.get("", 0.0)
        return max(
            (self.interruptions.get(flavor, elsewhere) for flavor in flavors), default=elsewhere
        )


NO_PRICES: Final = Prices()
"""Of a cluster of which no Tariff says anything and no device is known."""


LASTS_SECONDS: Final = 900.0
"""Published congestion prices that are older count as 0: nobody leads, or it cannot write."""


class ScarceCell(NamedTuple):
    """One resource of one ResourceFlavor in one tree of cohorts."""

    tree: str
    """As ``kueue.quota.tree_names`` names it."""
    flavor: str
    resource: str
    cluster: str = ""
    """The worker cluster; empty: this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CongestionPrices:
    """Money for one unit and hour of what is scarce, beside its rate; what is not there is 0."""

    at: float = 0.0
    """When they were computed, in seconds since 1970."""
    prices: Mapping[ScarceCell, float] = field(default_factory=dict)
    waits: Mapping[ScarceCell, float] = field(default_factory=dict)
    """Seconds that the median request of each was expected to wait then."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Policy to how many times its price of lateness counts; what is not there counts once."""

    def at_moment(self, unix: float) -> CongestionPrices:
        """Return them as they count at *unix*, in seconds since 1970."""
        return self if unix - self.at <= LASTS_SECONDS else NO_CONGESTION


NO_CONGESTION: Final = CongestionPrices()


ENOUGH_HOURS: Final = 20.0
"""Hours of runs after which evictions that were seen tell more than a Tariff."""


class SeenInterruptions(NamedTuple):
    """What was seen of runs on a flavor."""

    evictions: int
    """For lost Nodes or pods."""
    hours: float
    """How long all those runs took together."""

    def rate(self, expected: float) -> float:
        """Return how many an hour to expect, where a Tariff expects so many.

        The mean of a Gamma distribution with the Tariff's as its prior, which counts for one.
        """
        if self.hours < ENOUGH_HOURS or expected <= 0:
            return expected
        return (1 + self.evictions) / (1 / expected + self.hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a Job would use in one option, and what that costs there."""

    usage: Amounts
    prices: Prices
    congestion: Mapping[FlavorResource, float]
    """Money for one unit and hour of what is scarce; what is not there is not scarce."""
    warm: float = 0.0
    """How likely what a Job reads is there, as others of its class have brought it."""
    seen: Mapping[str, SeenInterruptions] = field(default_factory=dict)
    """What was seen of runs, by flavor; a flavor without runs is not there."""

    @property
    def interruptions(self) -> float:
        """Return how many are expected in an hour: as was seen, else as a Tariff says."""
        # What was seen only corrects what a Tariff expects: without one, capacity counts as kept.
        if not self.prices.interruptions:
            return 0.0
        rates = []
        for flavor in {flavor for flavor, _ in self.usage}:
            expected = self.prices.interrupted((flavor,))
            seen = self.seen.get(flavor)
            rates.append(expected if seen is None else seen.rate(expected))
        return max(rates, default=self.prices.interrupted(()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTariff:
    """One Tariff over the next days."""

    tariff: Tariff
    prices: Prices
    problems: tuple[StatusProblem, ...] = ()
    clipped: int = 0
    """Points of its series that were out of all proportion."""
    series_until: float | None = None
    """When the series that ends first ends, in seconds since 1970; None: none is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """What time, lateness and CO2 are worth to one Job."""

    time_value: float
    """Money for an hour until it is done."""
    late_hour: float
    """Money for an hour after its deadline."""
    late_fixed: float
    carbon_price: float
    """Money for a kilogram."""
    capped: tuple[str, ...] = ()
    """What of its annotations the policy limits, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What running a Job in one option costs; the terms from ``carbon`` on where costs decide."""

    money: float | None = None
    """Money by the rates, while the quota is held; None: no rate is known."""
    kwh: float | None = None
    """Energy of devices, cores and memory in use, with what the building takes; None: the power of
    a device is not known."""
    electricity: float | None = None
    """Money for that energy; None: the energy or its price is not known."""
    carbon_grams: float | None = None
    """CO2 of that energy; None: the energy or its intensity is not known."""
    carbon: float | None = None
    """Money for that CO2; None: it has no price, or it is not known."""
    time: float | None = None
    """Money that the time until the Job is done is worth."""
    lateness: float | None = None
    """Money for being done after the deadline, as far as that is to be expected."""
    congestion: float | None = None
    """What those who wait for the same would give for it."""
    transfer: float | None = None
    """Money for data that is not there."""
    fragmentation: float | None = None
    """How many devices more others could not use, where it decides between equal costs; it is no
    money. None: it does not, or it is not known."""
    stakes: Stakes | None = None
    """By which time and lateness were weighed; None: costs do not decide."""
    said: tuple[str, ...] = ()
    """What people should know of the comparison: what of it was capped or left out."""

    @property
    def paid(self) -> float | None:
        """Return the money that is really paid, as far as it is known; None: nothing of it is."""
        return _sum(self.money, self.electricity)

    @property
    def spent(self) -> float | None:
        """Return the money that is paid, and for the data that is not there; None: none is known.

        Another start changes what is ``paid``, and never what the data costs.
        """
        return None if self.paid is None else self.paid + (self.transfer or 0.0)

    @property
    def kilograms(self) -> float | None:
        """Return the CO2 in kilograms, in which it is priced; None: it is not known."""
        return None if self.carbon_grams is None else self.carbon_grams / 1000

    def paid_with(self, carbon_price: float) -> float | None:
        """Return the money that is paid, and CO2 at a price for a kilogram; None: none is known."""
        carbon = carbon_price * (self.kilograms or 0.0)
        return _sum(self.paid, carbon or None)

    @property
    def charge(self) -> float:
        """Return what does not depend on when the Job is done, but for the hours that it runs in.

        Without the congestion price, which is for decisions alone.
        """
        return _sum(self.money, self.electricity, self.carbon, self.transfer) or 0.0

    @property
    def total(self) -> float | None:
        """Return all terms together, as far as they are known; None: nothing of it is."""
        return _sum(
            self.money,
            self.electricity,
            self.carbon,
            self.time,
            self.lateness,
            self.congestion,
            self.transfer,
        )


def _sum(*amounts: float | None) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
