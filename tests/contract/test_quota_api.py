"""The Quota API over HTTP, with a made-up state, held against its page in the docs."""

import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.console.viewers import Only
from tests.console.waiting import LINE
from tests.console.worlds import GPU, PUBLISHED, UNIX, known, state, with_workers
from tests.contract.consoles import ask, read, served
from webhook.console.collect import collect
from webhook.flow.create import dry_run

PAGE = Path(__file__).parents[2] / "docs" / "quota-api.md"
PATHS = ("/quota", "/workloads", "/decisions", "/queue", "/view")
NAMES = ("clusterqueue", "cluster", "flavor", "resource", "kind", "limit", "namespace", "job")


@pytest.fixture(scope="module")
def console():
    view = collect(with_workers(published=PUBLISHED))

    def decide(source, requester):
        return dry_run(source, state(), unix=UNIX, requester=requester)

    with served(lambda: view, waiting=lambda: LINE, decide=decide) as port:
        yield port


@pytest.fixture(scope="module")
def stale():
    with served(lambda: collect(known(counted=None))) as port:
        yield port


VALUES = st.one_of(
    st.sampled_from(("gpu-cq", "cpu-cq", "near", "far", "t4", GPU, "team", "train", "Job", "3")),
    st.text(st.characters(codec="utf-8"), max_size=20),
)


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(PATHS),
    parameters=st.lists(st.tuples(st.sampled_from((*NAMES, "other")), VALUES), max_size=4),
)
def test_whatever_is_asked_gets_figures_or_an_error_that_says_why(console, stale, path, parameters):
    asked = f"{path}?{urlencode(parameters)}"
    for port in (console, stale):
        status, answer = read(port, asked)

        assert status in (200, 400, 404, 503)
        assert ("error" in answer) == (status != 200)


def test_its_page_in_the_docs_names_every_path_and_parameter(console):
    table = re.findall(r"^\| (`/[^|]*) \| ([^|]*)\|", PAGE.read_text("utf-8"), re.MULTILINE)
    rows = {path: named for paths, named in table for path in re.findall("`([^`]*)`", paths)}

    assert {*rows} == {*PATHS, "/dry-run", "/", "/job"}
    for path in PATHS:
        _, answer = read(console, f"{path}?other=1")
        _, _, known = answer["error"].partition("; known: ")
        assert {name for name in NAMES if f"`{name}`" in rows[path]} == {*known.split(", ")} - {""}


def test_answers_have_the_keys_by_which_others_read_them(console):
    view = read(console, "/view")[1]
    decision = read(console, "/decisions")[1]["decisions"][0]

    assert {*view} == {
        *("at", "age", "isStale", "off", "offIn", "leader", "queues", "policies", "decisions"),
        *("clusters", "savings", "wouldSave", "gained", "hours", "savingsAsOf", "currency"),
        "waiting",
    }
    assert {*view["queues"][0]} == {
        *("name", "cohort", "trouble", "pending", "reserving", "admitted", "waits", "cells"),
        *("cluster", "localQueues"),
    }
    assert {*view["policies"][0]} == {
        *("name", "mode", "ready", "message", "decided", "queues", "unreviewed"),
    }
    assert {*decision} == {
        *("id", "at", "namespace", "job", "policy", "mode", "option", "queue", "reason"),
        *("options", "moves", "isReplayed", "kind", "isUnverified"),
    }
    assert {*decision["options"][0]} == {
        *("name", "queue", "startsIn", "runs", "finishesIn", "rejected", "passedOver"),
        *("pending", "cluster"),
    }
    assert {*view["savings"]} == {
        *("since", "jobs", "moved", "savedSeconds", "slower", "late", "deadlines", "rests"),
        *("marginSeconds", "spent", "saved", "deviceHours"),
    }


def test_a_quota_is_told_in_base_units(console):
    assert read(console, "/quota?clusterqueue=gpu-cq&flavor=t4&resource=nvidia.com/gpu") == (
        200,
        {
            "clusterqueue": "gpu-cq",
            "flavor": "t4",
            "resource": GPU,
            "available": 0,
            "quota": 2,
            "reserved": 3,
            "used": 2,
            "borrowed": 1,
        },
    )
    assert read(console, "/quota?clusterqueue=gpu-cq&resource=cpu")[1]["quotas"] == [
        {
            "clusterqueue": "gpu-cq",
            "flavor": "t4",
            "resource": "cpu",
            "available": 2.5,
            "quota": 4,
            "reserved": 1.5,
            "used": 1,
            "borrowed": 0,
        }
    ]


def test_a_workers_quota_names_its_cluster(console):
    whole = "/quota?clusterqueue=gpu-cq&cluster=near"
    quota = {
        "clusterqueue": "gpu-cq",
        "cluster": "near",
        "flavor": "l4",
        "resource": GPU,
        "available": 3,
        "quota": 8,
        "reserved": 5,
        "used": 3,
        "borrowed": 0,
    }

    assert read(console, f"{whole}&flavor=l4&resource={GPU}") == (200, quota)
    assert read(console, whole) == (
        200,
        {"clusterqueue": "gpu-cq", "cluster": "near", "quotas": [quota]},
    )


@pytest.mark.parametrize(
    ("cluster", "error", "age"),
    [
        ("far", "the state of the queues in cluster far is 40s old", 40.0),
        ("new", "the state of the queues in cluster new is not known yet", None),
    ],
)
def test_a_silent_worker_is_no_answer(console, cluster, error, age):
    for path in ("/quota", "/workloads"):
        answer = read(console, f"{path}?clusterqueue=gpu-cq&cluster={cluster}")
        assert answer == (503, {"error": error, "age": age})


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/quota", 400, "clusterqueue: must be given"),
        ("/quota?clusterqueue=", 400, "clusterqueue: must be given once, not empty"),
        (
            "/quota?clusterqueue=a&clusterqueue=b",
            400,
            "clusterqueue: must be given once, not empty",
        ),
        (
            "/quota?clusterqueue=gpu-cq&flavour=t4",
            400,
            "unknown parameter flavour; known: cluster, clusterqueue, flavor, resource",
        ),
        ("/quota?clusterqueue=none", 404, "there is no ClusterQueue none"),
        ("/quota?clusterqueue=gpu-cq&flavor=a100", 404, "ClusterQueue gpu-cq has no flavor a100"),
        (
            "/quota?clusterqueue=gpu-cq&flavor=t4&resource=memory",
            404,
            "ClusterQueue gpu-cq has no quota of memory in flavor t4",
        ),
        (
            "/quota?clusterqueue=cpu-cq&resource=nvidia.com/gpu",
            404,
            "ClusterQueue cpu-cq has no quota of nvidia.com/gpu",
        ),
        (
            "/quota?clusterqueue=gpu-cq&cluster=near-1",
            404,
            "no cluster near-1 is watched; nearest: near",
        ),
        ("/workloads?clusterqueue=gpu-cq&cluster=xyz", 404, "no cluster xyz is watched"),
        (
            "/workloads?clusterqueue=cpu-cq&cluster=near",
            404,
            "there is no ClusterQueue cpu-cq in cluster near",
        ),
        (
            "/quota?clusterqueue=gpu-cq&cluster=near&flavor=t4",
            404,
            "ClusterQueue gpu-cq in cluster near has no flavor t4",
        ),
        ("/workloads?clusterqueue=none", 404, "there is no ClusterQueue none"),
        ("/decisions?limit=0", 400, "limit: must be a number from 1 to 500"),
        ("/decisions?limit=501", 400, "limit: must be a number from 1 to 500"),
        ("/decisions?limit=ten", 400, "limit: must be a number from 1 to 500"),
        ("/view?full=1", 400, "unknown parameter full"),
        ("/nothing", 404, "not found"),
    ],
)
def test_what_cannot_be_answered_says_why(console, path, status, text):
    assert read(console, path) == (status, {"error": text})


@pytest.mark.parametrize("path", ["/quota?clusterqueue=gpu-cq", "/workloads?clusterqueue=gpu-cq"])
def test_old_state_is_no_answer(path):
    with served(lambda: collect(known(now=1020.0))) as port:
        response, body = ask(port, path)

    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert json.loads(body) == {"error": "the state of the queues is 22s old", "age": 22.0}


def test_before_the_first_state_there_is_no_answer(stale):
    assert read(stale, "/quota?clusterqueue=gpu-cq") == (
        503,
        {"error": "the state of the queues is not known yet", "age": None},
    )


def test_decisions_are_limited_and_chosen_by_namespace(console):
    def ids(query):
        return [each["id"] for each in read(console, f"/decisions{query}")[1]["decisions"]]

    assert ids("") == ["d-1", "job-9", "d-2"]
    assert ids("?limit=1") == ["d-1"]
    assert ids("?namespace=other") == ["d-2"]
    assert ids("?namespace=nobody") == []


def test_who_waits_is_told_with_place_and_start(console):
    status, answer = read(console, "/queue?namespace=team&job=train")

    assert status == 200
    assert answer == {
        "total": 1,
        "workloads": [
            {
                "namespace": "team",
                "job": "train",
                "workload": "job-train-1",
                "localQueue": "gpu-lq",
                "clusterQueue": "gpu-cq",
                "priority": 0,
                "created": 1795240800,
                "position": 1,
                "pending": 3,
                "startsIn": 60.0,
                "startsInLow": 30.0,
                "startsInHigh": 90.0,
                "isKnown": True,
                "restsOn": [],
            }
        ],
    }
    _, first = read(console, "/queue?namespace=team&limit=1")
    assert (first["total"], first["workloads"][0]["job"]) == (3, "rayjob/tune")
    assert read(console, "/queue?kind=RayJob")[1]["total"] == 1


@pytest.mark.parametrize(
    ("path", "status", "seen"),
    [
        ("/queue", 200, ["train", "next"]),
        ("/queue?namespace=team", 200, ["train", "next"]),
        ("/queue?namespace=other", 403, None),
        ("/queue?kind=RayJob", 200, []),
        ("/queue?namespace=team&kind=RayJob", 403, None),
        ("/queue?job=theirs", 200, []),
        ("/view", 200, ["train", "next"]),
    ],
)
def test_who_is_bound_to_a_namespace_sees_its_jobs_alone(path, status, seen):
    view = collect(known())
    with served(lambda: view, rights_of=lambda *_: Only("team"), waiting=lambda: LINE) as port:
        answered, answer = read(port, path)

    assert answered == status
    shown = answer.get("workloads", answer.get("waiting"))
    assert seen == (shown if shown is None else [each["job"] for each in shown])
    assert "theirs" not in json.dumps(answer)


def test_before_it_is_known_who_waits_one_is_asked_to_come_again():
    view = collect(known())
    with served(lambda: view) as port:
        response, _ = ask(port, "/queue")

        assert (response.status, response.headers["Retry-After"]) == (503, "5")
        assert read(port, "/view")[1]["waiting"] is None
