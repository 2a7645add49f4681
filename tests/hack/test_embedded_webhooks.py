"""Which webhooks an embedded API server calls, and what becomes of their answers."""

import base64
import json
import ssl
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hack.api import ApiError
from hack.embedded.plane import EmbeddedPlane
from hack.pki import Pki

NAME = "hook.team.svc"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}
ALLOWED = {"allowed": True}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with EmbeddedPlane(tmp_path_factory.mktemp("plane")) as started:
        started.client.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "team", "labels": {"of": "us"}},
            }
        )
        yield started


class Webhook:
    """Answers reviews from a function of the request; keeps them all."""

    def __init__(self, pki):
        self.asked, self.answer = [], lambda _: ALLOWED
        own = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                review = json.loads(body)["request"]
                own.asked.append(review)
                response = {"uid": review["uid"], **own.answer(review)}
                content = json.dumps({"response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki.certificate("hook"), pki.key("hook"))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def operations(self):
        return [review["operation"] for review in self.asked]


@pytest.fixture
def pki(tmp_path):
    found = Pki(tmp_path / "hook")
    found.issue_server("hook", NAME)
    return found


@pytest.fixture
def webhook(plane, pki):
    """One that a Service of type ExternalName leads to."""
    found = Webhook(pki)
    plane.client.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hook", "namespace": "team"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    yield found
    found.server.shutdown()
    found.server.server_close()
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for item in plane.client.list("admissionregistration.k8s.io/v1", kind):
            plane.client.delete(item["apiVersion"], kind, item["metadata"]["name"])
    for item in plane.client.list("v1", "ConfigMap", namespace="team"):
        plane.client.delete("v1", "ConfigMap", item["metadata"]["name"], namespace="team")


def configure(plane, webhook, pki, kind="Mutating", **more):
    service = {"name": "hook", "namespace": "team", "path": "/", "port": webhook.port}
    one = {
        "name": "hook.example.com",
        "clientConfig": {"service": service, "caBundle": pki.ca_bundle},
        "rules": [RULE],
        "failurePolicy": "Fail",
        "timeoutSeconds": 30,
        **more,
    }
    item = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [one],
    }
    plane.client.apply(item)


def create(plane, name="one", *, dry_run=False, **labels):
    metadata = {"name": name, "namespace": "team", "labels": labels}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return plane.client.create_for_answer(item, dry_run=dry_run)


def patching(*operations):
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {**ALLOWED, "patchType": "JSONPatch", "patch": patch}


def test_its_patch_is_applied_and_its_warnings_come_back(plane, webhook, pki):
    configure(plane, webhook, pki)
    data = {"op": "add", "path": "/data", "value": {"by": "webhook"}}
    webhook.answer = lambda _: {**patching(data), "warnings": ['a "quoted" one', "another"]}

    answer = create(plane, dry_run=True)

    assert answer.json()["data"] == {"by": "webhook"}
    assert answer.warnings == ('a "quoted" one', "another")
    (review,) = webhook.asked
    assert (review["dryRun"], review["operation"], review["name"]) == (True, "CREATE", "one")
    assert review["userInfo"]["username"] == "admin"
    assert "system:masters" in review["userInfo"]["groups"]


def test_what_it_denies_is_refused_in_its_words(plane, webhook, pki):
    configure(plane, webhook, pki)
    webhook.answer = lambda _: {"allowed": False, "status": {"message": "not this one"}}

    with pytest.raises(ApiError) as refused:
        create(plane)

    text = 'admission webhook "hook.example.com" denied the request: not this one'
    assert (refused.value.status, refused.value.message) == (403, text)
    assert plane.client.list("v1", "ConfigMap", namespace="team") == []


@pytest.mark.parametrize(
    ("more", "is_called"),
    [
        ({}, True),
        ({"objectSelector": {"matchLabels": {"mine": "yes"}}}, True),
        ({"objectSelector": {"matchLabels": {"mine": "no"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"of": "us"}}}, True),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "of", "operator": "DoesNotExist"}]
                }
            },
            False,
        ),
        ({"rules": [{**RULE, "resources": ["secrets"]}]}, False),
        ({"rules": [{**RULE, "operations": ["UPDATE"]}]}, False),
        ({"rules": [{**RULE, "resources": ["*"], "apiGroups": ["*"]}]}, True),
        ({"rules": [{**RULE, "scope": "Cluster"}]}, False),
    ],
)
def test_it_is_called_for_what_its_configuration_selects(plane, webhook, pki, more, is_called):
    configure(plane, webhook, pki, **more)

    create(plane, mine="yes")

    assert bool(webhook.asked) is is_called


@pytest.mark.parametrize("fault", ["gone", "distrusted", "wrong"])
def test_where_it_does_not_answer_its_failure_policy_decides(plane, webhook, pki, tmp_path, fault):
    trusted = Pki(tmp_path / "others") if fault == "distrusted" else pki
    if fault == "gone":
        webhook.server.shutdown()
        webhook.server.server_close()
    webhook.answer = lambda _: {"uid": "of another review"}

    configure(plane, webhook, trusted, failurePolicy="Ignore")
    assert create(plane).status == HTTPStatus.CREATED
    configure(plane, webhook, trusted, failurePolicy="Fail")
    with pytest.raises(ApiError) as refused:
        create(plane, "two")

    assert refused.value.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert 'failed calling webhook "hook.example.com"' in refused.value.message


@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", 2), ("Never", 1)])
def test_it_is_called_again_where_another_changed_the_object_after_it(
    plane, webhook, pki, policy, calls
):
    configure(plane, webhook, pki, reinvocationPolicy=policy)
    plane.embedded.admission.played["later"] = lambda asked: {**asked["object"], "data": {"a": "b"}}

    try:
        create(plane)
    finally:
        plane.embedded.admission.played.clear()

    assert [review["object"].get("data") for review in webhook.asked] == [None, {"a": "b"}][:calls]


def test_a_validating_one_sees_what_is_stored_and_what_goes(plane, webhook, pki):
    configure(plane, webhook, pki, kind="Validating")

    create(plane)
    plane.client.patch("v1", "ConfigMap", "one", {"data": {"a": "b"}}, namespace="team")
    plane.client.delete("v1", "ConfigMap", "one", namespace="team")

    assert webhook.operations() == ["CREATE", "UPDATE", "DELETE"]
    created, updated, deleted = webhook.asked
    assert created["oldObject"] is None
    assert (updated["object"]["data"], deleted["object"]) == ({"a": "b"}, None)
    assert deleted["oldObject"]["data"] == {"a": "b"}
