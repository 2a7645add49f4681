"""Pending Jobs that would gain by a move and are left where they are, each with its reason."""

import contextlib
import time
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    OPTION,
    SLOW,
    applied_policy,
    decision_of,
    fill,
    finish_time,
    limited,
    probe,
    queue_of,
)
from tests.e2e.moving import FASTER, RULES, hold, is_refused, moved_to
from tests.e2e.plane import job_of, workload_of

GATE = "kueue.x-k8s.io/admission-gated-by"
LOOKS_SECONDS = 6.0
"""Of the controller, which looks every two seconds."""
WORKLOADS = {"backoff": "backoff", "gated": "gated", "stopped": "deactivated"}
"""Job to why its Workload keeps it from being moved."""


@pytest.fixture
def policy(plane, webhook, queues):
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = RULES
    with applied_policy(plane.client, found, queues):
        yield found["metadata"]["name"]


def light(queues, name, **annotations):
    job = paper.light_job(name, queues, faster=FASTER)
    job["metadata"]["annotations"] = annotations
    return job


def not_moved(webhook, policy):
    """Read why the controller cannot move pending Jobs, and how many."""
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    start = f'kueue_fallback_controller_not_moved_jobs{{policy="{policy}",reason="'
    found = (line.removeprefix(start).split('"} ') for line in lines if line.startswith(start))
    return {reason: int(float(count)) for reason, count in found if float(count)}


def back_off(client, job):
    """Write what Kueue does when pods were not ready in time."""
    found = wait_for(lambda: workload_of(client, job), "its Workload")
    now = datetime.now(UTC).replace(microsecond=0)
    requeued = {
        "type": "Requeued",
        "status": "False",
        "reason": "PodsReadyTimeout",
        "message": "pods were not ready in time",
        "lastTransitionTime": now.isoformat(),
    }
    status = {
        "requeueState": {"count": 1, "requeueAt": (now + timedelta(hours=1)).isoformat()},
        "conditions": [*found.get("status", {}).get("conditions", ()), requeued],
    }
    change_workload(client, found, {"status": status}, subresource="status")


def change_workload(client, workload, change, **how):
    name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
    client.patch(paper.KUEUE, "Workload", name, change, namespace=namespace, **how)


def test_what_kueue_holds_back_is_not_moved_and_all_else_is(plane, queues, webhook, policy):
    client = plane.client
    fill(plane, queues, gpu=4)
    client.create_all(
        [limited(paper.heavy_job(f"more-{n}", queues, faster=SLOW)) for n in range(20)]
    )
    hold(client, queues.cpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "cpu"), "the CPU queue is known to be stopped")
    names = ("backoff", "gated", "stopped", "free")
    given = {"gated": {GATE: "example.com/gate"}}
    jobs = {name: client.create(light(queues, name, **given.get(name, {}))) for name in names}
    back_off(client, jobs["backoff"])
    stopped = wait_for(lambda: workload_of(client, jobs["stopped"]), "its Workload")
    change_workload(client, stopped, {"spec": {"active": False}})

    hold(client, queues.cpu_cluster_queue, "None")
    wait_for(lambda: moved_to(client, queues, "free", "cpu"), "the free one is moved")

    wanted = dict.fromkeys(WORKLOADS.values(), 1)
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not_moved(webhook, policy) == wanted, "each is counted with its reason")
    assert not_moved(webhook, policy) == wanted
    time.sleep(LOOKS_SECONDS)
    for name in WORKLOADS:
        job = job_of(client, queues.namespace, name)
        assert (queue_of(job), decision_of(job).get("moves", 0)) == (queues.gpu_queue, 0), name


def test_a_job_of_another_cluster_is_not_moved_and_whoever_asks_is_told(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=24)
    job = limited(light(queues, "remote"))
    job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    created = client.create(job)
    wait_for(lambda: workload_of(client, created), "its Workload")
    wait_for(lambda: (probe(client, queues) or {}).get("option") == "cpu", "CPUs are better")

    change = {
        "metadata": {
            "labels": {OPTION: "gpu"},
            "annotations": {"kueue-fallback.dev/move-to": "cpu"},
        }
    }
    path = client.path("batch/v1", "Job", namespace=queues.namespace, name="remote")
    answer = client.send("PATCH", path, change, content_type="application/merge-patch+json")
    time.sleep(LOOKS_SECONDS)

    after = job_of(client, queues.namespace, "remote")
    (warning,) = answer.warnings
    assert warning.startswith("kueue-fallback: not moved to cpu: another controller or cluster")
    assert queue_of(after) == queues.gpu_queue
    assert decision_of(after) is None
    assert "kueue-fallback.dev/move-to" not in after["metadata"].get("annotations", {})
    assert (
        after["spec"]["template"]["spec"]["containers"]
        == (created["spec"]["template"]["spec"]["containers"])
    )
