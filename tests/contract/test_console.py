"""How the console is served: reading alone, to those who may, over TLS where tokens travel."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.waiting import WAIT_SECONDS, wait_for
from tests.console.viewers import Only
from tests.console.worlds import known
from tests.contract.consoles import ask, connection_to, read, served
from webhook.console import routes
from webhook.console.access import Everybody, TooMany, Unanswered, Unknown
from webhook.console.collect import collect
from webhook.console.console import AT_ONCE
from webhook.console.routes import ConsoleSources, create_app


@pytest.fixture(scope="module")
def console():
    with served(lambda: collect(known())) as port:
        yield port


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/quota?clusterqueue=gpu-cq", "/view"])
def test_there_is_only_reading(console, method, path):
    response, body = ask(console, path, method)

    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert json.loads(body) == {"error": "method not allowed"}


def test_a_head_is_a_get_without_its_body(console):
    whole, _ = ask(console, "/workloads?clusterqueue=gpu-cq")
    response, body = ask(console, "/workloads?clusterqueue=gpu-cq", "HEAD")

    assert (response.status, body) == (200, b"")
    assert response.headers["Content-Length"] == whole.headers["Content-Length"]


@pytest.mark.parametrize("path", ["/workloads?clusterqueue=gpu-cq", "/nothing", "/view"])
def test_no_other_site_and_no_cache_gets_an_answer(console, path):
    response, _ = ask(console, path, Origin="https://example.com")

    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Content-Security-Policy"] == (
        "default-src 'none'; frame-ancestors 'none'"
    )
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Server"] == "gunicorn"
    assert not [name for name in response.headers if name.startswith("Access-Control")]


def test_a_page_of_another_site_that_points_its_name_here_gets_no_answer(console):
    response, body = ask(console, "/view", Host=f"evil.example:{console}")

    assert response.status == 400
    assert json.loads(body) == {"error": "this is not reached by that name"}


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8081"])
def test_port_forward_is_answered(console, host):
    response, _ = ask(console, "/view", Host=host)

    assert response.status == 200


def test_the_page_names_its_queues_and_allows_nothing_but_its_own_scripts(console):
    response, body = ask(console, "/")
    policy = response.headers["Content-Security-Policy"]

    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"gpu-cq" in body
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert policy == routes.content_security_policy(nonce)
    assert f'<script nonce="{nonce}"'.encode() in body
    assert nonce not in ask(console, "/")[0].headers["Content-Security-Policy"]


def test_a_client_that_says_nothing_keeps_no_other_waiting(console):
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(
                contextlib.closing(http.client.HTTPConnection("127.0.0.1", console))
            )
            client.connect()

        assert read(console, "/workloads?clusterqueue=gpu-cq")[0] == 200


def nobody(*_):
    raise Unknown


def unanswered(*_):
    raise Unanswered("TokenReview: timed out")


class Nothing:
    """Somebody who may see nothing."""

    def may_get(self, names, *, group, resource):
        return frozenset()

    def may_list_jobs(self, namespaces, kind="Job"):
        return frozenset()


JOB = "/job?namespace=team&job=light-1"
PATHS = ("/", JOB, "/view", "/decisions", "/quota", "/workloads?clusterqueue=gpu-cq")


@pytest.mark.parametrize("path", PATHS)
def test_who_is_not_known_is_asked_for_a_token_first(path):
    with served(lambda: collect(known()), rights_of=nobody) as port:
        response, body = ask(port, path)

    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert json.loads(body) == {"error": "needs a bearer token that the API server knows"}


def test_an_api_server_that_does_not_answer_is_told_and_lets_nobody_in():
    bugs = []
    app = create_app(
        ConsoleSources(view=lambda: collect(known())), unanswered, on_error=bugs.append
    )

    answer = app.test_client().get("/view")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json == {"error": "the API server does not say who asks and what they may see"}
    assert [str(error) for error in bugs] == ["TokenReview: timed out"]


def test_a_bug_is_told_to_the_log_and_not_to_the_client():
    bugs = []

    def fail():
        raise RuntimeError("secret")

    app = create_app(ConsoleSources(view=fail), lambda *_: Everybody(), on_error=bugs.append)

    answer = app.test_client().get("/view")

    assert (answer.status_code, answer.json) == (500, {"error": "internal error"})
    assert [str(error) for error in bugs] == ["secret"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/quota?clusterqueue=none", "needs get clusterqueues none"),
        ("/workloads?clusterqueue=gpu-cq", "needs get clusterqueues gpu-cq"),
        ("/decisions?namespace=team", "needs list jobs in namespace team"),
    ],
)
def test_without_the_right_not_even_existence_is_told(path, text):
    with served(lambda: collect(known()), rights_of=lambda *_: Nothing()) as port:
        assert read(port, path) == (403, {"error": text})


def test_tokens_travel_under_tls_alone(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    trusting = ssl.create_default_context(cafile=str(certificate / "ca.crt"))
    with served(lambda: collect(known()), context=lambda: context) as port:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(port, "/view", Authorization="Bearer hunter2")
        client = http.client.HTTPSConnection("localhost", port, context=trusting)
        with contextlib.closing(client):
            client.request("GET", "/workloads?clusterqueue=gpu-cq")
            answer = client.getresponse()
            assert (answer.status, json.loads(answer.read())["pendingWorkloads"]) == (200, 3)


def test_without_a_certificate_nothing_is_answered():
    with (
        served(lambda: collect(known()), context=lambda: None) as port,
        pytest.raises((http.client.HTTPException, ConnectionError)),
    ):
        ask(port, "/view")


def test_silent_connections_of_one_address_keep_no_other_from_being_answered():
    with served(lambda: collect(known())) as port, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", port)
        early = stack.enter_context(contextlib.closing(connection_to(port)))
        early.connect()
        for _ in range(100):
            stack.enter_context(socket.create_connection(address, None, ("127.0.0.2", 0)))

        assert read(port, "/workloads?clusterqueue=gpu-cq")[0] == 200
        early.request("GET", "/decisions")
        assert early.getresponse().status == 200


def test_few_answers_are_made_at_once_and_the_others_wait():
    lock, gate = threading.Lock(), threading.Event()
    running, most = 0, 0

    def view():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(WAIT_SECONDS)
        with lock:
            running -= 1
        return collect(known())

    with served(view) as port, ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(read, port, "/view") for _ in range(20)]
        wait_for(lambda: running == AT_ONCE, "as many are made as may be")
        gate.set()

        assert [answer.result()[0] for answer in answers] == [200] * 20
    assert most == AT_ONCE


def test_who_makes_many_tokens_up_is_asked_to_come_back_later():
    def too_many(*_):
        raise TooMany

    with served(lambda: collect(known()), rights_of=too_many) as port:
        response, body = ask(port, "/view", Authorization="Bearer made-up")

    assert (response.status, response.headers["Retry-After"]) == (429, "10")
    text = "too many tokens that the API server does not know came from this address"
    assert json.loads(body) == {"error": text}


def test_a_jobs_page_is_told_to_those_who_may_list_its_kind_there(console):
    response, body = ask(console, JOB)
    policy = response.headers["Content-Security-Policy"]

    assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"Forecast beside truth" in body
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert f'<script nonce="{nonce}"'.encode() in body
    with served(lambda: collect(known()), rights_of=lambda *_: Only("other")) as port:
        assert read(port, JOB) == (403, {"error": "needs list jobs in namespace team"})
        assert ask(port, JOB.replace("team", "other").replace("light-1", "none"))[0].status == 404
    with served(lambda: collect(known()), rights_of=lambda *_: Only("team")) as port:
        assert ask(port, JOB)[0].status == 200


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "namespace: must be given"),
        ("?namespace=team", "job: must be given"),
        ("?namespace=team&job=oddjob/x", "job: must be a name, or kind/name"),
        ("?namespace=team&job=x&kind=y", "unknown parameter kind; known: job, namespace"),
    ],
)
def test_a_job_that_is_not_named_rightly_is_a_bad_question(console, query, text):
    assert read(console, f"/job{query}") == (400, {"error": text})
