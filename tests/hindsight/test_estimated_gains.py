"""What a policy would have changed for Jobs of which another policy decided some."""

from dataclasses import replace

import pytest

from tests.hindsight import journals
from webhook.hindsight.estimated_gains import as_json, as_text, estimate
from webhook.hindsight.look_back import look_back

GIVEN = journals.scenario("burst")
DECIDED = journals.happened(GIVEN, "FinishTime")


def estimated(strategy):
    world = journals.world(GIVEN, strategy, mode="Observe")
    entries = journals.entries(GIVEN, DECIDED, mode="Enforce")
    return estimate(look_back(entries, world, as_observed=True))


@pytest.mark.parametrize("strategy", ["FinishTime", "Threshold"])
def test_every_figure_has_the_same_baseline(strategy):
    found = estimated(strategy)

    shown = as_json(found)
    mean = shown["meanTurnaround"]
    assert shown["jobs"] == 30
    assert shown["savedSeconds"] == pytest.approx(30 * (mean["before"] - mean["after"]))
    assert shown["gpuHoursBack"] == pytest.approx(sum(shown["gpuHoursBackByFlavor"].values()))


def test_a_policy_that_would_make_jobs_later_is_advised_against():
    found = estimated("FinishTime")

    def saying(gained, lost):
        gain = replace(found.gain, gained_seconds=gained, lost_seconds=lost, margin_seconds=30.0)
        return as_text(replace(found, gain=gain))

    later, unsure = saying(0.0, 1800.0), saying(0.0, 20.0)

    assert "This policy would have made Jobs later: do not use it as it is." in later.splitlines()
    assert "This policy may have made Jobs later: do not use it as it is." in unsure.splitlines()
    assert "do not use it" not in saying(20.0, 0.0)
