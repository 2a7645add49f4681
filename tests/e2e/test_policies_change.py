"""Policies come, change, go and break while Jobs are decided."""

import time

import yaml

from hack import crd, paper
from hack.api import ApiError
from tests.e2e.decisions import POLICY_API, applied_policy, fill, metric, probe
from tests.e2e.plane import wait_for

KIND = "FallbackPolicy"
UNPROCESSABLE = 422


def test_a_policy_counts_from_the_moment_it_is_there_until_it_is_gone(plane, webhook, queues):
    first = paper.policy(queues)
    with applied_policy(plane.client, first, queues):
        fill(plane, queues, gpu=14)
    client, took = plane.client, {}

    def wait_until(event, option):
        start = time.monotonic()
        wait_for(
            lambda: ((probe(client, queues) or {}).get("option")) == option,
            f"{option} after the policy was {event}",
        )
        took[event] = time.monotonic() - start

    wait_until("absent", None)
    client.create(first)
    wait_until("created", "cpu")
    changed = paper.policy(queues)
    changed["spec"]["strategy"]["threshold"][0]["orPendingBelow"] = 11
    client.apply(changed)
    wait_until("changed", "gpu")
    client.apply(first)
    wait_until("changed back", "cpu")
    client.delete(POLICY_API, KIND, queues.policy)
    wait_until("deleted", None)

    print({event: f"{seconds:.2f} s" for event, seconds in took.items()})


BROKEN = {
    "no-options": {"options": []},
    "no-match": {"match": {}},
    "mode": {"mode": "Perhaps"},
    "types": {"options": "cpu-lq", "match": {"jobSelector": ["every"]}, "priority": "high"},
    "name-of-none": {"strategy": {"type": "Threshold", "threshold": [{"option": "none"}]}},
}


def test_broken_policies_that_got_in_are_passed_over(own_plane, own_webhook):
    client = own_plane.client
    names = paper.names_with("broken", namespace="default")
    client.apply_all(paper.queues(names))
    definition = yaml.safe_load(crd.text())
    client.apply(relaxed(definition))
    broken = [broken_policy(names, name, changes) for name, changes in BROKEN.items()]
    trial = {**broken[0], "metadata": {"name": "trial"}}

    for policy in broken:
        wait_for(lambda policy=policy: is_taken(client, policy), "the API server takes anything")
    with applied_policy(client, paper.policy(names), names):
        while_relaxed = probe(client, names)
        client.apply(definition)
        wait_for(lambda: not is_taken(client, trial, dry_run=True), "the schema is back")
        own_webhook.stop()
        own_webhook.start()
        wait_for(lambda: probe(client, names), "decisions after a start among broken policies")
        afterwards = probe(client, names)
    gone = [policy["metadata"]["name"] for policy in broken]
    for name in gone:
        client.delete(POLICY_API, KIND, name)

    assert (while_relaxed["policy"], while_relaxed["option"]) == (names.policy, "gpu")
    assert (afterwards["policy"], afterwards["option"]) == (names.policy, "gpu")
    assert metric(own_webhook, "kueue_fallback_failures_total") == 0
    log = own_plane.processes.log("webhook-0").read_text()
    assert [name for name in gone if name not in log] == []


def broken_policy(names, name, changes):
    """Make a policy that would win over every other one, if it could be read."""
    policy = paper.policy(names)
    policy["metadata"]["name"] = f"a-{name}"
    policy["spec"] = {"priority": 100, **policy["spec"], **changes}
    return policy


def relaxed(definition):
    """Take every rule and type out of the definition's schema."""
    version = definition["spec"]["versions"][0]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    loose = {**version, "schema": {"openAPIV3Schema": anything}}
    return {**definition, "spec": {**definition["spec"], "versions": [loose]}}


def is_taken(client, policy, *, dry_run=False):
    """Create a policy, and tell whether the API server has taken it."""
    try:
        client.create(policy, dry_run=dry_run)
    except ApiError as error:
        if error.status != UNPROCESSABLE:
            raise
        return False
    return True
