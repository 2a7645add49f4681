"""One address in front of several replicas."""

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from certs.issue import new_authority, new_leaf
from hack.proxy import Replicas


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A server's context and a client's that trusts it."""
    folder = tmp_path_factory.mktemp("pki")
    now, week = datetime.now(UTC), timedelta(days=7)
    authority = new_authority("test", now=now, lifetime=week)
    leaf = new_leaf(authority, ("localhost",), now=now, lifetime=week)
    for name, content in {
        "ca.crt": authority.certificate_pem,
        "tls.crt": leaf.certificate_pem,
        "tls.key": leaf.key_pem,
    }.items():
        (folder / name).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return server, ssl.create_default_context(cafile=folder / "ca.crt")


@pytest.fixture
def start_replica(tls):
    """Start a replica that answers with its own name; return its port."""
    servers = []

    def start(name):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(name.encode() + b" " + body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        server.socket = tls[0].wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _answers(replicas, count):
    return [replicas.post("/mutate", b"review") for _ in range(count)]


def test_each_review_goes_to_the_next_replica(start_replica, tls):
    replicas = Replicas((start_replica("a"), start_replica("b")), tls=tls[1])

    assert _answers(replicas, 3) == [(200, b"a review"), (200, b"b review"), (200, b"a review")]


def test_a_replica_that_is_down_is_passed_over(start_replica, tls):
    replicas = Replicas((1, start_replica("b")), tls=tls[1])

    assert _answers(replicas, 2) == [(200, b"b review")] * 2


def test_without_any_replica_the_answer_is_bad_gateway(tls):
    assert _answers(Replicas((1, 2), tls=tls[1]), 1) == [(502, b"no replica answers")]
