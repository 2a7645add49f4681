"""Which services are moved to an option in which an hour costs less, and which are put back."""

import pytest

from tests.reconsider.serving import NOW, PERIOD, chat, chosen, service

CHEAPER = ("chat", "l40s", "costs 24 less in 24h")


def test_it_goes_where_an_hour_costs_less_and_its_latency_is_met():
    # The T4 would cost least, and a request takes longer there than it may.
    assert chosen(service()) == ([CHEAPER], {})
    assert chosen(service("l40s")) == ([], {})


@pytest.mark.parametrize(
    ("rules", "is_moved"),
    [
        # It saves 1 of 6 in an hour, and so 16.7 percent.
        ({}, False),
        ({"minimumSaving": {"percent": 16}}, True),
        ({"minimumSaving": {"percent": 17}}, False),
        ({"minimumSaving": {"amount": "24", "percent": 0}}, True),
        ({"minimumSaving": {"amount": "25", "percent": 0}}, False),
        ({"minimumSaving": {"amount": "25", "percent": 0}, "horizon": "25h"}, True),
    ],
)
def test_it_must_save_the_minimum_over_the_horizon(rules, is_moved):
    moves, obstacles = chosen(service(), reconsider={"after": "30s", **rules})

    assert ([option for _, option, _ in moves], obstacles) == (["l40s"] if is_moved else [], {})


@pytest.mark.parametrize(
    ("given", "obstacle"),
    [
        ({"is_done": False, "changed": NOW - 60}, "rolling"),
        ({"changed": NOW - 29}, "tooSoon"),
        ({"moved": (NOW - 100, NOW - 50)}, "maxMoves"),
        ({"moved": (NOW - PERIOD, NOW - 50)}, None),
    ],
)
def test_it_is_not_moved_while_it_rolls_nor_too_often(given, obstacle):
    moves, obstacles = chosen(service(**given))

    assert obstacles == ({obstacle: 1} if obstacle else {})
    assert moves == ([] if obstacle else [CHEAPER])


def test_of_a_policy_one_rolls_at_a_time():
    first, second = service(name="a"), service(name="b")
    rolling = service("l40s", name="c", is_done=False, left="h100", changed=NOW - 60)

    assert len(chosen(first, second)[0]) == 1
    assert chosen(first, second, rolling) == ([], {"rolling": 1})


def test_one_that_does_not_get_ready_is_put_back_once():
    late = {"is_done": False, "changed": NOW - 601}
    back = ("chat", "h100", "put back, as new pods were not ready in 10m")

    assert chosen(service("l40s", left="h100", **late)) == ([back], {})
    # Its last move has put it back, or its option is gone from the policy.
    assert chosen(service("l40s", **late)) == ([], {"rolling": 1})
    assert chosen(service("l40s", left="gone", **late)) == ([], {"rolling": 1})
    # What fails days later does so for another reason.
    later = service("l40s", left="h100", is_done=False, changed=NOW - 2 * PERIOD)
    assert chosen(later) == ([], {"rolling": 1})


def test_where_it_did_not_get_ready_it_is_not_tried_for_a_day():
    assert chosen(service(failed={"l40s": NOW - PERIOD + 1})) == ([], {})
    assert chosen(service(failed={"l40s": NOW - PERIOD})) == ([CHEAPER], {})


def test_where_costs_are_not_known_it_stays():
    assert chosen(service(), without=("Tariff",)) == ([], {})
    assert chosen(service("gone")) == ([], {"costUnknown": 1})


@pytest.mark.parametrize(
    ("source", "given"),
    [
        (chat(policy="none"), {}),
        (chat(), {"mode": "Observe"}),
        (chat(), {"reconsider": None}),
        ({**chat(), "metadata": {**chat()["metadata"], "annotations": {}}}, {}),
    ],
)
def test_what_no_policy_compares_or_may_move_is_left_alone(source, given):
    assert chosen(service(source=source), **given) == ([], {})
