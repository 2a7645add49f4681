"""Kueue's own Deployment and configuration say which Kueue runs, and decisions follow it."""

import json
import re
import urllib.request

import pytest

from hack import kueue, paper, tools
from hack.install import Installation
from hack.waiting import WAIT_SECONDS, wait_for
from tests.conftest import FULL
from tests.e2e.decisions import OPTION, POLICY_API, applied_policy, fill
from webhook.model.kueue_support import GATES, release_of

DEPLOYMENT = "kueue-controller-manager"
SECONDS = 10.0 if FULL else WAIT_SECONDS
SWITCHES = {"AllAlpha", "AllBeta"}
TESTED = ("True", "Tested")


@pytest.fixture(scope="module")
def names(own_plane):
    found = paper.names_with("which", namespace="default")
    own_plane.client.apply_all(paper.queues(found))
    return found


@pytest.fixture(scope="module")
def client(own_plane, own_webhook: Installation, names):
    """A cluster by whose policy light Jobs go to the CPU."""
    with applied_policy(own_plane.client, paper.policy(names), names):
        fill(own_plane, names, gpu=14)
        yield own_plane.client


def condition_of(client, names):
    found = client.get(POLICY_API, "FallbackPolicy", names.policy)
    conditions = {each["type"]: each for each in found["status"]["conditions"]}
    said = conditions["KueueTested"]
    return said["status"], said["reason"]


def doubted(webhook):
    url = f"http://127.0.0.1:{webhook.replicas[0].metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    return set(re.findall(r'kueue_fallback_kueue_untested{reason="(\w+)"} 1[.]0', text))


def option_of(client, names):
    job = client.create(paper.light_job("light", names), dry_run=True)
    return job["metadata"]["labels"].get(OPTION)


def changed(client, change):
    """Patch what runs Kueue's container; no pod is there to be replaced."""
    path = client.path("apps/v1", "Deployment", namespace=kueue.NAMESPACE, name=DEPLOYMENT)
    container = client.send("GET", path).json()["spec"]["template"]["spec"]["containers"][0]
    template = {"spec": {"containers": [{"name": "manager", **change(container)}]}}
    kind = "application/strategic-merge-patch+json"
    client.send("PATCH", path, {"spec": {"template": template}}, content_type=kind)
    return container


def other_version(container):
    return {"image": container["image"].rpartition(":")[0] + ":v0.20.0"}


def other_gate(container):
    return {"args": [*container["args"], "--feature-gates=PriorityBoost=true"]}


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [(other_version, "False", "VersionUntested"), (other_gate, "False", "Unmodelled")],
)
def test_a_kueue_that_is_not_tested_is_only_observed_until_it_is_back(
    client, own_webhook, names, change, status, reason
):
    def is_enforced():
        found = condition_of(client, names), doubted(own_webhook), option_of(client, names)
        return found == (TESTED, set(), "cpu")

    def is_observed():
        found = condition_of(client, names), doubted(own_webhook), option_of(client, names)
        return found == ((status, reason), {reason}, None)

    wait_for(is_enforced, "the policy enforces", timeout_seconds=SECONDS)
    before = changed(client, change)
    try:
        wait_for(is_observed, "the policy only observes", timeout_seconds=SECONDS)
    finally:
        changed(client, lambda _: {key: before[key] for key in ("image", "args")})
    wait_for(is_enforced, "the policy enforces again", timeout_seconds=SECONDS)


def test_a_field_of_the_configuration_that_is_not_known_is_noticed(client, own_webhook, names):
    before = client.get("v1", "ConfigMap", kueue.CONFIG_MAP, namespace=kueue.NAMESPACE)
    text = before["data"][kueue.CONFIG_KEY]
    path = client.path("v1", "ConfigMap", namespace=kueue.NAMESPACE, name=kueue.CONFIG_MAP)

    def write(text):
        body = {"data": {kueue.CONFIG_KEY: text}}
        client.send("PATCH", path, body, content_type="application/merge-patch+json")

    write(text + "\nofTomorrow: {}\n")
    try:
        wait_for(lambda: doubted(own_webhook) == {"Unmodelled"}, "it counts as untested")
        observed = option_of(client, names)
        write("a: [")
        wait_for(lambda: doubted(own_webhook) == {"ConfigurationUnknown"}, "it is not known")
    finally:
        write(text)
    wait_for(lambda: option_of(client, names) == "cpu", "the policy enforces again")

    assert observed is None


def test_the_gates_that_are_known_are_those_of_the_kueue_that_runs(own_plane):
    log = own_plane.processes.log("kueue").read_text(errors="replace")
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
