"""A short world of the regret bench: its arms get the same Jobs, and each plays by its mode."""

import pytest

from bench import regret
from bench.experiment import objects
from tests.e2e.decisions import POLICY_API

JOBS = 14
SCALE = regret.Scale(jobs=JOBS, run_seconds=3.0, gpus=2)


@pytest.fixture
def tidy(plane):
    """Leave no policy behind for the tests that share the control plane."""
    yield
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


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
