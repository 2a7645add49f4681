"""The event loop where some heads wait for Kueue's requeue batch, and others do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import schedules, waiting
from webhook.kueue.schedule import Running
from webhook.model.queues import Preemption, Queueing

CPU = ("default", "cpu")
LOWER = Preemption(within_cluster_queue="LowerPriority")


def tree(*, grain=0.0, **queues):
    """Return ClusterQueues of one cohort with a requeue batch a second after a release."""
    state = snapshot(
        *(
            cluster_queue(f"{name}-cq", {"default": {"cpu": cpus}}, cohort="all", **rest)
            for name, (cpus, rest) in queues.items()
        )
    )
    return state, next(iter(schedules(state, requeue=1.0, grain=grain).values()))


def hold(schedule, name, cpus, seconds, *, priority=0, key=""):
    usage = {CPU: cpus * 1000}
    schedule.add_running(
        Running(
            cluster_queue=f"{name}-cq", usage=usage, seconds=seconds, priority=priority, key=key
        )
    )


def come(state, schedule, *jobs):
    """Let Workloads wait: key, ClusterQueue, CPUs, priority."""
    for key, name, cpus, priority in jobs:
        wanted = arrival(key, {"cpu": str(cpus)}, local_queue=f"{name}-lq", priority=priority)
        schedule.add_waiting(replace(waiting(wanted, state, seconds=50.0), count=1))


def starts(schedule, until=100.0):
    while schedule.next_event() < until:
        schedule.step()
    return [(begun.key, begun.at) for begun in schedule.begun]


STRICT = {"queueing": Queueing.STRICT}


def test_a_strict_head_takes_what_is_released_before_the_batch_whatever_its_priority():
    state, schedule = tree(strict=("0", STRICT), other=("2", {}))
    hold(schedule, "other", 2, 10.0)
    come(state, schedule, ("strict", "strict", 1, 0), ("urgent", "other", 1, 9))

    assert starts(schedule, 50.0) == [("strict", 10.0), ("urgent", 11.0)]


def test_a_preemptor_takes_its_quota_as_its_victim_stops_and_others_wait_for_the_batch():
    state, schedule = tree(own=("2", {"preemption": LOWER}), other=("1", {}))
    hold(schedule, "own", 2, 100.0, key="victim")
    hold(schedule, "other", 1, 100.0)
    come(state, schedule, ("urgent", "own", 1, 9), ("small", "other", 1, 0))

    assert starts(schedule, 10.0) == [("urgent", 1.0), ("small", 2.0)]


def test_who_finds_its_quota_taken_in_a_cycle_preempts_in_the_next():
    state, schedule = tree(own=("1", {"preemption": LOWER}), lender=("3", {}))
    hold(schedule, "own", 1, 100.0, key="victim")
    hold(schedule, "lender", 3, 10.0)
    come(state, schedule, ("lends", "lender", 3, 0), ("urgent", "own", 1, 9))

    found = starts(schedule, 20.0)

    assert [victims.key for victims in schedule.preempted] == ["victim"]
    assert sorted(found) == [("lends", 11.0), ("urgent", 1.0)]


def test_a_head_that_was_only_skipped_does_not_wait_for_the_batch():
    state, schedule = tree(strict=("2", STRICT), other=("0", {}), third=("2", {}))
    hold(schedule, "other", 1, 90.0)
    hold(schedule, "third", 2, 10.0)
    # One CPU is free, which is set aside for the strict head.
    come(state, schedule, ("wide", "strict", 2, 9), ("skipped", "other", 1, 0))

    assert starts(schedule, 50.0) == [("wide", 10.0), ("skipped", 10.0)]


@pytest.mark.parametrize("grain", [0.0, 0.01])
def test_what_can_never_fit_takes_its_turn_after_a_batch(grain):
    rest = {"preemption": LOWER}
    state, schedule = tree(first=("0", rest), other=("2", rest), grain=grain)
    hold(schedule, "other", 2, 10.0, priority=9)
    come(
        state,
        schedule,
        ("never", "first", 9, 5),
        ("next", "first", 2, 5),
        ("low", "other", 2, 0),
    )

    assert [key for key, _ in starts(schedule, 50.0)] == ["low"]


def test_quota_is_kept_for_a_head_in_its_cycle_alone_and_not_in_the_first():
    state, schedule = tree(waits=("2", {}), other=("0", {}))
    hold(schedule, "waits", 1, 90.0)
    come(state, schedule, ("wide", "waits", 2, 0), ("narrow", "other", 1, 0))

    assert starts(schedule, 60.0) == [("narrow", 0.0)]
