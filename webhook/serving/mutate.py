"""``POST /mutate`` as a WSGI application: HTTP on one side, the handler on the other.

Every error ends here: counted, logged without its text, and the Job admitted unchanged. It knows
nothing of how a review is decided.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from webhook.admission import review as reviews
from webhook.admission.patch import PatchError
from webhook.model import faults
from webhook.model.fields import FieldError
from webhook.server import gunicorn_app
from webhook.server.addresses import PATH
from webhook.serving import decision_log
from webhook.serving.decision_log import DecisionLog
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics

StartResponse = Callable[[str, list[tuple[str, str]]], object]
Environ = dict[str, Any]

_SHORTEST_TIMEOUT_SECONDS = 1.0
"""The smallest ``timeoutSeconds`` that a webhook configuration may have."""
_TIMEOUT = re.compile(r"(?:^|&)timeout=(\d{1,4}(?:\.\d{1,9})?)s(?:&|$)")


class Mutate:
    """Answers reviews; every other path is unknown."""

    def __init__(
        self,
        handler: Handler,
        metrics: Metrics,
        log: DecisionLog,
        *,
        paths: tuple[bytes, ...],
    ) -> None:
        self._handler = handler
        self._metrics = metrics
        self._log = log
        self._paths = paths

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path: str = environ["PATH_INFO"]
        if not self._answers_at(path):
            if path.startswith(PATH):
                self._metrics.reviews.labels("unknown", "404").inc()
            start_response("404 Not Found", [("Content-Length", "0")])
            return ()
        if environ["REQUEST_METHOD"] != "POST":
            start_response("405 Method Not Allowed", [("Allow", "POST"), ("Content-Length", "0")])
            return ()
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        peer = str(environ.get("REMOTE_ADDR", ""))
        status, content_type, body = self._answer(body, peer=peer, is_late=_is_late(environ))
        size = ("Content-Length", str(len(body)))
        start_response(status, [("Content-Type", content_type), size])
        return (body,)

    def _answers_at(self, path: str) -> bool:
        """Compare with every path, in a time that does not depend on where they differ."""
        given = path.encode("latin-1")
        return sum(hmac.compare_digest(given, answered) for answered in self._paths) > 0

    def _answer(self, body: bytes, *, peer: str, is_late: bool) -> tuple[str, str, bytes]:
        started, metrics = time.perf_counter(), self._metrics
        try:
            review = reviews.read(body)
        except reviews.TooCostlyError as error:
            return self._unread(body, error)
        except FieldError as error:
            return self._refuse(error)
        verdict, code = self._late(review) if is_late else self._admit(review, peer)
        answer = verdict.to_bytes()
        operation = review.operation if review.operation in ("CREATE", "UPDATE") else "other"
        metrics.reviews.labels(operation, code).inc()
        metrics.review_seconds.labels(operation).observe(time.perf_counter() - started)
        return "200 OK", "application/json", answer

    def _unread(self, body: bytes, error: FieldError) -> tuple[str, str, bytes]:
        """Admit a review that would take too long to read; only its uid is known."""
        uid = reviews.uid_of(body)
        if not uid:
            return self._refuse(error)
        self._metrics.reviews.labels("unknown", "unreadable").inc()
        self._log.put({"level": "error", "msg": "unreadable", "uid": uid, "error": str(error)})
        return "200 OK", "application/json", reviews.Verdict(uid=uid).to_bytes()

    def _refuse(self, error: FieldError) -> tuple[str, str, bytes]:
        self._metrics.reviews.labels("unknown", "400").inc()
        return "400 Bad Request", "text/plain; charset=utf-8", f"{error}\n".encode()

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


def _is_late(environ: Environ) -> bool:
    """Return whether the review waited longer than the ``timeout`` that the API server names."""
    waited = environ.get(gunicorn_app.WAITED, 0.0)
    if waited < _SHORTEST_TIMEOUT_SECONDS:
        return False
    named = _TIMEOUT.search(environ["QUERY_STRING"])
    return named is not None and waited >= float(named[1])


def _report(log: DecisionLog, review: reviews.Review, message: str, error: str) -> None:
    log.put({"level": "error", "msg": message, **decision_log.about(review), "error": error})
