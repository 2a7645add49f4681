"""Forecasts with Workloads that are not there yet, but are expected to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, needs, snapshot
from webhook.kueue.expected_arrivals import ExpectedArrivals, ExpectedKind
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast
from webhook.kueue.profile import start_among_pending, start_of
from webhook.kueue.start_times import PlacedJob, StartTimes
from webhook.kueue.tree_workloads import Occupant, QueuedGroup
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import AdmissionFairSharing, KueueConfig, Preemption, Queueing

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)


def run_time_of(job_class, flavors):
    return {
        "long": RunTime(seconds=100.0, low=100.0, high=100.0, basis=Basis.POLICY),
    }.get(job_class)


def queues(*names, gpus=2, priorities=(0, 1000), **rest):
    names = names or ("gpu-cq",)
    made = [cluster_queue(name, quotas={"t4": {GPU: str(gpus)}}, **rest) for name in names]
    return replace(
        snapshot(*made), priority_classes={str(priority): priority for priority in priorities}
    )


def running(seconds_ago, queue="gpu-cq", gpus=1):
    return Occupant(
        cluster_queue=queue, usage={CELL: gpus}, job_class="long", started_at=-seconds_ago
    )


def expected(priority=1000, *, every=50.0, seconds=1e6, gpus=1, queue="gpu-cq", job_class="long"):
    kind = ExpectedKind(asks={CELL: gpus}, job_class=job_class)
    return ExpectedArrivals(
        cluster_queue=queue,
        priority=priority,
        per_second=1 / every,
        seconds=seconds,
        kinds=(kind,),
    )


def waits(priority=0):
    found = replace(arrival("a", {GPU: "1"}, local_queue="gpu-lq"), priority=priority)
    return QueuedGroup(arrival=found, job_class="long")


def profiles(world, coming, *, pending=()):
    held = [running(50.0, queue=name) for name in world.cluster_queues]
    held += [running(0.0, queue=name) for name in world.cluster_queues]
    return forecast(world, held, list(pending), run_time_of, 0.0, expected=coming)


def start(world, coming, *, gpus=1, priority=0, pending=(), queue="gpu-cq"):
    found = profiles(world, coming, pending=pending)[queue]
    asked = demand([needs({GPU: str(gpus)})], world.cluster_queues[queue], world)
    return start_of(found, asked, priority=priority).start


def test_a_job_of_low_priority_is_overtaken_by_those_who_come_later_and_outrank_it():
    alone = start(queues(), [])
    overtaken = start(queues(), [expected(every=30.0)])

    # Two GPUs, of which one is free every 50 s, and one outranking Job every 30 s.
    assert (alone.seconds, alone.uncertain) == (51.0, ())
    assert overtaken.seconds > 100.0
    assert overtaken.high > overtaken.seconds
    assert overtaken.low == alone.low
    assert overtaken.uncertain == ("arrivals",)


def test_those_who_come_later_count_for_newcomers_of_each_localqueue():
    rules = AdmissionFairSharing(half_life_seconds=60.0)
    world = replace(queues(usage_based=True), kueue=KueueConfig(admission_fair_sharing=rules))

    found = profiles(world, [expected(every=30.0)])["gpu-cq"]

    of_each = found.by_local_queue
    assert of_each
    assert all(each.later and each.later.local_queue == name for name, each in of_each.items())
    assert {each.expected_per_second for each in of_each.values()} == {found.expected_per_second}


@pytest.mark.parametrize("priority", [0, 1000])
def test_a_job_that_nobody_outranks_who_comes_later_is_forecast_as_before(priority):
    coming = [expected(priority, every=30.0)]

    assert start(queues(), coming, priority=priority) == start(queues(), [], priority=priority)
    pending = [waits(priority)] * 3
    assert start(queues(), coming, priority=priority, pending=pending) == start(
        queues(), [], priority=priority, pending=pending
    )


def test_a_wide_job_is_overtaken_by_narrow_ones_of_its_priority_under_best_effort_only():
    coming = [expected(0, every=60.0)]

    alone, overtaken = start(queues(), [], gpus=2), start(queues(), coming, gpus=2)
    assert alone.seconds == 101.0
    assert overtaken.seconds > 150.0
    assert overtaken.uncertain == ("arrivals",)
    strict = queues(queueing=Queueing.STRICT)
    assert start(strict, coming, gpus=2) == start(strict, [], gpus=2)


def test_few_who_overtake_widen_the_range_and_leave_the_middle():
    spread = RunTime(seconds=100.0, low=60.0, high=160.0, basis=Basis.POLICY)
    world = queues(gpus=20)
    asked = demand([needs({GPU: "1"})], world.cluster_queues["gpu-cq"], world)

    def found(coming):
        held = [running(5.0 * number) for number in range(20)]
        pending = [waits()] * 10
        profile = forecast(world, held, pending, lambda *_: spread, 0.0, expected=coming)
        return start_of(profile["gpu-cq"], asked).start

    alone, overtaken = found([]), found([expected(every=40.0)])
    assert overtaken.seconds == alone.seconds
    assert overtaken.low == alone.low
    assert overtaken.high > alone.high
    assert overtaken.uncertain == ("arrivals",)


def test_they_go_on_for_as_long_as_they_have():
    once = start(queues(), [expected(every=10.0, seconds=10.0)])
    on_and_on = start(queues(), [expected(every=10.0)])

    assert 51.0 < once.seconds < on_and_on.seconds


def test_a_job_that_starts_at_once_is_overtaken_by_nobody():
    world = queues(gpus=3)

    assert start(world, [expected(every=10.0)]) == start(world, [])


def test_those_whose_run_time_nobody_knows_are_not_expected():
    coming = [expected(every=30.0, job_class="new")]

    assert start(queues(), coming) == start(queues(), [])


def test_those_of_another_tree_overtake_nobody_and_those_of_the_cohort_what_they_borrow():
    apart = queues("gpu-cq", "other-cq")
    coming = [expected(queue="other-cq", every=20.0)]
    assert start(apart, coming) == start(apart, [])

    # A newcomer within its own quota comes before those who borrow; one who borrows does not.
    shared = queues("gpu-cq", "other-cq", cohort="all")
    assert start(shared, coming) == start(shared, [])
    assert start(shared, coming, gpus=3).seconds > start(shared, [], gpus=3).seconds


def test_those_expected_preempt_as_they_would():
    preempts = Preemption(within_cluster_queue="LowerPriority")
    world = queues(preemption=preempts)

    overtaken = start(world, [expected(every=30.0)], pending=[waits(), waits()])
    assert overtaken.seconds > start(world, [], pending=[waits(), waits()]).seconds
    equal = [expected(0, every=30.0)]
    for policy in ("LowerPriority", "LowerOrNewerEqualPriority"):
        world = queues(preemption=Preemption(within_cluster_queue=policy))
        assert start(world, equal) == start(world, [])


def test_placements_that_the_profiles_lack_count_with_those_who_come_later():
    world = queues()
    found = profiles(world, [expected(every=60.0)])
    asked = demand([needs({GPU: "1"})], world.cluster_queues["gpu-cq"], world)
    placed = PlacedJob(cluster_queue="gpu-cq", demand=asked, at=0.0, seconds=100.0)

    before = StartTimes(profiles=found).start_of("gpu-cq", asked, now=0.0).start
    after = StartTimes(profiles=found).add(placed).start_of("gpu-cq", asked, now=0.0).start

    assert after.seconds > before.seconds
    assert after.high > before.high
    assert start_among_pending(found["gpu-cq"], asked).start.seconds == 51.0


def test_under_strict_fifo_only_those_of_a_higher_priority_overtake():
    strict, coming = queues(queueing=Queueing.STRICT), [expected(every=30.0)]

    assert start(strict, coming).seconds > start(strict, []).seconds
    assert start(strict, coming, priority=1000) == start(strict, [], priority=1000)
