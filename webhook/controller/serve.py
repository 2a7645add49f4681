"""The controller's process: its loop, its place in the Lease, and its probes."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer

from webhook.api.client import Client
from webhook.api.lease import Elector
from webhook.controller.controller import Controller
from webhook.controller.leadership import ANSWER_SECONDS
from webhook.server import probes
from webhook.settings import Settings


def serve(settings: Settings) -> None:
    """Run the controller with its probes until the process ends."""
    threading.excepthook = _end_with
    elector = Elector(
        Client(settings.kubeconfig, answer_seconds=ANSWER_SECONDS),
        settings.namespace,
        identity=f"{socket.gethostname()}_{secrets.token_hex(4)}",
        clock=time.monotonic,
        stamp=stamp,
    )
    controller = Controller(
        settings,
        Client(settings.kubeconfig),
        jobs_client=Client(settings.kubeconfig, metadata_only=True),
        elector=elector,
        log=_log,
    )
    table = probes.routes(
        controller.metrics.registry,
        not_ready=controller.not_ready,
        notice=controller.leadership.notice,
        before_scrape=controller.before_scrape,
    )
    server: ThreadingHTTPServer = probes.serve(settings.metrics_listen, table)
    try:
        controller.run()
    finally:
        controller.leadership.stop()
        server.shutdown()


def _end_with(failure: threading.ExceptHookArgs) -> None:
    """Be started anew rather than go on with one resource unwatched."""
    try:
        threading.__excepthook__(failure)
    finally:
        os._exit(70)


def stamp() -> str:
    """Tell the time as a Lease does."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _log(text: str) -> None:
    line = json.dumps(
        {"ts": round(time.time(), 3), "level": "info", "process": "controller", "msg": text}
    )
    print(line, file=sys.stdout, flush=True)  # noqa: T201 - the log is standard output
