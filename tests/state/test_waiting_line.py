"""Who waits at which position, and when each of them starts."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from tests.builders import policy
from tests.state.objects import (
    PENDING,
    condition,
    local_queue,
    named,
    reserving,
    state_with,
    workload,
)
from webhook.api import resources as kinds
from webhook.state import forecast_input
from webhook.state.snapshot import updated
from webhook.state.waiting_line import all_waiting

NOW = 1795240800.0
"""2026-11-21T06:00:00Z"""
GUEST = ("light-gpu", "gpu")


def time(seconds_ago):
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(name, since=0, **rest):
    admitted = {**condition("Admitted"), "lastTransitionTime": time(since)}
    return reserving(name, job=name, guest=GUEST, also=(admitted,), **rest)


def waiting(name, *, age=0, guest=GUEST, also=(), **rest):
    conditions = (PENDING, *also)
    return workload(name, job=name, guest=guest, conditions=conditions, created=time(age), **rest)


def line(*workloads, cpu="8", run_time="20s", **queue):
    """Forecast who waits in a queue of 8 CPUs, in which each Workload wants 4."""
    state = state_with(*workloads, cpu=cpu, **queue)
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    return all_waiting(state, known(state, run_time), NOW)


def known(state, run_time="20s"):
    strategy = {"finishTime": {"runTime": run_time}}
    return updated(state.snapshot(0.0, NOW), policies=(policy(strategy=strategy),))


def starts(found):
    return [(each.position, each.key, round(each.start.seconds)) for each in found]


def test_the_order_is_kueues_and_equal_ones_are_told_apart():
    found = line(
        running("a"),
        running("b"),
        waiting("young", age=1),
        waiting("old", age=9),
        waiting("urgent", age=0, priority=5),
    )

    assert starts(found) == [(1, "team/urgent", 21), (2, "team/old", 21), (3, "team/young", 42)]


def test_they_start_when_a_newcomer_is_told_that_they_do():
    state = state_with(running("a"), running("b"), waiting("c"), waiting("d"), waiting("e"))
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    snapshot = known(state)

    *_, last = all_waiting(state, snapshot, NOW)

    forecast = forecast_input.with_forecasts(state, snapshot, NOW).forecasts["gpu-cq"]
    assert forecast.waits("gpu-cq", 0.0) == last.start.seconds


def test_whom_nothing_is_known_of_counts_for_those_behind_alone():
    found = line(running("a", cpu="8"), waiting("x", guest=("", ""), age=9), waiting("d"), cpu="8")

    assert [(each.key, each.start.unseen) for each in found] == [("team/x", 0), ("team/d", 1)]


def test_who_is_in_a_local_queue_that_is_stopped_is_in_no_line():
    state = state_with(waiting("a"))
    state.replace(kinds.LOCAL_QUEUES, [local_queue(stopPolicy="Hold")])

    assert all_waiting(state, known(state), NOW) == ()


def test_one_that_backs_off_says_until_when():
    back = condition("Requeued", "False", "PodsReadyTimeout")
    late = waiting("late", also=(back,))
    late["status"]["requeueState"] = {"requeueAt": time(-60)}

    (found,) = line(late)

    assert (found.until, round(found.start.seconds)) == (NOW + 60, 60)


def test_of_many_that_wait_none_is_lost():
    many = [waiting(f"w{i}", age=2000 - i, cpu="4" if i % 3 else "8") for i in range(1200)]

    found = line(running("a", cpu="8"), *many)

    assert [each.key for each in found] == [f"team/w{i}" for i in range(1200)]
    assert all(each.start.seconds < inf for each in found[:100])
