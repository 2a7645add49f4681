"""The HTTP side: whatever is posted, a 400 with the path or an admission; never a 5xx."""

import io
import json
import re
import threading
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import Client

from hack.waiting import wait_for
from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.serving.app import FirstSync, serve_forever
from webhook.serving.decision_log import DecisionLog
from webhook.settings import Settings
from webhook.state.pipe import Update

SERVER = Server(paper_snapshot())


def changed(path, value):
    """A review in which the value at one path is another."""
    found = review(light_job(), dry_run=True)
    node = found
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[]", "expected an object, got a list"),
        (b"{}", "apiVersion: expected admission.k8s.io/v1, got ''"),
        (b"\xff", "not UTF-8 at byte 0"),
        (json.dumps(review(light_job()))[:-40], None),
        (changed(("apiVersion",), "admission.k8s.io/v2"), None),
        (changed(("request", "uid"), 7), "request.uid: expected a string, got a number"),
        (changed(("request", "object"), "x"), "request.object: expected an object, got a string"),
        ("[" * 100_000, None),
        (changed(("request", "object", "spec", "x"), json.loads("[" * 500 + "]" * 500)), None),
    ],
    ids=lambda value: None if value is None else str(value)[:30],
)
def test_what_is_no_review_is_answered_with_400_and_the_path(body, message):
    answer = SERVER.post(body)

    assert answer.status_code == 400
    assert message is None or answer.text == f"{message}\n"


def test_what_would_take_long_to_read_is_admitted_by_its_uid_alone():
    server = Server(paper_snapshot())
    sent = review(light_job())
    sent["request"] |= {"uid": "705ab4f5", "object": {"x": [[]] * 200_000}}

    answer = server.post(json.dumps(sent))

    assert answer.get_json()["response"] == {"uid": "705ab4f5", "allowed": True}
    assert server.logged()[-1] == {
        "ts": ANY,
        "level": "error",
        "msg": "unreadable",
        "uid": "705ab4f5",
        "error": "more than 100000 values",
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("request", "object", "spec"), None),
        (("request", "object", "spec"), [1]),
        (("request", "object", "spec", "template"), "x"),
        (("request", "object", "spec", "parallelism"), "three"),
        (("request", "object", "metadata"), []),
        (("request", "object", "metadata", "labels"), {"a": 1}),
        (("request", "object"), {}),
        (("request", "operation"), "CONNECT"),
        (("request", "kind", "kind"), "Pod"),
        (("request", "subResource"), "status"),
    ],
)
def test_what_is_no_job_is_admitted_unpatched_under_its_own_uid(path, value):
    body = changed(path, value)

    answer = SERVER.post(body)

    response = answer.get_json()["response"]
    assert answer.status_code == 200
    assert response["allowed"] is True
    assert "patch" not in response
    assert response["uid"] == json.loads(body)["request"]["uid"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
PLACES = st.sampled_from(
    [
        ("metadata",),
        ("metadata", "name"),
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("metadata", "ownerReferences"),
        ("spec",),
        ("spec", "template"),
        ("spec", "template", "metadata"),
        ("spec", "template", "spec"),
        ("spec", "template", "spec", "containers"),
        ("spec", "template", "spec", "tolerations"),
        ("spec", "template", "spec", "affinity"),
        ("spec", "template", "spec", "nodeSelector"),
    ]
)


@given(place=PLACES, value=JSON)
def test_anything_anywhere_in_a_job_is_admitted_without_a_failure(place, value):
    before = SERVER.count("kueue_fallback_failures_total")
    body = changed(("request", "object", *place), value)

    answer = SERVER.post(body)

    assert answer.status_code == 200
    assert answer.get_json()["response"]["uid"] == json.loads(body)["request"]["uid"]
    assert SERVER.count("kueue_fallback_failures_total") == before


def test_an_error_of_ours_blocks_no_job_and_is_logged_with_the_uid(monkeypatch):
    server = Server(paper_snapshot())
    sent = review(light_job())
    monkeypatch.setattr(server.handler, "admit", lambda *_: 1 / 0)

    answer = server.post(json.dumps(sent))

    assert answer.get_json()["response"] == {"uid": sent["request"]["uid"], "allowed": True}
    assert server.count("kueue_fallback_failures_total") == 1
    (line,) = server.logged()
    del line["ts"]
    # Where, but not the text: it could hold parts of the Job.
    assert re.fullmatch(r"ZeroDivisionError at .*test_app\.py:\d+", line.pop("error"))
    assert line == {
        "msg": "failed",
        "level": "error",
        "uid": sent["request"]["uid"],
        "operation": "CREATE",
        "namespace": "team",
        "name": "light",
    }


@pytest.mark.parametrize(
    ("updates", "age", "text"),
    [
        ([], 0.0, "not synced yet"),
        ([Update(waiting=("cohorts", "workloads"))], 0.0, "not synced yet: cohorts, workloads"),
        ([Update(synced=True)], 15.0, ""),
        ([Update(synced=True)], 16.0, "stale: state is 16s old (limit 15s)"),
        (
            [Update(synced=True), Update(waiting=("cohorts",))],
            16.0,
            "stale: state is 16s old (limit 15s): cohorts",
        ),
    ],
)
def test_who_is_not_ready_says_what_cannot_be_read(updates, age, text):
    first_sync = FirstSync(freeze=lambda: None)
    for update in updates:
        first_sync.note(update)

    assert first_sync.not_ready(age, limit=15.0) == text


@pytest.fixture
def started(monkeypatch):
    """Start a server without an observer and ports; tells what ends it, its probes and its log."""
    ended, logs, written = [], [], io.StringIO()

    def log(_, *given, **named):
        logs.append(DecisionLog(written, *given, **named))
        return logs[0]

    monkeypatch.setattr("webhook.serving.app.DecisionLog", log)
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("atexit.register", lambda _: None)
    monkeypatch.setattr(
        "webhook.serving.app.ObserverLink", lambda *_, **__: SimpleNamespace(start=int, tell=print)
    )
    monkeypatch.setattr("threading.excepthook", threading.excepthook)
    server = SimpleNamespace(draining=False, on_error=print)
    client = Client(serve_forever(Settings(), server))
    return SimpleNamespace(ended=ended, client=client, log=logs[0], written=written)


def test_a_thread_that_fails_ends_the_process_and_the_log_says_where(started):
    thread = threading.Thread(target=lambda: {}["a secret"])
    thread.start()
    thread.join()

    (line,) = map(json.loads, started.written.getvalue().splitlines())
    assert started.ended == [70]
    assert (line["level"], line["msg"]) == ("error", "ending")
    assert line["error"].startswith("KeyError at ")
    assert "a secret" not in str(line)


def test_the_process_ends_though_it_is_the_log_that_fails(started, monkeypatch):
    before = started.client.get("/readyz").text

    monkeypatch.setattr(started.log, "_write_all", lambda: {}["x"])
    wait_for(lambda: not started.log.is_alive, "the log has ended")
    after = started.client.get("/readyz").text

    assert started.ended == [70]
    assert before != after == "the decision log has ended\n"


def test_reviews_are_answered_by_tls_alone_and_probes_without(started):
    asked = [
        started.client.open(path, method=method, base_url=f"{scheme}://localhost").status_code
        for path, method in (("/healthz", "GET"), ("/mutate", "POST"))
        for scheme in ("http", "https")
    ]

    # A review without a body is a bad one.
    assert asked == [200, 404, 404, 400]
