"""Policies come, change, go and break while Jobs are decided."""

import dataclasses
import ssl
import time

import pytest
import yaml

from hack import crd, paper
from hack.api import ApiClient, ApiError
from hack.install import PATIENT, Installation, kubeconfig_of
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy, fill, metric, probe
from tests.e2e.plane import has_condition

KIND = "FallbackPolicy"
TEAM_KIND = "TeamFallbackPolicy"
RBAC = "rbac.authorization.k8s.io"
UNPROCESSABLE = 422


@pytest.fixture(scope="module")
def own_webhook(own_plane):
    """The project, with policies that namespaces have of their own."""
    with Installation(own_plane, chart_values=[*PATIENT, "teamPolicies.enabled=true"]) as installed:
        yield installed


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


def test_a_teams_policy_acts_in_its_namespace_and_its_author_nowhere_else(own_plane, own_webhook):
    client, ours = own_plane.client, paper.names_with("ours", namespace="ours")
    theirs = dataclasses.replace(ours, namespace="theirs")
    for names in (ours, theirs):
        metadata = {"name": names.namespace}
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    client.apply_all([*paper.queues(ours), *paper.queues(theirs)])
    own, others = team_policy(ours), team_policy(theirs)
    lead = team_lead(own_plane, ours.namespace)
    try:
        refused = {
            "another namespace": status_of(lead, others),
            "the cluster": status_of(lead, paper.policy(ours)),
            "an image": status_of(lead, with_image(own)),
        }
        lead.create(own)
        wait_for(lambda: probe(client, ours), "decisions by the team's policy")
        decided, others_decided = probe(client, ours), probe(client, theirs)
        wait_for(
            lambda: has_condition(
                client.get(POLICY_API, TEAM_KIND, "light", namespace=ours.namespace), "Ready"
            ),
            "the team's policy is ready",
        )
        with applied_policy(client, paper.policy(ours), ours, until_decided=False):
            wait_for(
                lambda: (probe(client, ours) or {}).get("policy") == ours.policy,
                "the administrator's policy goes first",
            )
        lead.delete(POLICY_API, TEAM_KIND, "light", namespace=ours.namespace)
        wait_for(lambda: not probe(client, ours), "no decision without the policy")
    finally:
        lead.close()

    assert refused == {"another namespace": 403, "the cluster": 403, "an image": 400}
    assert (decided["policy"], decided["option"]) == ("ours/light", "cpu")
    assert others_decided is None


def team_policy(names):
    """Make a policy that takes the CPU option whenever anything fits there."""
    spec = {
        "mode": "Enforce",
        "match": {"jobSelector": {"matchLabels": dict(paper.LIGHT)}},
        "options": [
            {"name": "gpu", "queue": names.gpu_queue},
            {"name": "cpu", "queue": names.cpu_queue, "adaptation": {"accelerator": "Remove"}},
        ],
        "strategy": {"type": "Threshold", "threshold": [{"option": "cpu", "orPendingBelow": 9}]},
    }
    metadata = {"name": "light", "namespace": names.namespace}
    return {"apiVersion": POLICY_API, "kind": TEAM_KIND, "metadata": metadata, "spec": spec}


def with_image(policy):
    (gpu, cpu), spec = policy["spec"]["options"], policy["spec"]
    changed = {**cpu, "adaptation": {**cpu["adaptation"], "image": "mine"}}
    return {**policy, "spec": {**spec, "options": [gpu, changed]}}


def team_lead(plane, namespace):
    """Return a client with the rights of the chart's role in one namespace, and no others."""
    place = {"name": "lead", "namespace": namespace}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "kueue-fallback-team-policy-editor"}
    binding = {"roleRef": role, "subjects": [{"kind": "ServiceAccount", **place}]}
    plane.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place})
    plane.client.create(
        {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": place, **binding}
    )
    written = yaml.safe_load(kubeconfig_of(plane, "lead", namespace=namespace).read_text())
    tls = ssl.create_default_context(cafile=plane.pki.certificate("ca"))
    return ApiClient(plane.api_port, tls=tls, token=written["users"][0]["user"]["token"])


def status_of(client, policy):
    """Create a policy by a dry run, and return the status of the refusal."""
    plural = {KIND: crd.POLICIES, TEAM_KIND: crd.TEAM_POLICIES}[policy["kind"]].plural
    namespace = policy["metadata"].get("namespace")
    within = f"namespaces/{namespace}/" if namespace else ""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        client.send("POST", f"/apis/{POLICY_API}/{within}{plural}", policy, query=query)
    except ApiError as error:
        return error.status
    return None
