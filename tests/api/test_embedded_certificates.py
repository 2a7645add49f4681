"""A kubeconfig's embedded certificates and key: read once, and left in no file."""

import base64
import json
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from cryptography.hazmat.primitives import serialization
from urllib3.exceptions import SSLError

from hack.pki import Pki, encoded
from webhook.api import connection
from webhook.api.kubernetes_api import Unreachable


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
            self.wfile.write(subject["commonName"].encode())

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


def embedded(server, pki, **user):
    cluster = {"server": server, "certificate-authority-data": encoded(pki.certificate("ca"))}
    given = {
        "client-certificate-data": encoded(pki.certificate("client")),
        "client-key-data": encoded(pki.key("client")),
    }
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {**given, **user}}, {"name": "other", "user": None}],
    }


@pytest.mark.parametrize("form", ["a file", "content", "content for the Kubernetes client"])
def test_a_process_that_ends_at_once_leaves_no_file_with_a_key(server, pki, tmp_path, form):
    files = tmp_path / "tmp"
    files.mkdir()
    # A field that is empty is none of the plain ones.
    more = {"username": ""} if "client" in form else {}
    content = json.dumps(embedded(server, pki, **more))
    (tmp_path / "kubeconfig").write_text(content)
    program = f"""
import json, os, sys
from webhook.api.connection import connection

given = {str(tmp_path / "kubeconfig")!r} if {form == "a file"} else json.loads({content!r})
reached = connection(given, connections=1)
print(reached.pool.request("GET", reached.host, retries=False).data.decode())
print("kubernetes" in sys.modules, flush=True)
os._exit(0)
"""

    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "TMPDIR": str(files), "PYTHONPATH": ":".join(sys.path)},
    )

    assert (found.stdout, list(files.iterdir())) == (f"alice\n{'client' in form}\n", [])


def test_an_authority_that_did_not_sign_the_server_is_refused(server, pki, tmp_path):
    other = Pki(tmp_path / "other")
    kubeconfig = embedded(server, pki)
    data = encoded(other.certificate("ca"))
    kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] = data

    reached = connection.connection(kubeconfig, connections=1)

    with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        reached.pool.request("GET", reached.host, retries=False)


@pytest.mark.parametrize(
    "changed",
    [{"client-key-data": "*"}, {"client-key-data": "c2VjcmV0"}, {"client-certificate-data": 7}],
    ids=["no base64", "no key", "no text"],
)
def test_data_that_is_no_certificate_is_not_quoted(server, pki, changed):
    with pytest.raises(Unreachable, match=r"^the kubeconfig cannot be used$"):
        connection.connection(embedded(server, pki, **changed), connections=1)


def test_a_key_with_a_password_is_refused_and_none_is_asked_for(server, pki):
    key = serialization.load_pem_private_key(pki.key("client").read_bytes(), password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    kubeconfig = embedded(server, pki, **{"client-key-data": base64.b64encode(locked).decode()})
    program = f"""
import json, sys
from webhook.api.connection import connection
from webhook.api.kubernetes_api import Unreachable

try:
    connection(json.loads({json.dumps(kubeconfig)!r}), connections=1)
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

    assert found.stdout == "the kubeconfig cannot be used - secret\n"
