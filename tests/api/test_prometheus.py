"""What is believed of a Prometheus, and how long it is waited for."""

import contextlib
import time

import pytest

from tests.prometheus_server import labels, prometheus, vector
from webhook.api import calls
from webhook.api import prometheus as client
from webhook.api.prometheus import PrometheusError
from webhook.model.costs.devices import DeviceMeasure, DeviceSample, ServiceMeasure
from webhook.model.policy.spec import ServingMetrics
from webhook.settings import PrometheusSettings


@pytest.fixture
def server():
    with prometheus() as played:
        yield played


def ask(server, measure=DeviceMeasure.MEMORY, **rest):
    return client.ask(PrometheusSettings(url=server.url, **rest), measure)


def test_an_answer_is_read_and_models_are_named_as_flavors_name_them(server):
    server.answer = lambda query: vector((labels("train-abcde"), 8192))

    found = ask(server)

    sample = DeviceSample("team", "train-abcde", "NVIDIA-A100-SXM4-80GB", "", 8192.0)
    assert found == (sample,)
    assert server.queries == [
        "max by (namespace, pod, modelName, GPU_I_PROFILE) (max_over_time(DCGM_FI_DEV_FB_USED[6m]))"
    ]


def test_queries_and_labels_are_settings(server):
    metric = {"exported_namespace": "team", "exported_pod": "p", "card_model": "MI300X"}
    server.answer = lambda query: vector((metric, 5))

    found = ask(
        server,
        queries={"memory": "max by ($pod) (amd_gpu_used_vram{x=~'.*$'})"},
        labels={"namespace": "exported_namespace", "pod": "exported_pod", "model": "card_model"},
    )

    assert found == (DeviceSample("team", "p", "MI300X", "", 5.0),)
    assert server.queries == ["max by (exported_pod) (amd_gpu_used_vram{x=~'.*$'})"]


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        (DeviceMeasure.MEMORY, "-1"),
        (DeviceMeasure.MEMORY, "NaN"),
        (DeviceMeasure.MEMORY, "+Inf"),
        (DeviceMeasure.MEMORY, "1e300"),
        (DeviceMeasure.MEMORY, "many"),
        (DeviceMeasure.MEMORY, "1048577"),
        (DeviceMeasure.POWER, "10001"),
        (DeviceMeasure.COMPUTE, "1.01"),
        (DeviceMeasure.BANDWIDTH, "-0.01"),
    ],
)
def test_a_value_that_cannot_be_true_is_none(server, measure, value):
    server.answer = lambda query: vector((labels("p"), value))

    (found,) = ask(server, measure)

    assert found.value is None


def test_of_a_service_its_own_metrics_are_asked_for_by_the_labels_of_its_pods(server):
    metrics = ServingMetrics(requests="chat_total", latency="chat_seconds")
    metric = {"namespace": "team", "pod": "chat-0"}
    server.answer = lambda query: vector((metric, 3600), ({**metric, "pod": "chat-1"}, 3601))

    found = client.ask_service(
        PrometheusSettings(url=server.url, labels={"pod": "exported_pod"}),
        ServiceMeasure.LATENCY,
        metrics,
    )

    assert found == (
        DeviceSample("team", "chat-0", "", "", 3600.0),
        DeviceSample("team", "chat-1", "", "", None),
    )
    assert server.queries == [
        "histogram_quantile(0.95, sum by (namespace, pod, le) (rate(chat_seconds_bucket[5m])))"
    ]


@pytest.mark.parametrize(
    "item",
    [
        "text",
        {},
        {"metric": {"namespace": "team"}, "value": [0, "1"]},
        {"metric": {"namespace": "team", "pod": 3}, "value": [0, "1"]},
        {"metric": {"namespace": "team", "pod": "p" * 254}, "value": [0, "1"]},
    ],
)
def test_a_series_that_names_no_pod_is_left_out(server, item):
    data = {"resultType": "vector", "result": [item]}
    server.answer = lambda query: {"status": "success", "data": data}

    assert ask(server) == ()


def test_of_too_many_series_the_first_are_taken(server, monkeypatch):
    monkeypatch.setattr(client, "MOST_SAMPLES", 10)
    many = [(labels(f"pod-{number}"), 1) for number in range(15)]
    server.answer = lambda query: vector(*many)

    assert [each.pod for each in ask(server)] == [f"pod-{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>", "its answer cannot be read: expected JSON"),
        (b"\xff\xfe", "its answer cannot be read: expected UTF-8"),
        (b"[" * 200_000, "its answer cannot be read: "),
        ({"status": "error"}, "its answer cannot be read: status: expected success"),
        (
            {"status": "success", "data": {"resultType": "matrix"}},
            "its answer cannot be read: data.resultType: expected vector",
        ),
        ((503, b""), "it answers 503"),
        (b" " * ((8 << 20) + 1), "its answer has over 8 MiB"),
    ],
    ids=["page", "binary", "deep", "failed", "matrix", "down", "large"],
)
def test_what_is_no_answer_is_said(server, answer, said):
    server.answer = lambda query: answer

    with pytest.raises(PrometheusError, match=f"^{said}"):
        ask(server)


def drip(handler):
    """Send one byte at a time of an answer without an end."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)


def say_nothing(handler):
    handler.rfile.read(1)


@pytest.mark.parametrize("how", [drip, say_nothing])
def test_who_is_slow_is_not_waited_for(server, monkeypatch, how):
    monkeypatch.setattr(calls, "SHORT_SECONDS", 0.3)
    server.answer = lambda query: how

    with pytest.raises(PrometheusError, match=r"no answer within 0\.3 s"):
        ask(server)


def test_nobody_is_asked_but_the_address_of_the_settings(server):
    def elsewhere(handler):
        handler.send_response(302)
        handler.send_header("Location", f"{server.url}/elsewhere?query=other")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answer = lambda query: elsewhere

    with pytest.raises(PrometheusError, match="it answers 302"):
        ask(server)

    assert len(server.queries) == 1


@pytest.mark.parametrize("token", ["secret\nsecond", "s\u00e9cret"], ids=["lines", "no ASCII"])
def test_a_token_that_no_header_can_hold_is_not_quoted(server, tmp_path, token):
    path = tmp_path / "token"
    path.write_text(token, encoding="utf-8")

    with pytest.raises(PrometheusError) as error:
        client.query(server.url, "up", token_file=str(path), seconds=2.0)

    assert str(error.value) == f"{path}: expected a token, one line of ASCII"


def test_nobody_there_is_said():
    with pytest.raises(PrometheusError, match=r"The connection to the server .* was refused"):
        client.ask(PrometheusSettings(url="http://127.0.0.1:1"), DeviceMeasure.MEMORY)


def test_a_token_is_never_sent_without_tls():
    with pytest.raises(ValueError, match="token_file: needs an https url"):
        PrometheusSettings(url="http://prometheus", token_file="/token")


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://user:secret@x", "http://x?query=", "file:///etc", ""]
)
def test_a_url_is_http_without_credentials_and_query(url):
    with pytest.raises(ValueError, match="url"):
        PrometheusSettings(url=url)


def test_every_measure_has_a_query():
    assert {str(measure) for measure in DeviceMeasure} == set(
        type(PrometheusSettings(url="http://x").queries).model_fields
    )
