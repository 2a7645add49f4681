"""What Kueue sets aside for the head of a StrictFIFO queue keeps others of its cohort out."""

from __future__ import annotations

import pytest

from tests.builders import arrival, cluster_queue, held, needs, snapshot
from tests.worlds import simulations, waiting
from webhook.model.queues import Head, KueueConfig, Queueing
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of

CPU = ("default", "cpu")


def queue(name, **rest):
    return cluster_queue(f"{name}-cq", {"default": {"cpu": "4"}}, cohort="all", **rest)


def strict(**rest):
    return queue("a", queueing=Queueing.STRICT, **rest)


def used(cpus):
    return held({"default": {"cpu": str(cpus)}}, reserving=1)


def folded(first, usage, head="4"):
    """Let a Workload that needs *head* wait in the first of three queues."""
    state = snapshot(first, queue("b"), queue("c"), held=usage)
    return occupancy_of(state, [arrival("head", {"cpu": head}, local_queue="a-lq")])


def starts(found, cpus, priority=0):
    """Ask for a new Job in the second queue."""
    local_queue = found.snapshot.setup.local_queues[("team", "b-lq")]
    target = found.snapshot.setup.cluster_queues["b-cq"]
    assigned = occupancy.assignment(found, [needs({"cpu": cpus})], target)
    passes = occupancy.passes_now(found, assigned, local_queue, target, priority=priority)
    return passes and not assigned.has_checks(target)


def test_quota_that_others_borrowed_is_kept_for_its_owners_head():
    found = folded(strict(), {"c-cq": used(9)})

    assert found.held("a-cq").pending == 1
    assert found.held("a-cq").head == Head(priority=0, height=0, set_aside={CPU: 4000})
    assert not starts(found, "3")


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("grain", [0.0, 0.01])
def test_a_head_that_meets_kept_quota_starts_in_its_next_flavor(grain, fair_sharing):
    strict = cluster_queue("a-cq", {"a": {"cpu": "2"}}, cohort="all", queueing=Queueing.STRICT)
    own = {"a": {"cpu": "0"}, "b": {"cpu": "1"}}
    kueue = KueueConfig(fair_sharing=fair_sharing)
    state = snapshot(strict, cluster_queue("b-cq", own, cohort="all"), kueue=kueue)
    simulation = simulations(state, grain=grain)["b-cq"]
    come = [
        arrival("first", {"cpu": "1"}, local_queue="a-lq", priority=2),
        arrival("head", {"cpu": "2"}, local_queue="a-lq", priority=1),
        arrival("new", {"cpu": "1"}, local_queue="b-lq"),
    ]

    for at, each in enumerate(come):
        simulation.add_waiting(waiting(each, state, at=float(at)))
    while len(simulation.begun) < 2 and simulation.step():
        pass

    assert [(begun.key, begun.flavors) for begun in simulation.begun] == [
        ("first", ("a",)),
        ("new", ("b",)),
    ]


def test_what_is_kept_is_known_from_the_counts_alone():
    found = folded(strict(), {"c-cq": used(9)})
    settled = snapshot(strict(), queue("b"), queue("c"), held=found.holdings)

    assert not starts(occupancy_of(settled), "3")
