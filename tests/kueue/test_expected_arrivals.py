"""Forecasts with Workloads that are not there yet, but are expected to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, needs, snapshot
from webhook.kueue.flavor_plan import demand, demand_of
from webhook.kueue.forecast import forecast
from webhook.kueue.newcomer import Newcomer, PlacedJob
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import start_of
from webhook.kueue.tree_workloads import ExpectedArrivals
from webhook.model.forecasts import Basis, RunTime
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)


def run_time_of(job_class, flavors):
    return {
        "long": RunTime(seconds=100.0, low=100.0, high=100.0, basis=Basis.POLICY),
    }.get(job_class)


def queues(*names, gpus=2, priorities=(0, 1000), **rest):
    names = names or ("gpu-cq",)
    made = [cluster_queue(name, quotas={"t4": {GPU: str(gpus)}}, **rest) for name in names]
    return updated(
        snapshot(*made), priority_classes={str(priority): priority for priority in priorities}
    )


def running(seconds_ago, queue="gpu-cq", gpus=1):
    return Running(
        cluster_queue=queue, usage={CELL: gpus}, job_class="long", started_at=-seconds_ago
    )


def expected(priority=1000, *, every=50.0, seconds=1e6, gpus=1, queue="gpu-cq", job_class="long"):
    kind = PendingGroup(demand=demand_of({CELL: gpus}), job_class=job_class)
    return ExpectedArrivals(
        cluster_queue=queue,
        priority=priority,
        per_second=1 / every,
        seconds=seconds,
        kinds=(kind,),
    )


def waits(priority=0):
    found = replace(arrival("a", {GPU: "1"}, local_queue="gpu-lq"), priority=priority)
    return pending_group(found, job_class="long")


def forecasts(world, coming, *, pending=()):
    held = [running(50.0, queue=name) for name in world.setup.cluster_queues]
    held += [running(0.0, queue=name) for name in world.setup.cluster_queues]
    return forecast(forecast_givens(world, run_time_of, 0.0), held, list(pending), expected=coming)


def start(world, coming, *, gpus=1, priority=0, pending=(), queue="gpu-cq"):
    found = forecasts(world, coming, pending=pending)[queue]
    return asked(found, world, gpus=gpus, priority=priority, queue=queue)


def asked(found, world, *, gpus=1, priority=0, queue="gpu-cq", among=()):
    of = world.setup.cluster_queues[queue]
    wanted = demand([needs({GPU: str(gpus)})], of, world.setup)
    newcomer = Newcomer(queue=of, demand=wanted, setup=world.setup, among=among, priority=priority)
    return start_of(found, newcomer).start


def test_a_job_of_low_priority_is_overtaken_by_those_who_come_later_and_outrank_it():
    alone = start(queues(), [])
    overtaken = start(queues(), [expected(every=30.0)])

    # Two GPUs, of which one is free every 50 s, and one outranking Job every 30 s.
    assert (alone.seconds, alone.uncertain) == (51.0, ())
    assert overtaken.seconds > 100.0
    assert overtaken.high > overtaken.seconds
    assert overtaken.low == alone.low
    assert overtaken.uncertain == ("arrivals",)


@pytest.mark.parametrize("priority", [0, 1000])
def test_a_job_that_nobody_outranks_who_comes_later_is_forecast_as_before(priority):
    coming = [expected(priority, every=30.0)]

    assert start(queues(), coming, priority=priority) == start(queues(), [], priority=priority)
    pending = [waits(priority)] * 3
    assert start(queues(), coming, priority=priority, pending=pending) == start(
        queues(), [], priority=priority, pending=pending
    )


def test_few_who_overtake_widen_the_range_and_leave_the_middle():
    spread = RunTime(seconds=100.0, low=60.0, high=160.0, basis=Basis.POLICY)
    world = queues(gpus=20)

    def found(coming):
        held = [running(5.0 * number) for number in range(20)]
        pending = [waits()] * 10
        forecasts = forecast(
            forecast_givens(world, lambda *_: spread, 0.0), held, pending, expected=coming
        )
        return asked(forecasts["gpu-cq"], world)

    alone, overtaken = found([]), found([expected(every=40.0)])
    assert overtaken.seconds == alone.seconds
    assert overtaken.low == alone.low
    assert overtaken.high > alone.high
    assert overtaken.uncertain == ("arrivals",)


def test_they_go_on_for_as_long_as_they_have():
    once = start(queues(), [expected(every=10.0, seconds=10.0)])
    on_and_on = start(queues(), [expected(every=10.0)])

    assert 51.0 < once.seconds < on_and_on.seconds


def test_those_whose_run_time_nobody_knows_are_not_expected():
    coming = [expected(every=30.0, job_class="new")]

    assert start(queues(), coming) == start(queues(), [])


def test_placements_that_the_forecasts_lack_count_with_those_who_come_later():
    world = queues()
    found = forecasts(world, [expected(every=60.0)])["gpu-cq"]
    placed = PlacedJob(cluster_queue="gpu-cq", usage={CELL: 1}, start=50.0, end=150.0)

    before, after = asked(found, world), asked(found, world, among=[placed])

    assert after.seconds > before.seconds
    assert after.high > before.high
