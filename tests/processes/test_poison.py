"""Objects that were written to harm harm nobody else, in the processes whole.

Each is one that the API server takes from whoever may create Jobs, or Workloads, in one namespace.
"""

import copy
import json
import urllib.request

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import SLOW, applied_policy, counts, fill, metric, queue_of
from tests.e2e.plane import wait_until_complete

OPTED_OUT = {"kueue-fallback.dev/policy": "none"}
DIGITS = "9" * 5000
CLASSES = {"digits": f"x ~y {DIGITS}", "four-bytes": "x ~y 99999999999"}
RECORD = {
    "version": 1,
    "id": "abc",
    "time": "2026-11-22T22:00:00Z",
    "policy": "p",
    "mode": "Enforce",
    "option": "gpu",
    "from": {"queue": "q"},
}
AFFINITY = "/spec/template/spec/affinity"
DECISIONS = {
    "overflow": json.dumps({**RECORD, "options": [{"name": "gpu", "startsIn": 10**400}]}),
    "surrogate": json.dumps({**RECORD, "policy": "\ud800"}),
    "deep": json.dumps({**RECORD, "original": {AFFINITY: "@"}}).replace(
        '"@"', '{"a":' * 700 + "{}" + "}" * 700
    ),
}
STARTS = "process_start_time_seconds"


def poison(name, queues, *, annotations=None, marks=None):
    """A Job that ends at once, and that the webhook leaves as it is."""
    found = copy.deepcopy(paper.light_job(name, queues, faster=20.0))
    found["metadata"]["annotations"] = {**OPTED_OUT, **(annotations or {})}
    metadata = found["spec"]["template"].setdefault("metadata", {})
    metadata["annotations"] = {**metadata.get("annotations", {}), **(marks or {})}
    return found


def asking_for(cpu, queues):
    """A Workload of nobody's Job, as its right allows to make it."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set = {"name": "main", "count": 1, "template": template}
    return {
        "apiVersion": paper.KUEUE,
        "kind": "Workload",
        "metadata": {"name": "digits", "namespace": queues.namespace},
        "spec": {"queueName": queues.gpu_queue, "podSets": [pod_set]},
    }


def controllers(webhook, name):
    address = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(address) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.split(" ")[0] == name))


@pytest.fixture
def lives(webhook):
    """What must not change: starts of the observer, and since when the controller runs."""

    def found():
        starts = metric(webhook, "kueue_fallback_observer_starts_total")
        return starts, controllers(webhook, STARTS)

    return found


def test_poisoned_objects_end_no_process_and_change_no_decision(
    plane,
    webhook,
    queues,
    lives,
):
    client = plane.client
    before = lives()
    with applied_policy(client, paper.policy(queues), queues):
        for name, mark in CLASSES.items():
            marks = {"kueue-fallback.dev/class": mark}
            client.create(poison(f"class-{name}", queues, marks=marks))
        for name, text in DECISIONS.items():
            annotations = {"kueue-fallback.dev/decision": text, "kueue-fallback.dev/undone": "x"}
            client.create(poison(f"record-{name}", queues, annotations=annotations))
        names = [f"class-{name}" for name in CLASSES] + [f"record-{name}" for name in DECISIONS]
        for name in names:
            wait_until_complete(client, queues.namespace, name)
        fill(plane, queues, gpu=14)
        client.create(asking_for(DIGITS, queues))
        wait_for(
            lambda: counts(client, queues) == {"gpu": 11, "cpu": 0},
            "the Workload that asks for too much is counted among those that wait",
        )
        sent = client.create(paper.light_job("sent", queues, faster=SLOW))
        wait_for(
            lambda: controllers(webhook, "kueue_fallback_run_time_classes") >= 1,
            "the controller learns",
        )

    assert queue_of(sent) == queues.cpu_queue
    assert lives() == before
