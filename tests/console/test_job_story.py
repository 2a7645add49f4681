"""One Job from its submission to its end: what is known, in order, and forecast beside truth."""

from datetime import UTC, datetime

import pytest

from tests.console import views
from tests.console.waiting import waiting
from tests.state.objects import PENDING, condition, workload
from webhook.console.job_story import job_story
from webhook.state.workload import read_workload

CREATED = datetime(2026, 11, 21, 6, tzinfo=UTC).timestamp()
NOW = CREATED + 3600


def at(seconds):
    """Write a time so many seconds after the creation."""
    return datetime.fromtimestamp(CREATED + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def since(name, seconds):
    return {**condition(name), "lastTransitionTime": at(seconds)}


RESERVED = since("QuotaReserved", 100), since("Admitted", 100)
READY = (*RESERVED, since("PodsReady", 130))
ENDED = (
    *READY,
    {**since("Finished", 700), "reason": "Succeeded"},
)


def found(*conditions, **rest):
    given = {"job": "train-1", "conditions": conditions, **rest}
    return read_workload(workload(**given))


def admitted(*conditions):
    return found(*conditions, admitted_to="cpu-cq")


OPTIONS = (
    views.option("gpu", starts_in=1200.0, runs=300.0, finishes_in=1500.0),
    views.option("cpu", starts_in=60.0, runs=500.0, finishes_in=560.0),
)
SAID = {"namespace": "team", "at": CREATED, "options": OPTIONS, "reason": "sent to cpu-lq"}
DECIDED = views.decision(1, **SAID)


def told(*workloads, decision=DECIDED, line=None, at=NOW):
    view = views.view(at=at, decisions=(decision,) if decision else (), waiting=line)
    return job_story(view, "team", "train-1", workloads)


def moments(story):
    return [(what, at and at - CREATED, words) for what, at, words in story.moments]


def test_a_job_that_ended_has_all_its_moments():
    story = told(admitted(*ENDED))

    assert story.state == "succeeded"
    assert moments(story) == [
        ("Submitted", 0, ""),
        ("Decided", 0, "to cpu in cpu-lq, by light-gpu: sent to cpu-lq"),
        ("Quota", 100, "in cpu-cq on a100"),
        ("Pods ready", 130, "30s after its admission"),
        ("End", 700, "succeeded"),
    ]


def test_forecast_stands_beside_truth():
    story = told(admitted(*ENDED))

    assert list(story.compared) == [
        ("Starts after", "1m", "1m40s"),
        ("Runs", "8m20s", "10m"),
        ("Done after", "9m20s", "11m40s"),
        ("Done after, in gpu instead", "25m", ""),
    ]


def test_one_that_waits_tells_its_place_and_when_it_starts():
    line = (waiting("train-1", seconds=120.0, position=4, pending=9),)

    story = told(found(PENDING), line=line)

    assert story.state == "pending"
    assert moments(story)[2:] == [
        ("Quota", None, "4 of 9 who wait in gpu-cq; starts in 2m, within 1m to 3m"),
        ("Pods ready", None, ""),
        ("End", None, ""),
    ]
    assert {truth for _, _, truth in story.compared} == {""}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [(RESERVED[:1], "holds quota"), (RESERVED, "starting"), (READY, "running")],
)
def test_its_state_is_said_in_a_word(conditions, state):
    assert told(admitted(*conditions)).state == state


def test_one_that_failed_or_was_ended_by_kueue_is_not_said_to_have_succeeded():
    failed = (*READY, {**since("Finished", 700), "reason": "Failed"})

    assert moments(told(admitted(*failed)))[-1] == ("End", 700, "failed")
    assert moments(told(found(condition("Finished"))))[-1] == (
        *("End", None),
        "over; when is not known",
    )


def test_moves_stand_between_decision_and_quota():
    moves = ((CREATED + 40, "cpu", "done sooner there"),)
    moved = views.decision(1, **{**SAID, "at": CREATED + 40}, moves=moves)

    story = told(admitted(*READY), decision=moved)

    assert [(what, at) for what, at, _ in moments(story) if at is not None] == [
        ("Submitted", 0),
        ("Decided", 0),
        ("Moved", 40),
        ("Quota", 100),
        ("Pods ready", 130),
    ]
    # From the move on: its forecast was made then.
    assert next(story.compared) == ("Starts after", "1m", "1m")


def test_without_a_decision_or_a_workload_the_other_is_told():
    assert list(told(found(PENDING), decision=None).compared) == []
    assert [what for what, _, _ in told().moments] == ["Submitted", "Decided"]
    assert told().state == "gone, or not seen"
    assert told(decision=None) is None
