"""The real server process, with its observer, beside a cluster that is played."""

import compileall
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from bench.reviews import Served
from hack import load
from hack.install import ROOT, is_ready
from hack.pki import Pki
from hack.ports import Ports
from hack.processes import Processes, Program

READY_SECONDS: Final = 200.0
_AS_DEPLOYED: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "32768",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""What the chart sets for all processes."""
_NAME: Final = "webhook"


@contextlib.contextmanager
def served(folder: Path, kubeconfig: Path, review: str, **settings: object) -> Iterator[Served]:
    """Run the server until the block ends, and begin when it is ready; *review* is its load.

    Raises:
        TimeoutError: it did not become ready.

    """
    ports, processes, pki = Ports(), Processes(folder), Pki(folder / "pki")
    listen, metrics, console = (ports.lease() for _ in range(3))
    pki.issue_server("tls", "localhost")
    path = folder / "settings.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "kubeconfig": str(kubeconfig),
                "tls_cert": str(pki.certificate("tls")),
                "tls_key": str(pki.key("tls")),
                "listen": f"127.0.0.1:{listen}",
                "metrics_listen": f"127.0.0.1:{metrics}",
                "console_listen": f"127.0.0.1:{console}",
                "drain_seconds": 0,
                **settings,
            }
        )
    )
    command = [sys.executable, "-m", "webhook", "serve", f"--config={path}"]
    (folder / "reviews.jsonl").write_text(review)
    environment = {**_AS_DEPLOYED, "PYTHONPATH": str(ROOT)}
    # As in the image. Without, each process would compile all modules first.
    for package in ("webhook", "certs"):
        compileall.compile_dir(ROOT / package, quiet=1)
    processes.run(Program(name=_NAME, command=command, environment=environment))
    target = load.Webhook(
        port=listen,
        authority=pki.certificate("ca"),
        server_name="localhost",
        bodies=folder / "reviews.jsonl",
    )
    try:
        _wait_until_ready(metrics)
        yield Served(target=target, metrics=metrics, pid=processes.pid(_NAME))
    finally:
        processes.stop(_NAME)
        ports.release()


def _wait_until_ready(metrics: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while not is_ready(metrics):
        if time.monotonic() > until:
            raise TimeoutError("the webhook did not become ready")
        time.sleep(0.02)
