"""`kubectl fallback queue`: who waits, and when each is expected to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.calling import call, call_on
from tests.commands.cluster import Cluster

FILE = "examples/snapshot.json"
SNAPSHOT = json.loads(Path(FILE).read_text(encoding="utf-8"))["items"]
LIGHT = "light-4"


def saved(*words, code=0):
    found = call("queue", *words, "--snapshot", FILE)
    assert found.exit_code == code, found.output
    return found.output


@pytest.fixture
def live(tmp_path):
    def run(cluster, *words):
        return call_on(cluster, tmp_path, "queue", *words, namespace="research")

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
    others = len(json.loads(saved("-A", "-o", "json"))["workloads"])
    assert others > 0
    said = f"No pending Jobs in namespace nobody; {others} in others: -A.\n"
    assert saved("-n", "nobody") == said
    assert saved("x", "-n", "nobody", code=1) == "Job nobody/x does not wait there.\n"


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


def test_explain_tells_it_of_a_job_that_waits(tmp_path):
    cluster = Cluster(*SNAPSHOT, job(LIGHT))
    text, answer = (
        call_on(cluster, tmp_path, "explain", LIGHT, *words, namespace="research").stdout
        for words in ((), ("-o", "json"))
    )

    assert "Position 3 of 11 in gpu-cq" in text
    assert json.loads(answer)["waiting"][0]["position"] == 3
