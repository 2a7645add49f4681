"""What a row of a file says of its Job: priority, queue and requests."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from tests.simulate import files
from webhook.simulate.replay import replay
from webhook.simulate.scenario_spec import ScenarioError

COLUMNS = {"priority": "class", "queue": "to", "requests": {"cpu": "cores"}}


def scenario(*rows, columns=COLUMNS):
    source = copy.deepcopy(files.document())
    source["cluster"]["objects"] += [priority_class("high", 100), priority_class("low", -10)]
    csv = {
        "file": "t.csv",
        "columns": {"arrival": "at", "runTime": "seconds", **columns},
        "arrivalFormat": "seconds",
        "jobs": [{"job": "work"}],
    }
    source["arrivals"] = [{"csv": csv}]
    source["jobs"]["work"]["runTimes"] = {"fast": {"times": 1}, "slow": {"of": "fast", "times": 3}}
    return files.read(source, {"t.csv": "\n".join(["at,seconds,class,to,cores", *rows])})


def priority_class(name, value):
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def test_rows_say_priority_queue_and_requests_of_their_jobs():
    found = scenario("0,10,high,slow,500m", "1,10,,,")

    jobs = [found.manifest(submission) for submission in found.submissions]
    labels = [job["metadata"]["labels"] for job in jobs]
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs]

    assert labels == [
        {"kueue.x-k8s.io/queue-name": "slow", "kueue.x-k8s.io/priority-class": "high"},
        {"kueue.x-k8s.io/queue-name": "fast"},
    ]
    assert [each["resources"]["requests"] for each in containers] == [
        {"cpu": "500m"},
        {"cpu": "1"},
    ]


def test_a_limit_follows_what_a_row_requests():
    found = scenario("0,10,,,500m")
    container = found.templates["work"]["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"cpu": "1", "memory": "1Gi"}

    job = found.manifest(found.submissions[0])

    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }


def test_the_higher_priority_of_a_row_is_served_first():
    found = scenario("0,10,low,,1", "1,10,low,,1", "2,10,high,,1")
    (static,) = found.arms(["static"])

    jobs = replay(found, static).jobs

    assert [(job.priority_class, job.start) for job in jobs] == [
        ("low", 0.0),
        ("low", 22.0),
        ("high", 11.0),
    ]


def test_small_requests_of_rows_run_side_by_side():
    found = scenario("0,10,,,500m", "0,10,,,500m", "0,10,,,500m")
    (static,) = found.arms(["static"])

    assert [job.start for job in replay(found, static).jobs] == [0.0, 0.0, 11.0]


MISTAKES = yaml.safe_load(Path(__file__).with_name("row_mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_a_row_that_does_not_fit_the_cluster_is_refused_with_its_line(mistake):
    with pytest.raises(ScenarioError) as refused:
        scenario(mistake["row"], columns=mistake.get("columns", COLUMNS))

    assert str(refused.value) == mistake["message"]
