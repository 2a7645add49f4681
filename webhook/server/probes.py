"""``/healthz``, ``/readyz`` and ``/metrics`` as a Flask application; it knows no ports."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST


def create_probes(
    registry: CollectorRegistry,
    *,
    not_ready: Callable[[], str],
    notice: Callable[[], str] = lambda: "",
    before_scrape: Callable[[], None] = lambda: None,
) -> Flask:
    """Build the application.

    *not_ready* returns why this process is not ready, empty if it is; *notice* what an admin should
    know although it is ready.
    """
    app = Flask(__name__, static_folder=None)
    app.config["PROPAGATE_EXCEPTIONS"] = True  # to the worker, which logs no text of theirs

    @app.get("/healthz")
    def live() -> Response:
        return _plain("ok")

    @app.get("/readyz")
    def ready() -> Response:
        if why := not_ready():
            return _plain(why, 503)
        but = notice()
        return _plain(f"ok, but {but}" if but else "ok")

    @app.get("/metrics")
    def metrics() -> Response:
        before_scrape()
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    @app.errorhandler(404)
    def unknown(_: Exception) -> Response:
        return _plain("not found", 404)

    return app


def _plain(text: str, status: int = 200) -> Response:
    return Response(f"{text}\n", status, content_type="text/plain; charset=utf-8")
