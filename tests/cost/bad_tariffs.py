"""Tariffs that are wrong or odd: what the API server and `check` refuse, and what is told later."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

PRICE = [{"price": "0.24"}]
CARBON = [{"intensity": "380"}]
RATES = [{"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "3"}}]


def rates(**entry):
    return [{"flavors": ["gpu"], "resources": {"cpu": "1"}, **entry}]


def second(**entry):
    """Return prices of which the second entry is *entry*."""
    return [*PRICE, {"price": "0.4", **entry}]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a negative price": ({"electricity": [{"price": "-0.24"}]}, "spec.electricity[0].price"),
    "a negative intensity": ({"carbon": [{"intensity": "-1"}]}, "spec.carbon[0].intensity"),
    "a negative rate": (
        {"rates": rates(resources={"cpu": "-1"})},
        "spec.rates[0].resources.cpu",
    ),
    "a huge price": ({"electricity": [{"price": "1000000000"}]}, "spec.electricity[0].price"),
    "a huge number": ({"electricity": [{"price": 10**20}]}, "spec.electricity[0].price"),
    "a price with seven decimals": (
        {"electricity": [{"price": "0.1234567"}]},
        "spec.electricity[0].price",
    ),
    "a price with an exponent": ({"electricity": [{"price": "1e3"}]}, "spec.electricity[0].price"),
    "a price with a comma": ({"electricity": [{"price": "0,24"}]}, "spec.electricity[0].price"),
    "a price with its currency": (
        {"electricity": [{"price": "0.24 EUR"}]},
        "spec.electricity[0].price",
    ),
    "a price that is no text": ({"electricity": [{"price": 0.24}]}, "spec.electricity[0].price"),
    "a price that is true": ({"electricity": [{"price": True}]}, "spec.electricity[0].price"),
    "no price": ({"electricity": [{}]}, "spec.electricity[0].price"),
    "an empty price": ({"electricity": [{"price": ""}]}, "spec.electricity[0].price"),
    "a first price that does not hold always": (
        {"electricity": [{"price": "1", "hours": "08:00-20:00"}]},
        "spec.electricity",
    ),
    "a first intensity that ends": (
        {"carbon": [{"intensity": "1", "until": "2026-12-31"}]},
        "spec.carbon",
    ),
    "hours without minutes": ({"electricity": second(hours="8-20")}, "spec.electricity[1].hours"),
    "an hour that is not there": (
        {"electricity": second(hours="25:00-26:00")},
        "spec.electricity[1].hours",
    ),
    "hours that begin at 24": (
        {"electricity": second(hours="24:00-06:00")},
        "spec.electricity[1].hours",
    ),
    "hours that end when they begin": (
        {"electricity": second(hours="08:00-08:00")},
        "spec.electricity[1].hours",
    ),
    "a month in full": ({"electricity": second(months=["June"])}, "spec.electricity[1].months[0]"),
    "a month twice": (
        {"electricity": second(months=["Jun", "Jun"])},
        "spec.electricity[1].months[1]",
    ),
    "a day in full": ({"electricity": second(days=["Monday"])}, "spec.electricity[1].days[0]"),
    "a first day that is no date": (
        {"electricity": second(**{"from": "1.6.2026"})},
        "spec.electricity[1].from",
    ),
    "a last day before the first": (
        {"electricity": second(**{"from": "2026-06-02", "until": "2026-06-01"})},
        "spec.electricity[1].until",
    ),
    "rates of no flavor": ({"rates": rates(flavors=[])}, "spec.rates[0].flavors"),
    "rates of a flavor twice": (
        {"rates": rates(flavors=["gpu", "gpu"])},
        "spec.rates[0].flavors[1]",
    ),
    "rates of no resource": ({"rates": rates(resources={})}, "spec.rates[0].resources"),
    "a resource that is none": (
        {"rates": rates(resources={"a/b/c": "1"})},
        "spec.rates[0].resources",
    ),
    "more than 64 entries": ({"electricity": PRICE * 65}, "spec.electricity"),
    "no cluster": ({"clusters": []}, "spec.clusters"),
    "a cluster twice": ({"clusters": ["far", "far"]}, "spec.clusters[1]"),
    "a time zone with a way out": ({"timeZone": "../etc/passwd"}, "spec.timeZone"),
    "a time zone as an offset": ({"timeZone": "+09:00"}, "spec.timeZone"),
    "a currency in full": ({"currency": "euro"}, "spec.currency"),
    "a building that takes less than its machines": ({"overhead": "0.9"}, "spec.overhead"),
    "an overhead in per cent": ({"overhead": "35%"}, "spec.overhead"),
    "negative watts": ({"watts": {"core": "-4"}}, "spec.watts.core"),
    "a series without a key": (
        {"series": {"carbon": {"configMap": "carbon"}}},
        "spec.series.carbon.key",
    ),
    "a series in a file of a folder": (
        {"series": {"carbon": {"configMap": "carbon", "key": "a/b"}}},
        "spec.series.carbon.key",
    ),
    "a series in an unknown format": (
        {"series": {"carbon": {"configMap": "carbon", "key": "a", "format": "CSV"}}},
        "spec.series.carbon.format",
    ),
    "a series of rates": (
        {"series": {"rates": "carbon"}},
        "spec.series.rates",
    ),
    "a misspelt field": ({"timezone": "Asia/Seoul"}, "spec.timezone"),
}
"""What it is, to the spec and the path at which it is refused."""


def unix(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()


TUESDAY = "2026-12-01T08:00:00+00:00"
KR = "data.json"


def series(*, carbon: str | None = None, text: Any = None, written_as: str = "Points"):
    """Return the part of a spec that names a series; in a Tariff whose entries go on."""
    name = "carbon" if carbon is not None else "electricity"
    source = {"configMap": "points", "key": KR, "format": written_as}
    return {"electricity": PRICE, "carbon": CARBON, "series": {name: source}}


def points(*values, start="2026-12-01T{:02}:00:00Z"):
    return [{"from": start.format(8 + index), "value": value} for index, value in enumerate(values)]


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A Tariff that an API server takes."""

    spec: dict[str, Any]
    want: tuple[str, str] = ("Resolved", "")
    """The reason of Ready, and the path that its message begins with."""
    now: str = TUESDAY
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    text: Any = None
    """What the series holds; None: there is no ConfigMap."""
    electricity: float | None = 0.24
    """The price of a kWh at *now* that decisions use; None: it is not known."""
    carbon: float | None = None
    money: float | None = None
    """What an hour of a GPU costs."""
    clipped: int = 0

    @property
    def config_map(self) -> dict[str, Any] | None:
        if self.text is None:
            return None
        text = self.text if isinstance(self.text, str) else json.dumps(self.text)
        return {"metadata": {"namespace": "ours", "name": "points"}, "data": {KR: text}}


def bad_series(spec, text, path="spec.series.electricity", **rest):
    reason = rest.pop("reason", "BadSeries")
    return Odd(spec=spec, text=text, want=(reason, path), carbon=380.0, **rest)


_DAY_BEFORE = [{"from": "2026-11-30T08:00:00Z", "value": 1}]
_CARBON = "spec.series.carbon"
_LAST_SUNDAY_OF_MARCH = {"timeZone": "Europe/Berlin", "electricity": second(hours="02:00-03:00")}
_LAST_SUNDAY_OF_OCTOBER = {"timeZone": "Europe/Berlin", "electricity": second(hours="02:00-03:00")}

TAKEN: dict[str, Odd] = {
    # What holds when.
    "entries that overlap: the last counts": Odd(
        spec={"electricity": [*second(hours="06:00-12:00"), {"price": "0.5", "days": ["Tue"]}]},
        electricity=0.5,
    ),
    "the same entry twice": Odd(spec={"electricity": PRICE * 2}),
    "rates of a flavor in two entries": Odd(
        spec={"rates": [*RATES, {**RATES[0], "resources": {"nvidia.com/gpu": "2"}}]},
        electricity=None,
        money=2.0,
    ),
    "hours past midnight, before it": Odd(
        spec={"electricity": second(hours="22:00-06:00")},
        now="2026-12-01T23:30:00+00:00",
        electricity=0.4,
    ),
    "hours past midnight, after it": Odd(
        spec={"electricity": second(hours="22:00-06:00")},
        now="2026-12-01T05:59:00+00:00",
        electricity=0.4,
    ),
    "hours past midnight, at their end": Odd(
        spec={"electricity": second(hours="22:00-06:00")}, now="2026-12-01T06:00:00+00:00"
    ),
    "hours past midnight of a day: the morning is the next day's": Odd(
        spec={"electricity": second(hours="22:00-06:00", days=["Mon"])},
        now="2026-12-01T05:00:00+00:00",
    ),
    "hours until 24:00": Odd(
        spec={"electricity": second(hours="20:00-24:00")},
        now="2026-12-01T23:59:30+00:00",
        electricity=0.4,
    ),
    "an hour that the clock leaves out": Odd(
        spec=_LAST_SUNDAY_OF_MARCH, now="2026-03-29T01:00:00+00:00"
    ),
    "an hour that the clock goes through, first": Odd(
        spec=_LAST_SUNDAY_OF_OCTOBER, now="2026-10-25T00:30:00+00:00", electricity=0.4
    ),
    "an hour that the clock goes through, again": Odd(
        spec=_LAST_SUNDAY_OF_OCTOBER, now="2026-10-25T01:30:00+00:00", electricity=0.4
    ),
    "a time zone of half an hour": Odd(
        spec={"timeZone": "Asia/Kolkata", "electricity": second(hours="13:30-14:00")},
        electricity=0.4,
    ),
    "an entry that is past": Odd(spec={"electricity": second(until="2025-12-31")}),
    "an entry of one day, the 29th of February": Odd(
        spec={"electricity": second(**{"from": "2028-02-29", "until": "2028-02-29"})},
        now="2028-02-29T12:00:00+00:00",
        electricity=0.4,
    ),
    "rates that hold at no time": Odd(
        spec={"rates": [{**RATES[0], "until": "2020-01-01"}], "electricity": PRICE}
    ),
    "a price of 0": Odd(spec={"electricity": [{"price": 0}]}, electricity=0.0),
    "the largest price": Odd(
        spec={"electricity": [{"price": "999999999.999999"}]}, electricity=999999999.999999
    ),
    "nothing at all": Odd(spec={}, electricity=None),
    # Conditions.
    "a time zone that is not there": Odd(
        spec={"timeZone": "Europe/Atlantis", "electricity": second(hours="00:00-24:00")},
        want=("BadTimeZone", "spec.timeZone"),
    ),
    "a time zone that is a folder": Odd(
        spec={"timeZone": "Europe", "electricity": PRICE}, want=("BadTimeZone", "spec.timeZone")
    ),
    "another currency: its carbon counts alone": Odd(
        spec={"currency": "KRW", "electricity": PRICE, "carbon": CARBON, "rates": RATES},
        want=("CurrencyDiffers", "spec.currency"),
        electricity=None,
        carbon=380.0,
    ),
    "the same currency": Odd(spec={"currency": "USD", "electricity": PRICE}),
    "a cluster that is not there": Odd(
        spec={"clusters": ["", "moon"], "electricity": PRICE},
        want=("UnknownCluster", "spec.clusters[1]"),
    ),
    "a flavor that is not there": Odd(
        spec={"rates": [{**RATES[0], "flavors": ["gone", "gpu"]}], "electricity": PRICE},
        want=("NoFlavor", "spec.rates[0].flavors[0]"),
        money=3.0,
    ),
    "two tariffs with a price": Odd(
        spec={"electricity": PRICE},
        others={"a": {"electricity": [{"price": "0.1"}]}},
        want=("Ambiguous", "spec.electricity"),
        electricity=0.1,
    ),
    "two tariffs with an intensity": Odd(
        spec={"carbon": CARBON},
        others={"a": {"carbon": [{"intensity": "1"}]}},
        want=("Ambiguous", "spec.carbon"),
        electricity=None,
        carbon=1.0,
    ),
    "two tariffs with rates of a flavor": Odd(
        spec={"rates": RATES, "electricity": PRICE},
        others={"a": {"rates": [{**RATES[0], "resources": {"nvidia.com/gpu": "9"}}]}},
        want=("Ambiguous", "spec.rates[0].flavors"),
        money=9.0,
    ),
    "two tariffs with rates of other resources": Odd(
        spec={"rates": RATES, "electricity": PRICE},
        others={"a": {"rates": rates()}},
        money=3.0,
    ),
    "two tariffs with an overhead": Odd(
        spec={"overhead": "1.5", "electricity": PRICE},
        others={"a": {"overhead": "1.2"}},
        want=("Ambiguous", "spec.overhead"),
    ),
    "two tariffs of two clusters": Odd(
        spec={"electricity": PRICE}, others={"a": {"clusters": ["far"], "electricity": PRICE}}
    ),
    "two tariffs, one in another currency": Odd(
        spec={"electricity": PRICE},
        others={"a": {"currency": "KRW", "electricity": [{"price": "300"}]}},
    ),
    # Series.
    "a series without its ConfigMap": bad_series(series(), None),
    "a series that is empty": bad_series(series(), ""),
    "a series of no point": bad_series(series(), []),
    "a series that is no JSON": bad_series(series(), "8,0.24"),
    "a series that is cut off": bad_series(series(), '[{"from": "2026-12-01T08:00:00Z", "va'),
    "a series of numbers": bad_series(series(), [0.24, 0.3]),
    "a series of NaN": bad_series(series(), '[{"from": "2026-12-01T08:00:00Z", "value": NaN}]'),
    "a series of infinity": bad_series(
        series(), '[{"from": "2026-12-01T08:00:00Z", "value": 1e999}]'
    ),
    "a series of texts": bad_series(series(), points("0.24")),
    "a series that is nested deeply": bad_series(series(), "[" * 5000),
    "a series in another format than said": bad_series(
        series(carbon="", written_as="CarbonAware"), points(1), _CARBON
    ),
    "CarbonAware with a duration as text": bad_series(
        series(carbon="", written_as="CarbonAware"),
        [{"time": "2026-12-01T08:00:00Z", "duration": "PT5M", "rating": 1}],
        _CARBON,
    ),
    "ElectricityMaps with a point without a value": bad_series(
        series(carbon="", written_as="ElectricityMaps"),
        {"zone": "DE", "forecast": [{"datetime": "2026-12-01T08:00:00Z"}]},
        _CARBON,
    ),
    "ElectricityMaps with an error": bad_series(
        series(carbon="", written_as="ElectricityMaps"), {"error": "Invalid auth-token"}, _CARBON
    ),
    "WattTime without data": bad_series(
        series(carbon="", written_as="WattTime"), {"meta": {}}, _CARBON
    ),
    "WattTime with a point without a time": bad_series(
        series(carbon="", written_as="WattTime"), {"data": [{"value": 900}]}, _CARBON
    ),
    "a series that has ended": bad_series(series(), _DAY_BEFORE, reason="SeriesEnded"),
    "a series that is good": Odd(spec=series(), text=points(0.3), electricity=0.3, carbon=380.0),
    "a series with times without a zone: UTC": Odd(
        spec=series(),
        text=points(0.3, start="2026-12-01T{:02}:00"),
        electricity=0.3,
        carbon=380.0,
    ),
    "a series that begins later": Odd(
        spec=series(), text=points(0.3), now="2026-12-01T07:00:00+00:00", carbon=380.0
    ),
    "a series without entries": Odd(
        spec={"series": series()["series"]}, text=points(0.3), electricity=0.3
    ),
    "a series below zero": Odd(
        spec=series(), text=points(-0.1), electricity=0.0, carbon=380.0, clipped=1
    ),
    "a series out of proportion": Odd(
        spec=series(), text=points(240), electricity=4.8, carbon=380.0, clipped=1
    ),
    "a series above entries of 0": Odd(
        spec={**series(), "electricity": [{"price": "0"}]},
        text=points(0.3, 0.3, 90),
        electricity=0.3,
        carbon=380.0,
        clipped=1,
    ),
    "a series out of order": Odd(
        spec=series(), text=points(0.3, 0.2)[::-1], electricity=0.3, carbon=380.0
    ),
    "a series with a moment twice": Odd(
        spec=series(), text=points(0.3) + points(0.2), electricity=0.2, carbon=380.0
    ),
}
