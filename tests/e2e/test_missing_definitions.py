"""A cluster that serves none of the other kinds of Jobs: nothing is asked for, nothing is lost."""

import json
from collections import Counter

import pytest

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of, fill, queue_of
from tests.e2e.plane import wait_until_reserved
from webhook.jobs import KINDS

KUBERNETES_OWN = frozenset({"apps", "batch", ""})
MISSING = {kind.kind: kind for kind in KINDS.values() if kind.group not in KUBERNETES_OWN}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]}],
}
MANY_WATCHES = 4


@pytest.fixture(scope="module")
def audited_plane(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing")
    policy = folder / "audit.yaml"
    policy.write_text(json.dumps(AUDIT_POLICY))
    given = (f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}")
    with ControlPlane(folder, options=Options(apiserver_flags=given)) as started:
        yield started


@pytest.fixture
def places(audited_plane, request):
    """The paper's queues in a namespace of this test."""
    name = request.node.name.replace("_", "-")[:40].rstrip("-")
    audited_plane.client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    names = paper.names_with(name, namespace=name)
    audited_plane.client.apply_all(paper.queues(names))
    return names


def asked(plane):
    """Count what this project's own accounts asked the API server for, by path."""
    lines = (plane.state / "audit.log").read_text().splitlines()
    return Counter(json.loads(line)["requestURI"].partition("?")[0] for line in lines)


def asked_of_missing(plane):
    groups = tuple(f"/apis/{kind.group}/" for kind in MISSING.values())
    return {path: count for path, count in asked(plane).items() if path.startswith(groups)}


def groups_in(plane, kind):
    """Name the API groups that this project's roles or webhooks name."""
    found = plane.client.list(*kind)
    ours = [item for item in found if item["metadata"]["name"].startswith(NAMESPACE)]
    rules = [rule for item in ours for rule in item.get("rules") or ()]
    rules += [rule for item in ours for hook in item.get("webhooks", ()) for rule in hook["rules"]]
    return {group for rule in rules for group in rule.get("apiGroups", ())}


def test_by_default_no_right_and_no_object_of_other_kinds_is_asked_for(audited_plane, places):
    with Installation(audited_plane, chart_values=PATIENT):
        decide_a_light_job(audited_plane, places)

        assert asked_of_missing(audited_plane) == {}
    others = {kind.group for kind in MISSING.values()}
    rights = groups_in(audited_plane, ("rbac.authorization.k8s.io/v1", "ClusterRole"))
    reviews = groups_in(
        audited_plane, ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
    )
    assert (rights & others, reviews) == (set(), {"batch"})


def test_kinds_that_are_switched_on_but_not_served_disturb_no_job(audited_plane, places):
    values = [*PATIENT, f"kinds={{{','.join(kind.kind for kind in KINDS.values())}}}"]
    waiting = paper.policy(places)
    waiting["metadata"]["name"] = "for-kinds-that-are-not-served"
    waiting["spec"]["match"]["kinds"] = sorted(MISSING)
    with Installation(audited_plane, chart_values=values) as installed:
        audited_plane.client.apply(waiting)
        decide_a_light_job(audited_plane, places)
        ready = wait_for(lambda: ready_of(audited_plane, waiting), "the policy is judged")
        before = asked(audited_plane)
        wait_for(lambda: watched_since(audited_plane, before), "time passes by watches")
        told = [installed.plane.processes.log(name).read_text() for name in ours(installed)]
    missing = asked_of_missing(audited_plane)

    assert ready["status"] == "False"
    assert all(kind.plural in ready["message"] for kind in MISSING.values())
    # Each is looked for now and then, and not more often than what is there.
    assert max(missing.values(), default=0) <= 2 * asked(audited_plane)[queues_path()]
    assert [line for text in told for line in text.splitlines() if is_trouble(line)] == []


def decide_a_light_job(plane, names):
    with applied_policy(plane.client, paper.policy(names), names):
        fill(plane, names, gpu=14)
        job = plane.client.create(paper.light_job("light", names))
        wait_until_reserved(plane.client, job)
        assert (decision_of(job)["option"], queue_of(job)) == ("cpu", names.cpu_queue)


def ready_of(plane, policy):
    found = plane.client.get(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])
    conditions = found.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), None)


def queues_path():
    return f"/apis/{paper.KUEUE}/clusterqueues"


def watched_since(plane, before):
    return asked(plane)[queues_path()] - before[queues_path()] >= MANY_WATCHES


def ours(installed):
    return [each.name for each in (*installed.replicas, *installed.controllers)]


def is_trouble(line):
    return any(word in line for word in ("Traceback", "ERROR", '"error"'))
