"""The whole server process, without a cluster: how it says that it ends, and what it logs."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.contract.conftest import exchange, free_port
from tests.contract.serving import get, observers, serve, wait_until
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


def test_while_draining_it_is_not_ready_and_its_observer_lives(serving):
    wait_until(lambda: observers(serving.worker))
    (observer,) = observers(serving.worker)

    serving.process.send_signal(signal.SIGTERM)
    wait_until(lambda: get(serving.metrics, "/readyz") == (503, "draining\n"))
    alive = Path(f"/proc/{observer}").exists()
    code = serving.process.wait(30)

    assert (alive, code) == (True, 0)
    wait_until(lambda: not Path(f"/proc/{observer}").exists())


def test_the_first_observer_is_a_fork_of_the_server_that_has_none_of_its_sockets(serving):
    wait_until(lambda: observers(serving.worker))
    (observer,) = observers(serving.worker)

    def sockets(pid):
        found = set()
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(file.readlink()))
        return {link for link in found if link.startswith("socket:")}

    ours, theirs = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (serving.worker, observer))
    assert theirs == ours
    assert sockets(serving.worker)
    assert not sockets(serving.worker) & sockets(observer)


def test_where_cpu_is_short_reviews_are_answered_before_counts_are_made(serving):
    wait_until(lambda: observers(serving.worker))
    (observer,) = observers(serving.worker)

    def behind():
        return os.getpriority(os.PRIO_PROCESS, observer) - os.getpriority(
            os.PRIO_PROCESS, serving.worker
        )

    wait_until(lambda: behind() == NICENESS)


def test_the_last_lines_of_the_log_are_written_before_the_end(serving):
    serving.process.send_signal(signal.SIGTERM)
    wait_until(lambda: get(serving.metrics, "/readyz")[0] == 503)

    answer = serving.post(json.dumps(review(light_job())).encode())
    serving.process.send_signal(signal.SIGTERM)
    serving.process.wait(30)

    assert answer[0] == 200
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
    wait_until(lambda: b"observer" in serving.log.read_bytes())

    serving.process.send_signal(signal.SIGTERM)
    serving.process.wait(30)

    text = serving.log.read_text()
    assert "hunter2" not in text
    assert all(json.loads(line)["msg"] for line in text.splitlines())


def test_the_observer_serves_the_console_that_says_that_it_knows_nothing_yet(serving):
    def answer():
        try:
            return get(serving.console, "/quota?clusterqueue=gpu-cq")
        except OSError:
            return None

    wait_until(answer)

    assert answer() == (
        503,
        '{"error": "the state of the queues is not known yet", "age": null}\n',
    )
    assert json.loads(get(serving.console, "/decisions")[1]) == {"decisions": []}
    (observer,) = observers(serving.worker)
    os.kill(observer, signal.SIGKILL)
    wait_until(lambda: answer() is None)
    wait_until(answer)
