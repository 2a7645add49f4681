"""HorizontalPodAutoscalers of services: made, followed by Kubernetes, and removed with the policy.

kube-controller-manager's own autoscaler scales here. Nothing serves metrics, so that what it does
without them is seen: it keeps a service within the bounds.
"""

import json

import pytest

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, decision_of

OURS = "kueue-fallback.dev/"
NAMESPACE = "serving"
HPA = ("autoscaling/v2", "HorizontalPodAutoscaler")
POLICY = (POLICY_API, "FallbackPolicy", "serving")
DEPLOYMENT = ("apps/v1", "Deployment")
NAME = "deployment-chat"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    options = Options(
        controllers=(
            *("deployment-controller", "replicaset-controller"),
            "horizontal-pod-autoscaler-controller",
        ),
        kueue_config={"integrations": {"frameworks": ["batch/job", "pod", "deployment"]}},
    )
    with ControlPlane(tmp_path_factory.mktemp("autoscaling"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def webhook(plane):
    values = [*PATIENT, "controller.autoscale=true", "kinds={Job,Deployment}"]
    with Installation(plane, chart_values=values) as installed:
        yield installed


@pytest.fixture(scope="module")
def queue(plane, webhook):
    """A queue with quota for five replicas."""
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        paper.resource_flavor("cpu"),
        paper.cluster_queue("cpu", flavor="cpu", quota={"cpu": "10", "memory": "100Gi"}),
        paper.local_queue("cpu", NAMESPACE, cluster_queue="cpu"),
    ]
    plane.client.apply_all(items)


def policy(**autoscale):
    serving = {"requestsPerSecond": "20", "latency": "80ms"}
    match = {
        "kinds": ["Deployment"],
        "jobSelector": {},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
    }
    return {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": "serving"},
        "spec": {
            "mode": "Enforce",
            "match": match,
            "options": [{"name": "cpu", "queue": "cpu", "serving": serving}],
            "strategy": {"type": "Cost"},
            "autoscale": {"latency": "p95_seconds", **autoscale},
        },
    }


def service():
    container = {
        "name": "main",
        "image": "chat",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
    }
    said = {f"{OURS}request-rate": "20", f"{OURS}target-latency": "200ms"}
    labels = {"app": "chat"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": NAMESPACE,
            "labels": {paper.QUEUE_LABEL: "cpu"},
            "annotations": said,
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def of_namespace(client, kind):
    return client.list(*kind, namespace=NAMESPACE)


def bounds(client):
    found = client.find(*HPA, NAME, namespace=NAMESPACE)
    return found and (found["spec"]["minReplicas"], found["spec"]["maxReplicas"])


def replicas(client):
    return client.get(*DEPLOYMENT, "chat", namespace=NAMESPACE)["spec"]["replicas"]


def events(client):
    return {
        (event["reason"], event["message"])
        for event in client.list("v1", "Event", namespace=NAMESPACE)
        if event["involvedObject"]["name"] == "chat"
        and event.get("source", {}).get("component") == "kueue-fallback"
    }


def done(plane, webhook):
    """Return what the controller says that it has done with the autoscaler."""
    log = plane.processes.log(webhook.controllers[0].name).read_text()
    messages = [json.loads(line)["msg"] for line in log.splitlines() if NAME in line]
    return [message.partition(f"{NAME}: ")[2] for message in messages]


def test_it_is_made_followed_gives_way_and_goes_with_the_policy(plane, webhook, queue):
    client = plane.client
    client.apply(policy())
    wait_for(
        lambda: decision_of(client.create(service(), dry_run=True)), "the webhook decides services"
    )
    created = client.create(service())
    assert decision_of(created)["option"] == "cpu"

    # Two replicas hold 20 requests a second in 200 ms; ten CPUs hold five replicas of two.
    wait_for(lambda: bounds(client) == (2, 5), "an autoscaler is made")
    made = client.get(*HPA, NAME, namespace=NAMESPACE)
    assert made["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    assert made["spec"]["metrics"][0]["external"]["target"] == {"type": "Value", "value": "181m"}

    client.apply(policy(minReplicas=3))
    wait_for(lambda: bounds(client) == (3, 5), "it follows the policy")
    wait_for(lambda: replicas(client) == 3, "Kubernetes keeps the replicas warm")
    client.apply(paper.cluster_queue("cpu", flavor="cpu", quota={"cpu": "4", "memory": "9Gi"}))
    wait_for(lambda: bounds(client) == (2, 2), "it follows the quota")
    wait_for(lambda: replicas(client) == 2, "Kubernetes keeps the replicas within the quota")

    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    by_hand = {
        "apiVersion": HPA[0],
        "kind": HPA[1],
        "metadata": {"name": "by-hand", "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": target, "maxReplicas": 4},
    }
    client.create(by_hand)
    why = "HorizontalPodAutoscaler by-hand scales it already, and two would fight"
    wait_for(lambda: ("NotAutoscaled", why) in events(client), "the fight is told")
    wait_for(lambda: bounds(client) is None, "ours gives way")
    client.delete(*HPA, "by-hand", namespace=NAMESPACE)
    wait_for(lambda: bounds(client) == (2, 2), "ours returns")

    client.delete(*POLICY)
    wait_for(lambda: of_namespace(client, HPA) == [], "it goes with the policy")
    assert replicas(client) == 2

    # What is as it should be is not written again.
    assert done(plane, webhook) == [
        "made: 2 to 5 replicas",
        "changed: 3 to 5 replicas",
        "changed: 2 to 2 replicas",
        "removed: HorizontalPodAutoscaler by-hand scales the same service",
        "made: 2 to 2 replicas",
        "removed: no policy wants it any more",
    ]
