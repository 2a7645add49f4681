"""Kubeconfigs and what a pod has: read without the Kubernetes client, to the same effect."""

import pytest
import yaml
from kubernetes.config import incluster_config

from webhook.api import connection
from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import Unreachable

HTTP = {"server": "http://127.0.0.1:6443/"}
HTTPS = {"server": "https://api.example.com", "certificate-authority": "pki/ca.crt"}
TOKEN = {"token": "secret"}
CERTIFICATE = {"client-certificate": "pki/own.crt", "client-key": "pki/own.key"}
PLAIN = {
    "a token over HTTP": (HTTP, TOKEN),
    "a token": (HTTPS, TOKEN),
    "a certificate": (HTTPS, CERTIFICATE),
    "both": (HTTPS, {**TOKEN, **CERTIFICATE}),
    "nobody": (HTTPS, {}),
    "files that HTTP has no use for": ({**HTTP, "certificate-authority": "none"}, CERTIFICATE),
    "another name": ({**HTTPS, "tls-server-name": "kubernetes"}, TOKEN),
    "no verification": ({**HTTPS, "insecure-skip-tls-verify": True}, TOKEN),
    "verification": ({**HTTPS, "insecure-skip-tls-verify": False}, TOKEN),
    "the authorities of the system": ({"server": "https://api.example.com"}, TOKEN),
}


OTHERS = {
    "exec": (HTTP, {"exec": {"command": "sh"}}),
    "a name and a password": (HTTP, {"username": "a", "password": "b"}),
    "a file with a token": (HTTP, {"tokenFile": "token"}),
    "a proxy": ({**HTTP, "proxy-url": "http://proxy"}, TOKEN),
    "verification in words": ({**HTTPS, "insecure-skip-tls-verify": "no"}, TOKEN),
}


def kubeconfig(cluster, user, **changed):
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}, {"name": "d", "cluster": {}}],
        "users": [{"name": "u", "user": user}],
        **changed,
    }


@pytest.fixture
def written(tmp_path):
    (tmp_path / "pki").mkdir()
    for name in ("ca.crt", "own.crt", "own.key"):
        (tmp_path / "pki" / name).write_text("pem")

    def write(content):
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def pod(monkeypatch, tmp_path):
    (tmp_path / "ca.crt").write_text("pem")
    (tmp_path / "token").write_text("t1")
    monkeypatch.setattr(connection, "_OWN_FOLDER", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


def known(found):
    return found.host, found.pool.connection_pool_kw, type(found.pool), found.credentials()


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_kubeconfig_is_read_as_the_kubernetes_client_reads_it(written, name):
    path = written(kubeconfig(*PLAIN[name]))

    found = connection.read_plainly(path, 3)

    assert found is not None
    assert known(found) == known(connection.read_by_client(path, 3))


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_to_the_kubernetes_client(written, name):
    assert connection.read_plainly(written(kubeconfig(*OTHERS[name])), 1) is None


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
def test_what_a_pod_has_is_read_as_the_kubernetes_client_reads_it(pod, monkeypatch, host):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)

    found = connection.read_plainly("", 3)

    assert found is not None
    assert known(found) == known(connection.read_by_client("", 3))


def test_a_pods_token_is_read_again_after_a_minute(pod, monkeypatch):
    monkeypatch.setattr(connection.time, "monotonic", lambda: 1000.0)
    found = connection.connection("", connections=1)
    (pod / "token").write_text("t2")

    kept = found.credentials()
    monkeypatch.setattr(connection.time, "monotonic", lambda: 1060.0)

    assert (kept, found.credentials()) == (
        {"authorization": "bearer t1"},
        {"authorization": "bearer t2"},
    )


def test_a_context_by_name_is_read_as_the_kubernetes_client_reads_it(written):
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in "cd"]
    changed = {"contexts": contexts, "current-context": "d"}
    path = written(kubeconfig(HTTPS, TOKEN, **changed))
    access = ClusterAccess(kubeconfig=path, context="c")

    found = connection.read_plainly(access, 3)

    assert found is not None
    assert known(found) == known(connection.read_by_client(access, 3))
    assert connection.read_plainly(ClusterAccess(kubeconfig=path, context="x"), 3) is None


@pytest.mark.parametrize(
    ("context", "namespace"),
    [("", "team"), ("x", "team"), ("plain", "default"), ("none", "default")],
)
def test_the_namespace_of_a_context_is_that_of_commands(written, context, namespace):
    contexts = [
        {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "plain", "context": {"cluster": "c", "user": "u"}},
        {"name": "nobody", "context": {"cluster": "c", "user": "none", "namespace": "other"}},
    ]
    path = written(kubeconfig(HTTP, TOKEN, contexts=contexts))

    of_context = ClusterAccess(kubeconfig=path, context=context)
    of_nobody = ClusterAccess(kubeconfig=path, context="nobody")

    assert connection.default_namespace(of_context) == namespace
    assert connection.default_namespace(of_nobody) == "other"


def test_what_is_wrong_is_said_in_its_words(written):
    with pytest.raises(Unreachable, match="Expected object with name y in"):
        connection.connection(
            written(kubeconfig(HTTP, TOKEN, **{"current-context": "y"})), connections=1
        )
