"""Serves echoes under the worker, for the tests of the worker.

usage: ... PORT CERTIFICATE KEY DRAIN_SECONDS MAX_HELD CONNECTIONS HANGS [CLIENT_CA [NAME...]]
"""

import contextlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from webhook.observer.certificates import read_files
from webhook.server import worker
from webhook.server.gunicorn_app import Server
from webhook.server.tls import SentContext

DONE: list[str] = []
WAITED: list[str] = []
TOLD = {
    b"waited": lambda _: WAITED,
    b"unanswered": lambda _: SERVER.unanswered,
    b"done": lambda _: DONE,
    b"peer": lambda environ: environ["REMOTE_ADDR"],
}


class Closed(list):
    """An answer that says when it was closed, which breaks it if it shall."""

    def close(self):
        DONE.append(self[0].decode())
        if self == [b"break later"]:
            raise ValueError("hunter2")


def answer(environ, start_response):
    body = environ["wsgi.input"].read()
    if body.startswith(b"fail "):
        raise ValueError(body.decode())
    if body.startswith(b"sleep "):
        time.sleep(float(body[6:]))
    if body.startswith(b"among "):
        WAITED.append(body[6:].decode())
    if body in TOLD:
        body = json.dumps(TOLD[body](environ)).encode()
    if body.startswith(b"give "):
        body = b"x" * int(body[5:])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return Closed([body]) if body.endswith(b" later") else [body]


if __name__ == "__main__":
    port, certificate, key, drain_seconds, max_held, connections, hangs, *clients_of = sys.argv[1:]
    worker.MAX_HELD = int(max_held)
    SERVER = Server(
        listen=[f"127.0.0.1:{port}"],
        client_names=clients_of[1:],
        load_application=lambda: answer,
        drain_seconds=float(drain_seconds),
        keepalive=120,
        worker_connections=int(connections),
        timeout=int(hangs),
    )
    sent = SentContext(on_error=print)

    def context():
        with contextlib.suppress(OSError, ValueError):
            clients = Path(clients_of[0]).read_bytes() if clients_of else None
            sent.take(replace(read_files(certificate, key), clients=clients))
        return sent()

    SERVER.context = context
    SERVER.run()
