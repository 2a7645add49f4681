"""Pending Jobs go where they are done sooner, on a real Kueue: there, back, and after an outage."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    decision_of,
    fill,
    finish_time,
    limited,
    queue_of,
)
from tests.e2e.moving import FASTER, RULES, hold, is_refused, moved_to
from tests.e2e.plane import (
    container_of,
    wait_until_complete,
    workload_of,
)


@pytest.fixture
def policy(plane, webhook, queues):
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = RULES
    with applied_policy(plane.client, found, queues):
        yield found


def pending_in_gpu(plane, queues, count, **given):
    """Create light Jobs while the GPU queue is long and the CPU queue is stopped."""
    client = plane.client
    fill(plane, queues, gpu=24)
    hold(client, queues.cpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "cpu"), "the CPU queue is known to be stopped")
    jobs = [
        client.create(paper.light_job(f"light-{number}", queues, faster=FASTER, **given))
        for number in range(count)
    ]
    assert [queue_of(job) for job in jobs] == [queues.gpu_queue] * count
    return jobs


def test_a_pending_job_goes_where_it_is_done_sooner(plane, queues, policy):
    client = plane.client
    (job,) = pending_in_gpu(plane, queues, 1)
    before = wait_for(lambda: workload_of(client, job), "its Workload")
    assert container_of(job)["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.annotations['kueue-fallback.dev/env.RUN_ENV']"
    )

    hold(client, queues.cpu_cluster_queue, "None")
    moved = wait_for(lambda: moved_to(client, queues, "light-0", "cpu"), "it is moved")
    done = wait_until_complete(client, queues.namespace, "light-0")

    after = workload_of(client, done)
    decision = decision_of(moved)
    assert queue_of(moved) == queues.cpu_queue
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["admission"]["clusterQueue"] == queues.cpu_cluster_queue
    assert paper.GPU not in container_of(done)["resources"]["requests"]
    annotations = done["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kueue-fallback.dev/env.RUN_ENV"] == "cpu"
    assert (decision["option"], decision["moves"]) == ("cpu", 1)
    assert [each["option"] for each in decision["history"]] == ["gpu", "cpu"]
    assert decision["reason"].startswith(f"moved to {queues.cpu_queue} (cpu): done in ")
    assert "kueue-fallback.dev/move-to" not in done["metadata"]["annotations"]
    event = wait_for(lambda: _event(client, done), "an Event on the Job")
    assert event["message"] == decision["reason"]


def _event(client, job):
    found = client.list("v1", "Event", namespace=job["metadata"]["namespace"])
    mine = (each for each in found if each["involvedObject"].get("uid") == job["metadata"]["uid"])
    return next((each for each in mine if each["reason"] == "Moved"), None)


def test_it_comes_back_when_the_gpu_is_free(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=0, cpu=6)
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    job = client.create(paper.light_job("light", queues, faster=FASTER))
    assert queue_of(job) == queues.cpu_queue

    hold(client, queues.gpu_cluster_queue, "None")
    moved = wait_for(lambda: moved_to(client, queues, "light", "gpu"), "it comes back")
    done = wait_until_complete(client, queues.namespace, "light")

    assert decision_of(moved)["moves"] == 1
    assert container_of(done)["resources"]["requests"][paper.GPU] == "1"
    assert container_of(done)["resources"]["limits"] == {paper.GPU: "1"}


def test_jobs_that_nobody_decided_are_moved_where_the_policy_adopts_them(plane, webhook, queues):
    client = plane.client
    # No policy was there when they were created: as if the webhook had been down.
    client.create_all(
        limited(paper.heavy_job(f"fill-{number}", queues, faster=SLOW)) for number in range(24)
    )
    client.create(paper.light_job("light", queues, faster=FASTER))
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = {**RULES, "adopt": True}
    # What only a decision at its creation could have prepared cannot change any more.
    del found["spec"]["options"][1]["adaptation"]["env"]

    with applied_policy(client, found, queues):
        wait_for(lambda: moved_to(client, queues, "light", "cpu"), "it is moved")
        job = wait_until_complete(client, queues.namespace, "light")

    assert (queue_of(job), decision_of(job)["moves"]) == (queues.cpu_queue, 1)
