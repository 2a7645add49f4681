"""The bound of starts against the event loop, and against hand-made queues."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, snapshot
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import PlannedStarts
from webhook.kueue.soonest_start import SoonestStarts
from webhook.kueue.tree_workloads import GRAIN, Occupant, QueuedGroup
from webhook.model.forecasts import Basis, RunTime

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)
NOW = 0.0
RUN_SECONDS = 100.0


def run_time_of(job_class, flavors):
    # Those that run end after as many seconds as their class is named by.
    seconds = float(job_class or RUN_SECONDS)
    return RunTime(seconds=seconds, low=seconds, high=seconds, basis=Basis.POLICY)


def runs(gpus, seconds):
    usage = {CELL: gpus}
    return Occupant(cluster_queue="gpu-cq", usage=usage, job_class=str(seconds), started_at=NOW)


def asks(gpus):
    return arrival("a", {GPU: str(gpus)}, local_queue="gpu-lq")


def starts(queues, running):
    return SoonestStarts(queues, running, run_time_of, NOW)


def demanded(gpus, queues):
    return demand(asks(gpus).needs, queues.cluster_queues["gpu-cq"], queues)


@pytest.mark.parametrize("seed", range(20))
def test_none_starts_before_all_that_are_alike_and_older_hold_quota_or_one_has_ended(seed):
    draw = random.Random(seed)
    sizes = (1, 2, 3)
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "6"}}))
    running = [runs(draw.choice(sizes), draw.randint(1, 90)) for _ in range(3)]
    needs = {size: asks(size) for size in sizes}
    order = [draw.choice(sizes) for _ in range(draw.randint(5, 60))]
    waiting = [
        QueuedGroup(arrival=replace(needs[size], key=str(place), created=place))
        for place, size in enumerate(order)
    ]

    begun = PlannedStarts(queues, running, waiting, run_time_of, NOW).planned.begun

    bound = starts(queues, running)
    assert len(begun) == len(order)
    for start in begun:
        size = order[int(start.key)]
        asked, ahead = demanded(size, queues), order[: int(start.key)].count(size)
        after_all = bound.of("gpu-cq", asked, ahead=ahead)
        after_one = (bound.of("gpu-cq", asked) + RUN_SECONDS) / (1 + GRAIN)
        assert start.at >= min(after_all, after_one) - 1e-6
