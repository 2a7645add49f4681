"""The experiment's harness, shortened: what the rule decides, and what `report` says of it."""

import dataclasses
import time

import pytest

from bench.experiment import objects, play, reports
from bench.experiment.arms import PAPER, REPORT
from tests.e2e.decisions import POLICY_API

TIME_SCALE = 2.0
COMPARISON = dataclasses.replace(
    REPORT, arms=(*PAPER.only(("static", "threshold")).arms, *REPORT.arms)
)
OFF_AT_MOST = 0.25
"""Of what is measured; on a quiet machine, at full length, it is a tenth and less."""
UNLIKE = 0.08
"""Of all turnarounds: by so much two runs differ that a busy machine does beside each other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Burst:
    courses: play.Rounds
    agreement: reports.Agreement
    said: list[str]
    left: list[objects.Object]
    """Jobs that stand in the namespace of an arm after all."""


@pytest.fixture(scope="module")
def burst(plane, webhook):
    """Play the paper's burst once for all arms, and leave no policy behind."""
    began, agreements, said = time.time(), [], []

    def look(played):
        since = time.time() - began
        agreements.append(reports.agreement(plane, played, since_seconds=since))

    audience = play.Audience(say=said.append, look=look)
    outcome = play.play(
        play.Site(plane), COMPARISON, rounds=1, time_scale=TIME_SCALE, audience=audience
    )
    left = plane.client.list("batch/v1", "Job", namespace="experiment-static")
    yield Burst(outcome.rounds, *agreements, said, left)
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


def test_every_arm_runs_all_jobs_and_the_rule_decides_alone_in_its_own(burst):
    ((played,),) = burst.courses.values()

    static, threshold = played["static"], played["threshold"]
    assert [len(courses) for courses in played.values()] == [30] * len(COMPARISON.arms)
    assert not any(course.failed for courses in played.values() for course in courses)
    assert {course.queue for course in static} == {"gpu-lq"}
    assert {course.option for course in static} == {""}
    moved = [course for course in threshold if course.queue == "cpu-lq"]
    assert {course.template for course in moved} == {"light"}
    light = {course.option for course in threshold if course.template == "light"}
    assert light == {"gpu", "cpu"}
    assert "round 1 of 1: burst" in burst.said
    assert burst.left == []


def test_a_report_agrees_with_what_enforcing_saves_whether_promised_or_done(burst):
    agreement = burst.agreement

    print(agreement)
    allowed = max(OFF_AT_MOST * agreement.measured, UNLIKE * agreement.observed)
    assert agreement.measured > 0
    assert agreement.saved == pytest.approx(agreement.measured, abs=allowed)
    assert agreement.promised == pytest.approx(agreement.measured, abs=allowed)
    assert abs(agreement.off) < 100 * OFF_AT_MOST
