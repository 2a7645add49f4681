"""What Kueue sets aside for the head of a StrictFIFO queue keeps others of its cohort out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, cohort, held, needs, snapshot
from tests.worlds import schedules, waiting
from webhook.kueue import occupancy
from webhook.kueue.counted_arrivals import occupancy_of
from webhook.model.queues import Head, KueueConfig, Preemption, Queueing

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
    local_queue = found.snapshot.local_queues[("team", "b-lq")]
    target = found.snapshot.cluster_queues["b-cq"]
    assigned = occupancy.assignment(found, [needs({"cpu": cpus})], target)
    return occupancy.starts_now(found, assigned, local_queue, target, priority=priority)


def test_quota_that_others_borrowed_is_kept_for_its_owners_head():
    found = folded(strict(), {"c-cq": used(9)})

    assert found.held("a-cq").pending == 1
    assert found.held("a-cq").head == Head(priority=0, height=0, set_aside={CPU: 4000})
    assert not starts(found, "3")


def test_under_best_effort_nothing_is_kept():
    found = folded(queue("a"), {"c-cq": used(9)})

    assert found.held("a-cq").head is None
    assert starts(found, "3")


def test_nothing_is_kept_for_who_may_always_take_its_quota_back():
    found = folded(strict(preemption=Preemption(reclaim_within_cohort="Any")), {"c-cq": used(9)})

    assert found.held("a-cq").head == Head(priority=0, height=0, set_aside={})


def test_nothing_is_kept_for_pod_sets_that_together_can_never_fit():
    both = (needs({"cpu": "7"}), needs({"cpu": "6"}))
    waiting = replace(arrival("head", local_queue="a-lq"), needs=both)
    preemption = Preemption(within_cluster_queue="LowerPriority")
    state = snapshot(strict(preemption=preemption), queue("b"), queue("c"))

    found = occupancy_of(state, [waiting])

    assert found.held("a-cq").head == Head(priority=0, height=1, set_aside={})
    assert starts(found, "12")


def test_nothing_is_kept_for_who_would_have_to_borrow():
    found = folded(strict(), {"c-cq": used(9)}, head="5")

    assert found.held("a-cq").head == Head(priority=0, height=1, set_aside={})
    assert starts(found, "3")


def test_a_higher_priority_is_looked_at_before_the_head():
    found = folded(strict(), {"c-cq": used(9)})

    assert starts(found, "3", priority=1)


def test_borrowing_is_looked_at_after_the_head_whatever_its_priority():
    found = folded(strict(), {"b-cq": used(2), "c-cq": used(7)})

    assert not starts(found, "3", priority=1)


def test_the_head_keeps_no_more_than_its_queue_has_left():
    found = folded(strict(), {"a-cq": used(1), "c-cq": used(9)}, head="3")

    assert found.held("a-cq").head == Head(priority=0, height=0, set_aside={CPU: 3000})
    assert not starts(found, "1")


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("grain", [0.0, 0.01])
def test_a_head_that_meets_kept_quota_starts_in_its_next_flavor(grain, fair_sharing):
    strict = cluster_queue("a-cq", {"a": {"cpu": "2"}}, cohort="all", queueing=Queueing.STRICT)
    own = {"a": {"cpu": "0"}, "b": {"cpu": "1"}}
    kueue = KueueConfig(fair_sharing=fair_sharing)
    state = snapshot(strict, cluster_queue("b-cq", own, cohort="all"), kueue=kueue)
    schedule = schedules(state, grain=grain)["b-cq"]
    come = [
        arrival("first", {"cpu": "1"}, local_queue="a-lq", priority=2),
        arrival("head", {"cpu": "2"}, local_queue="a-lq", priority=1),
        arrival("new", {"cpu": "1"}, local_queue="b-lq"),
    ]

    for at, each in enumerate(come):
        schedule.add_waiting(waiting(each, state, at=float(at)))
    while len(schedule.begun) < 2 and schedule.step():
        pass

    assert [(begun.key, begun.flavors) for begun in schedule.begun] == [
        ("first", ("a",)),
        ("new", ("b",)),
    ]


def test_what_is_kept_is_known_from_the_counts_alone():
    found = folded(strict(), {"c-cq": used(9)})
    settled = snapshot(strict(), queue("b"), queue("c"), held=found.holdings)

    assert not starts(occupancy_of(settled), "3")


def test_only_quota_of_the_same_cohort_is_kept():
    apart = cluster_queue("b-cq", {"default": {"cpu": "4"}}, cohort="other")
    state = snapshot(strict(), apart, queue("c"), cohorts=[cohort("other")], held={"c-cq": used(5)})
    found = occupancy_of(state, [arrival("head", {"cpu": "4"}, local_queue="a-lq")])

    assert found.held("a-cq").head is not None
    assert starts(found, "3")


def test_a_head_that_borrows_one_resource_and_waits_for_another_keeps_both():
    first = cluster_queue(
        "a-cq", {"default": {"cpu": "1", "gpu": "1"}}, cohort="all", queueing=Queueing.STRICT
    )
    other = cluster_queue("b-cq", {"default": {"cpu": "3", "gpu": "0"}}, cohort="all")
    lender = cluster_queue("c-cq", {"default": {"cpu": "1", "gpu": "0"}}, cohort="all")
    state = snapshot(
        first,
        other,
        lender,
        held={
            "a-cq": used(1),
            "b-cq": held({"default": {"cpu": "3", "gpu": "1"}}, reserving=1),
        },
    )

    found = occupancy_of(state, [arrival("head", {"cpu": "1", "gpu": "1"}, local_queue="a-lq")])

    # Its own CPU is in use, so it would borrow one; its own GPU was lent.
    aside = {CPU: 1000, ("default", "gpu"): 1}
    assert found.held("a-cq").head == Head(priority=0, height=1, set_aside=aside)
    assert not starts(found, "1")
