"""The client of tests and benchmarks, against a server that closes connections and watches."""

import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hack.api import ApiClient, ApiError
from hack.pki import Pki
from hack.waiting import WAIT_SECONDS

PODS = {"resources": [{"kind": "Pod", "name": "pods", "namespaced": True}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "watch=1" in self.path:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in (b'{"n": 1}\n', b'{"n": 2}\n{"cut": '):
                self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.server.over.wait(WAIT_SECONDS)
            self.close_connection = True
            return
        found = 404 if self.path == "/none" else 200
        content = json.dumps(PODS if found == 200 else {"message": "gone"}).encode()
        self.send_response(found)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Warning", '299 - "a \\"word\\""')
        self.end_headers()
        self.wfile.write(content)
        # As an API server that ends, or has had enough of who is idle: nothing says so before.
        self.close_connection = True

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def client(tmp_path):
    pki = Pki(tmp_path / "pki")
    pki.issue_server("server", "localhost", "127.0.0.1")
    pki.issue_client("client", user="alice", group="team")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.certificate("server"), pki.key("server"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.over, server.daemon_threads = threading.Event(), True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asking = ApiClient.with_certificate(
            server.server_port,
            authority=pki.certificate("ca"),
            certificate=pki.certificate("client"),
            key=pki.key("client"),
        )
        yield asking
        server.over.set()
        asking.close()
        server.shutdown()


def test_a_connection_that_was_closed_meanwhile_is_not_used_again(client):
    found = [client.send("GET", "/api/v1") for _ in range(20)]

    assert {answer.warnings for answer in found} == {('a "word"',)}
    assert all(answer.json() == PODS for answer in found)
    with pytest.raises(ApiError, match="404: gone"):
        client.send("GET", "/none")


def test_who_cannot_be_reached_is_an_error_of_the_system(client):
    client.close()
    unreached = ApiClient(1, tls=ssl.create_default_context())

    with pytest.raises(OSError, match="refused"):
        unreached.send("GET", "/api/v1")


def test_a_watch_ends_with_its_block_in_whichever_thread_it_is_read(client):
    with ThreadPoolExecutor() as threads:
        with client.watching("v1", "Pod") as events:
            first = next(events)
            rest = threads.submit(list, events)
        assert [first, *rest.result(WAIT_SECONDS)] == [{"n": 1}, {"n": 2}]
