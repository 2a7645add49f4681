"""`kubectl fallback queue`: who waits, and when each is expected to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from webhook.__main__ import main

FILE = "examples/snapshot.json"
SNAPSHOT = json.loads(Path(FILE).read_text(encoding="utf-8"))["items"]
LIGHT = "light-4"


def saved(*words, code=0):
    found = CliRunner().invoke(main, ["queue", *words, "--snapshot", FILE])
    assert found.exit_code == code, found.output
    return found.output


@pytest.fixture
def live(tmp_path):
    def run(cluster, *words, namespace="research"):
        with serving(cluster, tmp_path, namespace=namespace) as kubeconfig:
            return CliRunner().invoke(main, ["queue", *words, "--kubeconfig", kubeconfig])

    return run


def job(name, *, suspend=True, status=None):
    metadata = {"name": name, "namespace": "research", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"suspend": suspend, "template": {"spec": {"containers": []}}}
    return {"kind": "Job", "metadata": metadata, "spec": spec, "status": status or {}}


def test_all_that_wait_are_listed_in_kueues_order():
    header, first, second, *_ = saved("-A").splitlines()

    assert header.split() == [
        *("NAMESPACE", "JOB", "CLUSTERQUEUE", "POSITION"),
        *("WAITS", "STARTS", "WITHIN", "SURE"),
    ]
    assert first.split()[:6] == ["research", "heavy-3", "gpu-cq", "1", "of", "11"]
    assert second.split()[:6] == ["research", "light-3", "gpu-cq", "2", "of", "11"]


def test_one_job_is_told_what_its_time_rests_on():
    lines = saved(LIGHT, "-n", "research").splitlines()

    assert lines[0] == "research/light-4"
    assert lines[1].startswith("Position 3 of 11 in gpu-cq, priority 0, pending for ")
    assert lines[2].startswith("Expected to start: in ")
    assert lines[3:] == [
        "It rests on this:",
        "  - how long 6 Workloads ahead of it will run is a guess: no such run was seen",
    ]


def test_json_says_the_same_in_figures():
    (found,) = json.loads(saved(LIGHT, "-n", "research", "-o", "json"))["workloads"]

    assert (found["job"], found["position"], found["pending"]) == (LIGHT, 3, 11)
    assert found["startsInLow"] < found["startsIn"] < found["startsInHigh"]
    assert found["isKnown"] is False


def test_nobody_waits_in_another_namespace():
    assert saved("-n", "nobody") == "No Job waits there.\n"
    assert saved("x", "-n", "nobody", code=1) == "Job nobody/x does not wait there.\n"


def test_a_cluster_is_asked_for_the_kubeconfigs_namespace(live):
    found = live(Cluster(*SNAPSHOT))

    assert found.exit_code == 0
    assert found.output.splitlines()[1].split()[1] == "heavy-3"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (job("light-9", suspend=False, status={"active": 1}), "does not wait: it is started."),
        (job("light-9"), "is suspended, but none of its Workloads waits"),
    ],
)
def test_a_job_that_is_in_no_line_is_told_why(live, given, said):
    found = live(Cluster(*SNAPSHOT, given), "light-9")

    assert found.exit_code == 1
    assert said in found.output


def test_a_job_that_is_not_there_is_not_looked_for_in_vain(live):
    found = live(Cluster(*SNAPSHOT, job("light-9")), "light-99")

    assert (found.exit_code, found.output) == (
        1,
        "There is no Job research/light-99 (there is light-9).\n",
    )


def test_without_rights_one_line_says_so(live):
    found = live(Cluster(*SNAPSHOT, forbidden=("*/clusterqueues",)), LIGHT)

    assert found.exit_code == 1
    assert len(found.output.splitlines()) == 1


def test_explain_tells_it_of_a_job_that_waits(tmp_path):
    cluster = Cluster(*SNAPSHOT, job(LIGHT))
    with serving(cluster, tmp_path, namespace="research") as kubeconfig:
        words = ["explain", LIGHT, "--kubeconfig", kubeconfig]
        text = CliRunner().invoke(main, words).output
        answer = CliRunner().invoke(main, [*words, "-o", "json"]).stdout

    assert "Position 3 of 11 in gpu-cq" in text
    assert json.loads(answer)["waiting"][0]["position"] == 3
