"""The experiment's harness, shortened: what the rule decides, not how long it takes."""

import pytest

from bench.experiment import objects, play
from bench.experiment.arms import PAPER
from tests.e2e.decisions import POLICY_API

TIME_SCALE = 10.0
COMPARISON = PAPER.only(("static", "threshold"))


@pytest.fixture
def tidy(plane):
    """Leave no policy behind for the tests that share the control plane."""
    yield
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


@pytest.mark.usefixtures("tidy")
def test_every_arm_runs_all_jobs_and_the_rule_decides_alone_in_its_own(plane, webhook):
    said = []

    outcome = play.play(
        play.Site(plane), COMPARISON, rounds=1, time_scale=TIME_SCALE, say=said.append
    )

    assert list(outcome.rounds) == ["uniform", "burst"]
    for (played,) in outcome.rounds.values():
        static, threshold = played["static"], played["threshold"]
        assert [len(static), len(threshold)] == [30, 30]
        assert not any(course.failed for course in (*static, *threshold))
        assert {course.queue for course in static} == {"gpu-lq"}
        assert {course.option for course in static} == {""}
        moved = [course for course in threshold if course.queue == "cpu-lq"]
        assert {course.template for course in moved} == {"light"}
        assert {course.option for course in threshold if course.template == "light"} == {
            "gpu",
            "cpu",
        }
    assert "round 1 of 1: burst" in said
    assert plane.client.list("batch/v1", "Job", namespace="experiment-static") == []
