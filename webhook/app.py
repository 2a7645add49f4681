"""The server's composition root: Flask, the handler, the observer's link, probes and the log."""

from __future__ import annotations

import atexit
import gc
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from flask import Flask

from webhook import decision_log, faults, flow, gateway, probes
from webhook.admission import review as reviews
from webhook.admission.patch import PatchError
from webhook.cluster.link import ObserverLink
from webhook.cluster.pipe import Update
from webhook.decision_log import DecisionLog, Latest
from webhook.handler import Considered, Handler, rejections
from webhook.metrics import Metrics
from webhook.model.fields import FieldError
from webhook.settings import Settings
from webhook.tls import Source

StartResponse = Callable[[str, list[tuple[str, str]]], object]
Environ = dict[str, Any]

_SHORTEST_TIMEOUT_SECONDS = 1.0
"""The least ``timeoutSeconds`` that a webhook configuration may have."""
_TIMEOUT = re.compile(r"(?:^|&)timeout=(\d{1,4}(?:\.\d{1,9})?)s(?:&|$)")


def create_app(handler: Handler, metrics: Metrics, log: DecisionLog) -> Flask:
    """Build the WSGI application: ``POST /mutate``, answered before Flask takes a call apart."""
    app = Flask(__name__)
    app.wsgi_app = _Mutate(app.wsgi_app, handler, metrics, log)  # type: ignore[method-assign]
    return app


class ServerState(Protocol):
    """What the server around the application knows."""

    draining: bool
    in_flight: Callable[[], int]
    unanswered: Mapping[str, int]


class _Mutate:
    """``POST /mutate`` as WSGI middleware: Flask's routing took a tenth of a review's time."""

    def __init__(
        self, others: Callable[..., Any], handler: Handler, metrics: Metrics, log: DecisionLog
    ) -> None:
        self._others = others
        self._handler = handler
        self._metrics = metrics
        self._log = log

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/mutate":
            found: Iterable[bytes] = self._others(environ, start_response)
            return found
        if environ["REQUEST_METHOD"] != "POST":
            start_response("405 Method Not Allowed", [("Allow", "POST"), ("Content-Length", "0")])
            return ()
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        status, content_type, body = self._answer(body, is_late=_is_late(environ))
        size = ("Content-Length", str(len(body)))
        start_response(status, [("Content-Type", content_type), size])
        return (body,)

    def _answer(self, body: bytes, *, is_late: bool) -> tuple[str, str, bytes]:
        started, metrics = time.perf_counter(), self._metrics
        try:
            review = reviews.read(body)
        except FieldError as error:
            metrics.reviews.labels("unknown", "400").inc()
            return "400 Bad Request", "text/plain; charset=utf-8", f"{error}\n".encode()
        verdict, code = self._late(review) if is_late else self._admit(review)
        answer = verdict.to_bytes()
        operation = review.operation if review.operation in ("CREATE", "UPDATE") else "other"
        metrics.reviews.labels(operation, code).inc()
        metrics.review_seconds.labels(operation).observe(time.perf_counter() - started)
        return "200 OK", "application/json", answer

    def _admit(self, review: reviews.Review) -> tuple[reviews.Verdict, str]:
        """Admit, whatever happens: an error of ours is counted and logged, never the user's."""
        try:
            return self._handler.admit(review), "200"
        except FieldError as error:
            _report(self._log, review, "unreadable", str(error))
            return reviews.Verdict(uid=review.uid), "unreadable"
        except PatchError as error:
            self._metrics.unpatchable.inc()
            _report(self._log, review, "patch did not verify", str(error))
            return reviews.Verdict(uid=review.uid), "unpatchable"
        except Exception as error:  # noqa: BLE001 - the one place: an error of ours blocks no Job
            self._metrics.failures.inc()
            _report(self._log, review, "failed", faults.describe(error))
            return reviews.Verdict(uid=review.uid), "error"

    def _late(self, review: reviews.Review) -> tuple[reviews.Verdict, str]:
        """Decide nothing: the API server has gone on without us, and the Job is as it was."""
        _report(self._log, review, "late", "its time was over before its turn came")
        return reviews.Verdict(uid=review.uid), "late"


def _is_late(environ: Environ) -> bool:
    """Compare the time since the review came with the ``timeout`` that the API server names."""
    waited = environ.get(gateway.WAITED, 0.0)
    if waited < _SHORTEST_TIMEOUT_SECONDS:
        return False
    named = _TIMEOUT.search(environ["QUERY_STRING"])
    return named is not None and waited >= float(named[1])


def _report(log: DecisionLog, review: reviews.Review, message: str, error: str) -> None:
    log.put({"level": "error", "msg": message, **decision_log.about(review), "error": error})


def serve_forever(settings: Settings, *, certificates: Source, state: ServerState) -> Flask:
    """Start everything a worker process needs; returns the WSGI application."""
    metrics = Metrics()
    certificates.on_reload = lambda result: metrics.certificate_reloads.labels(result).inc()
    metrics.age_limit.set(settings.max_state_age)
    log = DecisionLog(sys.stdout, metrics.log_dropped.inc)
    atexit.register(log.close)
    latest = Latest()
    rules = flow.Rules(
        max_state_age_seconds=settings.max_state_age, own_namespace=settings.namespace
    )
    handler = Handler(
        rules,
        metrics,
        placement_ttl_seconds=settings.placement_ttl,
        tell=teller(metrics, log, latest),
    )
    first = FirstSync()

    def on_update(update: Update) -> None:
        handler.update(update)
        metrics.watches.take(
            synced=update.synced,
            ages=update.ages,
            relists=update.relists,
            problems=update.problems,
        )
        if update.certificates is not None:
            certificates.take(update.certificates)
        first.note(update)

    link = ObserverLink(
        observer_command(settings),
        on_update=on_update,
        on_log=lambda text: log.put(decision_log.observers(text)),
        on_start=metrics.observer_starts.inc,
    )
    metrics.observer_pid = lambda: link.pid
    link.start()

    def not_ready() -> str:
        if state.draining:
            return "draining"
        if untrusted := certificates.not_ready():
            return untrusted
        return first.not_ready(handler.state_age_seconds(), limit=settings.max_state_age)

    def before_scrape() -> None:
        age = handler.state_age_seconds() if first.done else math.inf
        metrics.watches.show(ready=not not_ready(), age=age)
        metrics.show(handler.snapshot, placements=handler.placements())
        metrics.show_messages(in_flight=state.in_flight(), unanswered=state.unanswered)
        for kind, at in certificates.expirations().items():
            metrics.certificate_expiration.labels(kind).set(at)

    def decisions() -> probes.Answer:
        return probes.Answer(body=latest.to_bytes(), content_type="application/json")

    table = probes.routes(
        metrics.registry,
        not_ready=not_ready,
        notice=certificates.notice,
        before_scrape=before_scrape,
    )
    probes.serve(settings.metrics_listen, table)
    probes.serve(settings.console_listen, {"/decisions": decisions})
    return create_app(handler, metrics, log)


def _freeze() -> None:
    """Let the collector leave alone what stays: its pauses were the server's worst."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(0.0005)


class FirstSync:
    """Knows whether the state has ever been there, and freezes the collector when it is."""

    def __init__(self, freeze: Callable[[], None] = _freeze) -> None:
        self.done = False
        self._freeze = freeze
        self._waiting: tuple[str, ...] = ()

    def note(self, update: Update) -> None:
        self._waiting = update.waiting
        if update.synced and not self.done:
            self.done = True
            self._freeze()

    def not_ready(self, age: float, *, limit: float) -> str:
        """Say why nothing can be decided, and which kinds cannot be read."""
        missing = f": {', '.join(self._waiting)}" if self._waiting else ""
        if not self.done:
            return f"not synced yet{missing}"
        stale = f"stale: state is {age:.0f} s old (limit {limit:.0f} s)"
        return stale + missing if age > limit else ""


def teller(
    metrics: Metrics, log: DecisionLog, latest: Latest
) -> Callable[[Considered, float], None]:
    def tell(considered: Considered, seconds: float) -> None:
        outcome = considered.outcome
        if outcome is None:
            if considered.restored:
                metrics.restorations.inc()
                log.put(decision_log.line(considered, seconds))
            return
        if outcome.skip is not None:
            metrics.skipped.labels(outcome.skip).inc()
        elif outcome.decision is not None:
            decision = outcome.decision
            option, reason = decision_log.taken(decision)
            metrics.decisions.labels(decision.policy, decision.mode, option, reason).inc()
            for name, refused in rejections(outcome):
                metrics.rejections.labels(decision.policy, name, refused).inc()
        line = decision_log.line(considered, seconds)
        if outcome.decision is not None:
            latest.put(line)
        log.put(line)

    return tell


def observer_command(settings: Settings) -> tuple[str, ...]:
    """Name the observer's program and its settings."""
    return (sys.executable, "-m", "webhook.observer", settings.model_dump_json())
