"""`kubectl fallback estimate`: what a policy would have gained, by Jobs that have ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.commands import weeks
from tests.commands.calling import call, call_on
from tests.commands.cluster import Cluster

WITHIN = 0.15


def estimated(*arguments):
    return call("estimate", *arguments)


@pytest.fixture(scope="module")
def week():
    """A week as it went without any policy."""
    given = weeks.week(seed=1)
    return given, weeks.ran(given, "static")


@pytest.fixture(scope="module")
def state(week, tmp_path_factory):
    return weeks.saved(tmp_path_factory.mktemp("week") / "week.json", *week)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(yaml.safe_dump(weeks.POLICY), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A day, to be quick."""
    given = weeks.week(seed=2, duration="24h")
    path = tmp_path_factory.mktemp("day") / "day.json"
    return weeks.saved(path, given, weeks.ran(given, "static"))


def test_it_agrees_with_what_enforcing_then_does(week, state, policy):
    given, static = week

    found = json.loads(estimated("--snapshot", state, "--policy", policy, "-o", "json").output)

    enforced = weeks.ran(given, "FinishTime")
    totals = enforced.totals
    assert found["jobs"] == len(enforced.jobs)
    assert found["moved"] == pytest.approx(totals.moved, rel=WITHIN)
    assert found["gpuHoursBack"] == pytest.approx(
        weeks.gpu_hours(static) - weeks.gpu_hours(enforced), rel=WITHIN
    )
    assert found["meanWait"]["before"] == pytest.approx(static.totals.mean_wait, rel=0.01)
    assert found["meanWait"]["after"] == pytest.approx(totals.mean_wait, rel=WITHIN)
    assert found["meanTurnaround"]["after"] == pytest.approx(totals.mean_turnaround, rel=WITHIN)


def test_the_first_line_has_the_number_and_the_last_what_is_missing(some, policy):
    lines = estimated("--snapshot", some, "--policy", policy).output.splitlines()

    assert lines[0].startswith("Of ")
    assert " would have moved: " in lines[0]
    assert " GPU hours given back, mean wait " in lines[0]
    assert "What keeps this from saying more:" in lines
    assert any("the Jobs that are still there span" in line for line in lines)
    assert "elsewhere is taken from the policy's slowdown: no such run was seen" in lines[-1]


def test_without_a_policy_one_is_suggested_with_what_it_assumes(some, tmp_path):
    found = estimated("--snapshot", some)

    text, _, suggested = found.output.partition("Correct it, and give it with --policy:\n")
    assert "  - Jobs run 4 times as long in cpu-lq without accelerators, and can do so" in text
    file = tmp_path / "suggested.yaml"
    file.write_text(suggested, encoding="utf-8")
    assert call("check", "-f", file).exit_code == 0
    again = estimated("--snapshot", some, "--policy", str(file))
    assert again.output.splitlines()[0] == text.splitlines()[0]


def test_a_policy_that_matches_nobody_says_so(some, tmp_path):
    nobody = json.loads(json.dumps(weeks.POLICY))
    nobody["spec"]["match"] = {"jobSelector": {"matchLabels": {"no": "one"}}}
    file = tmp_path / "nobody.yaml"
    file.write_text(yaml.safe_dump(nobody), encoding="utf-8")

    lines = estimated("--snapshot", some, "--policy", str(file)).output.splitlines()

    assert "0 would have moved" in lines[0]
    assert "The policy matches none of them." in lines


def test_where_nothing_has_ended_there_is_no_estimate(tmp_path):
    file = tmp_path / "empty.json"
    file.write_text(json.dumps({"kind": "List", "items": []}), encoding="utf-8")

    found = estimated("--snapshot", str(file))

    assert (found.exit_code, found.output) == (1, "There is no finished Job.\n")


def test_a_cluster_without_an_install_is_only_read(some, tmp_path):
    cluster = Cluster(*json.loads(Path(some).read_text(encoding="utf-8"))["items"])

    found = call_on(cluster, tmp_path, "estimate", "--since", "99999d")

    assert found.output.startswith("Of ")
    assert {method for method, _, _ in cluster.asked} == {"GET"}
