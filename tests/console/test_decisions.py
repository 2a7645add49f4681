"""Decisions are read from two places, and from neither is anything believed that is no decision."""

import json
from dataclasses import replace

import pytest

from tests.console import worlds
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.console.decisions import from_job, from_line
from webhook.console.view import plain
from webhook.model.job import DECISION


@pytest.fixture
def decided():
    """The Job as it was created, and the line that told of it."""
    server = Server(paper_snapshot())
    job, _ = server.create(light_job())
    (line,) = server.logged()
    return job, line


def test_a_job_and_the_log_tell_the_same(decided):
    job, line = decided

    created = line["decision"]["time"]
    found = from_job({**job, "metadata": {**job["metadata"], "creationTimestamp": created}})

    assert found == replace(from_line(json.dumps(line)), is_unverified=True)
    assert (found.namespace, found.job, found.recorded.policy) == ("team", "light", "light-gpu")
    assert (found.recorded.mode, found.option, found.queue) == ("Enforce", "cpu", "cpu-lq")
    assert [(option.name, option.queue) for option in found.recorded.options] == [
        ("gpu", "gpu-lq"),
        ("cpu", "cpu-lq"),
    ]


def test_a_job_that_has_no_name_yet_goes_by_what_its_name_is_made_from(decided):
    _, line = decided
    del line["name"]

    assert from_line(json.dumps({**line, "generateName": "light-"})).job == "light-"


def test_moves_are_the_stays_after_the_first():
    stays = [
        {"time": f"2026-12-01T08:00:0{number}Z", "option": option, "reason": "why"}
        for number, option in enumerate(["gpu", "cpu", "gpu"])
    ]
    line = {
        "namespace": "team",
        "name": "light",
        "decision": {
            "version": 1,
            "id": "d",
            "time": "2026-12-01T08:00:02Z",
            "moves": 2,
            "history": stays,
        },
    }

    found = from_line(json.dumps(line))

    assert [(move.option, move.unix - found.at) for move in found.moves] == [
        ("cpu", -1),
        ("gpu", 0),
    ]


def test_the_json_of_a_decision_is_one_object():
    refused = worlds.option("tpu", pending=None, rejected="stopped: its ClusterQueue is")
    made = worlds.decision(
        options=(worlds.option("cpu", 70.0, starts_in=0.0, runs=70), refused),
        moves=((worlds.UNIX - 30, "cpu", "done 1m sooner there"),),
    )
    times = {"startsIn": None, "runs": None, "finishesIn": None}
    none = {"passedOver": "", "cluster": ""}

    assert plain((made, worlds.decision("d-2", option="", mode="Observe", options=()))) == [
        {
            "id": "d-1",
            "at": worlds.UNIX - 60,
            "namespace": "team",
            "job": "light-1",
            "policy": "light-gpu",
            "mode": "Enforce",
            "option": "cpu",
            "queue": "cpu-lq",
            "reason": "sent to cpu-lq (cpu)",
            "options": [
                {
                    "name": "cpu",
                    "queue": "cpu-lq",
                    "pending": 0,
                    "rejected": "",
                    **none,
                    "startsIn": 0.0,
                    "runs": 70,
                    "finishesIn": 70.0,
                },
                {
                    "name": "tpu",
                    "queue": "tpu-lq",
                    "pending": None,
                    **times,
                    **none,
                    "rejected": "stopped: its ClusterQueue is",
                },
            ],
            "moves": [
                {"at": worlds.UNIX - 30, "option": "cpu", "reason": "done 1m sooner there"},
            ],
            "isReplayed": False,
            "kind": "Job",
            "isUnverified": False,
        },
        {
            "id": "d-2",
            "at": worlds.UNIX - 60,
            "namespace": "team",
            "job": "light-1",
            "policy": "light-gpu",
            "mode": "Observe",
            "option": "",
            "queue": "cpu-lq",
            "reason": "sent to cpu-lq (cpu)",
            "options": [],
            "moves": [],
            "isReplayed": False,
            "kind": "Job",
            "isUnverified": False,
        },
    ]


GOOD = {
    "version": 1,
    "id": "d",
    "time": "2026-12-01T08:00:00Z",
    "options": [{"name": "gpu", "queue": "lq"}],
}


@pytest.mark.parametrize(
    "changed",
    [
        {"id": ""},
        {"id": 7},
        {"time": "yesterday"},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"options": {}},
        {"options": [1]},
        {"options": [{"name": []}]},
        {"version": 2},
        {"options": [{"startsIn": 10**400}]},
        {"reason": "a\ud800b"},
        {"history": [{"time": "never"}], "moves": 1},
    ],
)
def test_what_is_no_decision_is_left_out(changed):
    text = json.dumps({**GOOD, **changed})

    assert _on_job(json.dumps(GOOD)) is not None
    assert _on_job(text) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"x"', "NaN", "[" * 100_000, json.dumps({**GOOD, "x": float("nan")})]
)
def test_what_is_no_json_is_left_out(text):
    assert _on_job(text) is None
    assert from_line(text) is None


def test_an_option_tells_in_which_cluster_it_was_expected_to_run():
    options = [{"name": "gpu", "queue": "lq", "cluster": "worker-1"}, {"name": "cpu"}]

    found = _on_job(json.dumps({**GOOD, "options": options}))

    assert [option.cluster for option in found.recorded.options] == ["worker-1", ""]
    assert _on_job(json.dumps({**GOOD, "options": [{"cluster": 1}]})) is None


def test_of_a_forged_decision_no_more_is_taken_than_a_policy_could_give():
    found = _on_job(json.dumps({**GOOD, "options": [{"name": "x"}] * 1000, "moves": 10**9}))

    assert (len(found.recorded.options), found.moves) == (16, ())


@pytest.mark.parametrize("figures", [{"startsIn": True}, {"startsIn": "soon"}, {"pending": 1.5}])
def test_figures_that_cannot_be_meant_are_not_known(figures):
    found = _on_job(json.dumps({**GOOD, "options": [{"name": "gpu", **figures}]}))

    (option,) = found.recorded.options

    assert (option.starts_in, option.pending) == (None, None)


STAYS = [{"time": "2026-12-01T08:00:00Z", "option": option} for option in ("gpu", "cpu")]
MOVED = {"moves": 1, "history": STAYS}


@pytest.mark.parametrize(
    ("created", "changed", "rest", "ranked"),
    [
        ("2026-12-01T08:00:03Z", "2026-12-01T08:00:03Z", {}, 0),
        ("2026-12-01T07:00:00Z", "2026-12-01T07:30:00Z", {}, -3600),
        ("2026-12-01T07:00:00Z", "2026-12-01T07:30:00Z", MOVED, -1800),
        ("2026-12-01T07:00:00Z", "2026-12-01T09:00:00Z", MOVED, 0),
        ("2026-11-30T07:59:59Z", "2026-12-01T09:00:00Z", MOVED, None),
        ("2026-12-01T08:00:06Z", "2026-12-01T09:00:00Z", MOVED, None),
        ("", "", {}, None),
    ],
    ids=["own", "created", "changed", "moved", "a day later", "before it", "no creation"],
)
def test_a_jobs_own_time_counts_as_far_as_the_api_server_bears_it_out(
    created, changed, rest, ranked
):
    found = _on_job(json.dumps({**GOOD, **rest}), created=created, changed=changed)

    at = None if found is None else found.at - _on_job(json.dumps(GOOD)).at
    assert at == ranked


def _on_job(text, *, created=GOOD["time"], changed=GOOD["time"]):
    metadata = {
        "namespace": "team",
        "name": "light",
        "creationTimestamp": created,
        "managedFields": [{"time": changed}],
        "annotations": {DECISION: text},
    }
    return from_job({"metadata": metadata})
