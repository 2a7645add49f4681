"""When the GPUs become free all at once, those who wait for CPUs come back; not for little."""

import time

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    OPTION,
    applied_policy,
    decision_of,
    fill,
    finish_time,
    limited,
    queue_of,
)
from tests.e2e.moving import FASTER, RULES, hold, is_refused, moved_to
from tests.e2e.plane import job_of, wait_until_complete, wait_until_reserved

GPU_FASTER = 4.0
"""The Jobs on GPUs run for 8 s,"""
BUSY_SECONDS = 60
"""and may run for so long."""
LIGHT = ("light-0", "light-1", "light-2")
LOOKS_SECONDS = 8.0
"""The controller looks every two."""
UNREACHABLE = {"time": "24h", "percent": 100}


@pytest.fixture
def policy(plane, webhook, queues, minimum_gain):
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = {**RULES, "minimumGain": minimum_gain}
    with applied_policy(plane.client, found, queues):
        yield found


def busy_gpus(plane, queues):
    """Have four Jobs run on the GPUs that end at the same time; return their names."""
    jobs = plane.client.create_all(
        [
            limited(paper.heavy_job(f"running-{number}", queues, faster=GPU_FASTER), BUSY_SECONDS)
            for number in range(4)
        ]
    )
    for job in jobs:
        wait_until_reserved(plane.client, job)
    return [job["metadata"]["name"] for job in jobs]


def pending_for_cpus(plane, queues):
    """Send light Jobs to the CPU queue, which is full for long, while the GPU queue is stopped."""
    client = plane.client
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    jobs = [client.create(paper.light_job(name, queues, faster=FASTER)) for name in LIGHT]
    assert [queue_of(job) for job in jobs] == [queues.cpu_queue] * len(LIGHT)
    hold(client, queues.gpu_cluster_queue, "None")


def is_over(job):
    ended = {
        each["type"] for each in job["status"].get("conditions", ()) if each["status"] == "True"
    }
    return not ended.isdisjoint(("Complete", "Failed"))


@pytest.mark.parametrize("minimum_gain", [RULES["minimumGain"]], ids=["small"])
def test_they_come_back_and_are_done_before_a_cpu_is_free(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=0, cpu=6)
    running = busy_gpus(plane, queues)
    pending_for_cpus(plane, queues)

    for name in running:
        wait_until_complete(client, queues.namespace, name)
    back = [
        wait_for(lambda name=name: moved_to(client, queues, name, "gpu"), f"{name} comes back")
        for name in LIGHT
    ]
    for name in LIGHT:
        wait_until_complete(client, queues.namespace, name)

    assert [queue_of(job) for job in back] == [queues.gpu_queue] * len(LIGHT)
    assert [decision_of(job)["moves"] for job in back] == [1] * len(LIGHT)
    # Where they were no Job has ended: they would not even have started.
    ahead = [job_of(client, queues.namespace, f"fill-cpu-{number}") for number in range(6)]
    assert not [job for job in ahead if is_over(job)]


@pytest.mark.parametrize("minimum_gain", [UNREACHABLE], ids=["unreachable"])
def test_none_comes_back_for_less_than_the_minimum_gain(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=0, cpu=6)
    running = busy_gpus(plane, queues)
    pending_for_cpus(plane, queues)

    for name in running:
        wait_until_complete(client, queues.namespace, name)
    time.sleep(LOOKS_SECONDS)

    jobs = [job_of(client, queues.namespace, name) for name in LIGHT]
    assert [queue_of(job) for job in jobs] == [queues.cpu_queue] * len(LIGHT)
    assert [job["metadata"]["labels"][OPTION] for job in jobs] == ["cpu"] * len(LIGHT)
    assert [decision_of(job).get("moves", 0) for job in jobs] == [0] * len(LIGHT)
