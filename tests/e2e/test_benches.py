"""The benches' harnesses, shortened, for `make verify`: they need the machine for themselves.

What they conclude from what they measure is tested in tests/bench.
"""

import dataclasses
import time

import pytest

from bench import regret, soak
from bench.experiment import objects, play, reports
from bench.experiment.arms import PAPER, REPORT
from tests.conftest import FULL
from tests.e2e.decisions import POLICY_API

pytestmark = pytest.mark.skipif(not FULL, reason="needs the machine for itself; FULL=1 runs it")

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


@pytest.fixture
def tidy(plane):
    """Leave no policy behind for the tests that share the control plane."""
    yield
    remove_policies(plane)


def remove_policies(plane):
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


@pytest.fixture(scope="module")
def burst(plane, webhook):
    """Play the paper's burst once for all arms, and leave no policy behind."""
    began, agreements, said = time.time(), [], []

    def look(played):
        since = time.time() - began
        agreements.append(reports.agreement(plane, played, since_seconds=since))

    audience = play.Audience(say=said.append, look=look)
    rounds = play.play(
        play.Site(plane), COMPARISON, rounds=1, time_scale=TIME_SCALE, audience=audience
    )
    left = plane.client.list("batch/v1", "Job", namespace="experiment-static")
    yield Burst(rounds, *agreements, said, left)
    remove_policies(plane)


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


JOBS = 14
SCALE = regret.Scale(jobs=JOBS, run_seconds=3.0, gpus=2)


@pytest.mark.usefixtures("tidy", "webhook")
def test_the_jobs_of_a_world_are_all_run_in_all_arms_and_paired(plane):
    pairs = list(regret.played(plane, ["preemption"], SCALE, [1]))

    stay, *_ = regret.arms_of("preemption")
    submissions = regret.scenario("preemption", stay, SCALE, 1).submissions
    found = regret.figures(pairs)
    assert sum(row.jobs for row in found) == len(submissions) >= JOBS / 2
    assert {row.priority for row in found} == {"low", "normal", "urgent"}
    ran = [(pair.stayed, pair.again, pair.decided) for pair in pairs]
    assert all(min(seconds) >= 3.0 * 0.8 for seconds in ran)
    assert sum(row.advised for row in found) > 0
    assert plane.client.list("batch/v1", "Job", namespace=objects.namespace_of(stay)) == []


def test_a_minute_of_creates_goes_without_an_error(webhook):
    found = soak.soak(webhook, seconds=60.0, rate=50.0)

    results = [*found["samples"], found["rest"]]
    assert sum(result["calls"] for result in results) == 3000
    assert sum(result["notes"].get("decided", 0) for result in results) == 3000
    assert [each["errors"] for result in results for each in (result, result["deleted"])] == (
        [{}] * 2 * len(results)
    )
    assert sum(result["deleted"]["calls"] for result in results) == (
        3000 // soak.KEEP_EVERY - soak.KEPT
    )
    assert found["counted"] == dict.fromkeys(soak.COUNTED, 0.0)
    assert found["observerRestarts"] == 0.0
    assert set(found["rest"]["memoryMegabytes"]) == {"server", "observer", "controller"}
