from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.worlds import arrivals, schedules, snapshots, waiting
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.profile import start_of
from webhook.kueue.profile_with_placements import with_placement
from webhook.kueue.recorded_profile import profile
from webhook.kueue.start_record import recorded
from webhook.model.queues import Queueing

seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])
LATER = 1000.0


def drawn(data, **rest):
    """A world, those who wait in it, and a newcomer behind them."""
    state = data.draw(snapshots(**rest))
    found = data.draw(arrivals(state))
    assume(found)
    waits = [waiting(each, state, seconds=data.draw(seconds)) for each in found]
    return state, waits[:-1], replace(waits[-1], count=1)


def profile_of(state, waits, name, newcomers=()):
    found = schedules(state)
    for each in waits:
        found[each.cluster_queue].add_waiting(each)
    schedule = found[name]
    queue = state.cluster_queues[name]
    return profile(schedule, recorded(schedule, newcomers), queue, computed_at=0.0, uncertain=())


def multiplied(demand, times):
    parts = tuple(
        tuple(
            replace(choice, usage=tuple((cell, times * n) for cell, n in choice.usage))
            for choice in choices
        )
        for choices in demand.parts
    )
    return Demand(parts=parts, combinations=demand.combinations)


@given(st.data())
def test_a_placement_lets_nobody_start_earlier(data):
    state, waits, new = drawn(data)
    before = profile_of(state, waits, new.cluster_queue)
    found = start_of(before, new.demand, priority=new.priority)

    after = with_placement(
        before, found.usage, found.start.seconds, new.seconds, priority=new.priority
    )

    earliest, later = ([at for at, _ in starts(each, new)] for each in (before, after))
    assert all(first <= second for first, second in zip(earliest, later, strict=True))


@given(st.data())
def test_under_strict_fifo_a_placement_leaves_what_a_new_forecast_would_leave(data):
    state, waits, new = drawn(data, parents=("",), queueing=st.just(Queueing.STRICT))
    before = profile_of(state, waits, new.cluster_queue)
    found = start_of(before, new.demand, priority=new.priority)
    assume(found.start.seconds < inf)

    added = with_placement(
        before, found.usage, found.start.seconds, new.seconds, priority=new.priority
    )

    assert starts(added, new) == starts(profile_of(state, [*waits, new], new.cluster_queue), new)


def starts(found, new):
    """When newcomers of several sizes and priorities would start, and with what."""
    return [
        (answer.start.seconds, answer.usage)
        for times in (1, 2, 3)
        for elapsed in (0.0, 1.5, 4.0, LATER)
        for answer in [
            start_of(found, multiplied(new.demand, times), priority=new.priority, elapsed=elapsed)
        ]
    ]
