"""`kubectl fallback simulate --decisions` on files: a log replays under another policy."""

import functools
import json

import pytest
import yaml

from bench.experiment.arms import SCENARIOS
from tests.commands.calling import call
from tests.hindsight import journals
from tests.hindsight.logged import lines

simulate = functools.partial(call, "simulate")
GIVEN = journals.scenario("burst")
CONTAINERS = "job.spec.template.spec.containers"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research"}}


def policies(strategy):
    return [
        {**each, "kind": "FallbackPolicy"}
        for each in GIVEN.policy_objects
        if each["spec"].get("strategy", {}).get("type", "FinishTime") == strategy
    ]


@pytest.fixture
def written(tmp_path):
    """Write a log, the queues with policies that decide by Threshold, and others in a file."""

    def write(*log):
        queues = list(yaml.safe_load_all((SCENARIOS.parent / "queues.yaml").read_text()))
        items = [*queues, NAMESPACE, *policies("Threshold")]
        (tmp_path / "snapshot.json").write_text(json.dumps({"kind": "List", "items": items}))
        (tmp_path / "new.yaml").write_text(yaml.safe_dump_all(policies("FinishTime")))
        (tmp_path / "server.log").write_text("\n".join(log or lines(GIVEN)))
        return [
            *("--decisions", str(tmp_path / "server.log")),
            *("--snapshot", str(tmp_path / "snapshot.json")),
        ]

    return write


def replayed(*arguments):
    found = simulate(*arguments, "-o", "json")
    assert (found.exit_code, found.stderr) == (0, "")
    return json.loads(found.stdout)


def test_another_policy_decides_the_jobs_of_the_log(written, tmp_path):
    arguments = written()

    before = replayed(*arguments)
    after = replayed(*arguments, "--policy", str(tmp_path / "new.yaml"))

    assert [each["strategy"] for each in before["strategies"]] == ["static", "Threshold"]
    assert [each["strategy"] for each in after["strategies"]] == ["static", "FinishTime"]
    static, decided = (each["totals"] for each in after["strategies"])
    wanted = journals.happened(GIVEN, "FinishTime").totals
    assert (after["scenario"], after["jobs"], after["seed"]) == ("decisions", 30, 0)
    assert (static["moved"], decided["moved"]) == (0, pytest.approx(wanted.moved, abs=1))
    assert decided["makespan"] == pytest.approx(wanted.makespan, abs=0.001)
    assert decided["savedPercent"] == pytest.approx(
        100 * (1 - decided["makespan"] / static["makespan"]), abs=0.01
    )


def changed(change):
    """Change the second line of the log."""
    first, second, *rest = lines(GIVEN)
    source = json.loads(second)
    change(source)
    return [first, json.dumps(source), *rest]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: line.update(job=5), "job: expected an object, got a number"),
        (lambda line: line.pop("ts"), "ts: expected seconds since 1970, got nothing"),
        (lambda line: line.update(decision=[]), "decision: expected an object, got a list"),
        (
            lambda line: line["job"]["spec"].update(parallelism="two"),
            "spec.parallelism: expected a whole number, got a string",
        ),
        (
            lambda line: line["job"]["spec"]["template"].pop("spec"),
            f"{CONTAINERS}: expected at least one, whose image names the Job's class",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_what_was_expected(
    written, tmp_path, change, said
):
    found = simulate(*written(*changed(change)))

    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr == f"{tmp_path}/server.log:2: {said}\n"


def test_a_job_of_which_nothing_tells_is_named_until_its_run_time_is_given(written, tmp_path):
    arguments = written(*lines(GIVEN, runs={}))

    found = simulate(*arguments)
    given = replayed(*arguments, "--run-time", "5m")

    wanted = "nothing tells how long this Job runs: give --run-time"
    assert (found.exit_code, found.stderr) == (2, f"{tmp_path}/server.log:1: {wanted}\n")
    runs = {round(job["finish"] - job["start"], 3) for job in given["strategies"][0]["jobs"]}
    assert runs == {300.0}


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (slice(0, 2), "--snapshot: expected with --decisions: the queues are in it\n"),
        (slice(2, 4), "expected one of --filename and --decisions\n"),
    ],
)
def test_log_and_snapshot_belong_together(written, left, said):
    found = simulate(*written()[left])

    assert (found.exit_code, found.stderr) == (2, said)
