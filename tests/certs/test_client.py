"""What becomes of the API server's answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from certs.client import Client
from certs.errors import Conflict, Missing, Unavailable


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size)) if size else None
        asked = (self.command, self.headers["Authorization"], self.headers["Content-Type"], body)
        self.server.asked.append(asked)
        status, content = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = answer  # noqa: N815 - the base class calls them so

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads, found.asked, found.answer = True, [], (200, b"{}")
    thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def write(path, server, token):
    named = {
        "clusters": ("cluster", {"server": f"http://127.0.0.1:{server.server_port}"}),
        "users": ("user", {"token": token}),
        "contexts": ("context", {"cluster": "c", "user": "c"}),
    }
    lists = {key: [{"name": "c", kind: value}] for key, (kind, value) in named.items()}
    path.write_text(yaml.safe_dump({"current-context": "c", **lists}))


@pytest.fixture
def kubeconfig(server, tmp_path):
    path = tmp_path / "kubeconfig"
    write(path, server, "one")
    return path


@pytest.fixture
def client(kubeconfig):
    return Client(str(kubeconfig))


def test_calls_carry_the_token_and_say_what_they_are(server, client):
    client.get("/a")
    client.post("/a", {"x": 1})
    client.put("/a", {"x": 2})
    client.patch("/a", [])

    plain, patch = "application/json", "application/json-patch+json"
    assert server.asked == [
        ("GET", "Bearer one", plain, None),
        ("POST", "Bearer one", plain, {"x": 1}),
        ("PUT", "Bearer one", plain, {"x": 2}),
        ("PATCH", "Bearer one", patch, []),
    ]


@pytest.mark.parametrize("status", [409, 422])
def test_whoever_was_second_is_told_so(server, client, status):
    server.answer = (status, b'{"message": "modified"}')

    with pytest.raises(Conflict, match="modified"):
        client.put("/a", {})


def test_what_is_not_there_is_missing(server, client):
    server.answer = (404, b"{}")

    with pytest.raises(Missing, match="/a: not found"):
        client.get("/a")


@pytest.mark.parametrize(("status", "reached"), [(403, True), (401, True), (503, False)])
def test_a_refusal_and_a_failure_are_told_apart(server, client, status, reached):
    server.answer = (status, b'{"message": "no"}')

    with pytest.raises(Unavailable, match="no") as refusal:
        client.get("/a")

    assert refusal.value.reached == reached


def test_credentials_that_are_refused_are_read_again(server, client, kubeconfig):
    server.answer = (401, b'{"message": "expired"}')
    with pytest.raises(Unavailable):
        client.get("/a")
    server.answer = (200, b"{}")
    write(kubeconfig, server, "two")

    client.get("/a")

    assert server.asked[-1][1] == "Bearer two"


def test_nobody_there_is_told_as_such(server, client):
    server.shutdown()
    server.server_close()

    with pytest.raises(Unavailable) as refusal:
        client.get("/a")

    assert not refusal.value.reached
