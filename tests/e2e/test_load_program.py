"""The load program, built from its sources, against servers that answer as they should and not."""

import contextlib
import json
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from certs.issue import new_authority, new_leaf
from hack import bodies, load, paper, tools

NAME = "webhook.test.svc"
PATCH = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvc3VzcGVuZCIsInZhbHVlIjp0cnVlfV0="


class Server(ThreadingHTTPServer):
    """Answers over TLS what a test's function makes of each request; keeps what it was sent."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, pki, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.requests, self.connections = answer, [], 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "tls.crt", pki / "tls.key")
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, *_):
        """Connections that end early are what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def take(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.command, self.path, json.loads(body)))
        status, answer, headers = self.server.answer(self.command, json.loads(body))
        text = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        self.take()

    def do_DELETE(self):
        self.take()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    now, week = datetime.now(UTC), timedelta(days=7)
    authority = new_authority("test", now=now, lifetime=week)
    leaf = new_leaf(authority, (NAME, "127.0.0.1"), now=now, lifetime=week)
    (folder / "ca.crt").write_bytes(authority.certificate_pem)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    (folder / "reviews").write_text(bodies.review(paper.Names()))
    (folder / "jobs").write_text(json.dumps(bodies.job(paper.Names())))
    return folder


@pytest.fixture
def serve(pki):
    with contextlib.ExitStack() as running:

        def start(answer):
            server = running.enter_context(Server(pki, answer))
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            running.callback(server.shutdown)
            return server

        yield start


def webhook(pki, server, name=NAME):
    return load.Webhook(
        port=server.server_port, authority=pki / "ca.crt", server_name=name, bodies=pki / "reviews"
    )


def allow(_, review, **more):
    response = {"uid": review["request"]["uid"], "allowed": True, **more}
    return 200, {"response": response}, {}


def patch(command, review):
    return allow(command, review, patchType="JSONPatch", patch=PATCH, warnings=["moved"])


@pytest.mark.parametrize("command", [["vet", "./..."], ["run", "cmd/gofmt", "-l", "."]])
def test_the_sources_are_as_gos_own_tools_want_them(command):
    assert tools.Go().run(*command, cwd=load.SOURCES) == ""


def test_reviews_of_a_closed_loop_differ_and_share_kept_connections(pki, serve):
    server = serve(patch)

    found = load.reviews(webhook(pki, server), "-at-once=4", "-count=40", "-warm-up=2")

    assert (found["calls"], found["errors"]) == (40, {})
    assert found["notes"] == {"patched": 40, "warned": 40}
    assert found["dials"] == server.connections <= 5
    sent = [review["request"] for _, _, review in server.requests]
    names = {request["object"]["metadata"]["name"] for request in sent}
    assert len(names) == len({request["uid"] for request in sent}) == 42
    assert {path for _, path, _ in server.requests} == {"/mutate?timeout=2s"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda *_: (200, {"response": {"uid": "another"}}, {}), "the uid of another review"),
        (lambda *_: (503, {}, {}), "status 503"),
        (lambda *_: (200, [], {}), "not a review"),
    ],
)
def test_errors_are_counted_by_kind(pki, serve, answer, kind):
    found = load.reviews(webhook(pki, serve(answer)), "-at-once=1", "-count=3")

    assert (found["calls"], found["errors"]) == (0, {kind: 3})


def test_a_certificate_for_another_name_is_refused(pki, serve):
    target = webhook(pki, serve(allow), name="other.test.svc")

    (kind,) = load.reviews(target, "-at-once=1", "-count=1")["errors"]

    assert kind.startswith("certificate refused: x509: certificate is valid for ")


def api_server(pki, server):
    return load.ApiServer(
        port=server.server_port,
        authority=pki / "ca.crt",
        certificate=pki / "tls.crt",
        key=pki / "tls.key",
        namespace="bench",
        bodies=pki / "jobs",
    )


def create(command, job):
    if command == "DELETE":
        return 200, {}, {}
    job["metadata"]["annotations"] = {"kueue-fallback.dev/decision": "{}"}
    return 201, job, {"Warning": '299 - "kueue-fallback: sent to cpu-lq (cpu)"'}


def test_created_jobs_are_counted_by_queue_and_decision(pki, serve):
    server = serve(create)

    found = load.jobs(api_server(pki, server), "-at-once=2", "-count=10", "-dry-run=true")

    assert (found["calls"], found["errors"]) == (10, {})
    assert found["notes"] == {"decided": 10, "queue gpu-lq": 10, "warned": 10}
    assert {(command, path) for command, path, _ in server.requests} == {
        ("POST", "/apis/batch/v1/namespaces/bench/jobs?dryRun=All")
    }


@pytest.mark.parametrize(("flag", "deletes"), [("-keep=3", 7), ("-clean-up", 10)])
def test_what_was_created_is_deleted_the_oldest_first(pki, serve, flag, deletes):
    server = serve(create)

    found = load.jobs(api_server(pki, server), "-at-once=1", "-count=10", flag)

    assert (found["calls"], found["deleted"]["errors"]) == (10, {})
    assert found["deleted"]["calls"] == deletes
    created = [job["metadata"]["name"] for command, _, job in server.requests if command == "POST"]
    deleted = [path.split("/")[-1] for command, path, _ in server.requests if command == "DELETE"]
    assert sorted(deleted) == created[:deletes]
