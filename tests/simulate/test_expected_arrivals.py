"""Forecasts at the creation of Jobs beside what then happens, with those who come later."""

from statistics import mean, median

import pytest

from tests.simulate.shipped import shipped
from webhook.flow import create
from webhook.model.decision import Decided
from webhook.simulate import replay
from webhook.state import forecast_input

STAY = {"minimum-gain": "99999s"}
BUSY = {**STAY, "rate-a": "0.067/s", "rate-b": "0.067/s", "gpus": 4, "run-time": "45s"}


def forecasts(monkeypatch, scenario, *, is_expecting):
    """Replay a scenario in which all stay; return each Job with its forecast at its creation."""
    found, consider = {}, create.consider

    def noting(source, kind, view, moment, rules):
        outcome = consider(source, kind, view, moment, rules)
        if isinstance(outcome, Decided):
            found[moment.uid] = outcome.decision.options[0].forecast
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(create, "consider", noting)
        if not is_expecting:
            patched.setattr(forecast_input, "steady_rate", lambda created, now: None)
        arm = next(arm for arm in scenario.arms() if arm.name == "FinishTime")
        result = replay.replay(scenario, arm)
    return [(job, found[job.name].start) for job in result.jobs if found.get(job.name)]


def measured(jobs):
    """Return the median error, the mean error with its sign, and the part within the ranges."""
    waits = [(job.start - job.arrival, start) for job, start in jobs]
    errors = [start.seconds - wait for wait, start in waits]
    covered = [start.low - 1 <= wait <= start.high + 1 for wait, start in waits]
    return median(map(abs, errors)), mean(errors), mean(covered)


@pytest.fixture(scope="module")
def both():
    """Forecasts of a busy cluster without those who come later, and with them."""
    scenarios = [shipped("shared-gpus", seed=seed, **BUSY, duration="1500s") for seed in (3, 4)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        return [
            [
                forecast
                for scenario in scenarios
                for forecast in forecasts(monkeypatch, scenario, is_expecting=is_expecting)
            ]
            for is_expecting in (False, True)
        ]


def test_wide_jobs_are_forecast_better_with_those_who_come_later(both):
    without, expecting = ([row for row in rows if row[0].accelerators > 1] for rows in both)

    (error, bias, covered), (new_error, new_bias, new_covered) = map(measured, (without, expecting))
    assert new_error < 0.8 * error
    assert abs(new_bias) < 0.7 * abs(bias)
    assert new_covered > covered + 0.1
    assert any("arrivals" in start.uncertain for _, start in expecting)


def test_jobs_of_low_priority_are_promised_less_where_others_outrank_them(both):
    without, expecting = (
        [row for row in rows if row[0].priority_class == "low" and row[0].accelerators == 1]
        for rows in both
    )

    (_, bias, covered), (_, new_bias, new_covered) = map(measured, (without, expecting))
    assert bias < 0.0
    assert abs(new_bias) < abs(bias)
    assert new_covered >= covered


@pytest.mark.parametrize("name", ["uniform", "burst"])
def test_where_nobody_is_overtaken_forecasts_are_what_they_were(monkeypatch, name):
    scenario = shipped(name)

    without, expecting = (
        [
            (start.seconds, start.low, start.high)
            for _, start in forecasts(monkeypatch, scenario, is_expecting=is_expecting)
        ]
        for is_expecting in (False, True)
    )

    assert without == expecting
