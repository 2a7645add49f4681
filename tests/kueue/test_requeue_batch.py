"""When quota that a run gives back is used again: at once, or with the next requeue batch."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import simulations, waiting
from webhook.model.queues import Queueing

GPU = "nvidia.com/gpu"


def starts_of(*runs, gpus=1, queueing=Queueing.BEST_EFFORT):
    """When each Job starts that came at a moment and runs for a while, on a GPU."""
    state = snapshot(cluster_queue(quotas={"t4": {GPU: str(gpus)}}, queueing=queueing))
    simulation = simulations(state, requeue=1.0)["gpu-cq"]
    simulation.step()
    for number, (at, seconds) in enumerate(runs):
        come = replace(arrival("a", {GPU: "1"}, local_queue="gpu-lq"), key=f"job-{number}")
        simulation.add_waiting(waiting(come, state, at=at, seconds=seconds))
    while simulation.next_event() < inf:
        simulation.step()
    return [begun.at for begun in simulation.begun]


@pytest.mark.parametrize(
    ("queueing", "starts"),
    [(Queueing.BEST_EFFORT, [0.0, 11.0, 22.0]), (Queueing.STRICT, [0.0, 10.0, 20.0])],
)
def test_who_was_tried_in_vain_is_tried_a_second_after_a_release(queueing, starts):
    assert starts_of((0.0, 10.0), (0.0, 10.0), (0.0, 10.0), queueing=queueing) == starts


def test_quota_that_nobody_waits_for_is_free_at_once():
    assert starts_of((0.0, 10.0), (10.5, 10.0)) == [0.0, 10.5]


def test_who_comes_after_a_release_and_is_equal_to_who_waits_waits_for_the_batch_too():
    assert starts_of((0.0, 10.0), (1.0, 10.0), (10.5, 10.0)) == [0.0, 11.0, 22.0]


def test_one_batch_is_for_all_that_was_released_before():
    runs = (0.0, 10.0), (0.0, 10.4), (0.0, 12.0)

    starts = starts_of(*runs, *[(1.0, 50.0)] * 3, gpus=3)

    assert starts == [0.0, 0.0, 0.0, 11.0, 11.0, 13.0]


@given(gpus=st.integers(1, 5), jobs=st.integers(0, 20), seconds=st.integers(1, 100))
def test_equal_jobs_start_round_by_round_a_batch_apart(gpus, jobs, seconds):
    starts = starts_of(*[(0.0, float(seconds))] * jobs, gpus=gpus)

    assert starts == [float(each // gpus * (seconds + 1)) for each in range(jobs)]
