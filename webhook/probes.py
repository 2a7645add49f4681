"""Plain HTTP for machines: a table of paths, each with what answers it, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from webhook.addresses import split_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]
_NOT_FOUND = Answer(body=b"not found\n", status=404)


def routes(
    registry: CollectorRegistry,
    *,
    not_ready: Callable[[], str],
    notice: Callable[[], str] = lambda: "",
    before_scrape: Callable[[], None] = lambda: None,
) -> Routes:
    """Answer ``/healthz``, ``/readyz``, ``/metrics``.

    *not_ready* says why not, empty: ready; *notice* what an admin should know all the same.
    """

    def ready() -> Answer:
        if why := not_ready():
            return Answer(body=f"{why}\n".encode(), status=503)
        but = notice()
        return Answer(body=f"ok, but {but}\n".encode() if but else b"ok\n")

    def metrics() -> Answer:
        before_scrape()
        return Answer(body=generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return {"/healthz": lambda: Answer(body=b"ok\n"), "/readyz": ready, "/metrics": metrics}


def serve(address: str, table: Routes) -> ThreadingHTTPServer:
    """Serve the table in a daemon thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = table.get(self.path.partition("?")[0])
            answer = _NOT_FOUND if found is None else found()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Keep probes and scrapes out of the decision log."""

    server = ThreadingHTTPServer(split_address(address), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name=f"http {address}", daemon=True).start()
    return server
