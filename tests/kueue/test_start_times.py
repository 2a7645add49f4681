"""Profiles with the placements that they do not know of."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster_queue, snapshot
from webhook.kueue.flavor_plan import Demand, FlavorChoice
from webhook.kueue.start_times import PlacedJob, StartTimes
from webhook.model.forecasts import Profile

GPU, CPU = ("t4", "gpu"), ("any", "cpu")


def wants(amount=1, cell=GPU):
    choice = FlavorChoice(flavor=cell[0], usage=((cell, amount),))
    return Demand(parts=((choice,),), combinations=(cell[0],))


def steps(*found, at=0.0, **rest):
    return Profile(
        computed_at=at,
        cells=(GPU,),
        times=tuple(float(time) for time, _ in found),
        free=tuple((free,) for _, free in found),
        spread=(0.0,) * len(found),
        **rest,
    )


def state(cohort="", **profiles):
    queues = [cluster_queue(name, {"t4": {"gpu": "4"}}, cohort=cohort) for name in profiles]
    return replace(snapshot(*queues), profiles=profiles)


def start_times(**profiles):
    return StartTimes().adopt(state(**profiles))


def placed(queue="a", at=0.0, seconds=10.0, **rest):
    return PlacedJob(
        cluster_queue=queue,
        demand=rest.pop("demand", wants()),
        at=at,
        seconds=seconds,
        **rest,
    )


def start(found, queue="a", now=0.0, demand=None):
    return found.start_of(queue, demand or wants(), now=now).start.seconds


def test_nothing_is_known_of_a_queue_without_a_profile():
    assert StartTimes().start_of("a", wants(), now=0.0) is None
    assert start_times(a=steps((0, 1))).start_of("b", wants(), now=0.0) is None


def test_each_placement_takes_the_place_of_the_one_after_it():
    found = start_times(a=steps((0, 0), (5, 1), (7, 2)))
    starts = []
    for _ in "xyz":
        starts.append(start(found))
        found = found.add(placed())

    assert starts == [5.0, 7.0, 15.0]


def test_a_placement_that_was_dropped_takes_nothing():
    found = start_times(a=steps((0, 1))).add(placed()).add(placed(seconds=20.0))
    assert start(found) == 30.0

    assert start(found.drop([placed()])) == 20.0
    assert start(found.drop([placed(), placed(seconds=20.0)])) == 0.0
    assert start(found) == 30.0


def test_a_placement_stays_when_a_profile_comes_that_does_not_contain_it():
    found = start_times(a=steps((0, 1))).add(placed(at=1.0))

    later = found.adopt(state(a=steps((0, 0), (3, 1), at=2.0)))

    assert start(later, now=2.0) == 13.0
    assert start(later.drop([placed(at=1.0)]), now=2.0) == 3.0


def test_placements_go_along_when_their_queue_joins_a_cohort():
    queues = {"a": steps((0, 1)), "b": steps((0, 1))}
    apart = start_times(**queues).add(placed())

    together = apart.adopt(state(cohort="team", **queues))

    assert (start(apart, "b"), start(together, "b")) == (0.0, 10.0)
    assert start(together.drop([placed()]), "b") == 0.0


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([2.0, 5.0])), max_size=12),
    st.integers(0, 12),
)
def test_it_makes_no_difference_when_placements_are_looked_at(jobs, cut):
    """Equal ones are followed together, and what was looked at before is not followed again."""
    profile = steps((0, 2), (4, 3), (9, 4))
    at_once = one_by_one = start_times(a=profile)
    for index, (amount, seconds) in enumerate(jobs):
        placement = placed(demand=wants(amount), seconds=seconds)
        at_once, one_by_one = at_once.add(placement), one_by_one.add(placement)
        if index < cut:
            one_by_one.profile("a")

    assert at_once.start_of("a", wants(), now=0.0) == one_by_one.start_of("a", wants(), now=0.0)
