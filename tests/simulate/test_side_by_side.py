"""Several strategies at once come to what each comes to alone, and the same every time."""

import os
import subprocess
import sys

import pytest

from tests.simulate import files
from tests.simulate.shipped import SCENARIOS, shipped
from webhook.model.fields import FieldError
from webhook.simulate import comparison
from webhook.simulate.comparison import replay_all
from webhook.simulate.replay import replay

STRATEGIES = ("static", "Threshold", "FinishTime")


@pytest.fixture
def at_once(monkeypatch):
    """Give each strategy a process of its own, however few the Jobs and the CPUs."""
    monkeypatch.setattr(comparison, "LONG_FROM", 0)
    monkeypatch.setattr(comparison, "_processors", lambda: 2)


def test_at_once_and_one_by_one_come_to_the_same_in_the_order_asked_for(at_once, monkeypatch):
    scenario = shipped("burst")
    arms = scenario.arms(STRATEGIES)

    found = replay_all(scenario, arms)
    monkeypatch.setattr(comparison, "_processors", lambda: 1)
    again = replay_all(scenario, arms)

    assert list(found) == list(again) == list(STRATEGIES)
    assert found == again
    assert len({result.totals.makespan for result in found.values()}) > 1


def test_progress_counts_the_jobs_of_all(at_once):
    scenario = files.read()
    told = []

    replay_all(scenario, scenario.arms(("static", "Threshold")), progress=told.append)

    assert told == sorted(told)
    assert told[-1] == 2 * len(scenario.submissions)


def test_what_is_wrong_in_one_of_them_is_told(at_once):
    source = files.changed(("jobs", "work", "runTimes"), {"slow": "30s"})
    scenario = files.read(source)

    with pytest.raises(FieldError, match="expected a run time on flavor fast"):
        replay_all(scenario, scenario.arms(("static", "Threshold")))


def test_the_same_seed_gives_the_same_and_another_one_something_else():
    def finishes(seed):
        scenario = shipped("tiers", seed=seed, rate="9/h")
        (arm,) = scenario.arms(["FinishTime"])
        return [job.finish for job in replay(scenario, arm).jobs]

    assert finishes(3) == finishes(3)
    assert finishes(3) != finishes(4)


def test_the_order_of_sets_and_dicts_changes_nothing():
    program = [
        sys.executable,
        "-m",
        "webhook",
        "simulate",
        "-f",
        f"{SCENARIOS}/guests.yaml",
    ]

    def printed(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.check_output([*program, "-o", "json"], env=environment)

    assert printed("1") == printed("2")
