"""How long quota lies idle after a run, as a forecast takes it and as it happens."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import schedules, waiting
from webhook.kueue.quota_holders import RunningGroup, StartedWorkloads
from webhook.kueue.quota_releases import Runs
from webhook.model.queues import Queueing

GPU = "nvidia.com/gpu"


def starts_of(*runs, gpus=1, queueing=Queueing.BEST_EFFORT, live=True):
    """When each Job starts that came at a moment and runs for a while, on a GPU."""
    state = snapshot(cluster_queue(quotas={"t4": {GPU: str(gpus)}}, queueing=queueing))
    schedule = schedules(state, requeue=1.0, live=live)["gpu-cq"]
    schedule.start_what_fits()
    for number, (at, seconds) in enumerate(runs):
        come = replace(arrival("a", {GPU: "1"}, local_queue="gpu-lq"), key=f"job-{number}")
        schedule.add_waiting(waiting(come, state, at=at, seconds=seconds))
    while schedule.next_event() < inf:
        schedule.step()
    return [begun.at for begun in schedule.begun]


@pytest.mark.parametrize(
    ("queueing", "starts"),
    [(Queueing.BEST_EFFORT, [0.0, 11.0, 22.0]), (Queueing.STRICT, [0.0, 10.0, 20.0])],
)
def test_who_was_tried_in_vain_is_tried_a_second_after_a_release(queueing, starts):
    assert starts_of((0.0, 10.0), (0.0, 10.0), (0.0, 10.0), queueing=queueing) == starts


def test_quota_that_nobody_waits_for_is_free_at_once():
    assert starts_of((0.0, 10.0), (10.5, 10.0)) == [0.0, 10.5]


def test_who_comes_while_quota_lies_idle_waits_with_the_others():
    assert starts_of((0.0, 10.0), (1.0, 10.0), (10.5, 10.0)) == [0.0, 11.0, 22.0]


def test_one_look_is_for_all_that_was_released_before():
    runs = running(live=True)

    seen = [runs.pop(lambda: True)[0] for _ in range(6)]

    assert seen == [10.0, 10.4, 11.0, 11.0, 12.0, 13.0]
    assert [begun.key for begun in runs.released] == ["a", "b", "c"]


def test_a_forecast_lets_every_release_be_late():
    runs = running(live=False)

    assert [runs.pop(lambda: False) for _ in range(3)] == [
        (at, run) for at, run in zip((11.0, 11.4, 13.0), RUNS, strict=True)
    ]
    assert (runs.next_at(), runs.ended, runs.released) == (inf, [], [])


RUNS = [
    RunningGroup(
        leaf=0,
        taken=(),
        count=1,
        variance=0.0,
        begun=StartedWorkloads(
            at=0.0, key=key, cluster_queue="a", flavors=(), usage=(), count=1, finish=finish
        ),
    )
    for key, finish in (("a", 10.0), ("b", 10.4), ("c", 12.0))
]


def running(*, live):
    runs = Runs({0: 1.0}, live=live)
    for run in RUNS:
        runs.add(run.begun.finish, replace(run))
    return runs


@given(gpus=st.integers(1, 5), jobs=st.integers(0, 20), seconds=st.integers(1, 100))
def test_a_forecast_of_equal_jobs_is_what_happens(gpus, jobs, seconds):
    run = [(0.0, float(seconds))] * jobs

    happens = starts_of(*run, gpus=gpus)

    assert happens == [float(each // gpus * (seconds + 1)) for each in range(jobs)]
    assert starts_of(*run, gpus=gpus, live=False) == happens
