"""The client against a small HTTP server in the API server's place."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from hack.waiting import WAIT_SECONDS
from webhook.api.calls import MOST_BYTES
from webhook.api.client import Client
from webhook.api.kubernetes_api import (
    ClusterAccess,
    Forbidden,
    Gone,
    NotServed,
    Refused,
    TooLarge,
    Unreachable,
)


class Server(ThreadingHTTPServer):
    """Answers by path: a status and a body, or a list of chunks for a watch."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests = {}, []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.requests.append((self.command, self.path, self.headers, body))
        found = self.server.answers.get(self.path.partition("?")[0], (404, {"message": "none"}))
        if callable(found):
            found = found(self.headers)
        if isinstance(found, list):
            self.stream(found)
            return
        status, message = found
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Location", "/elsewhere")
        self.send_header("Warning", '299 - "one"')
        self.send_header("Warning", '299 - "a \\"second\\""')
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = answer  # noqa: N815 - the base class calls them so

    def stream(self, chunks):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            if isinstance(chunk, threading.Event):
                chunk.wait(WAIT_SECONDS)
                continue
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def kubeconfig(server, tmp_path):
    path = tmp_path / "kubeconfig"
    address = f"http://127.0.0.1:{server.server_port}"

    def write(token="t1"):
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


def test_an_object_is_got_with_the_credentials_and_the_parameters(server, kubeconfig):
    server.answers["/api/v1/namespaces"] = 200, {"items": []}

    found = Client(kubeconfig()).get("/api/v1/namespaces", {"limit": "2", "continue": "a b"})

    command, path, headers, _ = server.requests[0]
    assert (found, command, path) == (
        {"items": []},
        "GET",
        "/api/v1/namespaces?limit=2&continue=a+b",
    )
    assert headers["authorization"] == "Bearer t1"


def test_a_page_larger_than_can_be_held_is_not_read_and_one_object_always_is(server, kubeconfig):
    item = {"metadata": {"name": "x" * MOST_BYTES}}
    server.answers["/jobs"] = 200, {"items": [item]}
    client = Client(kubeconfig())

    with pytest.raises(TooLarge, match="/jobs"):
        client.get("/jobs", {"limit": "200"})

    assert client.get("/jobs", {"limit": "1"}) == {"items": [item]}


@pytest.mark.parametrize(
    ("metadata_only", "accepted"),
    [
        (False, ["application/json"] * 2),
        (
            True,
            [
                f"application/json;as=PartialObjectMetadata{what};g=meta.k8s.io;v=v1"
                for what in ("List", "")
            ],
        ),
    ],
)
def test_a_client_of_metadata_asks_for_nothing_else(server, kubeconfig, metadata_only, accepted):
    server.answers["/jobs"] = 200, {"items": []}
    client = Client(kubeconfig(), metadata_only=metadata_only)

    client.get("/jobs")
    list(client.watch("/jobs", {}, read_seconds=5.0))

    assert [headers["Accept"] for _, _, headers, _ in server.requests] == accepted


def test_changes_are_sent_as_json_of_their_type(server, kubeconfig):
    server.answers["/a"] = 200, {"ok": True}
    client = Client(kubeconfig())

    client.ask("POST", "/a", {"b": 1}, {"dryRun": "All"})
    client.put("/a", {"b": 2})
    client.patch("/a", {"b": None})
    client.apply("/a", {"b": 3}, manager="us")

    sent = [(c, p, h["Content-Type"], b) for c, p, h, b in server.requests]
    assert sent == [
        ("POST", "/a?dryRun=All", "application/json", {"b": 1}),
        ("PUT", "/a", "application/json", {"b": 2}),
        ("PATCH", "/a", "application/merge-patch+json", {"b": None}),
        ("PATCH", "/a?fieldManager=us&force=true", "application/apply-patch+yaml", {"b": 3}),
    ]


def test_an_answer_comes_with_its_warnings(server, kubeconfig):
    server.answers["/a"] = 200, {"n": 1}

    assert Client(kubeconfig()).ask("GET", "/a") == ({"n": 1}, ("one", 'a "second"'))


def test_each_group_is_impersonated_by_a_header_of_its_own(server, kubeconfig):
    server.answers["/a"] = 200, {}
    access = ClusterAccess(kubeconfig=kubeconfig(), user="alice", groups=("ml", "a, b"))

    Client(access).get("/a")
    Client(access.as_oneself()).get("/a")

    heard = [headers for _, _, headers, _ in server.requests]
    users = [headers.get_all("Impersonate-User") for headers in heard]
    groups = [headers.get_all("Impersonate-Group") for headers in heard]
    assert (users, groups) == ([["alice"], None], [["ml", "a, b"], None])


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (302, Refused(302, "why")),
        (401, Unreachable("401 why")),
        (403, Forbidden("/a", "why")),
        (404, NotServed("/a")),
        (409, Refused(409, "why")),
        (410, Gone()),
        (422, Refused(422, "why")),
        (429, Unreachable("429 why")),
        (503, Unreachable("503 why")),
    ],
)
def test_refusals_are_told_apart(server, kubeconfig, status, error):
    server.answers["/a"] = status, {"message": "why"}

    with pytest.raises(type(error)) as caught:
        Client(kubeconfig()).get("/a")

    assert caught.value.args == error.args
    # Nothing is tried again, and no credentials go where an answer points to.
    assert [path for _, path, *_ in server.requests] == ["/a"]


TEMPLATE = {"reason": "FieldValueInvalid", "message": "why", "field": "spec.template"}


@pytest.mark.parametrize(
    ("details", "keeps_template"),
    [
        ({"causes": [{"field": "spec.other"}, TEMPLATE]}, True),
        ({"causes": [{**TEMPLATE, "field": "spec.template.spec"}]}, False),
        ({"causes": [{**TEMPLATE, "reason": "FieldValueForbidden"}]}, False),
        ({"causes": None}, False),
        ({"causes": ["spec.template"]}, False),
        ([], False),
    ],
)
def test_a_refusal_tells_by_its_causes_whether_a_template_may_change_at_all(
    server, kubeconfig, details, keeps_template
):
    server.answers["/a"] = 422, {"message": "the field is immutable", "details": details}

    with pytest.raises(Refused) as caught:
        Client(kubeconfig()).get("/a")

    assert caught.value.keeps_template is keeps_template


@pytest.mark.parametrize("body", [b"<html>", b"[1]"])
def test_an_answer_that_is_no_object_is_none(server, kubeconfig, body):
    server.answers["/a"] = 200, body

    with pytest.raises(Unreachable, match="an answer that is not"):
        Client(kubeconfig()).get("/a")


def test_credentials_are_read_again_after_they_were_refused(server, kubeconfig):
    def only_new(headers):
        return (200, {}) if headers["authorization"] == "Bearer t2" else (401, {"message": "old"})

    server.answers["/a"] = only_new
    client = Client(kubeconfig("t1"))
    with pytest.raises(Unreachable):
        client.get("/a")

    kubeconfig("t2")

    assert client.get("/a") == {}


def test_a_watch_yields_events_as_they_come_whatever_the_chunks(server, kubeconfig):
    rest = threading.Event()
    server.answers["/a"] = [b'{"type":"ADDED"}\n{"type":', b'"DELETED"}\n', rest, b'{"n":3}\n']

    events = Client(kubeconfig()).watch("/a", {"resourceVersion": "5"}, read_seconds=30.0)
    first = [next(events), next(events)]
    rest.set()

    assert first == [{"type": "ADDED"}, {"type": "DELETED"}]
    assert list(events) == [{"n": 3}]
    assert server.requests[0][1] == "/a?resourceVersion=5&watch=true"


def test_silence_ends_a_watch_and_a_call(server, kubeconfig):
    silence = threading.Event()
    server.answers["/a"] = [b'{"n":1}\n', silence]
    client = Client(kubeconfig(), answer_seconds=0.1)
    events = client.watch("/a", {}, read_seconds=0.2)
    assert next(events) == {"n": 1}

    for ask in (events.__next__, lambda: client.get("/a")):
        with pytest.raises(Unreachable, match="timed out"):
            ask()
    silence.set()


def test_a_watch_that_is_refused_raises_at_once(server, kubeconfig):
    server.answers["/a"] = 410, {"message": "too old"}

    with pytest.raises(Gone):
        Client(kubeconfig()).watch("/a", {}, read_seconds=1.0)


@pytest.mark.parametrize(
    ("served", "chosen"),
    [(["v1beta1", "v1beta2"], "v1beta2"), (["v1beta1"], "v1beta1"), (["v9"], None)],
)
def test_the_newest_version_of_kueue_that_is_understood(server, kubeconfig, served, chosen):
    versions = [{"version": version} for version in served]
    server.answers["/apis/kueue.x-k8s.io"] = 200, {"versions": versions}

    assert Client(kubeconfig()).kueue_version() == chosen


def test_no_server_and_no_configuration_are_unreachable(tmp_path, kubeconfig, server):
    path = kubeconfig()
    server.shutdown()
    server.server_close()

    with pytest.raises(Unreachable, match="refused"):
        Client(path).get("/a")
    with pytest.raises(Unreachable, match="Invalid kube-config file"):
        Client(str(tmp_path / "none")).get("/a")
