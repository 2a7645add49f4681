"""How often Workloads come, from when those were created that are known."""

import random

import pytest

from webhook.learn import arrival_rates
from webhook.learn.arrival_rates import (
    MOST_ARRIVED,
    ArrivalRate,
    Arrived,
    ArrivedWorkloads,
    steady_rate,
)


def arrived(created, priority=0):
    return Arrived(
        created=created,
        priority=priority,
        charge=((("t4", "nvidia.com/gpu"), 1),),
        job_class=None,
        policy="",
        option="",
        limit_seconds=0,
    )


def test_what_comes_at_even_intervals_has_that_rate_for_as_long_as_it_was_seen():
    assert steady_rate(range(0, 170, 10), 160) == ArrivalRate(per_second=0.1, seen_seconds=160)


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_at_random_has_about_that_rate(seed):
    chance = random.Random(seed)
    times, now = [], 0.0
    while now < 1000:
        now += chance.expovariate(0.1)
        times.append(now)

    rate = steady_rate(times, now)

    assert rate is not None
    assert rate.per_second == pytest.approx(0.1, rel=0.35)


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
    assert steady_rate([*range(0, 170, 10), 500, 600], 160) == ArrivalRate(
        per_second=0.1, seen_seconds=160
    )


def test_the_newest_of_a_queue_are_kept_whatever_order_they_are_read_in():
    times = list(range(MOST_ARRIVED + 50))
    random.Random(1).shuffle(times)
    kept = ArrivedWorkloads()

    for time in times:
        kept.note("gpu-cq", arrived(time))

    assert [each.created for each in kept.of("gpu-cq")] == list(range(50, MOST_ARRIVED + 50))
    assert kept.of("cpu-cq") == ()


def test_queues_to_which_nobody_comes_any_more_make_room(monkeypatch):
    monkeypatch.setattr(arrival_rates, "MOST_QUEUES", 2)
    kept = ArrivedWorkloads()

    for time, name in enumerate(("a", "b", "a", "c")):
        kept.note(name, arrived(time))

    assert [len(kept.of(name)) for name in "abc"] == [2, 0, 1]
