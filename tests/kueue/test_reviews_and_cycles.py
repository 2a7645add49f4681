"""What reviews say against the cycles that then serve their Jobs, with what runs and what waits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import NAMESPACE
from tests.worlds import arrivals, simulations, snapshots, trees, used, waiting
from webhook.kueue.simulation import Running
from webhook.model.queues import Held, QuotaHolder
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

NEWEST = 1_000


@st.composite
def holders(draw, state):
    """ClusterQueue to its Workloads with quota; together they take no more than there is."""
    found = {name: [] for name in state.setup.cluster_queues}
    for tree in trees(state):
        for number in range(draw(st.integers(0, 6))):
            name = draw(st.sampled_from(sorted(tree.leaves)))
            flavor = draw(st.sampled_from(state.setup.cluster_queues[name].groups[0].flavors))
            amounts = {
                (flavor, resource): draw(st.integers(1, 2))
                for resource in draw(st.sampled_from([("cpu",), ("cpu", "gpu"), ("gpu",)]))
            }
            if tree.room(tree.leaves[name], tree.taken(amounts)) < 1:
                continue
            tree.charge(tree.leaves[name], tree.taken(amounts))
            found[name].append(
                QuotaHolder(
                    key=f"{NAMESPACE}/held-{name}-{number}",
                    local_queue=f"{NAMESPACE}/{name[:-3]}-lq",
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


def competing(state, come):
    """ClusterQueue to who waits there."""
    found = defaultdict(tuple)
    for each in come:
        name = state.setup.local_queues[each.namespace, each.local_queue].cluster_queue
        found[name] += (each,)
    return dict(found)


def loops(state, reserving, pending):
    """By ClusterQueue the event loop of its tree, after its first cycles."""
    found = simulations(state)
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
    for each in pending:
        asked = waiting(each, state)
        found[asked.cluster_queue].add_waiting(asked, age=each.created)
    for simulation in set(found.values()):
        simulation.step()
    return found


@pytest.mark.agreement
@given(st.data())
def test_a_new_job_is_served_as_its_review_says(data):
    state = data.draw(snapshots())
    reserving = data.draw(holders(state))
    (new, *pending) = [
        replace(each, created=10 + age)
        for age, each in enumerate(data.draw(arrivals(state, priorities=3, size=6).filter(bool)))
    ]
    new = replace(new, count=1, created=NEWEST)
    found = loops(state, reserving, pending)
    # Reviews do not predict whom those who wait preempt.
    assume(not any(simulation.preempted for simulation in found.values()))
    asked = waiting(new, state)
    simulation, queue = found[asked.cluster_queue], state.setup.cluster_queues[asked.cluster_queue]
    local_queue = state.setup.local_queues[new.namespace, new.local_queue]
    review = occupancy_of(
        updated(
            state,
            held={name: held_by(row) for name, row in reserving.items()},
            reserving={name: tuple(row) for name, row in reserving.items()},
            competing=competing(state, pending),
        )
    )
    # Nor do they know of quota that a head sets aside in every other cycle of its search.
    assume(not any(_sets_aside_by_turns(simulation) for simulation in set(found.values())))
    # Reviews do not know whose turn it is by shares, where quota is set aside for somebody.
    assume(not (state.setup.kueue.fair_sharing and review.heads))

    for name in found:
        usage = {cell: amount for cell, amount in review.held(name).usage.items() if amount}
        assert used(found[name], name) == usage
    found_out = occupancy.assignment(review, new.needs, queue, priority=new.priority)
    said = found_out.assignment
    starts = occupancy.reserves_now(review, said, local_queue, queue, priority=new.priority)
    simulation.begun.clear()
    simulation.add_waiting(asked, age=NEWEST)
    preempted = []
    # Its search for flavors may go on in the cycles after the first. Once it preempts, the next one
    # may choose others, as its victims still hold their quota.
    for _ in range(4):
        simulation.follow(0.0, wakes=False, drawn={})
        preempted = [each for each in simulation.preempted if each.preempted_by == asked.key]
        if preempted:
            break

    # The new Job may end a search for flavors that went round for ever, or let another preempt.
    begun = [each.flavors for each in simulation.begun if each.key == asked.key]
    assert begun == ([said.flavors] if starts else [])
    assert len(preempted) == found_out.preempts


def _sets_aside_by_turns(simulation):
    kept = list(simulation.kept)
    simulation.follow(0.0, wakes=False, drawn={})
    return list(simulation.kept) != kept
