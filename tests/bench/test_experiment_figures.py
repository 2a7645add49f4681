"""What the experiment makes of what happened."""

import pytest

from bench.experiment import figures
from bench.experiment.arms import PAPER
from bench.experiment.course import Course

STATIC, _, PRIORS, _ = PAPER.arms


def ran(name, due, started, finished, *, queue="gpu-lq", run=10.0, **more):
    return Course(
        name=name,
        template=name[0],
        submitted_to="gpu-lq",
        due=due,
        created=due + 0.1,
        queue=queue,
        started=started,
        finished=finished,
        run_seconds=run,
        **more,
    )


ROUND = (
    ran("a1", 0.0, 0.2, 12.2, starts_in=0.0),
    ran("b1", 1.0, 12.7, 24.7, starts_in=10.0),
    ran("b2", 2.0, 2.2, 42.2, queue="cpu-lq", run=40.0),
)


def test_a_round_comes_to_its_figures():
    found = figures.figures(ROUND)

    assert found.makespan == pytest.approx(42.1)
    assert found.turnaround == pytest.approx((12.1 + 23.6 + 40.1) / 3)
    assert found.by_template == pytest.approx({"a": 12.1, "b": 31.85})
    assert (found.moved, found.failed) == (("b2",), 0)
    assert found.overhead == pytest.approx(2.0)
    assert found.gap == pytest.approx(0.5)
    assert found.lag_p90 == pytest.approx(0.1)
    (first, second) = found.forecasts
    assert first == pytest.approx((0.0, 0.1))
    assert second == pytest.approx((10.0, 11.6))


def test_forecasts_of_short_waits_may_be_off_by_five_seconds():
    assert figures.forecast_error([(100.0, 200.0)], 50) == 50.0
    assert figures.forecast_error([(5.0, 0.0)], 50) == 10.0
    assert figures.forecast_error([(0.0, 5.0)], 90) == 25.0
    assert figures.forecast_error([], 50) is None


def made(makespan, **more):
    return figures.figures([ran("a1", 0.0, 0.5, makespan + 0.1, run=makespan - 2, **more)])


def test_only_arms_that_ran_are_held_to_their_targets():
    rounds = {"static": [made(200.0), made(100.0)], "threshold": [made(180.0), made(95.0)]}

    found = figures.targets("burst", rounds, {"threshold": 150.0})

    assert [(each.name, round(each.value, 1), each.is_met) for each in found] == [
        ("burst: threshold saves, % of static, mean", 7.5, False),
        ("burst: simulate is off for threshold, %", 9.1, False),
    ]


def test_behind_multikueue_two_points_less_must_be_saved():
    rounds = {"static": [made(200.0)], "threshold": [made(184.0)]}

    limits = [
        figures.targets("burst", rounds, {}, clusters=clusters)[0].limit for clusters in (1, 2)
    ]

    assert limits == [9, 7]


def test_a_busy_machine_is_complained_of():
    late = figures.figures([ran("a1", 0.0, 0.5, 12.0), ran("a2", -2.0, 0.5, 20.0)])
    late = figures.dataclasses.replace(late, lag_p90=1.4)

    assert figures.complaints({"static": [late]}, time_scale=1) == [
        "The machine was too busy, these figures are not to be trusted:",
        "static: Jobs were created 1.4 s late (p90)",
        "static: Jobs held quota 9.5 s longer than they ran (p90)",
    ]
    assert figures.complaints({"static": [made(50.0)]}, time_scale=1) == []
