from datetime import UTC, datetime, timedelta
from math import isnan
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.tariffs import tariff
from webhook.cost.rates import HORIZON_DAYS, NO_SERIES, Points, SeriesPoints, compile_tariff
from webhook.model.costs.prices import HOUR, curve
from webhook.model.costs.tariff import DAYS, MONTHS
from webhook.model.reasons import TariffReady

BERLIN = ZoneInfo("Europe/Berlin")
GPU = ("h100", "nvidia.com/gpu")
ZONES = ("Europe/Berlin", "America/St_Johns", "Asia/Seoul", "Australia/Lord_Howe")
ONLY_ALWAYS = "only entries that always apply count"


def unix(written, zone=BERLIN):
    return datetime.fromisoformat(written).replace(tzinfo=zone).timestamp()


def compiled(now="2026-11-25 00:00", zone=BERLIN, series=NO_SERIES, **spec):
    start = unix(now, zone or UTC)
    return compile_tariff(tariff(**spec), now=start, zone=zone, series=series)


def steps(found, zone=BERLIN, most=4):
    pairs = list(zip(found.times, found.values, strict=True))[:most]
    return [(datetime.fromtimestamp(at, zone).strftime("%d %H:%M"), value) for at, value in pairs]


def test_of_the_entries_that_hold_the_last_counts_resource_by_resource():
    found = compiled(
        rates=[
            {"flavors": ["h100"], "resources": {"nvidia.com/gpu": 3, "cpu": "0.1"}},
            {"flavors": ["h100"], "hours": "22:00-06:00", "resources": {"nvidia.com/gpu": 2}},
        ]
    )

    assert steps(found.prices.rates[GPU]) == [
        ("25 00:00", 2.0),
        ("25 06:00", 3.0),
        ("25 22:00", 2.0),
        ("26 06:00", 3.0),
    ]
    assert steps(found.prices.rates["h100", "cpu"]) == [("25 00:00", 0.1)]


def test_an_hour_that_the_clock_skips_begins_when_it_is_skipped():
    found = compiled(
        "2026-03-29 00:00", electricity=[{"price": 3}, {"hours": "02:30-04:00", "price": 1}]
    )

    assert steps(found.prices.electricity, most=3) == [
        ("29 00:00", 3.0),
        ("29 03:00", 1.0),
        ("29 04:00", 3.0),
    ]


def test_an_hour_that_the_clock_goes_through_twice_holds_twice():
    found = compiled(
        "2026-10-25 00:00", electricity=[{"price": 3}, {"hours": "02:00-02:30", "price": 1}]
    )

    rate, start = found.prices.electricity, unix("2026-10-25 00:00")
    assert rate.over(start, start + 25 * HOUR) == pytest.approx(24 * 3 + 1 * 1)


def test_while_no_entry_holds_a_rate_is_not_known():
    found = compiled(
        rates=[{"flavors": ["h100"], "hours": "08:00-18:00", "resources": {"nvidia.com/gpu": 3}}]
    )

    rate, start = found.prices.rates[GPU], unix("2026-11-25 00:00")
    assert isnan(rate.at(start))
    assert isnan(rate.over(start, start + 9 * HOUR))
    assert rate.over(start + 9 * HOUR, start + 10 * HOUR) == pytest.approx(3.0)


def test_without_its_time_zone_a_tariff_counts_what_holds_always():
    found = compiled(
        zone=None,
        timeZone="Europe/Atlantis",
        electricity=[{"price": 3}, {"hours": "02:30-04:00", "price": 1}],
    )

    assert found.prices.electricity.values == (3.0,)
    assert [(problem.reason, str(problem)) for problem in found.problems] == [
        (
            TariffReady.BAD_TIME_ZONE,
            f"spec.timeZone: there is no time zone Europe/Atlantis; {ONLY_ALWAYS}",
        )
    ]


def test_past_the_days_that_are_compiled_the_mean_counts():
    found = compiled(electricity=[{"price": 3}, {"hours": "00:00-12:00", "price": 1}])

    rate = found.prices.electricity
    assert rate.at(rate.end + 5) == pytest.approx(2.0)
    assert rate.over(rate.end, rate.end + 10 * HOUR) == pytest.approx(20.0)


def test_a_series_stands_where_it_reaches():
    start = unix("2026-11-25 00:00")
    points = Points(steps={start - HOUR: 7.0, start + HOUR: 5.0}, end=start + 2 * HOUR)
    found = compiled(series=SeriesPoints(electricity=points), electricity=[{"price": 3}])

    assert steps(found.prices.electricity) == [
        ("25 00:00", 7.0),
        ("25 01:00", 5.0),
        ("25 02:00", 3.0),
    ]


def test_a_series_of_rates_stands_above_the_entries_of_its_flavor_where_it_reaches():
    points = Points(
        steps={unix("2026-11-25 02:00"): 1.5, unix("2026-11-25 04:00"): 1.0},
        end=unix("2026-11-25 06:00"),
    )

    found = compiled(
        series=SeriesPoints(rates={GPU: points, ("spot", "nvidia.com/gpu"): points}),
        rates=[{"flavors": ["h100"], "resources": {"nvidia.com/gpu": 3, "cpu": 1}}],
    )

    assert steps(found.prices.rates[GPU]) == [
        ("25 00:00", 3.0),
        ("25 02:00", 1.5),
        ("25 04:00", 1.0),
        ("25 06:00", 3.0),
    ]
    assert steps(found.prices.rates["spot", "nvidia.com/gpu"])[0] == ("25 02:00", 1.5)
    assert found.series_until == unix("2026-11-25 06:00")


def test_rates_of_another_currency_do_not_count_whether_entries_or_a_series():
    points = Points(steps={unix("2026-11-25 02:00"): 1.5}, end=unix("2026-11-25 06:00"))

    found = compile_tariff(
        tariff(currency="EUR"),
        now=unix("2026-11-25 00:00"),
        zone=BERLIN,
        series=SeriesPoints(rates={GPU: points}),
        currency="USD",
    )

    assert found.prices.rates == {}


def test_interruptions_are_of_flavors_with_a_series_too():
    source = {"flavors": ["spot"], "resource": GPU[1], "configMap": "spot", "key": "p"}

    spec = tariff(interruptions="0.1", series={"rates": [source]})

    assert compiled(interruptions="0.1").prices.interruptions == {"": 0.1}
    assert compile_tariff(spec, now=0.0, zone=BERLIN).prices.interruptions == {"spot": 0.1}


clock = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.integers(0, 59))
entries = st.fixed_dictionaries(
    {"price": st.integers(0, 50)},
    optional={
        "hours": st.tuples(clock, clock).filter(lambda pair: pair[0] != pair[1]).map("-".join),
        "days": st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True),
        "months": st.lists(st.sampled_from(MONTHS), min_size=1, max_size=6, unique=True),
    },
)


def by_the_clock(given_entries, moment, zone):
    """Say what holds at one moment, entry by entry, without breakpoints."""
    wall, price = datetime.fromtimestamp(moment, zone), None
    for entry in given_entries:
        begin, _, end = entry.get("hours", "00:00-24:00").partition("-")
        now = wall.strftime("%H:%M")
        within = begin <= now < end if begin < end else now >= begin or now < end
        if (
            within
            and DAYS[wall.weekday()] in entry.get("days", DAYS)
            and MONTHS[wall.month - 1] in entry.get("months", MONTHS)
        ):
            price = entry["price"]
    return float(price)


@given(
    given_entries=st.lists(entries, max_size=4),
    minute=st.integers(29_450_000, 30_450_000),
    zone=st.sampled_from(ZONES),
    offsets=st.lists(st.integers(0, HORIZON_DAYS * 24 * 60 - 1), min_size=1, max_size=30),
)
def test_at_any_minute_the_curve_is_what_the_clock_on_the_wall_says(
    given_entries, minute, zone, offsets
):
    given_entries = [{"price": 60}, *given_entries]
    local, now = ZoneInfo(zone), minute * 60.0
    found = compile_tariff(tariff(electricity=given_entries), now=now, zone=local)

    for minutes in offsets:
        moment = now + timedelta(minutes=minutes).total_seconds()
        assert found.prices.electricity.at(moment) == by_the_clock(given_entries, moment, local)


@given(
    values=st.lists(st.integers(0, 100), min_size=1, max_size=20),
    bounds=st.tuples(st.floats(-5, 40), st.floats(-5, 40), st.floats(-5, 40)),
)
def test_integrals_over_neighbouring_spans_add_up(values, bounds):
    found = curve({float(at): float(value) for at, value in enumerate(values)}, len(values))
    low, middle, high = sorted(bounds)

    parts = found.over(low, middle) + found.over(middle, high)
    assert found.over(low, high) == pytest.approx(parts)
    assert found.over(0, len(values)) * HOUR == pytest.approx(sum(values))
