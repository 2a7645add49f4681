"""Kubeconfigs and what a pod has: who asks, how servers are verified, and what is left of keys."""

import base64
import contextlib
import datetime as dt
import json
import ssl
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from kubernetes.config import incluster_config

from hack.pki import Pki, encoded
from webhook.api import connection
from webhook.api.client import Client
from webhook.api.kubernetes_api import ClusterAccess, Unreachable

TOKEN = {"token": "secret"}
BEARER = {"authorization": "Bearer secret"}
PLUGIN = "import json; print(json.dumps({'apiVersion': 'v1', 'kind': 'X', 'status': {}}))"


def plugin(**status):
    program = PLUGIN.replace("{}", repr(status))
    command = {"apiVersion": "v1", "command": sys.executable, "args": ["-c", program]}
    return {"exec": command}


def kubeconfig(user=TOKEN, *, server="http://127.0.0.1:1", **cluster):
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "kubeconfig"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


@pytest.fixture
def pod(monkeypatch, tmp_path):
    (tmp_path / "ca.crt").write_text("pem")
    (tmp_path / "token").write_text("t1")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


@pytest.fixture
def pki(tmp_path):
    made = Pki(tmp_path / "pki")
    made.issue_server("server", "localhost")
    made.issue_client("client", user="alice", group="team")
    return made


@pytest.fixture
def server(pki):
    """Answers only those who have a certificate of the authority, with whose it is."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            subject = dict(pair for (pair,) in self.connection.getpeercert()["subject"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"user": subject["commonName"]}).encode())

        def log_message(self, *_):
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate("server"), pki.key("server"))
    context.load_verify_locations(pki.certificate("ca"))
    context.verify_mode = ssl.CERT_REQUIRED
    with HTTPServer(("localhost", 0), Answer) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"https://localhost:{listening.server_port}"
        listening.shutdown()


def test_a_pods_token_is_read_again_after_a_minute(pod, monkeypatch):
    reached = connection.connection("")
    (pod / "token").write_text("t2")
    before = connection.authorization(reached)

    class Later(dt.datetime):
        @classmethod
        def now(cls):
            return dt.datetime.now() + dt.timedelta(seconds=61)  # noqa: DTZ005 - as it is asked

    later = SimpleNamespace(datetime=Later, timedelta=dt.timedelta)
    monkeypatch.setattr(incluster_config, "datetime", later)

    assert reached.configuration.host == "https://10.0.0.1:443"
    assert [before, connection.authorization(reached)] == [
        {"authorization": "bearer t1"},
        {"authorization": "bearer t2"},
    ]


@pytest.mark.parametrize(
    ("user", "header"),
    [
        (TOKEN, BEARER),
        ({"tokenFile": "token"}, BEARER),
        (plugin(token="secret"), BEARER),
        (
            {"username": "a", "password": "b"},
            {"authorization": f"Basic {base64.b64encode(b'a:b').decode()}"},
        ),
        ({}, {}),
    ],
    ids=["token", "file", "plugin", "password", "nobody"],
)
def test_who_asks_is_said_as_the_kubeconfig_says_it(written, tmp_path, user, header):
    (tmp_path / "token").write_text("secret\n")

    assert connection.authorization(connection.connection(written(kubeconfig(user)))) == header


@pytest.mark.parametrize("verified", ["file", "data", "not", "by another name"])
@pytest.mark.parametrize("asked_by", ["files", "data", "plugin"])
def test_certificates_are_used_wherever_they_are_written(written, server, pki, asked_by, verified):
    authority, certificate, key = (
        pki.certificate("ca"),
        pki.certificate("client"),
        pki.key("client"),
    )
    data = {
        "clientCertificateData": certificate.read_text(),
        "clientKeyData": key.read_text(),
    }
    user = {
        "files": {"client-certificate": str(certificate), "client-key": str(key)},
        "data": {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)},
        "plugin": plugin(**data),
    }[asked_by]
    trusted = {"certificate-authority": str(authority)}
    address, cluster = {
        "file": (server, trusted),
        "data": (server, {"certificate-authority-data": encoded(authority)}),
        "not": (server, {"insecure-skip-tls-verify": True}),
        "by another name": (
            server.replace("localhost", "127.0.0.1"),
            {**trusted, "tls-server-name": "localhost"},
        ),
    }[verified]

    client = Client(written(kubeconfig(user, server=address, **cluster)))

    with pytest.warns() if verified == "not" else contextlib.nullcontext():
        assert client.get("/") == {"user": "alice"}


def test_an_authority_that_did_not_sign_the_server_is_refused(server, pki, tmp_path):
    other = encoded(Pki(tmp_path / "other").certificate("ca"))
    content = kubeconfig(server=server, **{"certificate-authority-data": other})

    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        Client(content).get("/")


def test_a_proxy_is_asked_if_the_kubeconfig_or_the_environment_names_one(written, monkeypatch):
    named = connection.connection(written(kubeconfig(**{"proxy-url": "http://one:3128"})))
    monkeypatch.setenv("http_proxy", "http://two:3128")
    around = connection.connection(written(kubeconfig()))

    pools = [each.rest_client.pool_manager for each in (named, around)]
    assert [pool.proxy.host for pool in pools] == ["one", "two"]


EMBEDDED = ("client-certificate-data", "client-key-data")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Invalid kube-config. {} file is empty"),
        ("{", "expected YAML: "),
        ("secret", "expected a kubeconfig"),
        ("- secret", "expected a kubeconfig"),
        (
            {**kubeconfig(), "current-context": "y"},
            "Invalid kube-config file. Expected object with name y in {}/contexts list",
        ),
        (
            {**kubeconfig(), "users": [{"name": "u", "token": "secret"}]},
            "Invalid kube-config file. Expected key user in {}",
        ),
        (
            kubeconfig({"auth-provider": {"name": "oidc", "config": {"client-secret": "secret"}}}),
            "Invalid kube-config file. Expected key id-token in {}/user/auth-provider/config",
        ),
        (
            kubeconfig(server="https://x", **{"certificate-authority": "none.pem"}),
            "File does not exist: ",
        ),
        (
            kubeconfig(dict.fromkeys(EMBEDDED, "c2VjcmV0"), server="https://x"),
            "expected certificates and a key in PEM",
        ),
        (kubeconfig({EMBEDDED[1]: "*secret"}, server="https://x"), "expected a kubeconfig"),
        (kubeconfig({EMBEDDED[0]: 7}, server="https://x"), "expected a kubeconfig"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_file_and_without_what_is_secret(
    written, content, said
):
    path = written(content)

    with pytest.raises(Unreachable) as error:
        connection.connection(path)

    assert str(error.value).startswith(f"{path}: {said.format(path)}")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("token", ["secret\nsecond", "s\u00e9cret"], ids=["lines", "no ASCII"])
def test_a_token_that_no_header_can_hold_is_not_quoted(token):
    with pytest.raises(Unreachable, match="expected a token of one line of ASCII"):
        Client(kubeconfig({"token": token})).get("/")


def test_a_context_is_chosen_by_its_name_and_says_which_namespace(written):
    content = kubeconfig()
    content["contexts"] += [
        {"name": "team", "context": {"cluster": "d", "user": "none", "namespace": "team"}}
    ]
    content["clusters"].append({"name": "d", "cluster": {"server": "http://other"}})
    path = written(content)
    team, current = ClusterAccess(kubeconfig=path, context="team"), ClusterAccess(kubeconfig=path)
    without = ClusterAccess(kubeconfig=path, context="none")

    assert connection.connection(team).configuration.host == "http://other"
    assert [connection.default_namespace(each) for each in (team, current, without)] == [
        *("team", "default", "default")
    ]
    del content["current-context"]
    assert connection.default_namespace(replace(team, kubeconfig=written(content))) == "team"


@pytest.mark.parametrize("text", ["{", "{}", "kind: Config", "- text", ""])
def test_without_a_context_the_namespace_is_the_one_of_that_name(written, tmp_path, text):
    for path in (written(text), str(tmp_path / "none")):
        assert connection.default_namespace(ClusterAccess(kubeconfig=path)) == "default"


@pytest.mark.parametrize("form", ["a file", "content", "a plugin"])
def test_a_process_that_ends_at_once_leaves_no_file_with_a_key(server, pki, tmp_path, form):
    files = tmp_path / "tmp"
    files.mkdir()
    certificate, key = pki.certificate("client"), pki.key("client")
    data = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    if form == "a plugin":
        data = plugin(clientCertificateData=certificate.read_text(), clientKeyData=key.read_text())
    authority = {"certificate-authority-data": encoded(pki.certificate("ca"))}
    content = json.dumps(kubeconfig(data, server=server, **authority))
    (tmp_path / "kubeconfig").write_text(content)
    program = f"""
import json, os
from webhook.api.client import Client

given = json.loads({content!r}) if {form == "content"} else {str(tmp_path / "kubeconfig")!r}
for _ in range(2):
    print(Client(given).get("/")["user"], flush=True)
os._exit(0)
"""

    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "TMPDIR": str(files), "PYTHONPATH": ":".join(sys.path)},
    )

    assert (found.stdout, list(files.iterdir())) == ("alice\nalice\n", [])


def test_a_key_with_a_password_is_refused_and_none_is_asked_for(server, pki):
    key = serialization.load_pem_private_key(pki.key("client").read_bytes(), password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    user = {
        "client-certificate-data": encoded(pki.certificate("client")),
        "client-key-data": base64.b64encode(locked).decode(),
    }
    program = f"""
import json, sys
from webhook.api.connection import connection
from webhook.api.kubernetes_api import Unreachable

try:
    connection(json.loads({json.dumps(kubeconfig(user, server=server))!r}))
except Unreachable as error:
    print(error, "-", sys.stdin.read())
"""

    found = subprocess.run(
        [sys.executable, "-c", program],
        input="secret",
        capture_output=True,
        text=True,
        check=True,
        # Without a terminal OpenSSL asks standard input.
        start_new_session=True,
    )

    assert found.stdout == "the kubeconfig: expected certificates and a key in PEM - secret\n"
