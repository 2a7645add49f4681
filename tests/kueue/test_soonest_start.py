"""The bound of starts against the event loop, and against hand-made queues."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest

from tests.builders import arrival, cluster_queue, snapshot
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import PlannedStarts
from webhook.kueue.soonest_start import IdleTrees, SoonestStarts
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


def test_trees_of_an_earlier_snapshot_count_only_while_they_are_the_same():
    four, two = (snapshot(cluster_queue(quotas={"t4": {GPU: n}})) for n in "42")
    kept, asked = IdleTrees(four), demanded(2, four)
    running = [runs(2, 10)]

    same = SoonestStarts(replace(four, as_of=5.0), running, run_time_of, NOW, idle=kept)
    other = SoonestStarts(two, running, run_time_of, NOW, idle=kept)

    assert same.of("gpu-cq", asked) == 0.0
    assert other.of("gpu-cq", asked) == pytest.approx(10.0 / (1 + GRAIN))
    assert kept.of(replace(four, as_of=5.0)) is kept


@pytest.mark.parametrize(
    ("ahead", "seconds"), [(0, 0.0), (1, 10.0), (2, 10.0), (3, 20.0), (4, inf)]
)
def test_those_ahead_need_room_beside_it(ahead, seconds):
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "4"}}))
    found = starts(queues, [runs(2, 10), runs(1, 20)])
    asked = demanded(1, queues)

    soonest = found.of("gpu-cq", asked, ahead=ahead)

    assert soonest == pytest.approx(seconds / (1 + GRAIN))
    # Who was placed for the sake of the bound holds nothing afterwards.
    assert found.of("gpu-cq", asked) == 0.0


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
