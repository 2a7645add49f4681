"""The times at which a replay may choose moves."""

from __future__ import annotations

import random
from math import inf

import pytest

from webhook.simulate.leader import STEP_SECONDS, Pace

BEGAN = 0.3


def pace():
    begun = Pace()
    begun.begin(BEGAN)
    return begun


def test_moves_are_chosen_two_seconds_after_the_first_job_came():
    assert Pace().next == inf
    assert pace().next == BEGAN + STEP_SECONDS


def test_a_long_wait_takes_no_longer_to_find_the_end_of_than_a_short_one(monkeypatch):
    asked = []
    at = Pace.at
    monkeypatch.setattr(Pace, "at", lambda self, number: asked.append(number) or at(self, number))

    waiting = pace()
    waiting.wait(until=1e9)
    waiting.hurry(9e8)

    assert waiting.next == pytest.approx(9e8, abs=STEP_SECONDS)
    assert len(asked) < 20


@pytest.mark.parametrize("seed", range(10))
def test_the_next_time_is_the_first_of_all_that_is_late_enough(seed):
    draw = random.Random(seed)
    times = [BEGAN + number * STEP_SECONDS for number in range(1, 2000)]
    until, change = draw.uniform(1000, 3000), draw.choice([draw.uniform(3, 900), times[100]])

    waiting = pace()
    waiting.wait(until)
    waited = waiting.next
    waiting.hurry(change)

    assert waited == next(time for time in times if time >= until)
    assert waiting.next == next(time for time in times if time > change)
