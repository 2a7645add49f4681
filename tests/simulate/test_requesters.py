"""Who creates a Job in a scenario, for the policies that are only for some."""

import json

import pytest
import yaml
from click.testing import CliRunner

from tests.simulate.files import document
from webhook.__main__ import main


@pytest.fixture
def simulated(tmp_path):
    def simulate(match, **job):
        source = document()
        source["policies"]["objects"][0]["spec"]["match"] = match
        source["jobs"]["work"] |= job
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump(source))
        words = ["simulate", "-f", str(path), "--strategy", "Threshold", "-o", "json"]
        return CliRunner().invoke(main, words)

    return simulate


RESEARCH = {"jobSelector": {}, "groups": ["research"]}
WARNING = (
    "warning: spill asks who creates a Job, which jobs.work.user does not say: it does not apply"
    " there\n"
)


def options(found):
    (strategy,) = json.loads(found.stdout)["strategies"]
    return {job["option"] for job in strategy["jobs"]}


@pytest.mark.parametrize(
    ("job", "expected", "said"),
    [
        ({"user": "alice", "groups": ["research"]}, {"fast", "slow"}, ""),
        ({"user": "bob", "groups": ["sales"]}, {None}, ""),
        ({}, {None}, WARNING),
    ],
)
def test_a_policy_for_a_group_applies_to_those_who_are_said_to_be_in_it(
    simulated, job, expected, said
):
    found = simulated(RESEARCH, **job)

    assert (options(found), found.stderr) == (expected, said)


def test_without_a_policy_that_asks_nobody_need_be_named(simulated):
    assert simulated({"jobSelector": {}}).stderr == ""


def test_groups_are_those_of_a_user(simulated):
    found = simulated(RESEARCH, groups=["research"])

    assert found.exit_code == 2
    assert "jobs.work: expected user beside groups" in found.stderr
