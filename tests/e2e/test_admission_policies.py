"""What whoever took over the webhook's account may not do with the rights that it has."""

import ssl

import pytest
import yaml

from hack.api import JSON_PATCH, ApiClient, ApiError
from hack.install import kubeconfig_of
from hack.waiting import wait_for
from tests.chart import helm
from webhook.api.resources import SIGNING_KEYS

RELEASE = "kueue-fallback-guarded"
CONFIGURATION = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", RELEASE)
INSTALLED = (
    *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "Secret"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "MutatingWebhookConfiguration",
)
FIRST = "/webhooks/0"
ALL = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]
DENIALS = {
    "rules": {"op": "replace", "path": f"{FIRST}/rules", "value": ALL},
    "failurePolicy": {"op": "replace", "path": f"{FIRST}/failurePolicy", "value": "Fail"},
    "namespaceSelector": {"op": "replace", "path": f"{FIRST}/namespaceSelector", "value": {}},
    "objectSelector": {"op": "replace", "path": f"{FIRST}/objectSelector", "value": {}},
    "matchConditions": {"op": "remove", "path": f"{FIRST}/matchConditions"},
    "timeoutSeconds": {"op": "replace", "path": f"{FIRST}/timeoutSeconds", "value": 30},
    "service": {"op": "replace", "path": f"{FIRST}/clientConfig/service/name", "value": "mine"},
    "path": {"op": "remove", "path": f"{FIRST}/clientConfig/service/path"},
    "fewer": {"op": "remove", "path": FIRST},
    "more": {
        "op": "add",
        "path": "/webhooks/-",
        "value": {
            "name": "mine.kueue-fallback.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://10.0.0.66/"},
            "rules": ALL,
        },
    },
    "annotations": {"op": "add", "path": "/metadata/annotations", "value": {"inject": "theirs"}},
    "labels": {"op": "remove", "path": "/metadata/labels"},
}


@pytest.fixture(scope="module")
def account(plane):
    """The API server as the webhook's account of a release sees it, of which nothing runs."""
    objects = [each for each in yaml.safe_load_all(helm.template(release=RELEASE).stdout) if each]
    chosen = [each for each in objects if each["kind"] in INSTALLED]
    for each in chosen:
        for called in each.get("webhooks", ()):
            called["objectSelector"] = {"matchLabels": {"never": "sent"}}
    plane.install(chosen, namespace=helm.NAMESPACE)
    client = _as(plane, RELEASE)
    wait_for(lambda: refusal(client, DENIALS["rules"]), "the policy is in force")
    wait_for(lambda: refused_secret(client, "other", "Opaque"), "so is the one of Secrets")
    yield client
    client.close()
    for each in chosen:
        metadata = each["metadata"]
        place = metadata.get("namespace", "")
        plane.client.delete(each["apiVersion"], each["kind"], metadata["name"], namespace=place)


@pytest.fixture(scope="module")
def controller(plane, account):
    client = _as(plane, f"{RELEASE}-controller")
    yield client
    client.close()


def _as(plane, account):
    file = kubeconfig_of(plane, account, namespace=helm.NAMESPACE)
    token = yaml.safe_load(file.read_text())["users"][0]["user"]["token"]
    tls = ssl.create_default_context(cafile=plane.pki.certificate("ca"))
    return ApiClient(plane.api_port, tls=tls, token=token)


def patch(client, operation, **query):
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{RELEASE}"
    client.send("PATCH", path, [operation], content_type=JSON_PATCH, query=query)


def refusal(client, operation):
    """Try it as a dry run; return why not, and nothing where it passes."""
    try:
        patch(client, operation, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def refused_secret(client, name, kind):
    path = client.path("v1", "Secret", namespace=helm.NAMESPACE)
    metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}
    try:
        client.send("POST", path, secret, query={"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("operation", DENIALS.values(), ids=DENIALS)
def test_the_webhooks_account_changes_nothing_but_ca_bundle(account, operation):
    told = refusal(account, operation)

    about = "metadata" if operation["path"].startswith("/metadata") else "nothing but caBundle"
    assert f"{RELEASE}-only-ca-bundle" in told
    assert about in told


def test_it_publishes_its_authority_in_ca_bundle(plane, account):
    patch(account, {"op": "add", "path": f"{FIRST}/clientConfig/caBundle", "value": "b3Vycw=="})

    found = plane.client.get(*CONFIGURATION)
    assert found["webhooks"][0]["clientConfig"]["caBundle"] == "b3Vycw=="


def test_an_administrator_changes_what_they_like(plane, account):
    assert refusal(plane.client, DENIALS["timeoutSeconds"]) == ""


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("kueue-fallback-worker-gpu", "kubernetes.io/service-account-token", "type Opaque"),
        ("kueue-fallback-worker-gpu", "Opaque", "its authority's Secret alone"),
        (f"{RELEASE}-ca", "kubernetes.io/service-account-token", "type Opaque"),
    ],
)
def test_it_makes_no_secret_that_gets_it_somebodys_token(account, name, kind, told):
    assert told in refused_secret(account, name, kind)


def test_it_makes_the_secret_of_its_authority(plane, account):
    plane.client.delete("v1", "Secret", f"{RELEASE}-ca", namespace=helm.NAMESPACE)

    assert refused_secret(account, f"{RELEASE}-ca", "Opaque") == ""


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        (SIGNING_KEYS, "kubernetes.io/service-account-token", "type Opaque"),
        (f"{RELEASE}-ca", "Opaque", "the controller's the signing keys'"),
        (SIGNING_KEYS, "Opaque", ""),
    ],
)
def test_the_controllers_account_makes_the_signing_keys_alone(plane, controller, name, kind, told):
    plane.client.delete("v1", "Secret", SIGNING_KEYS, namespace=helm.NAMESPACE)

    refused = refused_secret(controller, name, kind)

    assert told in refused if told else refused == ""
