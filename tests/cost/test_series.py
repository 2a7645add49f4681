import json

import pytest

from tests.cost.tariffs import tariff
from webhook.cost.rates import Points, read_series, series_of
from webhook.model.costs.tariff import SeriesFormat
from webhook.model.fields import FieldError

AT_8, AT_9 = "2026-12-01T08:00:00Z", "2026-12-01T09:00:00Z"
UNIX = 1796112000.0


def read(given, written_as=SeriesFormat.POINTS):
    text = given if isinstance(given, str) else json.dumps(given)
    return read_series(text, written_as, "data.kr")


@pytest.mark.parametrize(
    ("written_as", "given", "want"),
    [
        (
            SeriesFormat.POINTS,
            [{"from": AT_9, "value": 4}, {"from": AT_8, "value": 3}],
            Points(steps={UNIX: 3.0, UNIX + 3600: 4.0}, end=UNIX + 7200),
        ),
        (
            SeriesFormat.CARBON_AWARE,
            [{"location": "x", "timestamp": AT_8, "duration": 5, "value": 415.5}],
            Points(steps={UNIX: 415.5}, end=UNIX + 300),
        ),
        (
            SeriesFormat.CARBON_AWARE,
            [{"location": "x", "time": AT_8, "duration": "PT5M", "rating": 415.5}],
            None,
        ),
        (
            SeriesFormat.ELECTRICITY_MAPS,
            {"zone": "DE", "forecast": [{"datetime": AT_8, "carbonIntensity": 300}]},
            Points(steps={UNIX: 300.0}, end=UNIX + 3600),
        ),
        (
            SeriesFormat.ELECTRICITY_MAPS,
            {"zone": "DE", "history": [{"datetime": AT_8, "carbonIntensity": 300}]},
            Points(steps={UNIX: 300.0}, end=UNIX + 3600),
        ),
        (
            SeriesFormat.WATT_TIME,
            {"data": [{"point_time": AT_8, "value": 1000}], "meta": {}},
            Points(steps={UNIX: pytest.approx(453.59237)}, end=UNIX + 3600),
        ),
    ],
)
def test_each_format_is_read_in_the_order_of_time(written_as, given, want):
    if want is None:
        with pytest.raises(FieldError, match=r"data.kr\[0\].duration: expected a number"):
            read(given, written_as)
    else:
        assert read(given, written_as) == want


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[", "data.kr: expected JSON"),
        ("[NaN]", "data.kr: expected JSON"),
        ("[" * 100_000, "data.kr: expected JSON"),
        ([], "data.kr: expected at least one point"),
        ({"a": 1}, "data.kr: expected a list, got an object"),
        ([1], "data.kr[0]: expected an object"),
        ([{"value": 1}], "data.kr[0].from: expected a time, got nothing"),
        ([{"from": "noon", "value": 1}], "data.kr[0].from: expected a time, got 'noon'"),
        ([{"from": AT_8, "value": True}], "data.kr[0].value: expected a number, got a boolean"),
        ([{"from": AT_8, "value": 1e300}], "data.kr[0].value: expected a number, got a number"),
        ([{"from": AT_8}], "data.kr[0].value: expected a number, got nothing"),
        ("x" * (1 << 21), "data.kr: expected at most 1048576 characters, got 2097152"),
    ],
    ids=range(12),
)
def test_what_is_no_series_is_refused_with_its_place(given, message):
    with pytest.raises(FieldError) as caught:
        read(given)

    assert message in str(caught.value)


def test_each_series_of_rates_is_for_its_flavors_and_one_that_is_missing_is_named():
    points = '[{"from": "2026-12-01T08:00:00Z", "value": 0.31}]'
    here, missing = (
        {"flavors": flavors, "resource": "nvidia.com/gpu", "configMap": name, "key": "p"}
        for name, flavors in (("spot", ["v100", "k80"]), ("gone", ["t4"]))
    )

    found = series_of(
        tariff(series={"rates": [missing, here]}), {"spot": {"p": points}}, unix=1_796_112_000.0
    )

    assert list(found.rates) == [("v100", "nvidia.com/gpu"), ("k80", "nvidia.com/gpu")]
    assert [problem.path for problem in found.problems] == ["spec.series.rates[0]"]
