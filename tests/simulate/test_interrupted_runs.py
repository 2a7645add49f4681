"""Runs on what may be taken away: how much longer they take, and that results say how often."""

from random import Random
from statistics import fmean

import pytest

from tests.simulate.files import document
from tests.simulate.priced import START, results, tariff
from webhook.cost.terms import interruption_factor
from webhook.model.costs.prices import HOUR
from webhook.simulate.scenario import lengthened

SPOT = {"flavors": ["slow"], "resources": {"cpu": "1"}}


@pytest.mark.parametrize("checkpoint", [None, 600.0])
@pytest.mark.parametrize("hours", [0.5, 3.0])
def test_on_average_a_run_takes_as_long_as_decisions_expect(checkpoint, hours):
    random = Random(1)

    runs = [
        lengthened(hours * HOUR, per_hour=0.2, checkpoint=checkpoint, random=random)
        for _ in range(4000)
    ]

    expected = interruption_factor(0.2, hours * HOUR, checkpoint=checkpoint, restart=0.0)
    assert fmean(seconds for seconds, _ in runs) / HOUR == pytest.approx(hours * expected, rel=0.02)


def test_without_interruptions_a_run_is_what_it_is():
    assert lengthened(50.0, per_hour=0.0, checkpoint=None, random=Random(1)) == (50.0, 0)


def test_a_run_that_could_never_end_does():
    _, count = lengthened(9 * HOUR, per_hour=900.0, checkpoint=None, random=Random(1))

    assert count == 1_000


def spot(**metadata):
    source = document()
    source["jobs"]["work"]["job"]["metadata"].update(metadata)
    source["arrivals"] = [{"every": {"interval": "1h", "count": 40, "jobs": ["work"]}}]
    source["jobs"]["work"]["runTimes"] = {"fast": "50m", "slow": "50m"}
    return {**source, "start": START, "tariffs": {"objects": [tariff()]}}


def test_only_what_runs_on_such_flavors_is_interrupted():
    source = spot()
    of_one = {**tariff(interruptions="2", rates=[SPOT]), "metadata": {"name": "spot"}}
    source["tariffs"]["objects"].append(of_one)

    _, found = results(source, "static")

    # Where they were submitted to, nothing is taken away.
    assert found["static"].totals.interrupted == 0


def test_interrupted_runs_are_longer_and_counted_and_the_same_each_time():
    source = spot()
    source["tariffs"]["objects"] = [tariff(interruptions="2")]

    (_, one), (_, other) = results(source, "static"), results(source, "static")

    jobs = one["static"].jobs
    assert one["static"].totals.interrupted > 5
    assert all((job.finish - job.start > 3000.0) is (job.interrupted > 0) for job in jobs)
    assert jobs == other["static"].jobs


def test_from_checkpoints_less_is_lost():
    anew, going_on = spot(), spot(annotations={"kueue-fallback.dev/checkpoint": "1m"})
    means = []
    for source in (anew, going_on):
        source["tariffs"]["objects"] = [tariff(interruptions="2")]
        _, found = results(source, "static")
        means.append(found["static"].totals.mean_turnaround)

    assert 3000 < means[1] < 3200 < means[0]
