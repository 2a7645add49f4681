"""What a policy would have changed for Jobs of which another policy decided some."""

from dataclasses import replace

import pytest

from tests.hindsight import journals
from webhook.hindsight.estimated_gains import as_text, estimate, undecided
from webhook.hindsight.look_back import look_back

GIVEN = journals.scenario("burst")
DECIDED = journals.happened(GIVEN, "FinishTime")


def estimated(strategy):
    world = journals.world(GIVEN, strategy, mode="Observe")
    entries = journals.entries(GIVEN, DECIDED, mode="Enforce")
    return estimate(look_back(undecided(entries), world))


@pytest.mark.parametrize("strategy", ["FinishTime", "Threshold"])
def test_every_figure_has_the_same_baseline(strategy):
    found = estimated(strategy)

    mean = found.turnaround
    assert found.jobs == 30
    assert found.saved == pytest.approx(found.jobs * (mean.before - mean.after))
    assert found.hours_back == pytest.approx(sum(found.hours_by_flavor.values()))


def test_a_policy_that_would_make_jobs_later_is_advised_against():
    found = estimated("FinishTime")
    mean = replace(found.turnaround, after=found.turnaround.before + 60.0)

    later = as_text(replace(found, saved=-60.0 * found.jobs, margin=30.0, turnaround=mean))
    unsure = as_text(replace(found, saved=-20.0, margin=30.0))

    assert "This policy would have made Jobs later: do not use it as it is." in later.splitlines()
    assert "This policy may have made Jobs later: do not use it as it is." in unsure.splitlines()
    assert "do not use it" not in as_text(replace(found, saved=20.0))
