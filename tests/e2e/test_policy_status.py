"""The controller's word on policies, in the cluster it was installed in."""

import copy

import pytest
import yaml

from hack import crd, paper
from hack.api import ApiError
from hack.install import Installation
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of

API = "kueue-fallback.dev/v1alpha1"
KIND = "FallbackPolicy"
UNPROCESSABLE = 422


@pytest.fixture
def client(plane, webhook: Installation):
    return plane.client


def ready_of(client, name, *, generation=None):
    found = client.get(API, KIND, name)
    for one in found.get("status", {}).get("conditions", ()):
        if one["type"] == "Ready" and generation in (None, one["observedGeneration"]):
            return one
    return None


def wait_for_ready(client, name, status, *, saying=""):
    """Wait for the condition Ready, with a message that begins so."""

    def reached():
        one = ready_of(client, name)
        is_meant = one and one["status"] == status
        return one if is_meant and one["message"].startswith(saying) else None

    return wait_for(reached, f"{name} is Ready={status}")


def test_a_missing_queue_is_named_until_it_is_there(client, queues):
    queue = client.get(paper.KUEUE, "LocalQueue", "cpu-lq", namespace=queues.namespace)
    client.delete(paper.KUEUE, "LocalQueue", "cpu-lq", namespace=queues.namespace)
    policy = paper.policy(queues)
    selector = {"matchLabels": {"kubernetes.io/metadata.name": queues.namespace}}
    policy["spec"]["match"]["namespaceSelector"] = selector

    client.apply(policy)
    try:
        # The other LocalQueue is as new as the policy: it may not be known at first, either.
        without = wait_for_ready(client, queues.policy, "False", saying="spec.options[1]")
        client.create(
            {
                "apiVersion": paper.KUEUE,
                "kind": "LocalQueue",
                "metadata": {"name": "cpu-lq", "namespace": queues.namespace},
                "spec": queue["spec"],
            }
        )
        with_it = wait_for_ready(client, queues.policy, "True")
    finally:
        client.delete(API, KIND, queues.policy)

    assert (without["reason"], without["message"]) == (
        "QueueNotFound",
        "spec.options[1].queue: no LocalQueue cpu-lq in any selected namespace",
    )
    assert with_it["reason"] == "Resolved"


def test_a_policy_that_stopped_being_valid_is_said_to_be_and_takes_nothing_down(client, queues):
    definition = yaml.safe_load(crd.text())
    client.apply(_without_rules(definition))
    broken = paper.policy(queues)
    broken["metadata"]["name"] = f"stale-{queues.policy}"
    broken["spec"]["strategy"] = {"type": "Threshold"}

    try:
        wait_for(lambda: _is_created(client, broken), "the API server takes what it refused before")
        client.apply(definition)
        said = wait_for_ready(client, broken["metadata"]["name"], "False")
        with applied_policy(client, paper.policy(queues), queues):
            job = client.create(paper.light_job("light", queues), dry_run=True)
    finally:
        client.apply(definition)
        client.delete(API, KIND, broken["metadata"]["name"])

    assert (said["reason"], said["message"]) == (
        "Invalid",
        "spec.strategy.threshold: must be given with type: Threshold",
    )
    assert decision_of(job)["policy"] == queues.policy


def _is_created(client, policy) -> bool:
    try:
        client.create(policy)
    except ApiError as error:
        if error.status != UNPROCESSABLE:
            raise
        return False
    return True


def _without_rules(definition):
    found = copy.deepcopy(definition)
    strategy = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]["strategy"]
    del strategy["x-kubernetes-validations"]
    return found
