"""The decision log as a scenario: the same Jobs come, and another policy may decide them."""

import json
from dataclasses import replace

import pytest

from tests.hindsight import journals
from tests.hindsight.logged import RUNS, lines
from webhook.hindsight.decision_lines import read_decision_lines
from webhook.model.fields import FieldError
from webhook.simulate.replay import replay


def world(given, strategy="FinishTime", **rest):
    return replace(journals.world(given, strategy, mode="Enforce"), **rest)


@pytest.mark.parametrize("strategy", ["static", "FinishTime"])
@pytest.mark.parametrize("name", ["burst", "uniform", "clusters"])
def test_a_log_replays_as_the_scenario_that_it_tells_of(name, strategy):
    given = journals.scenario(name)
    found = read_decision_lines(lines(given), world(given, workers=given.workers))

    (arm,) = found.arms([strategy])
    replayed, wanted = replay(found, arm).totals, journals.happened(given, strategy).totals

    assert replayed.makespan == pytest.approx(wanted.makespan)
    # Classes that differ in arguments alone learn from one another only where these are known.
    assert replayed.mean_turnaround == pytest.approx(wanted.mean_turnaround, rel=0.02)
    assert replayed.moved == pytest.approx(wanted.moved, abs=1)
    assert [job.cluster for job in replay(found, found.arms(["static"])[0]).jobs] == (
        ["worker" if given.workers else ""] * len(found.submissions)
    )


def test_the_journal_knows_better_than_what_was_expected():
    given = journals.scenario("burst")
    entries = journals.entries(given, journals.happened(given, "static"))
    wrong = {kind: dict.fromkeys(queues, 1.0) for kind, queues in RUNS.items()}

    found = read_decision_lines(lines(given, runs=wrong), world(given), entries=entries)

    light = next(each for each in found.submissions if each.name == "light-1")
    assert light.run_seconds["gpu"] == pytest.approx(20, abs=1)
    assert light.run_seconds["cpu"] == pytest.approx(70, abs=4)


def test_a_job_that_still_runs_tells_nothing_of_how_long_it_will():
    given = journals.scenario("burst")
    ended = journals.entries(given, journals.happened(given, "static"))
    running = [replace(entry, finished=0, outcome="") for entry in ended]

    found = read_decision_lines(lines(given), world(given), entries=running)

    assert found.submissions == read_decision_lines(lines(given), world(given)).submissions


def test_a_policy_says_how_long_jobs_run_that_nobody_decided():
    given = journals.scenario("burst")

    found = read_decision_lines(lines(given, runs={}), world(given))

    runs = {each.name: dict(each.run_seconds) for each in found.submissions}
    assert (runs["heavy-1"]["gpu"], runs["light-1"]) == (32.0, {"gpu": 20.0, "cpu": 70.0})


def test_lines_that_let_in_no_job_are_passed_over():
    given = journals.scenario("burst")
    first = json.loads(next(lines(given)))
    others = [
        {**first, "dry_run": True},
        {**first, "operation": "UPDATE"},
        {key: value for key, value in first.items() if key != "job"},
    ]

    found = read_decision_lines(
        ["Traceback", '{"job": cut off', *map(json.dumps, [*others, first])], world(given)
    )

    assert [(each.name, each.at) for each in found.submissions] == [("heavy-1", 0.0)]


def test_a_log_without_jobs_is_refused():
    given = journals.scenario("burst")

    with pytest.raises(FieldError, match=r"server.log: expected lines with a `job`"):
        read_decision_lines(["{}"], world(given), file="server.log")
