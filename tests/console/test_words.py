from math import inf

import pytest

from webhook.console import phrases

GI = 1 << 30


@pytest.mark.parametrize(
    ("value", "resource", "text"),
    [
        (1500, "cpu", "1.5"),
        (0, "cpu", "0"),
        (512_000, "cpu", "512"),
        (2_048_000, "cpu", "2,048"),
        (6 * GI, "memory", "6 Gi"),
        (int(12.5 * GI), "memory", "12.5 Gi"),
        (1100 * GI, "memory", "1.07 Ti"),
        (500, "memory", "500"),
        (1 << 31, "hugepages-2Mi", "2 Gi"),
        (1234, "nvidia.com/gpu", "1,234"),
    ],
)
def test_an_amount_has_about_three_figures(value, resource, text):
    assert phrases.amount(value, resource) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "not known"),
        (inf, "not known"),
        (-3.0, "0s"),
        (7_500.0, "2h5m"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds, text):
    assert phrases.duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 Jobs"), (1, "1 Job"), (2000, "2,000 Jobs")])
def test_what_is_counted_agrees_with_its_number(number, text):
    assert phrases.counted(number, "Job") == text


def test_times_are_utc():
    assert phrases.clock(0.0) == "00:00:00"
    assert phrases.machine_time(1_790_000_000.0) == "2026-09-21T14:13:20Z"
    assert phrases.day_and_minute(1_790_000_000.0) == "2026-09-21 14:13 UTC"
