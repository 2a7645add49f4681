from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import arrivals, schedules, snapshots, waiting
from webhook.kueue.flavor_plan import Demand, FlavorChoice
from webhook.kueue.profile import FoundStart, start_of
from webhook.kueue.profile_with_placements import with_placement
from webhook.kueue.recorded_profile import profile
from webhook.kueue.start_record import recorded
from webhook.model.forecasts import Profile, Start

GPU, CPU = ("t4", "gpu"), ("any", "cpu")
seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])


def wants(amount=1, *cells):
    """One part that may take any of some cells, in order."""
    choices = tuple(
        FlavorChoice(flavor=cell[0], usage=((cell, amount),)) for cell in (cells or (GPU,))
    )
    return Demand(parts=(choices,), combinations=tuple(choice.flavor for choice in choices))


def steps(*found, cells=(GPU,), **rest):
    """A profile from (time, free of each cell)."""
    return Profile(
        computed_at=0.0,
        cells=cells,
        times=tuple(float(time) for time, *_ in found),
        free=tuple(tuple(free) for _, *free in found),
        spread=rest.pop("spread", (0.0,) * len(found)),
        **rest,
    )


def at(found, demand=None, **rest):
    return start_of(found, demand or wants(), **rest).start.seconds


def test_the_flavors_are_those_that_kueue_would_give_at_that_moment():
    found = steps((0, 0, 0), (10, 0, 1), (20, 1, 1), cells=(GPU, CPU))

    early = start_of(found, wants(1, GPU, CPU))
    late = start_of(found, wants(1, GPU, CPU), elapsed=20.0)

    assert early == FoundStart(
        start=Start(seconds=10.0, low=10.0, high=10.0), flavors=("any",), usage={CPU: 1}
    )
    assert late.names == "t4"


def test_what_is_uncertain_widens_the_range():
    sure = steps((0, 0), (100, 1), spread=(0.0, 10.0))
    unsure = replace(sure, uncertain=("preemption",))
    exact = steps((0, 0), (100, 1), uncertain=("preemption", "fairSharing"))

    ranges = [start_of(each, wants()).start for each in (sure, unsure, exact)]

    assert [(round(each.low, 1), round(each.high, 1)) for each in ranges] == [
        (87.2, 112.8),
        (62.5, 137.5),
        (43.8, 156.2),
    ]
    assert ranges[2].uncertain == ("preemption", "fairSharing")


def test_a_profile_with_many_placements_stays_short_and_never_looks_earlier():
    found = steps((0, 10_000))
    for index in range(400):
        found = with_placement(found, {GPU: 1 + index}, float(index), 1.0)

    assert 192 <= len(found.times) <= 256
    for index in range(400):
        assert at(found, wants(9_999 - index), elapsed=float(index)) >= 0.0
        assert at(found, wants(10_000 - index), elapsed=float(index)) >= 1.0


@pytest.mark.parametrize("parents", [("",), ("", "x", "y")], ids=["alone", "cohorts"])
@given(data=st.data())
def test_looking_up_says_when_the_loop_would_start_a_newcomer(parents, data):
    state = data.draw(snapshots(parents=parents))
    forecasts, loops = schedules(state), schedules(state)
    *before, newcomer = data.draw(arrivals(state)) or (None,)
    if newcomer is None:
        return
    for arrival in before:
        each = waiting(arrival, state, seconds=data.draw(seconds))
        forecasts[each.cluster_queue].add_waiting(each)
        loops[each.cluster_queue].add_waiting(each)
    new = replace(waiting(newcomer, state, count=1), key="new")
    loop = loops[new.cluster_queue]
    loop.add_waiting(new)

    found = look_up(forecasts[new.cluster_queue], new, state)
    while loop.next_event() < inf:
        loop.step()

    starts = [begun.at for begun in loop.begun if begun.key == "new"] or [inf]
    is_first = all(each.local_queue != newcomer.local_queue for each in before)
    preemption = state.cluster_queues[new.cluster_queue].preemption
    may_reclaim = preemption.reclaim_within_cohort != "Never"
    if parents == ("",):
        assert [found] == starts
    elif is_first and not may_reclaim:
        # With its own quota it goes before older ones of other queues that would borrow. Of its
        # own queue Kueue takes the older one, and that it borrows is not looked at here. Nor is
        # that Kueue may let it wait for a flavor to reclaim, where the next one has room.
        assert [found] >= starts


def look_up(schedule, new, state):
    queue = state.cluster_queues[new.cluster_queue]
    found = profile(schedule, recorded(schedule), queue, computed_at=0.0, uncertain=())
    return start_of(found, new.demand, priority=new.priority).start.seconds
