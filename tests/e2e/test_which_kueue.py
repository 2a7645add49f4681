"""Kueue's own Deployment says which Kueue runs, and decisions follow it."""

import json

import pytest

from hack import kueue, paper, tools
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, POLICY_API, applied_policy, fill
from webhook.model.kueue_support import GATES, release_of

DEPLOYMENT = "kueue-controller-manager"
SWITCHES = {"AllAlpha", "AllBeta"}


@pytest.fixture
def client(plane, webhook, queues):
    """A cluster by whose policy light Jobs go to the CPU."""
    with applied_policy(plane.client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        yield plane.client


def seen(client, queues):
    """Return what the policy says of Kueue, and where a Job would go."""
    found = client.get(POLICY_API, "FallbackPolicy", queues.policy)
    conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
    said = conditions.get("KueueTested", {})
    job = client.create(paper.light_job("light", queues), dry_run=True)
    return said.get("status"), said.get("reason"), job["metadata"]["labels"].get(OPTION)


def run_image(client, image):
    """Patch what runs Kueue's container; no pod is there to be replaced."""
    path = client.path("apps/v1", "Deployment", namespace=kueue.NAMESPACE, name=DEPLOYMENT)
    container = client.send("GET", path).json()["spec"]["template"]["spec"]["containers"][0]
    template = {"spec": {"containers": [{"name": "manager", "image": image}]}}
    kind = "application/strategic-merge-patch+json"
    client.send("PATCH", path, {"spec": {"template": template}}, content_type=kind)
    return container["image"]


def test_a_kueue_that_is_not_tested_is_only_observed_until_it_is_back(client, queues):
    enforced = ("True", "Tested", "cpu")
    wait_for(lambda: seen(client, queues) == enforced, "the policy enforces")
    before = run_image(client, "example.com/kueue:v0.20.0")
    try:
        observed = ("False", "VersionUntested", None)
        wait_for(lambda: seen(client, queues) == observed, "the policy only observes")
    finally:
        run_image(client, before)
    wait_for(lambda: seen(client, queues) == enforced, "the policy enforces again")


def test_the_gates_that_are_known_are_those_of_the_kueue_that_runs(plane):
    log = plane.processes.log("kueue").read_text(errors="replace")
    line = next(each for each in log.splitlines() if "Loaded feature gates" in each)
    found = json.loads(line[line.index("{") :])["featureGates"]

    gates = {**GATES, **release_of(tools.kueue_version()).gates}
    known = {
        name: gate.default
        for name, gate in gates.items()
        if name not in SWITCHES and gate.default is not None
    }
    # Switched off for a process on loopback.
    assert found == known | {"VisibilityOnDemand": False}
