"""What was moved and runs is left alone, whatever happens to its queues, policy and controller.

That it has run for minutes is made by setting times back through the API: of its decision, and of
its Workload's conditions.
"""

import itertools
import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e import courses
from tests.e2e.decisions import DECISION, POLICY_API, SLOW, applied_policy, decision_of, fill
from tests.e2e.plane import has_condition

NAMES = paper.names_with("on", namespace="run-on")
OTHER = "other-cq-on"
ROUNDS = 20 if FULL else 1
READY, UNREADY, JUST_MOVED = "ready", "unready", "just-moved"
JOBS = (READY, UNREADY, JUST_MOVED)
MINUTES_AGO = timedelta(minutes=10)
MOVE_TO = "kueue-fallback.dev/move-to"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def moved(plane, webhook):
    """Three Jobs that were moved to the CPU queue and run there; yields them as they then are."""
    client = plane.client
    client.apply(paper.namespace(NAMES))
    client.apply_all(paper.queues(NAMES))
    quota = {"cpu": "24", "memory": "60Gi"}
    client.apply(paper.cluster_queue(OTHER, flavor=NAMES.cpu_flavor, quota=quota))
    with applied_policy(client, policy(), NAMES):
        fill(plane, NAMES, gpu=4)
        client.create_all([job_named(name) for name in JOBS])
        wait_for(lambda: set(JOBS) <= set(workloads(client)), "they wait")
        for name in JOBS:
            change = {"metadata": {"annotations": {MOVE_TO: "cpu"}}}
            client.patch("batch/v1", "Job", name, change, namespace=NAMES.namespace)
        wait_for(lambda: all(runs(client, name) for name in JOBS), "they run on CPUs")
        for name in (READY, UNREADY):
            set_back(client, name)
        yield running(client)


def policy():
    """Return one that moves nobody unasked."""
    found = paper.policy(NAMES)
    found["spec"]["strategy"]["threshold"] = [
        {"option": option, "orPendingBelow": 1000} for option in ("gpu", "cpu")
    ]
    found["spec"]["reconsider"] = {"after": "1h"}
    return found


def job_named(name):
    job = paper.light_job(name, NAMES, faster=SLOW)
    if name == UNREADY:
        job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "of-no-node"}
    return job


def workloads(client):
    return courses.workloads(client, NAMES.namespace)


def runs(client, name):
    found = workloads(client)[name]
    is_there = (found["status"].get("admission") or {}).get(
        "clusterQueue"
    ) == NAMES.cpu_cluster_queue
    return (
        is_there
        and has_condition(found, "Admitted")
        and pods(client, name)
        and (name == UNREADY or has_condition(found, "PodsReady"))
    )


def pods(client, name):
    return [
        pod["metadata"]["uid"]
        for pod in client.list("v1", "Pod", namespace=NAMES.namespace)
        if pod["metadata"]["labels"].get("job-name") == name
        and "deletionTimestamp" not in pod["metadata"]
    ]


def set_back(client, name):
    """Let a Job have been moved, and have been running, for minutes."""
    then = (datetime.now(UTC) - MINUTES_AGO).strftime("%Y-%m-%dT%H:%M:%SZ")
    place = {"namespace": NAMES.namespace}
    decision = decision_of(client.get("batch/v1", "Job", name, **place))
    stays = [{**stay, "time": then} for stay in decision["history"]]
    text = json.dumps({**decision, "time": then, "history": stays})
    client.patch("batch/v1", "Job", name, {"metadata": {"annotations": {DECISION: text}}}, **place)
    workload = workloads(client)[name]
    conditions = [{**each, "lastTransitionTime": then} for each in workload["status"]["conditions"]]
    path = f"{client.path_of(workload)}/status"
    body = {"status": {"conditions": conditions}}
    client.send("PATCH", path, body, content_type="application/merge-patch+json")


def running(client):
    """Tell what must not change: of each Job its Workload, where that has quota, and its pods."""
    found = workloads(client)
    return {
        name: {
            "workload": found[name]["metadata"]["uid"],
            "active": found[name]["spec"].get("active", True),
            "admitted in": found[name]["status"]["admission"]["clusterQueue"],
            "since": since(found[name], "QuotaReserved"),
            "evicted": has_condition(found[name], "Evicted"),
            "pods": pods(client, name),
        }
        for name in JOBS
    }


def since(workload, kind):
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    return conditions[kind]["lastTransitionTime"]


def ready_of(client):
    """Return the condition Ready as far as it is of the policy as it stands."""
    found = client.get(POLICY_API, "FallbackPolicy", NAMES.policy)
    for each in found.get("status", {}).get("conditions", ()):
        is_new = each["observedGeneration"] == found["metadata"]["generation"]
        if each["type"] == "Ready" and is_new:
            return each["status"]
    return None


def wait_until_seen(client):
    """Change the policy in what matters to nobody; wait until the controller has seen that too."""
    change = {"spec": {"reconsider": {"after": f"{60 + next(_numbers)}m"}}}
    client.patch(POLICY_API, "FallbackPolicy", NAMES.policy, change)
    wait_for(lambda: ready_of(client) == "True", "the controller has seen it")


def make_local_queue_anew(client, webhook):
    lane = client.get(paper.KUEUE, "LocalQueue", NAMES.cpu_queue, namespace=NAMES.namespace)
    there = lane["spec"]["clusterQueue"]
    other = OTHER if there == NAMES.cpu_cluster_queue else NAMES.cpu_cluster_queue
    client.delete(paper.KUEUE, "LocalQueue", NAMES.cpu_queue, namespace=NAMES.namespace)
    wait_for(lambda: ready_of(client) == "False", "the controller misses it")
    client.create(paper.local_queue(NAMES.cpu_queue, NAMES.namespace, cluster_queue=other))
    wait_for(lambda: ready_of(client) == "True", "the controller sees it")
    wait_until_seen(client)


def change_cluster_queue(client, webhook):
    for spec in ({"stopPolicy": "Hold"}, {"stopPolicy": "None"}):
        client.patch(paper.KUEUE, "ClusterQueue", NAMES.cpu_cluster_queue, {"spec": spec})
        wait_until_seen(client)
    cpu = 6 - next(_numbers) % 4
    courses.set_quotas(client, NAMES, gpu=4, cpu=cpu)
    wait_until_seen(client)


def restart_controller(client, webhook):
    (controller,) = webhook.controllers
    webhook.plane.stop(controller.name)
    webhook.plane.start(controller.name)
    webhook.wait_until_ready()
    wait_until_seen(client)


def delete_policy(client, webhook):
    client.delete(POLICY_API, "FallbackPolicy", NAMES.policy)
    wait_for(lambda: policies(webhook) == 0, "the controller misses it")
    client.apply(policy())
    wait_until_seen(client)


def policies(webhook):
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    counts = (line.split() for line in lines if line.startswith("kueue_fallback_policies{"))
    return sum(float(count) for _, count in counts)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(
    "disturb", [make_local_queue_anew, change_cluster_queue, restart_controller, delete_policy]
)
def test_they_run_on(plane, webhook, moved, disturb, number):
    disturb(plane.client, webhook)

    assert running(plane.client) == moved
