"""The server's composition root: connects handler, observer, certificates, probes and log.

It hands the observer's updates to those that use them, says whether the server is ready, and counts
decisions. What a review is answered is the handler's to decide: ``POST /mutate`` is HTTP on one
side and the handler on the other, where every error ends: counted, logged without its text, and the
Job admitted unchanged.
"""

from __future__ import annotations

import atexit
import hmac
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

from flask import Flask, Response, abort, after_this_request, request
from werkzeug.exceptions import HTTPException

from webhook.admission import review as reviews
from webhook.admission.patch import PatchError
from webhook.api.clock import notice_of
from webhook.decide import match
from webhook.flow import create
from webhook.metric_table import option_labels
from webhook.model import faults
from webhook.model.decision import (
    Decided,
    Declined,
    Moved,
    Outcome,
    Restored,
    Skipped,
    Undone,
)
from webhook.model.fields import FieldError
from webhook.model.words import span
from webhook.server import lifecycle
from webhook.server.addresses import PATH, read_paths
from webhook.server.gunicorn_app import Application, Server
from webhook.server.probes import create_probes
from webhook.server.tls import SentContext
from webhook.server.worker import WAITED
from webhook.serving import decision_log, observer_link
from webhook.serving.decision_log import DecisionLog
from webhook.serving.handler import Considered, Handler
from webhook.serving.observer_link import ObserverLink
from webhook.serving.server_metrics import MOVED, REFUSED, UNDONE, Metrics
from webhook.settings import Settings
from webhook.state.pipe import Update


def create_app(
    handler: Handler, metrics: Metrics, log: DecisionLog, *, path_segments: str = ""
) -> Flask:
    """Build the application that answers reviews.

    Raises:
        OSError, ValueError: the file *path_segments* cannot be read.

    """
    return create_mutate(handler, metrics, log, paths=read_paths(path_segments))


def serve_forever(settings: Settings, server: Server) -> Application:
    """Start everything that the *server*'s worker process needs; return the WSGI application."""
    parts = _WorkerProcess(settings, server)
    threading.excepthook = parts.end_with
    parts.start()
    segments = settings.path_segments
    return _by_address(
        create_app(parts.handler, parts.metrics, parts.log, path_segments=segments),
        parts.probes(),
    )


def _by_address(reviews: Flask, probes: Flask) -> Application:
    """Answer reviews at the address with TLS, and probes and scrapes at the other one."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        app = reviews if environ["wsgi.url_scheme"] == "https" else probes
        return app(environ, start_response)

    return answer


class _WorkerProcess:
    """The parts of one worker process, and what each passes to the others."""

    def __init__(self, settings: Settings, server: Server) -> None:
        self._settings = settings
        self._server = server
        self._certificates = server.context = SentContext(on_error=server.on_error)
        self._first = FirstSync()
        self._clock_ahead = 0.0
        self.metrics = Metrics()
        self.metrics.age_limit.set(settings.max_state_age)
        reloads = self.metrics.certificate_reloads
        self._certificates.on_reload = lambda result: reloads.labels(result).inc()
        self._link = ObserverLink(
            observer_link.command(settings),
            on_update=self._take,
            on_log=lambda line: self.log.put(line),  # noqa: PLW0108 - there is no log yet
            on_start=self.metrics.observer_starts.inc,
        )
        self.log = DecisionLog(
            sys.stdout,
            self.metrics.log_dropped.inc,
            pass_on=self._link.tell,
            named=lambda: match.named_by(self.handler.snapshot.fallback.policies),
        )
        self.handler = Handler(
            create.Rules(
                may_hold=settings.holds,
                max_state_age_seconds=settings.max_state_age,
                own_namespace=settings.namespace,
                kueue_namespace=settings.kueue_namespace,
                min_gain_probability=settings.min_gain_probability,
            ),
            self.metrics,
            placement_ttl_seconds=settings.placement_ttl,
            tell=self._tell,
        )
        self.handler.reasons_url = settings.reasons_url
        self.handler.on_seen = self.log.seen

    def _tell(self, considered: Considered, seconds: float) -> None:
        @after_this_request
        def put_off(response: Response) -> Response:
            # The API server waits for the answer, and nobody for the log.
            response.call_on_close(partial(teller(self.metrics, self.log), considered, seconds))
            return response

    def start(self) -> None:
        """Start the observer."""
        atexit.register(self.log.close)
        self.metrics.observer_pid = lambda: self._link.pid
        self._link.start()

    def probes(self) -> Flask:
        return create_probes(
            self.metrics.registry,
            not_ready=self._not_ready,
            notice=self._notice,
            before_scrape=self._before_scrape,
        )

    def end_with(self, failure: threading.ExceptHookArgs) -> NoReturn:
        """End the process when a thread failed; gunicorn then starts the worker again."""
        try:
            if failure.exc_value is not None:
                error = faults.describe(failure.exc_value)
                self.log.put({"level": "error", "msg": "ending", "error": error})
            self.log.close()
        finally:
            os._exit(lifecycle.FAILED)

    def _take(self, update: Update) -> None:
        self.handler.update(update)
        self.metrics.watches.take(
            synced=update.synced,
            ages=update.ages,
            relists=update.relists,
            problems=update.problems,
        )
        self.metrics.observer_failures.catch_up(update.failures)
        self._clock_ahead = update.clock_ahead
        self.metrics.clock_ahead.set(update.clock_ahead)
        self.metrics.leaderless.set(update.leaderless_seconds)
        if update.certificates is not None:
            self._certificates.take(update.certificates)
        self._first.note(update)

    def _not_ready(self) -> str:
        if self._server.draining:
            return "draining"
        if not self.log.is_alive:
            return "the decision log has ended"
        if untrusted := self._certificates.not_ready():
            return untrusted
        limit = self._settings.max_state_age
        why = self._first.not_ready(self.handler.state_age_seconds(), limit=limit)
        return "; ".join(filter(None, (why, self._link.notice()))) if why else ""

    def _notice(self) -> str:
        apart = notice_of(self._clock_ahead)
        return "; ".join(filter(None, (self._certificates.notice(), self._link.notice(), apart)))

    def _before_scrape(self) -> None:
        metrics, server = self.metrics, self._server
        age = self.handler.state_age_seconds() if self._first.done else math.inf
        metrics.watches.show(ready=not self._not_ready(), age=age)
        metrics.show(
            self.handler.snapshot,
            placements=self.handler.placements(),
            forecast_age=self.handler.forecast_age_seconds(),
        )
        metrics.show_clusters(self.handler.cluster_ages())
        metrics.log_alive.set(self.log.is_alive)
        metrics.show_messages(in_flight=server.in_flight(), unanswered=server.unanswered)
        for kind, at in self._certificates.expirations().items():
            metrics.certificate_expiration.labels(kind).set(at)


def _freeze() -> None:
    lifecycle.exempt_from_collection()
    sys.setswitchinterval(0.0005)


class FirstSync:
    """Records whether the state was ever synced; once it is, exempts it from garbage collection."""

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
        """Return why nothing can be decided and which kinds cannot be read; empty: ready.

        *age* and *limit* are in seconds.
        """
        missing = f": {', '.join(self._waiting)}" if self._waiting else ""
        if not self.done:
            return f"not synced yet{missing}"
        stale = f"stale: state is {span(age)} old (limit {span(limit)})"
        return stale + missing if age > limit else ""


def teller(metrics: Metrics, log: DecisionLog) -> Callable[[Considered, float], None]:
    def tell(considered: Considered, seconds: float) -> None:
        count(metrics, considered.outcome)
        # Most updates of Jobs put nothing back, and nobody needs them in a log.
        if not isinstance(considered.outcome, Restored) or considered.outcome.edits:
            line = decision_log.with_job(decision_log.line(considered, seconds), considered)
            log.put(line, key=_key_of_placement(considered))

    return tell


def _key_of_placement(considered: Considered) -> str:
    """Return the key of a Job that was decided and may be created; empty: it was not."""
    match considered.outcome:
        case Decided(arrival=arrival) if arrival is not None and not considered.review.dry_run:
            return arrival.key
    return ""


def count(metrics: Metrics, outcome: Outcome) -> None:
    """Count the outcome of one review."""
    match outcome:
        case Skipped():
            metrics.skipped.labels(outcome.skip).inc()
        case Decided():
            decision = outcome.decision
            option, reason = decision_log.taken(decision)
            policy, taken = option_labels(decision.policy, option)
            metrics.decisions.labels(policy, decision.mode, taken, reason).inc()
            for assessment in decision.options:
                if assessment.rejection is not None:
                    refused = option_labels(decision.policy, assessment.option)
                    metrics.rejections.labels(*refused, assessment.rejection.reason).inc()
        case Moved():
            metrics.moves.labels(MOVED).inc()
        case Undone():
            metrics.moves.labels(UNDONE).inc()
        case Declined():
            metrics.moves.labels(REFUSED).inc()
            metrics.unmoved.labels(outcome.obstacle).inc()
        case Restored():
            metrics.restorations.inc(1 if outcome.edits else 0)


_SHORTEST_TIMEOUT_SECONDS = 1.0
"""The smallest ``timeoutSeconds`` that a webhook configuration may have."""
_TIMEOUT = re.compile(r"(\d{1,4}(?:\.\d{1,9})?)s")


def create_mutate(
    handler: Handler, metrics: Metrics, log: DecisionLog, *, paths: tuple[bytes, ...]
) -> Flask:
    """Build the application that answers reviews at these paths; every other one is unknown."""
    app = Flask(__name__, static_folder=None)
    app.config["PROPAGATE_EXCEPTIONS"] = True  # to the worker, which logs no text of theirs
    app.url_map.merge_slashes = False
    reviewer = Reviewer(handler, metrics, log)

    @app.post(PATH, provide_automatic_options=False)
    @app.post(f"{PATH}/<path:_segment>", provide_automatic_options=False)
    def mutate(_segment: str = "") -> Response:
        # In a time that does not depend on where they differ.
        given = request.path.encode()
        if not sum(hmac.compare_digest(given, answered) for answered in paths):
            abort(HTTPStatus.NOT_FOUND)
        return reviewer.answer(
            request.get_data(cache=False), peer=request.remote_addr or "", is_late=_is_late()
        )

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        if error.code == HTTPStatus.NOT_FOUND and request.path.startswith(PATH):
            metrics.reviews.labels("unknown", "404").inc()
        allow = {"Allow": "POST"} if error.code == HTTPStatus.METHOD_NOT_ALLOWED else {}
        return Response(status=error.code, headers=allow)

    return app


class Reviewer:
    """Answers reviews, each by a response of HTTP."""

    def __init__(self, handler: Handler, metrics: Metrics, log: DecisionLog) -> None:
        self._handler, self._metrics, self._log = handler, metrics, log

    def answer(self, body: bytes, *, peer: str, is_late: bool) -> Response:
        started, metrics = time.perf_counter(), self._metrics
        try:
            review = reviews.read_review(body)
        except reviews.TooCostlyError as error:
            return self._unread(body, error)
        except FieldError as error:
            return self._refuse(error)
        verdict, code = self._late(review) if is_late else self._admit(review, peer)
        answer = verdict.to_bytes()
        operation = review.operation if review.operation in ("CREATE", "UPDATE") else "other"
        metrics.reviews.labels(operation, code).inc()
        metrics.review_seconds.labels(operation).observe(time.perf_counter() - started)
        return Response(answer, content_type="application/json")

    def _unread(self, body: bytes, error: FieldError) -> Response:
        """Admit a review that would take too long to read; only its uid is known."""
        uid = reviews.uid_of(body)
        if not uid:
            return self._refuse(error)
        self._metrics.reviews.labels("unknown", "unreadable").inc()
        self._log.put({"level": "error", "msg": "unreadable", "uid": uid, "error": str(error)})
        return Response(reviews.Verdict(uid=uid).to_bytes(), content_type="application/json")

    def _refuse(self, error: FieldError) -> Response:
        self._metrics.reviews.labels("unknown", "400").inc()
        text = f"{error}\n"
        return Response(text, HTTPStatus.BAD_REQUEST, content_type="text/plain; charset=utf-8")

    def _admit(self, review: reviews.Review, peer: str) -> tuple[reviews.Verdict, str]:
        """Return verdict and metric label.

        An error of ours is counted, logged, and admits the Job.
        """
        try:
            return self._handler.admit(review, peer), "200"
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
        """Decide nothing: the API server has stopped waiting, and the Job is unchanged."""
        _report(self._log, review, "late", "its time was over before its turn came")
        return reviews.Verdict(uid=review.uid), "late"


def _is_late() -> bool:
    """Return whether the review waited longer than the ``timeout`` that the API server names."""
    waited: float = request.environ.get(WAITED, 0.0)
    if waited < _SHORTEST_TIMEOUT_SECONDS:
        return False
    named = _TIMEOUT.fullmatch(request.args.get("timeout", ""))
    return named is not None and waited >= float(named[1])


def _report(log: DecisionLog, review: reviews.Review, message: str, error: str) -> None:
    log.put({"level": "error", "msg": message, **decision_log.about(review), "error": error})
