"""`kubectl fallback advise`: what runs and would cost less elsewhere, and the commands for it."""

import json

import pytest
import yaml

from tests.commands.calling import call_on
from tests.commands.cluster import Cluster
from tests.controller.moving import job
from tests.reconsider.queued_jobs import OPTIONS, lane, quota
from tests.state.objects import RESERVED, condition, workload

VERSION = {"apiVersion": "kueue-fallback.dev/v1alpha1"}
RULES = {"runTime": "4h", "timeValue": "1"}
TARIFF = {"rates": [{"flavors": ["a100"], "resources": {"cpu": "10"}}]}
POLICY = {
    "mode": "Enforce",
    "match": {"jobSelector": {}},
    "options": [{"name": "gpu", "queue": "gpu-lq"}, {**OPTIONS[1], "slowdown": 0.2}],
    "strategy": {"type": "Cost", "cost": RULES},
}


def named(kind, name, spec):
    return {**VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def resuming():
    found = job(1)
    found["metadata"]["annotations"]["kueue-fallback.dev/checkpoint"] = "10m"
    found["spec"]["suspend"] = False
    found["status"] = {"startTime": "2026-11-21T05:59:00Z", "active": 1}
    return found


def ran_since(now):
    admitted = {**condition("Admitted"), "lastTransitionTime": now}
    return workload(
        "wl-1",
        job="job-1",
        cpu="4",
        conditions=(RESERVED, admitted),
        admitted_to="gpu-cq",
        assigned=1,
    )


@pytest.fixture
def cluster():
    return Cluster(
        quota("gpu", "4"),
        quota("cpu", "9"),
        lane("gpu"),
        lane("cpu"),
        {"kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}},
        {"kind": "Namespace", "metadata": {"name": "team"}},
        named("Tariff", "t", TARIFF),
        named("FallbackPolicy", "light-gpu", POLICY),
        ran_since("2026-11-25T12:00:00Z"),
        resuming(),
    )


def run(tmp_path, cluster, *words):
    return call_on(cluster, tmp_path, "advise", *words)


def test_it_prints_what_would_be_saved_and_the_commands_in_their_order(tmp_path, cluster):
    found = run(tmp_path, cluster)

    assert found.exit_code == 0, found.output
    header, row, blank, before, *recipe = found.stdout.splitlines()
    assert header.split() == ["JOB", "RUNS", "IN", "LEFT", "BETTER", "IN", "DONE", "SAVES", "OF"]
    assert row.startswith("team/job-1  gpu-lq (gpu)  ")
    assert (blank, before) == ("", "Once Job team/job-1 has written a checkpoint, line by line:")
    assert [line.split()[1] for line in recipe] == ["patch", "wait", "annotate", "wait", "patch"]
    assert recipe[2] == "  kubectl annotate job job-1 -n team kueue-fallback.dev/move-to=cpu"


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same_as_numbers(tmp_path, cluster, output, read):
    answer = read(run(tmp_path, cluster, "-n", "team", "-o", output).stdout)

    (found,) = answer["jobs"]
    assert (found["namespace"], found["name"], found["kind"]) == ("team", "job-1", "Job")
    assert (found["here"]["option"], found["there"]["option"]) == ("gpu", "cpu")
    assert found["saves"] == pytest.approx(found["here"]["cost"] - found["there"]["cost"])
    assert (found["policy"], found["obstacle"], len(found["recipe"])) == ("light-gpu", None, 5)


def test_a_job_can_be_named_and_one_that_is_not_there_ends_with_1(tmp_path, cluster):
    assert "team/job-1" in run(tmp_path, cluster, "job-1", "-n", "team").stdout

    missing = run(tmp_path, cluster, "job-2", "-n", "team")
    assert missing.exit_code == 1
    assert "There is no Job team/job-2" in missing.stderr


def test_where_nothing_is_gained_it_says_so(tmp_path, cluster):
    cluster.objects = [item for item in cluster.objects if item["kind"] != "Tariff"]
    cluster.objects[-1]["metadata"]["annotations"].pop("kueue-fallback.dev/checkpoint")

    found = run(tmp_path, cluster)

    assert found.stdout.startswith("No running Job with the annotation")
    assert found.exit_code == 0
