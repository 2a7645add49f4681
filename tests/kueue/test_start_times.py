"""Profiles with the placements that they do not know of."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
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


def test_a_placement_counts_in_the_profiles_of_all_localqueues_of_its_queue():
    of_each = {"team/x": steps((0, 0), (10, 1), local_queue="team/x")}
    found = start_times(a=steps((0, 0), (50, 1), by_local_queue=of_each))

    after = found.add(placed(local_queue="team/x", seconds=20.0))

    starts = [
        after.start_of("a", wants(), now=0.0, local_queue=name).start.seconds
        for name in ("team/x", "team/new")
    ]
    assert starts == [30.0, 50.0]


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


def test_seconds_count_from_the_moment_of_the_lookup():
    found = start_times(a=steps((0, 0), (5, 1), at=100.0)).add(placed(at=102.0))

    assert start(found, now=103.0) == 12.0


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


def test_equal_placements_are_dropped_one_by_one_whatever_came_between():
    found = start_times(a=steps((0, 1)))
    for seconds in (10.0, 3.0, 10.0):
        found = found.add(placed(seconds=seconds))

    starts = [start(found)]
    for seconds in (10.0, 10.0, 3.0):
        found = found.drop([placed(seconds=seconds)])
        starts.append(start(found))

    assert starts == [23.0, 13.0, 3.0, 0.0]
    assert found.drop([placed()]) == found


def test_thousands_of_equal_placements_take_their_turns():
    found = start_times(a=steps((0, 4)))
    for _ in range(4000):
        found = found.add(placed())

    assert start(found) == pytest.approx(10_000.0)
    assert len(found.placed["queue a"]) == 1
    assert len(found.profile("a").times) < 40


def test_placements_go_along_when_their_queue_joins_a_cohort():
    queues = {"a": steps((0, 1)), "b": steps((0, 1))}
    apart = start_times(**queues).add(placed())

    together = apart.adopt(state(cohort="team", **queues))

    assert (start(apart, "b"), start(together, "b")) == (0.0, 10.0)
    assert start(together.drop([placed()]), "b") == 0.0


def test_an_unknown_run_time_is_as_long_as_the_profile_takes_it_to_be():
    found = start_times(a=steps((0, 1), unknown_seconds=42.0)).add(placed(seconds=None))

    assert start(found) == 42.0


def test_what_is_borrowed_is_gone_for_the_whole_cohort_and_for_nobody_else():
    queues = {"a": steps((0, 1)), "b": steps((0, 1))}
    together = StartTimes().adopt(state(cohort="team", **queues)).add(placed())
    apart = start_times(**queues).add(placed())

    assert (start(together, "b"), start(apart, "b")) == (10.0, 0.0)
    # Who waits in one queue of the cohort takes its turn before who comes to another later.
    turns = together.add(placed(queue="b"))
    assert (start(turns), start(turns, "b")) == (20.0, 20.0)


def test_under_strict_order_who_comes_later_waits_for_who_was_placed():
    found = start_times(a=steps((0, 1), (5, 4), behind=((0, 0.0),)))
    found = found.add(placed(demand=wants(2)))

    assert start(found) == 5.0


def test_what_never_starts_is_in_nobodys_way():
    found = start_times(a=steps((0, 1))).add(placed(demand=wants(9)))

    assert start(found) == 0.0
    assert start(found, demand=wants(9)) == inf


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
