"""True run times, drawn before the replay."""

import statistics
from random import Random

import pytest

from webhook.simulate import scenario_file
from webhook.simulate.scenario_spec import RunTimeSpec


def spec(**fields):
    return RunTimeSpec.model_validate(fields)


def draw(specs, given=None, seed=0):
    return scenario_file.draw(
        scenario_file.plan(specs, "runTimes"), given, Random(seed), "runTimes"
    )


def test_what_is_relative_follows_what_it_is_relative_to():
    specs = {
        "slow": spec(of="medium", times=2),
        "medium": spec(of="fast", times=3),
        "fast": spec(median="10s"),
    }

    assert draw(specs) == {"fast": 10.0, "medium": 30.0, "slow": 60.0}


def test_one_without_another_is_relative_to_what_came_with_the_arrival():
    specs = {"gpu": spec(times=1), "cpu": spec(of="gpu", times=10)}

    assert draw(specs, 7.0) == {"gpu": 7.0, "cpu": 70.0}


def test_the_spread_is_lognormal_around_the_median():
    specs = {"gpu": spec(median="100s", sigma=0.5)}
    plan, random = scenario_file.plan(specs, "runTimes"), Random(1)

    drawn = [scenario_file.draw(plan, None, random, "runTimes")["gpu"] for _ in range(4000)]

    # exp(0.5) = 1.65: one sigma up; the quantiles of the standard normal are at 0.159 and 0.841.
    quantiles = statistics.quantiles(drawn, n=1000)
    assert statistics.median(drawn) == pytest.approx(100, rel=0.04)
    assert quantiles[840] == pytest.approx(164.9, rel=0.06)
    assert quantiles[158] == pytest.approx(60.7, rel=0.06)


def test_a_long_run_is_long_wherever_it_is():
    specs = {"gpu": spec(median="100s", sigma=1), "cpu": spec(of="gpu", times=3)}

    found = draw(specs)

    assert found["cpu"] == pytest.approx(3 * found["gpu"])
