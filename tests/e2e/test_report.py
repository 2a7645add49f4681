"""What `report` says beside what is measured: the paper's burst, observed and enforced at once."""

import time

import pytest

from bench.experiment import objects, play, reports
from bench.experiment.arms import REPORT
from tests.e2e.decisions import POLICY_API

TIME_SCALE = 2.0
OFF_AT_MOST = 0.25
"""Of what is measured; on a quiet machine, at full length, it is a tenth and less."""
UNLIKE = 0.08
"""Of all turnarounds: by so much two runs differ that a busy machine does beside each other."""


@pytest.fixture
def tidy(plane):
    """Leave no policy behind for the tests that share the control plane."""
    yield
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


@pytest.mark.usefixtures("tidy")
def test_a_report_agrees_with_what_enforcing_saves_whether_promised_or_done(plane, webhook):
    began, found = time.time(), []

    def look(played):
        since = time.time() - began
        found.append(reports.agreement(plane, played, since_seconds=since))

    play.play(play.Site(plane), REPORT, rounds=1, time_scale=TIME_SCALE, say=print, look=look)

    (agreement,) = found
    print(agreement)
    allowed = max(OFF_AT_MOST * agreement.measured, UNLIKE * agreement.observed)
    assert agreement.measured > 0
    assert agreement.saved == pytest.approx(agreement.measured, abs=allowed)
    assert agreement.promised == pytest.approx(agreement.measured, abs=allowed)
    assert abs(agreement.off) < 100 * OFF_AT_MOST
