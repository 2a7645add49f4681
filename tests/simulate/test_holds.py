"""Replays in which Jobs are held for a cheaper hour."""

import copy
import json

import pytest

from tests.simulate.files import document, read
from tests.simulate.priced import results, tariff

HOUR = 3600.0
RATES = [
    {"flavors": ["fast"], "resources": {"cpu": "10"}},
    {"flavors": ["fast"], "hours": "04:00-06:00", "resources": {"cpu": "1"}},
]


def holding(name, **cost):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": name},
        "spec": {
            "match": {"jobSelector": {}},
            "options": [{"queue": "fast"}],
            "strategy": {"type": "Cost", "cost": cost},
        },
    }


def waiting(count=1, **changes):
    """Return a scenario of Jobs of an hour that come at midnight and may wait for nine."""
    found = copy.deepcopy(document())
    found["policies"]["objects"] = [holding("now"), holding("later", hold={"longest": "12h"})]
    work = {"runTimes": {"fast": "60m"}, "said": {"of": "fast", "times": 1}, "deadline": "12h"}
    found["jobs"]["work"] |= work
    found["arrivals"] = [{"burst": {"count": count, "jobs": ["work"]}}]
    prices = {"start": "2026-01-05T00:00Z", "tariffs": {"objects": [tariff(rates=RATES)]}}
    return {**found, **prices, **changes}


def starts(source):
    _, found = results(source, "later")
    return [round(job.start / HOUR, 2) for job in found["later"].jobs]


def test_a_job_that_may_wait_starts_in_the_cheapest_hour():
    _, found = results(waiting(), "now", "later")

    (at_once,), (later,) = found["now"].jobs, found["later"].jobs
    assert (at_once.start, later.start) == (0.0, 4 * HOUR)
    assert later.cost.money == pytest.approx(at_once.cost.money / 10, rel=0.05)
    assert later.cost.late == 0.0


def test_one_plan_lets_jobs_take_turns_and_each_alone_would_want_the_same_hour():
    planned = starts(waiting(2))
    alone = starts(waiting(2, holding="Alone"))

    # Two hours are cheap, and there is one core.
    assert planned[0] == 4.0
    assert 5.0 <= planned[1] <= 5.5
    # Both are released at four, so that one waits for the other in the queue.
    assert alone == [4.0, 5.0]


def test_in_a_full_queue_a_job_that_may_wait_lets_those_through_that_may_not():
    source = waiting(tariffs={"objects": [tariff(rates=RATES[:1])]})
    urgent = {key: text for key, text in source["jobs"]["work"].items() if key != "deadline"}
    source["jobs"]["urgent"] = urgent
    # How long the one runs that is in the way is known from the first three.
    jobs = {"0h": "urgent", "1h": "urgent", "2h": "urgent", "3h": "urgent"}
    jobs |= {"190m": "work", "200m": "urgent"}
    source["arrivals"] = [{"at": at, "job": job} for at, job in jobs.items()]

    # A minute lies between two looks at who is held.
    assert starts(source) == [0.0, 1.0, 2.0, 3.0, 5.02, 4.0]


def test_a_policy_holds_no_more_jobs_than_it_says():
    source = waiting(3)
    source["policies"]["objects"][1] = holding("later", hold={"longest": "12h", "jobs": 1})

    found = starts(source)

    # The two that are not held run one after the other.
    first, second, third = sorted(found)
    assert (first, second) == (0.0, 1.0)
    assert third >= 4.0


def test_jobs_are_billed_by_what_hours_really_were():
    really = [{"flavors": ["fast"], "resources": {"cpu": "3"}}]
    source = waiting(billed={"objects": [tariff(rates=really, electricity=[])]})

    _, found = results(source, "now", "later")

    (at_once,), (later,) = found["now"].jobs, found["later"].jobs
    assert later.start == 4 * HOUR
    assert at_once.cost.money == later.cost.money == pytest.approx(3.0)


def test_a_series_stands_in_a_config_map_beside_its_tariff():
    moments = (("2026-01-05T00:00:00Z", 100), ("2026-01-05T02:00:00Z", 0))
    points = json.dumps([{"from": at, "value": value} for at, value in moments])
    config = {"kind": "ConfigMap", "metadata": {"name": "day"}, "data": {"points": points}}
    series = {"electricity": {"configMap": "day", "key": "points"}}
    day = tariff(rates=[], electricity=[{"price": "100"}], series=series, watts={"core": "1000"})
    source = waiting(tariffs={"objects": [day, config]})

    _, found = results(source, "now", "later")

    (at_once,), (later,) = found["now"].jobs, found["later"].jobs
    assert later.start == 2 * HOUR
    assert (at_once.cost.money, later.cost.money) == (pytest.approx(100), pytest.approx(0))


def test_jobs_may_come_by_the_hour_of_the_day():
    by_hour = [0.0] * 24
    by_hour[3], by_hour[4] = 1.0, 0.5
    source = document()
    poisson = {"rate": "100/h", "duration": "48h", "byHour": by_hour, "jobs": ["work"]}
    source["arrivals"] = [{"poisson": poisson}]

    hours = [int(one.at // HOUR) % 24 for one in read(source).submissions]

    assert set(hours) == {3, 4}
    assert 150 < hours.count(3) < 250
    assert 60 < hours.count(4) < 140
