"""Tariff: what hours of resources cost somewhere, in money, electricity and carbon.

Read at one border, or refused with every mistake. Its models are the one source of the CRD's
schema, too. Money has one unit in a cluster, and is never converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field

from webhook.model.policy import patterns
from webhook.model.policy.custom_object import (
    ATOMIC,
    FILLED,
    UNIQUE,
    Conditions,
    CustomObject,
    Decimal,
    ObjectName,
    ObjectOrNone,
    Structural,
    read_object,
    unique,
)

TARIFF_KIND: Final = "Tariff"

MonthName = Literal[
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
]
DayName = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MONTHS: Final[tuple[str, ...]] = get_args(MonthName)
DAYS: Final[tuple[str, ...]] = get_args(DayName)
Hours: TypeAlias = Annotated[str, Field(max_length=11, pattern=patterns.HOURS)]
Date: TypeAlias = Annotated[str, Field(max_length=10, pattern=patterns.DATE)]


def _real(written: str | None) -> str | None:
    if written is not None:
        try:
            date.fromisoformat(written)
        except ValueError:
            raise ValueError(f"expected a date that exists, got {written!r}") from None
    return written


class When(Structural):
    """When an entry applies, in the Tariff's time zone. An absent field sets no limit."""

    months: Annotated[
        tuple[MonthName, ...],
        Field(max_length=12, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ()
    """Months in which the entry applies."""
    days: Annotated[
        tuple[DayName, ...], Field(max_length=7, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Days of the week on which the entry applies. If the hours go past midnight, each part belongs
    to its own day."""
    hours: Hours | None = None
    """Hours of the day, such as 09:00-17:30. 22:00-06:00 goes past midnight."""
    from_date: Annotated[Date | None, AfterValidator(_real), Field(alias="from")] = None
    """The first day on which the entry applies."""
    until: Annotated[Date | None, AfterValidator(_real)] = None
    """The last day on which the entry applies."""

    @property
    def always(self) -> bool:
        """Tell whether it holds at any time, whatever the time zone."""
        conditions = (self.hours, self.from_date, self.until)
        return not (self.months or self.days or any(conditions))


class RateEntry(When):
    """What one unit of each resource costs for an hour, in some ResourceFlavors."""

    flavors: Annotated[
        tuple[ObjectName, ...],
        Field(min_length=1, max_length=16, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ]
    """ResourceFlavors to which these rates apply."""
    resources: Annotated[dict[str, Decimal], Field(min_length=1, max_length=16)]
    """Money for one hour of one unit, by resource. A unit is a device, a core or a GiB of
    memory."""


class PriceEntry(When):
    """What a kWh costs on your own meter."""

    price: Decimal
    """Money for a kWh."""


class CarbonEntry(When):
    """How much CO2 a kWh causes."""

    intensity: Decimal
    """Grams of CO2 for a kWh."""


class SeriesFormat(StrEnum):
    """How points in a ConfigMap are written."""

    POINTS = "Points"
    CARBON_AWARE = "CarbonAware"
    ELECTRICITY_MAPS = "ElectricityMaps"
    WATT_TIME = "WattTime"


class SeriesSource(Structural):
    """Points in a ConfigMap of the release's namespace. They apply for the time that they cover."""

    config_map: ObjectName
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.FILE_KEY)]
    """Key of its `data` or `binaryData`."""
    format: SeriesFormat = SeriesFormat.POINTS
    """Format of the points. Points: a JSON list of `{"from": RFC 3339, "value": number}`.
    CarbonAware, ElectricityMaps, WattTime: the forecast format of that product."""


class RateSeries(SeriesSource):
    """Points that say what one unit of a resource costs for an hour, in some ResourceFlavors."""

    flavors: Annotated[
        tuple[ObjectName, ...],
        Field(min_length=1, max_length=16, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ]
    """ResourceFlavors to which this series applies, such as spot capacity."""
    resource: Annotated[str, Field(min_length=1, max_length=316)]
    """The resource, such as nvidia.com/gpu."""


class SeriesSources(Structural):
    """Time series. They replace the entries for the time that they cover."""

    rates: Annotated[tuple[RateSeries, ...], Field(max_length=16, json_schema_extra=ATOMIC)] = ()
    """Series of rates. If several are for one flavor and resource, the last usable one counts."""

    electricity: SeriesSource | None = None
    """Series of prices of a kWh."""
    carbon: SeriesSource | None = None
    """Grams of CO2 for a kWh."""

    @property
    def named(self) -> tuple[SeriesSource, ...]:
        """Return all that are given."""
        others = (self.electricity, self.carbon)
        return (*self.rates, *(source for source in others if source is not None))


class HostWatts(Structural):
    """The electric power of what is no device, in use.

    Cloud Carbon Footprint's methodology has 3.5 to 4.3 W for a busy virtual core, by cloud, and
    0.392 W for a GB, the mean of what two makers of memory say.
    """

    core: Decimal = "4"
    """Watts of a core."""
    gibibyte: Decimal = "0.4"
    """Watts of a GiB of memory."""


class TariffSpec(Structural):
    """What resources cost in some clusters, by the hour."""

    clusters: Annotated[
        tuple[ObjectOrNone, ...],
        Field(min_length=1, max_length=16, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ("",)
    """Clusters to which this Tariff applies. "" is this cluster; other names are
    MultiKueueClusters."""
    time_zone: Annotated[str, Field(max_length=64, pattern=patterns.TIME_ZONE)] = "UTC"
    """Time zone of the months, days, hours and dates below, as a name of the IANA database."""
    currency: Annotated[str, Field(max_length=3, pattern=patterns.CURRENCY)] = ""
    """Currency of all money here, such as EUR. If it differs from the installation's currency, the
    money does not count. Absent: the installation's currency."""
    rates: Annotated[tuple[RateEntry, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = ()
    """Money for one hour of one unit of a resource. If several entries apply, the last one counts
    for each resource."""
    electricity: Annotated[
        tuple[PriceEntry, ...], Field(max_length=64, json_schema_extra=ATOMIC)
    ] = ()
    """Money for a kWh on your own meter, in addition to the rates. If several entries apply, the
    last one counts. The first one must always apply."""
    carbon: Annotated[tuple[CarbonEntry, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = ()
    """Grams of CO2 for a kWh. If several entries apply, the last one counts. The first one must
    always apply."""
    series: SeriesSources = Field(default_factory=SeriesSources)
    """Time series. They replace the entries for the time that they cover."""
    overhead: Decimal = "1"
    """How much electricity the building takes for each kWh of the machines (PUE). At least 1."""
    watts: HostWatts = Field(default_factory=HostWatts, json_schema_extra=FILLED)
    """Electric power of cores and memory in use."""
    interruptions: Decimal = "0"
    """Expected interruptions in one hour, for capacity that can be taken away, such as spot. It
    applies to the flavors that the rates name, or to all if they name none. A Job's annotation
    `checkpoint` says how much an interruption costs it."""
    transfer: Decimal = "0"
    """Money for transferring a GiB of data that is not here."""
    holds: Annotated[
        tuple[ObjectName, ...],
        Field(max_length=64, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ()
    """Names of data that is here."""


class TariffNow(Structural):
    """The values at this moment."""

    rates: Annotated[dict[str, str], Field(max_length=256)] = Field(default_factory=dict)
    """Money for one hour of one unit, by flavor and resource, such as `h100/nvidia.com/gpu`."""
    electricity: str = ""
    """Money for a kWh. Empty: unknown."""
    carbon: str = ""
    """Grams of CO2 for a kWh. Empty: unknown."""
    currency: str = ""
    """Currency of the money."""


class TariffStatus(Structural):
    """What the controller found out about the tariff."""

    now: TariffNow | None = None
    """The values at this moment."""
    series_until: str = ""
    """When the first of the series ends."""
    conditions: Conditions = ()
    """Ready: every entry and series can be used."""


class TariffObject(CustomObject):
    spec: TariffSpec
    status: TariffStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A valid tariff. ``generation`` is the object's, for its status."""

    name: str
    generation: int = 0
    spec: TariffSpec
    printed_in: str = ""
    """What its money is in by its status; empty: nobody has said so yet."""


def read_tariff(source: Mapping[str, Any]) -> Tariff:
    """Read a tariff as ``read_object`` does."""
    tariff = read_object(TariffObject, source)
    metadata, status = tariff.metadata, tariff.status
    return Tariff(
        name=metadata.name,
        generation=metadata.generation,
        spec=tariff.spec,
        printed_in=status.now.currency if status is not None and status.now is not None else "",
    )
