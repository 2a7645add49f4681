"""Kubeconfigs and what a pod has: read without the Kubernetes client, to the same effect."""

import os
import subprocess
import sys

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
    "data that is no certificate": ({**HTTPS, "certificate-authority-data": "Cg=="}, TOKEN),
    "data that is no text": ({**HTTPS, "certificate-authority-data": 7}, TOKEN),
    "a proxy": ({**HTTP, "proxy-url": "http://proxy"}, TOKEN),
    "an empty token": (HTTP, {"token": ""}),
    "a token that is no text": (HTTP, {"token": False}),
    "no server": ({}, TOKEN),
    "a file that is not there": ({**HTTPS, "certificate-authority": "none"}, TOKEN),
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


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_files_is_none(pod, missing):
    (pod / missing).write_text("")

    assert connection.read_plainly("", 1) is None


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_to_the_kubernetes_client(written, name):
    assert connection.read_plainly(written(kubeconfig(*OTHERS[name])), 1) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"current-context": "y"},
        {"current-context": None},
        {"contexts": [{"name": "x", "context": {"cluster": "c"}}]},
        {"contexts": "x"},
        {"users": []},
        {"users": [{"name": "u", "user": TOKEN}, {"user": TOKEN}]},
        {"users": [{"name": "u", "user": TOKEN}] * 2},
        {"clusters": [{"name": "c"}]},
    ],
)
def test_what_may_be_wrong_is_judged_by_the_kubernetes_client(written, changed):
    assert connection.read_plainly(written(kubeconfig(HTTP, TOKEN, **changed)), 1) is None


def test_several_files_and_proxies_are_left_to_it(written, monkeypatch, tmp_path):
    path = written(kubeconfig(HTTP, TOKEN))

    assert connection.read_plainly(f"{path}:{path}", 1) is None
    assert connection.read_plainly(str(tmp_path / "none"), 1) is None
    assert connection.read_plainly(ClusterAccess(kubeconfig=path, user="alice"), 1) is not None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    assert connection.read_plainly(path, 1) is None


def test_a_context_by_name_is_read_as_the_kubernetes_client_reads_it(written):
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in "cd"]
    changed = {"contexts": contexts, "current-context": "d"}
    path = written(kubeconfig(HTTPS, TOKEN, **changed))
    access = ClusterAccess(kubeconfig=path, context="c")

    found = connection.read_plainly(access, 3)

    assert found is not None
    assert known(found) == known(connection.read_by_client(access, 3))
    assert connection.read_plainly(ClusterAccess(kubeconfig=path, context="x"), 3) is None


def test_a_context_by_name_needs_no_current_one(written):
    path = written(kubeconfig(HTTP, TOKEN, **{"current-context": "gone"}))

    found = connection.read_plainly(ClusterAccess(kubeconfig=path, context="x"), 1)

    assert found is not None
    assert found.credentials() == {"authorization": "Bearer secret"}


def test_the_content_of_a_kubeconfig_is_read_and_left_as_it_is():
    content = kubeconfig({**HTTP, "insecure-skip-tls-verify": True}, TOKEN)

    found = connection.read_plainly(content, 3)

    assert (found.host, found.credentials()) == (
        "http://127.0.0.1:6443",
        {"authorization": "Bearer secret"},
    )
    assert content == kubeconfig({**HTTP, "insecure-skip-tls-verify": True}, TOKEN)


def test_an_empty_content_is_not_taken_for_the_default(pod):
    assert connection.read_plainly({}, 1) is None


def test_the_default_is_what_the_environment_names(written, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", written(kubeconfig(HTTP, TOKEN)))

    assert connection.read_plainly("", 1).host == "http://127.0.0.1:6443"
    assert connection.read_plainly(ClusterAccess(context="x"), 1).host == "http://127.0.0.1:6443"


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


def test_a_context_is_meant_also_in_a_pod(pod):
    assert connection.read_plainly(ClusterAccess(context="x"), 1) is None
    assert connection.read_plainly(ClusterAccess(), 1) is not None


def test_a_home_that_nobody_has_is_not_looked_for():
    assert connection.read_plainly("~nobody-has-this-name/config", 1) is None


def test_a_pipe_is_left_for_it_to_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert connection.read_plainly(str(tmp_path / "pipe"), 1) is None


def test_what_is_wrong_is_said_in_its_words(written):
    with pytest.raises(Unreachable, match="Expected object with name y in"):
        connection.connection(
            written(kubeconfig(HTTP, TOKEN, **{"current-context": "y"})), connections=1
        )


def test_the_server_imports_the_kubernetes_client_only_for_what_is_not_plain(written):
    path = written(kubeconfig(HTTPS, TOKEN))
    program = f"""
import sys
from webhook.api.client import Client
from webhook.api.cluster_access import ClusterAccess
from webhook.api.connection import default_namespace
from webhook.observer import certificates, process
from webhook.server import gunicorn_app
from webhook.serving import app

Client({path!r})._connection()
certificates._connected({path!r})
default_namespace(ClusterAccess(kubeconfig={path!r}))
print("kubernetes" in sys.modules, "requests" in sys.modules)
"""

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout == "False False\n"
