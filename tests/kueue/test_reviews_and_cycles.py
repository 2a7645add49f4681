"""What a review says of a new Job against the cycle that then serves it, beside who holds quota."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NAMESPACE
from tests.worlds import arrivals, schedules, snapshots, trees, waiting
from webhook.kueue import occupancy
from webhook.kueue.assignment import PreemptionMode
from webhook.kueue.schedule import Running
from webhook.model.queues import Held, Queueing, Reservation

NEWEST = 1_000


@st.composite
def holders(draw, state):
    """ClusterQueue to its Workloads with quota; together they take no more than there is."""
    found = {name: [] for name in state.cluster_queues}
    for tree in trees(state):
        for number in range(draw(st.integers(0, 6))):
            name = draw(st.sampled_from(sorted(tree.leaves)))
            flavor = draw(st.sampled_from(state.cluster_queues[name].groups[0].flavors))
            amounts = {
                (flavor, resource): draw(st.integers(1, 2))
                for resource in draw(st.sampled_from([("cpu",), ("cpu", "gpu"), ("gpu",)]))
            }
            if tree.room(tree.leaves[name], tree.taken(amounts)) < 1:
                continue
            tree.charge(tree.leaves[name], tree.taken(amounts))
            found[name].append(
                Reservation(
                    key=f"{NAMESPACE}/held-{name}-{number}",
                    local_queue=f"{name[:-3]}-lq",
                    charge=tuple(amounts.items()),
                    priority=draw(st.integers(0, 2)),
                    reserved_at=draw(st.integers(1, 3)),
                    queued_at=draw(st.integers(1, 3)),
                    is_evicted=False,
                    uid=f"{name}-{number}",
                )
            )
    return found


def held_by(reservations):
    usage = {}
    for each in reservations:
        for cell, amount in each.charge:
            usage[cell] = usage.get(cell, 0) + amount
    lowest = min((each.priority for each in reservations), default=None)
    return Held(
        reserving=len(reservations), ready=len(reservations), usage=usage, lowest_priority=lowest
    )


@pytest.mark.agreement
@given(st.data())
def test_a_new_job_is_served_as_its_review_says(data):
    state = data.draw(snapshots(queueing=st.just(Queueing.BEST_EFFORT)))
    reserving = data.draw(holders(state))
    (new, *_) = data.draw(arrivals(state, priorities=3).filter(bool))
    new = replace(new, count=1, created=NEWEST)
    found = schedules(state)
    for name, each in ((name, each) for name, row in reserving.items() for each in row):
        found[name].add_running(
            Running(
                cluster_queue=name,
                usage=dict(each.charge),
                seconds=100.0,
                key=each.key,
                priority=each.priority,
                order=each.queued_at,
                reserved_at=each.reserved_at - NEWEST,
                uid=each.uid,
                local_queue=f"{NAMESPACE}/{each.local_queue}",
            )
        )
    pending = waiting(new, state)
    schedule, queue = found[pending.cluster_queue], state.cluster_queues[pending.cluster_queue]
    held = {name: held_by(row) for name, row in reserving.items()}
    known = {name: tuple(row) for name, row in reserving.items()}
    review = occupancy.build(replace(state, held=held, reserving=known))

    said = occupancy.assignment(review, new.needs, queue, priority=new.priority).assignment
    place = occupancy.claimant(review, queue, priority=new.priority)
    may_preempt = PreemptionMode.PREEMPT <= said.mode < PreemptionMode.FITS
    victims = place.victims(said.taken) if may_preempt else 0
    schedule.add_waiting(pending, age=NEWEST)
    schedule.follow(0.0, wakes=True, drawn={})

    assert [begun.flavors for begun in schedule.begun] == ([said.flavors] if said.fits else [])
    assert sum(each.count for each in schedule.preempted) == victims
