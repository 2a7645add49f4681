"""How often Workloads come, from when those were created that are known."""

import random

import pytest

from webhook.state.forecast_input import (
    steady_rate,
)


def test_what_comes_at_even_intervals_has_that_rate():
    assert steady_rate(range(0, 170, 10), 160) == 0.1


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_at_random_has_about_that_rate(seed):
    chance = random.Random(seed)
    times, now = [], 0.0
    while now < 1000:
        now += chance.expovariate(0.1)
        times.append(now)

    rate = steady_rate(times, now)

    assert rate is not None
    assert rate == pytest.approx(0.1, rel=0.35)


@pytest.mark.parametrize(
    ("created", "now"),
    [
        ([], 100),
        ([0, 10, 20], 100),
        ([100] * 20, 100),
        ([0, *range(1, 31)], 300),
        ([*range(6), *range(200, 206)], 300),
    ],
    ids=["nobody", "too few", "all now", "a burst", "two bursts"],
)
def test_bursts_and_few_tell_of_nobody_who_comes_later(created, now):
    assert steady_rate(created, now) is None


def test_what_is_to_come_only_is_not_counted():
    assert steady_rate([*range(0, 170, 10), 500, 600], 160) == 0.1
