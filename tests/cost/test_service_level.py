"""Replicas for a rate and a latency, against published values of Erlang's C and by hand."""

from math import inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cost.service_level import (
    MOST_REPLICAS,
    ReplicaSpeed,
    ServiceLevel,
    erlang_c,
    level_at,
    most_rate,
    replicas_for,
    requests_each,
)

SPEED = ReplicaSpeed(per_second=20.0, latency=0.08)


@pytest.mark.parametrize(
    ("load", "replicas", "waiting"),
    [(0.5, 1, 0.5), (1.5, 2, 0.6429), (2.0, 3, 0.4444), (4.0, 5, 0.5541), (8.0, 10, 0.4092)],
)
def test_the_probability_of_waiting_is_that_of_published_tables(load, replicas, waiting):
    assert erlang_c(load, replicas) == pytest.approx(waiting, abs=5e-5)


def test_two_replicas_at_three_quarters_make_one_in_twenty_wait_a_quarter_of_a_second():
    # ln(0.6429 / 0.05) = 2.5539 waits of 1 / (2 * 20 - 30) s each.
    level = level_at(30.0, 2, SPEED)

    assert (level.replicas, level.utilisation) == (2, 0.75)
    assert level.latency == pytest.approx(0.08 + 0.25539, abs=1e-5)


def test_one_replica_is_the_line_of_one_counter():
    # In M/M/1 as many wait as the replica is used: ln(0.5 / 0.05) / (20 - 10).
    assert level_at(10.0, 1, SPEED).latency == pytest.approx(0.08 + log(10) / 10)


def test_nobody_waits_where_fewer_than_one_in_twenty_would():
    assert level_at(1.0, 4, SPEED) == ServiceLevel(replicas=4, utilisation=0.0125, latency=0.08)


@pytest.mark.parametrize(("rate", "replicas", "used"), [(40.0, 2, 1.0), (60.0, 2, 1.5)])
def test_the_line_grows_without_end_where_no_time_is_left(rate, replicas, used):
    assert level_at(rate, replicas, SPEED) == ServiceLevel(
        replicas=replicas, utilisation=used, latency=inf
    )


def test_without_a_replica_nothing_is_answered():
    assert level_at(1.0, 0, SPEED) == ServiceLevel(replicas=0, utilisation=inf, latency=inf)


def test_the_fewest_replicas_that_hold_the_latency_are_found():
    # 7 would take 205 ms and 8 take 129 ms.
    level = replicas_for(120.0, 0.2, SPEED)

    assert level is not None
    assert (level.replicas, level.utilisation) == (8, 0.75)
    assert level.latency == pytest.approx(0.12914, abs=1e-5)


@pytest.mark.parametrize(
    ("rate", "target"), [(120.0, 0.07), (20.0 * MOST_REPLICAS, 1.0), (120.0, 0.0)]
)
def test_no_number_of_replicas_holds_what_cannot_be_held(rate, target):
    assert replicas_for(rate, target, SPEED) is None


@given(st.floats(0.1, 1000.0), st.floats(0.081, 2.0), st.floats(0.5, 100.0))
def test_one_replica_fewer_would_not_hold_it(rate, target, per_second):
    speed = ReplicaSpeed(per_second=per_second, latency=0.08)
    level = replicas_for(rate, target, speed)

    assert level is not None
    assert level.latency <= target
    assert level_at(rate, level.replicas - 1, speed).latency > target


def test_the_most_that_one_replica_answers_in_time_is_found():
    # It waits ln(0.28088 / 0.05) / (20 - 5.6175) = 0.12 s, what is left of 200 ms.
    assert most_rate(0.2, 1, SPEED) == pytest.approx(5.6175, abs=1e-3)
    assert most_rate(0.08, 1, SPEED) == pytest.approx(1.0)
    assert most_rate(0.05, 1, SPEED) == 0.0


def test_what_a_replica_has_at_once_follows_from_the_rate_and_the_time():
    # In M/M/1 the mean wait is 0.5 / (20 - 10) s.
    assert requests_each(10.0, 1, SPEED) == pytest.approx(10 * (0.08 + 0.05))
    assert requests_each(10.0, 2, SPEED) < requests_each(10.0, 1, SPEED) / 2
