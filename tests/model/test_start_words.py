"""What people are told of when a pending Workload starts."""

from math import inf

import pytest

from webhook.model.forecasts import Start

KNOWN = Start(seconds=720.0, low=600.0, high=900.0)


@pytest.mark.parametrize(
    ("start", "expected", "between"),
    [
        (KNOWN, "in 12m", "10m to 15m"),
        (Start(seconds=0.0, low=0.0, high=0.0), "now", ""),
        (Start(seconds=inf, low=inf, high=inf), "not foreseen", ""),
        (Start(seconds=60.0, low=30.0, high=inf), "in 1m", "30s to any time"),
    ],
)
def test_a_start_is_said_with_its_range(start, expected, between):
    assert (start.words, start.range_words) == (expected, between)


def test_nothing_is_in_doubt_where_all_is_known():
    assert KNOWN.doubts == ()


def test_all_that_a_start_rests_on_is_said_once():
    start = Start(
        seconds=60.0,
        low=0.0,
        high=90.0,
        uncertain=("fairSharing", "runTimes", "arrivals"),
        unseen=1,
        unordered="fairSharing",
    )

    assert start.doubts == (
        "how long 1 Workload ahead of it will run is a guess: no such run was seen",
        "who is next cannot be foreseen: Kueue shares quota between queues by what they use",
        "Workloads that usually come may come before it",
    )


def test_one_that_never_fits_is_told_so_and_one_whose_preemptions_are_left_out_too():
    never = Start(seconds=inf, low=inf, high=inf)
    beyond = Start(seconds=60, low=0, high=90, uncertain=("depth",))

    assert never.doubts == ("there is never room for it as things are",)
    left_out = "so many wait that preemptions are forecast only at first"
    assert beyond.doubts == (left_out,)
