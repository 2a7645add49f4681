"""The API server shows who it is: with its certificate it is answered, and nobody else is."""

import json
import ssl
import urllib.error
import urllib.request

import pytest
import yaml

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, SERVICE, Installation
from hack.pki import Pki
from tests import reviews
from tests.e2e.decisions import applied_policy, decision_of

NAMES = paper.names_with("callers", namespace="callers")
USER = "kube-apiserver-to-webhooks"
SEGMENT = "only-api-servers-know-this-1"
API = "apiserver.config.k8s.io/v1"


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Who signs API servers' client certificates, and signs another's."""
    found = Pki(tmp_path_factory.mktemp("clients"))
    found.issue_client("api", user=USER, group="")
    found.issue_client("other", user="other", group="")
    return found


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    folder = tmp_path_factory.mktemp("callers")
    flag = f"--admission-control-config-file={folder / 'admission.yaml'}"
    return ControlPlane(folder / "plane", options=Options(apiserver_flags=(flag,)))


@pytest.fixture(scope="module")
def webhook(plane, clients):
    folder = plane.state.parent
    segments = folder / "segments.json"
    segments.write_text(json.dumps([SEGMENT]))
    installation = Installation(
        plane,
        serve_flags=(f"--client-ca={clients.certificate('ca')}", f"--path-segments={segments}"),
        chart_values=(
            "webhook.timeoutSeconds=30",
            "webhook.clientCA.from.name=api-servers",
            f"webhook.clientCA.names={{{USER}}}",
            f"webhook.pathSegments={{{SEGMENT}}}",
        ),
    )
    configure(folder, clients, host=f"{SERVICE}.{NAMESPACE}.svc:{installation.port}")
    with plane, installation:
        metadata = {"name": NAMES.namespace}
        plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        plane.client.apply_all(paper.queues(NAMES))
        yield installation


def configure(folder, clients, *, host):
    """Write the API server's configuration of admission, as docs/security.md has it."""
    kubeconfig = folder / "webhooks.kubeconfig"
    admission = {
        "apiVersion": API,
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": "MutatingAdmissionWebhook",
                "configuration": {
                    "apiVersion": API,
                    "kind": "WebhookAdmissionConfiguration",
                    "kubeConfigFile": str(kubeconfig),
                },
            }
        ],
    }
    user = {
        "client-certificate": str(clients.certificate("api")),
        "client-key": str(clients.key("api")),
    }
    users = [{"name": host, "user": user}]
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    (folder / "admission.yaml").write_text(yaml.safe_dump(admission))


def post(webhook, path, *credentials):
    """Ask the webhook without the API server; return the status."""
    tls = ssl.create_default_context(cafile=str(webhook.ca_certificate))
    if credentials:
        tls.load_cert_chain(*credentials)
    body = json.dumps(reviews.review(paper.light_job("direct", NAMES), dry_run=True)).encode()
    url = f"{webhook.endpoints['webhook']}{path}"
    called = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(called, context=tls, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def credentials(clients, name):
    return clients.certificate(name), clients.key(name)


def test_a_create_is_decided(plane, webhook):
    with applied_policy(plane.client, paper.policy(NAMES), NAMES):
        created = plane.client.create(paper.light_job("light", NAMES))

    assert decision_of(created)["policy"] == NAMES.policy


def test_an_anonymous_review_is_refused_in_the_handshake(webhook):
    with pytest.raises(OSError, match=r"(?i)certificate.required"):
        post(webhook, f"/mutate/{SEGMENT}")


def test_another_client_of_the_authority_is_refused(webhook, clients):
    assert post(webhook, f"/mutate/{SEGMENT}", *credentials(clients, "other")) == 403


@pytest.mark.parametrize(("path", "status"), [("/mutate", 404), (f"/mutate/{SEGMENT}", 200)])
def test_with_the_certificate_the_path_is_still_needed(webhook, clients, path, status):
    assert post(webhook, path, *credentials(clients, "api")) == status
