"""The whole server process, without a cluster: how it says that it ends, and what it logs."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from hack.waiting import WAIT_SECONDS, wait_for
from tests.contract.conftest import exchange, free_port
from tests.contract.consoles import connection_to
from tests.contract.serving import get, observers, serve
from tests.reviews import light_job, review
from webhook.observer.process import NICENESS

TOKEN = "hunter2-token"


@pytest.fixture
def serving(certificate, tmp_path):
    """A `serve` whose API server does not answer."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(free_port())))
    with serve(certificate, tmp_path, kubeconfig) as running:
        yield running


def _kubeconfig(port):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
        "users": [{"name": "x", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }


def test_until_its_end_it_answers_and_logs_and_its_observer_lives_and_gives_way(serving):
    (observer,) = wait_for(lambda: observers(serving.worker), "it has an observer")

    def behind():
        own = os.getpriority(os.PRIO_PROCESS, serving.worker)
        return os.getpriority(os.PRIO_PROCESS, observer) - own

    wait_for(lambda: behind() == NICENESS, "counts are made after reviews")
    serving.process.send_signal(signal.SIGTERM)
    wait_for(lambda: get(serving.metrics, "/readyz") == (503, "draining\n"), "it drains")
    alive = Path(f"/proc/{observer}").exists()
    answer = serving.post(json.dumps(review(light_job())).encode())
    serving.process.send_signal(signal.SIGTERM)

    code = serving.process.wait(WAIT_SECONDS)

    assert (alive, answer[0], code) == (True, 200, 0)
    wait_for(lambda: not Path(f"/proc/{observer}").exists(), "its observer ends")
    lines = [json.loads(line) for line in serving.log.read_text().splitlines()]
    assert [line["msg"] for line in lines if line.get("name") == "light"] == ["skipped"]


def test_every_line_of_the_log_is_json_and_none_holds_a_secret(serving):
    connection = serving.connect()
    connection.sendall(b"POST /mutate HTTP/1.1\r\nAuthorization: Bearer hunter2\x00\r\n\r\n")
    connection.recv(1000)
    for path in ("/mutate?token=hunter2", "/hunter2"):
        client = serving.client()
        client.request("PUT", path, body="hunter2", headers={"Authorization": "hunter2"})
        client.getresponse().read()
    exchange(serving.client(), b'{"apiVersion": "hunter2"')
    wait_for(lambda: b"observer" in serving.log.read_bytes(), "the observer logs, too")

    serving.process.send_signal(signal.SIGTERM)
    serving.process.wait(WAIT_SECONDS)

    text = serving.log.read_text()
    assert "hunter2" not in text
    assert all(json.loads(line)["msg"] for line in text.splitlines())


def test_at_the_address_of_probes_no_review_is_answered_whatever_it_says_of_itself(serving):
    claims = {"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "on", "Script-Name": "/mutate"}
    with contextlib.closing(connection_to(serving.metrics)) as client:
        client.request("POST", "/mutate", body=json.dumps(review(light_job())), headers=claims)
        status = client.getresponse().status

    assert (status, get(serving.metrics, "/healthz")) == (404, (200, "ok\n"))


def test_the_observer_serves_the_console_that_says_that_it_knows_nothing_yet(serving):
    def answer():
        try:
            return get(serving.console, "/quota?clusterqueue=gpu-cq")
        except OSError:
            return None

    wait_for(answer, "the console is served")

    assert answer() == (
        503,
        '{"error": "the state of the queues is not known yet", "age": null}\n',
    )
    assert json.loads(get(serving.console, "/decisions")[1]) == {"decisions": []}
    (observer,) = observers(serving.worker)
    os.kill(observer, signal.SIGKILL)
    wait_for(lambda: observers(serving.worker) not in ([], [observer]), "another begins")
    wait_for(answer, "the console is served again")
