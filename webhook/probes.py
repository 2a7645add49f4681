"""Plain HTTP for machines: ``/healthz``, ``/readyz``, ``/metrics``, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``.

    Raises:
        ValueError: *address* is not of that form.

    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"expected host:port, got {address!r}")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what an empty host means


def serve(
    address: str,
    registry: CollectorRegistry,
    *,
    not_ready: Callable[[], str],
    before_scrape: Callable[[], None] = lambda: None,
) -> ThreadingHTTPServer:
    """Serve in a daemon thread. *not_ready* says why not; empty: ready."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/healthz":
                    self._answer(200, b"ok\n")
                case "/readyz":
                    why = not_ready()
                    self._answer(503 if why else 200, f"{why or 'ok'}\n".encode())
                case "/metrics":
                    before_scrape()
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                case _:
                    self._answer(404, b"not found\n")

        def _answer(self, status: int, body: bytes, content_type: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
            """Keep probes and scrapes out of the decision log."""

    server = ThreadingHTTPServer(split_address(address), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
