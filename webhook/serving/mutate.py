"""``POST /mutate`` as a Flask application: HTTP on one side, the handler on the other.

Every error ends here: counted, logged without its text, and the Job admitted unchanged. It knows
nothing of how a review is decided.
"""

from __future__ import annotations

import hmac
import re
import time
from http import HTTPStatus

from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException

from webhook.admission import review as reviews
from webhook.admission.patch import PatchError
from webhook.model import faults
from webhook.model.fields import FieldError
from webhook.server.addresses import PATH
from webhook.server.worker import WAITED
from webhook.serving import decision_log
from webhook.serving.decision_log import DecisionLog
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics

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
