"""The whole server process, as `serve` starts it, over a kubeconfig that a test gives."""

import contextlib
import subprocess
import sys
from pathlib import Path

import yaml

from hack import meters
from tests.contract.conftest import Running, answering, free_port
from tests.contract.consoles import connection_to

DRAIN_SECONDS = 2


@contextlib.contextmanager
def serve(certificate, folder, kubeconfig, **settings):
    """Start a server with further settings; it answers when the block begins."""
    listen, metrics, console = (free_port() for _ in range(3))
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(settings))
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "webhook", "serve", f"--config={config}"),
                f"--kubeconfig={kubeconfig}",
                f"--tls-cert={certificate / 'tls.crt'}",
                f"--tls-key={certificate / 'tls.key'}",
                f"--listen=127.0.0.1:{listen}",
                f"--metrics-listen=127.0.0.1:{metrics}",
                f"--console-listen=127.0.0.1:{console}",
                f"--drain-seconds={DRAIN_SECONDS}",
            ],
            stdout=stream,
            stderr=stream,
        )
    running = Running(process, listen, certificate / "ca.crt", log)
    running.metrics, running.console = metrics, console
    with answering(running):
        yield running


def get(port, path):
    with contextlib.closing(connection_to(port)) as client:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read().decode()


def observers(worker):
    """The worker's children that run the observer."""
    tasks = Path(f"/proc/{worker}/task").glob("*/children")
    children = (int(pid) for task in tasks for pid in task.read_text().split())
    return [pid for pid in children if meters.is_observer(pid)]
