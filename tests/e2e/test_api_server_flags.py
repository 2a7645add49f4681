"""What the API server is told by flags: how it shows who it is, and to write down who asks what.

It serves none of the other kinds of Jobs, so that nothing may be asked of them, and nothing lost.
"""

import json
import ssl
import urllib.error
import urllib.request
from collections import Counter

import pytest
import yaml

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, PATIENT, SERVICE, Installation
from hack.job_definitions import definitions
from hack.pki import Pki
from hack.waiting import wait_for
from tests import reviews
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of
from webhook.jobs import KINDS

USER = "kube-apiserver-to-webhooks"
SEGMENT = "only-api-servers-know-this-1"
API = "apiserver.config.k8s.io/v1"
KUBERNETES_OWN = frozenset({"apps", "batch", ""})
MISSING = {kind.kind: kind for kind in KINDS.values() if kind.group not in KUBERNETES_OWN}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]}],
}
MANY_WATCHES = 4
QUEUES = f"/apis/{paper.KUEUE}/clusterqueues"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("flags")
    (found / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))
    return found


@pytest.fixture(scope="module")
def clients(folder):
    """Who signs API servers' client certificates, and signs another's."""
    found = Pki(folder / "clients")
    found.issue_client("api", user=USER, group="")
    found.issue_client("other", user="other", group="")
    return found


@pytest.fixture(scope="module")
def flagged(folder):
    """A control plane that is not started yet."""
    flags = (
        f"--admission-control-config-file={folder / 'admission.yaml'}",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    )
    return ControlPlane(folder / "plane", options=Options(apiserver_flags=flags))


@pytest.fixture(scope="module")
def names():
    return paper.names_with("flags", namespace="flags")


@pytest.fixture(scope="module")
def project(flagged, folder, clients, names):
    """The project, which asks who calls, before it is installed on the plane, which runs."""
    segments = folder / "segments.json"
    segments.write_text(json.dumps([SEGMENT]))
    project = Installation(
        flagged,
        serve_flags=(f"--client-ca={clients.certificate('ca')}", f"--path-segments={segments}"),
        chart_values=(
            *PATIENT,
            "webhook.clientCA.from.name=api-servers",
            f"webhook.clientCA.names={{{USER}}}",
            f"webhook.pathSegments={{{SEGMENT}}}",
        ),
    )
    configure(folder, clients, host=f"{SERVICE}.{NAMESPACE}.svc:{project.port}")
    with flagged:
        metadata = {"name": names.namespace}
        flagged.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        flagged.client.apply_all(paper.queues(names))
        yield project


def configure(folder, clients, *, host):
    """Write the API server's configuration of admission, as docs/security.md has it."""
    kubeconfig = folder / "webhooks.kubeconfig"
    webhooks = {"apiVersion": API, "kind": "WebhookAdmissionConfiguration"}
    plugin = {
        "name": "MutatingAdmissionWebhook",
        "configuration": {**webhooks, "kubeConfigFile": str(kubeconfig)},
    }
    admission = {"apiVersion": API, "kind": "AdmissionConfiguration", "plugins": [plugin]}
    user = {
        "client-certificate": str(clients.certificate("api")),
        "client-key": str(clients.key("api")),
    }
    users = [{"name": host, "user": user}]
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    (folder / "admission.yaml").write_text(yaml.safe_dump(admission))


def decided(plane, names):
    with applied_policy(plane.client, paper.policy(names), names):
        return decision_of(plane.client.create(paper.light_job("light", names), dry_run=True))


def post(project, names, path, *credentials):
    """Ask the webhook without the API server; return the status."""
    tls = ssl.create_default_context(cafile=str(project.ca_certificate))
    if credentials:
        tls.load_cert_chain(*credentials)
    body = json.dumps(reviews.review(paper.light_job("direct", names), dry_run=True)).encode()
    url = f"{project.endpoints['webhook']}{path}"
    called = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(called, context=tls) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def asked(folder):
    """Count what this project's own accounts asked the API server for, by path."""
    lines = (folder / "audit.log").read_text().splitlines()
    return Counter(json.loads(line)["requestURI"].partition("?")[0] for line in lines)


def asked_of_missing(folder):
    groups = tuple(f"/apis/{kind.group}/" for kind in MISSING.values())
    return {path: count for path, count in asked(folder).items() if path.startswith(groups)}


def groups_in(plane, kind):
    """Name the API groups that this project's roles or webhooks name."""
    found = plane.client.list(*kind)
    ours = [item for item in found if item["metadata"]["name"].startswith(NAMESPACE)]
    rules = [rule for item in ours for rule in item.get("rules") or ()]
    rules += [rule for item in ours for hook in item.get("webhooks", ()) for rule in hook["rules"]]
    return {group for rule in rules for group in rule.get("apiGroups", ())}


def test_the_api_server_is_answered_by_its_certificate_and_asked_of_no_other_kind(
    flagged, project, clients, folder, names
):
    own, other = ((clients.certificate(name), clients.key(name)) for name in ("api", "other"))
    with project:
        assert decided(flagged, names)["policy"] == names.policy
        with pytest.raises(OSError, match=r"(?i)certificate.required"):
            post(project, names, f"/mutate/{SEGMENT}")
        statuses = [post(project, names, f"/mutate/{SEGMENT}", *who) for who in (other, own)]
        assert statuses == [403, 200]
        assert post(project, names, "/mutate", *own) == 404
    check_that_nothing_is_asked_of_other_kinds(flagged, folder)


def check_that_nothing_is_asked_of_other_kinds(plane, folder):
    others = {kind.group for kind in MISSING.values()}
    rights = groups_in(plane, ("rbac.authorization.k8s.io/v1", "ClusterRole"))
    reviewed = groups_in(plane, ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"))
    assert asked(folder)[QUEUES] > 0
    assert asked_of_missing(folder) == {}
    assert (rights & others, reviewed) == (set(), {"batch"})


def test_kinds_that_are_switched_on_but_not_served_disturb_no_job_until_they_are(
    flagged, project, folder, names
):
    plane = flagged
    values = [*PATIENT, f"kinds={{{','.join(kind.kind for kind in KINDS.values())}}}"]
    waiting = paper.policy(names)
    waiting["metadata"]["name"] = "for-kinds-that-are-not-served"
    waiting["spec"]["match"]["kinds"] = sorted(MISSING)
    with Installation(plane, chart_values=values) as installed:
        plane.client.apply(waiting)
        assert decided(plane, names)["policy"] == names.policy
        ready = wait_for(lambda: ready_of(plane, waiting), "the policy is judged")
        before = asked(folder)[QUEUES]
        wait_for(lambda: asked(folder)[QUEUES] >= before + MANY_WATCHES, "time passes by watches")
        told = [plane.processes.log(name).read_text() for name in ours(installed)]
        missing = asked_of_missing(folder)
        plane.client.create(definition_of("JAXJob"))
        wait_for(
            lambda: "jaxjobs" not in ready_of(plane, waiting)["message"], "one is served by now"
        )

    assert ready["status"] == "False"
    assert all(kind.plural in ready["message"] for kind in MISSING.values())
    # Each is looked for now and then, and not more often than what is there.
    assert max(missing.values(), default=0) <= 2 * asked(folder)[QUEUES]
    assert [line for text in told for line in text.splitlines() if is_trouble(line)] == []


def definition_of(kind):
    plural = MISSING[kind].plural
    return next(each for each in definitions() if each["spec"]["names"]["plural"] == plural)


def ready_of(plane, policy):
    found = plane.client.get(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])
    conditions = found.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), None)


def ours(installed):
    return [each.name for each in (*installed.replicas, *installed.controllers)]


def is_trouble(line):
    return any(word in line for word in ("Traceback", "ERROR", '"error"'))
