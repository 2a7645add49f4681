"""A team's own policy, by the rights of the chart's role."""

import dataclasses
import ssl

import yaml

from hack import crd, paper
from hack.api import ApiClient, ApiError
from hack.install import kubeconfig_of
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy, probe, wait_until_policy_decides
from tests.e2e.plane import has_condition

KIND = "FallbackPolicy"
TEAM_KIND = "TeamFallbackPolicy"
RBAC = "rbac.authorization.k8s.io"


def test_a_teams_policy_acts_in_its_namespace_and_its_author_nowhere_else(plane, webhook):
    client, ours = plane.client, paper.names_with("ours", namespace="ours")
    theirs = dataclasses.replace(ours, namespace="theirs")
    for names in (ours, theirs):
        metadata = {"name": names.namespace}
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    client.apply_all([*paper.queues(ours), *paper.queues(theirs)])
    own, others = team_policy(ours), team_policy(theirs)
    lead = team_lead(plane, ours.namespace)
    try:
        refused = {
            "another namespace": status_of(lead, others),
            "the cluster": status_of(lead, paper.policy(ours)),
            "an image": status_of(lead, with_image(own)),
        }
        lead.create(own)
        wait_until_policy_decides(client, ours)
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
