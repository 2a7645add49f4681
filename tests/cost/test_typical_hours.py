"""A year of hours becomes few entries that tell about the same."""

from datetime import UTC, datetime, timedelta
from statistics import fmean
from zoneinfo import ZoneInfo

import pytest

from tests.cost.tariffs import tariff
from webhook.cost.rates import compile_tariff
from webhook.cost.typical_hours import entries, parts

SEOUL = ZoneInfo("Asia/Seoul")


def year(value, zone=UTC):
    """Return the hours of 2025, each with `value(local time)`."""
    first = datetime(2025, 1, 1, tzinfo=UTC)
    hours = [(first + timedelta(hours=number)) for number in range(365 * 24)]
    return [(hour.timestamp(), value(hour.astimezone(zone))) for hour in hours]


@pytest.mark.parametrize(
    ("hours", "most", "want"),
    [
        ([5.0] * 24, 7, [(0, 24)]),
        ([5.0] * 9 + [2.0] * 6 + [5.0] * 9, 7, [(0, 9), (9, 15), (15, 24)]),
        ([9.0] * 6 + [1.0] * 12 + [2.0] * 6, 2, [(0, 6), (6, 24)]),
        ([float(hour) for hour in range(24)], 4, [(0, 6), (6, 12), (12, 18), (18, 24)]),
    ],
    ids=["flat", "noon", "at most two", "a slope"],
)
def test_a_day_is_cut_where_it_changes_most(hours, most, want):
    assert list(parts(hours, most)) == want


def test_what_entries_say_is_close_to_each_hours_mean():
    def solar(local):
        sun = 200.0 if 9 <= local.hour < 16 else 0.0
        return 450.0 - sun * (1 if local.month in (6, 7, 8) else 0.5) - 20 * (local.weekday() > 4)

    points = year(solar, SEOUL)
    found = entries(points, SEOUL, "intensity")

    given = tariff(timeZone="Asia/Seoul", carbon=found)
    assert len(given.spec.carbon) <= 64
    for when in ("2026-07-01T03:00:00+00:00", "2026-01-03T20:00:00+00:00"):
        moment = datetime.fromisoformat(when)
        curve = compile_tariff(given, now=moment.timestamp(), zone=SEOUL).prices.carbon
        assert curve.at(moment.timestamp()) == pytest.approx(
            solar(moment.astimezone(SEOUL)), abs=1.0
        )


def test_noise_of_every_hour_stays_within_what_a_tariff_takes():
    points = [(unix, 100.0 + (unix // 3600 * 7919) % 211) for unix, _ in year(lambda _: 0.0)]

    found = entries(points, UTC, "intensity")

    assert tariff(carbon=found).spec.carbon[0].intensity == f"{fmean(v for _, v in points):.0f}"
    assert len(found) <= 64


def test_a_season_without_values_has_no_entries():
    january = year(lambda _: 5.0)[: 31 * 24]

    assert entries(january, UTC, "intensity") == [
        {"intensity": "5"},
        {
            "months": ["Dec", "Jan", "Feb"],
            "days": ["Mon", "Tue", "Wed", "Thu", "Fri"],
            "hours": "00:00-24:00",
            "intensity": "5",
        },
        {
            "months": ["Dec", "Jan", "Feb"],
            "days": ["Sat", "Sun"],
            "hours": "00:00-24:00",
            "intensity": "5",
        },
    ]
