"""Pending Jobs go where they are done sooner, on a real Kueue: there, back, and after an outage."""

import json
import time

import pytest

from hack import paper
from hack.api import APPLY_PATCH
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
    job_of,
    wait_until_complete,
    wait_until_reserved,
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


def test_the_submitter_applies_again_after_a_move(plane, queues, policy):
    client, manifest = plane.client, paper.light_job("light-0", queues, faster=SLOW)
    fill(plane, queues, gpu=24)
    hold(client, queues.cpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "cpu"), "the CPU queue is known to be stopped")
    query = {"fieldManager": "submitter"}
    path = client.path_of(manifest)
    client.send("PATCH", path, manifest, content_type=APPLY_PATCH, query=query)
    hold(client, queues.cpu_cluster_queue, "None")
    moved = wait_for(lambda: moved_to(client, queues, "light-0", "cpu"), "it is moved")
    wait_until_reserved(client, moved)

    again = client.send("PATCH", path, manifest, content_type=APPLY_PATCH, query=query).json()

    assert queue_of(again) == queues.cpu_queue
    assert decision_of(again) == decision_of(moved)
    assert paper.GPU not in container_of(again)["resources"]["requests"]
    owners = {each["manager"] for each in again["metadata"]["managedFields"]}
    assert "submitter" in owners
    fields = json.dumps(
        [each for each in again["metadata"]["managedFields"] if each["manager"] != "submitter"]
    )
    assert "f:resources" not in fields


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


@pytest.mark.parametrize("adopt", [True, False])
def test_jobs_that_nobody_decided_are_moved_where_the_policy_adopts_them(
    plane, webhook, queues, adopt
):
    client = plane.client
    # No policy was there when they were created: as if the webhook had been down.
    client.create_all(
        limited(paper.heavy_job(f"fill-{number}", queues, faster=SLOW)) for number in range(24)
    )
    client.create(paper.light_job("light", queues, faster=FASTER))
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = {**RULES, "adopt": adopt}
    # What only a decision at its creation could have prepared cannot change any more.
    del found["spec"]["options"][1]["adaptation"]["env"]

    with applied_policy(client, found, queues):
        if adopt:
            wait_for(lambda: moved_to(client, queues, "light", "cpu"), "it is moved")
            wait_until_complete(client, queues.namespace, "light")
        else:
            time.sleep(10)

    job = job_of(client, queues.namespace, "light")
    assert queue_of(job) == (queues.cpu_queue if adopt else queues.gpu_queue)
    assert (decision_of(job) or {}).get("moves", 0) == int(adopt)
