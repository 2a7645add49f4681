"""What is learned from runs whose true distribution is known; every trial has its own seed."""

import math
import random

import pytest

from webhook.learn.estimates import PRIOR_SIGMA, estimate, spread_of
from webhook.learn.run_records import MOST_RUNS, Run
from webhook.model.forecasts import Basis, RunTime

SIGMA = 0.5


def runs(seconds):
    return [Run(finished=second, uid=0, seconds=each) for second, each in enumerate(seconds)]


def drawn(chance, count=MOST_RUNS, *, median=60.0, sigma=SIGMA):
    return [round(median * math.exp(chance.gauss(0, sigma))) for _ in range(count)]


def test_nothing_is_learned_from_no_run():
    assert estimate([]) is None


def test_equal_runs_are_expected_again():
    found = estimate(runs([70] * 40))

    assert found is not None
    assert (found.seconds, found.runs, found.basis) == (pytest.approx(70), 40, Basis.LEARNED)
    assert 50 < found.low < 70 < found.high < 95


def test_after_40_runs_the_estimate_is_within_a_fifth_of_the_true_median():
    trials = [estimate(runs(drawn(random.Random(seed)))) for seed in range(200)]

    near = sum(48 <= found.seconds <= 72 for found in trials)
    assert near >= 180


def test_the_range_holds_about_eight_of_ten_runs():
    inside = 0
    for seed in range(200):
        chance = random.Random(seed)
        found = estimate(runs(drawn(chance)))
        inside += sum(found.low <= each <= found.high for each in drawn(chance, 50))

    assert 0.76 < inside / 10_000 < 0.86


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_runs_have_a_range_that_holds_as_many(count):
    inside = 0
    for seed in range(200):
        chance = random.Random(seed)
        found = estimate(runs(drawn(chance, count)))
        inside += sum(found.low <= each <= found.high for each in drawn(chance, 50))

    assert inside / 10_000 > 0.78


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_the_range_of_few_runs_is_as_wide_as_runs_elsewhere_were_apart(sigma):
    inside = 0
    for seed in range(200):
        chance = random.Random(seed)
        elsewhere = runs(drawn(chance, median=600, sigma=sigma))
        found = estimate(
            runs(drawn(chance, 3, median=6000, sigma=sigma)), prior_sigma=spread_of([elsewhere])
        )
        inside += sum(
            found.low <= each <= found.high for each in drawn(chance, 50, median=6000, sigma=sigma)
        )

    assert 0.7 < inside / 10_000 < 0.9


def test_runs_that_are_alike_elsewhere_narrow_the_range_of_few():
    alone = estimate(runs([70] * 3))
    known = estimate(runs([70] * 3), prior_sigma=spread_of([runs([20] * 30), runs([31] * 20)]))

    assert known.high / known.low < 1.3
    assert alone.high / alone.low > 2


def test_without_runs_elsewhere_their_spread_is_a_guess():
    assert spread_of([]) == spread_of([[]]) == PRIOR_SIGMA


def test_the_range_narrows_with_runs():
    widths = [estimate(runs([60] * count)) for count in (1, 3, 10, 40)]

    ratios = [found.high / found.low for found in widths]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 5
    assert ratios[-1] < 2


@pytest.mark.parametrize("dropped", [0, 1], ids=["appended", "in the place of the oldest"])
def test_one_run_a_hundred_times_too_long_changes_it_by_less_than_a_tenth(dropped):
    for seed in range(200):
        seconds = drawn(random.Random(seed))
        before = estimate(runs(seconds)).seconds
        after = estimate(runs([*seconds[dropped:], 6000])).seconds

        assert after == pytest.approx(before, rel=0.1), f"seed {seed}"


@pytest.mark.parametrize("factor", [0.2, 0.5, 2, 5])
def test_a_lasting_change_is_followed_within_15_runs(factor):
    followed = 0
    for seed in range(40):
        chance = random.Random(seed)
        seconds = [
            *drawn(chance, 30, median=600, sigma=0.15),
            *drawn(chance, 15, median=600 * factor, sigma=0.15),
        ]
        found = estimate(runs(seconds[-MOST_RUNS:]))
        followed += abs(math.log(found.seconds / (600 * factor))) < 0.25

    assert followed >= 36


def test_recent_runs_weigh_more():
    older, newer = [60, 62, 58, 61] * 5, [80, 82, 78, 81] * 3

    found = estimate(runs([*older, *newer]))

    assert found.seconds > 72


def test_a_run_within_one_second_counts_for_half_of_one():
    assert estimate(runs([0])) == RunTime(
        seconds=pytest.approx(0.5),
        low=pytest.approx(0.5 / 2.967, rel=0.01),
        high=pytest.approx(0.5 * 2.967, rel=0.01),
        basis=Basis.LEARNED,
        runs=1,
    )


@pytest.mark.parametrize(
    ("ends", "warm"),
    [
        # Each takes 100 s: the second began right at the end of the first, the third too late.
        ([0], 0.0),
        ([0, 100], 0.5),
        ([0, 99], 0.0),
        ([0, 100, 100 + 7_300, 100 + 7_401], 0.75),
        ([0, 100 + 7_201], 0.0),
        # Of many the newest ten count.
        ([0, *(20_000 * n for n in range(1, 5)), *(90_000 + 200 * n for n in range(10))], 0.9),
    ],
)
def test_a_run_is_warm_that_begins_within_two_hours_of_the_end_of_another(ends, warm):
    found = estimate(Run(finished=end, uid=0, seconds=100) for end in ends)

    assert found.warm == warm
