"""The console's WSGI application: routes, rights, and headers that keep a response private."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from webhook.console import page, page_filters, quota_api
from webhook.console.access import REMEMBERED_SECONDS, Rights, TooMany, Unanswered, Unknown
from webhook.console.collect import restricted, shortened, with_waiting
from webhook.console.job_story import job_story
from webhook.console.quota_api import RETRY_SECONDS, Problem
from webhook.console.view import View, view_json
from webhook.state.waiting_line import WaitingWorkload
from webhook.state.workload import Workload

_DIRECTIVES = (
    "default-src 'none'",
    "style-src 'nonce-{nonce}'",
    "script-src 'nonce-{nonce}'",
    "img-src data:",
    "connect-src 'self'",
    "base-uri 'none'",
    # Without a script, the filters are a form sent by GET.
    "form-action 'self'",
    "frame-ancestors 'none'",
)


def new_nonce() -> str:
    """Return a new nonce; each response needs its own."""
    return secrets.token_urlsafe(16)


def content_security_policy(nonce: str) -> str:
    return "; ".join(_DIRECTIVES).format(nonce=nonce)


def headers(nonce: str) -> Mapping[str, str]:
    """Return all headers to serve the page with."""
    return {
        "Content-Security-Policy": content_security_policy(nonce),
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names by which port-forward is reached; another site's page could use any other."""
_ABOUT = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_Answer = Callable[[View, Mapping[str, str], Rights], Mapping[str, Any]]
_API: Mapping[str, tuple[frozenset[str], _Answer]] = {
    "/quota": (frozenset({"clusterqueue", "cluster", "flavor", "resource"}), quota_api.quota),
    "/workloads": (frozenset({"clusterqueue", "cluster"}), quota_api.workloads),
    "/decisions": (frozenset({"kind", "limit", "namespace"}), quota_api.decisions),
    "/queue": (frozenset({"job", "kind", "limit", "namespace"}), quota_api.queue),
    "/view": (frozenset(), lambda view, _, rights: view_json(shortened(restricted(view, rights)))),
}
"""Path to its parameters and the function that answers it."""
_DRY_RUN = "/dry-run"
_WITH_WAITING = frozenset({"/queue", "/view"})
"""Those, and the page, for which it is forecast who starts when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSources:
    """What answers are made from."""

    view: Callable[[], View]
    waiting: Callable[[], tuple[WaitingWorkload, ...] | None] = lambda: None
    """Forecasts who starts when."""
    workloads_of: Callable[[str, str], tuple[Workload, ...] | None] = lambda _namespace, _job: None
    """Returns the Workloads of a Job, by its namespace and reference; None: not known now."""
    decide: quota_api.Decide = lambda _source, _requester: None

    def whole(self) -> View:
        return with_waiting(self.view(), self.waiting())


def create_app(
    sources: ConsoleSources,
    rights_of: Callable[[str, str], Rights],
    *,
    hosts: tuple[str, ...] = (),
    on_error: Callable[[Exception], None],
) -> Flask:
    """Build the application.

    *rights_of* returns the rights for a header ``Authorization`` and the address that sent it.
    Answers are given only for *hosts*, by default for any.
    """
    app = Flask(__name__, static_folder=None)

    def seeing(answer: Callable[[ConsoleSources, Rights], Response]) -> Callable[[], Response]:
        def see() -> Response:
            header, peer = request.headers.get("Authorization", ""), request.remote_addr or ""
            return answer(sources, rights_of(header, peer))

        return see

    for path in _API:
        _route(app, path, seeing(partial(_asked, path)))
    app.config["MAX_CONTENT_LENGTH"] = quota_api.LONGEST_MANIFEST
    _route(app, _DRY_RUN, seeing(_tried), method="POST")
    _route(app, "/", seeing(_drawn))
    _route(app, "/job", seeing(_told))
    _answer_errors(app, on_error)
    _guard(app, hosts)
    return app


def _asked(path: str, sources: ConsoleSources, rights: Rights) -> Response:
    names, answer = _API[path]
    given = _given(names)
    view = sources.whole() if path in _WITH_WAITING else sources.view()
    return _to_json(answer(view, given, rights))


def _drawn(sources: ConsoleSources, rights: Rights) -> Response:
    nonce, filters = new_nonce(), page_filters.read_filters(request.args)
    text = page.render(restricted(sources.whole(), rights), nonce, filters)
    return Response(text, headers=headers(nonce))


def _told(sources: ConsoleSources, rights: Rights) -> Response:
    namespace, job = quota_api.one_job(_given(frozenset({"namespace", "job"})), rights)
    seen = restricted(sources.whole(), rights)
    story = job_story(seen, namespace, job, sources.workloads_of(namespace, job))
    if story is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"nothing is known of {namespace}/{job}")
    nonce = new_nonce()
    return Response(page.render_job(seen, story, nonce), headers=headers(nonce))


def _tried(sources: ConsoleSources, rights: Rights) -> Response:
    _given(frozenset())
    if request.mimetype != "application/json":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "must be application/json")
    if (now := sources.view()).is_stale:
        raise quota_api.stale(now.age)
    body = request.get_data().decode("utf-8", errors="replace")
    return _to_json(quota_api.dry_run(body, rights, sources.decide))


def _route(app: Flask, path: str, answer: Callable[[], Response], *, method: str = "GET") -> None:
    app.add_url_rule(
        path, endpoint=path, view_func=answer, methods=[method], provide_automatic_options=False
    )


def _guard(app: Flask, hosts: tuple[str, ...]) -> None:
    @app.before_request
    def refuse_other_hosts() -> Response | None:
        name = request.host.rpartition(":")[0] if request.host[-1:].isdigit() else request.host
        if not hosts or request.host in hosts or name in hosts:
            return None
        return _to_json({"error": "this is not reached by that name"}, HTTPStatus.BAD_REQUEST)

    @app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in _ABOUT.items():
            response.headers.setdefault(name, value)
        return response


def _answer_errors(app: Flask, on_error: Callable[[Exception], None]) -> None:
    @app.errorhandler(Problem)
    def explain(problem: Problem) -> Response:
        response = _to_json({"error": problem.text, **problem.more}, problem.status)
        if problem.status is HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    @app.errorhandler(Unknown)
    def ask_who(_: Unknown) -> Response:
        text = "needs a bearer token that the API server knows"
        response = explain(Problem(HTTPStatus.UNAUTHORIZED, text))
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    @app.errorhandler(TooMany)
    def ask_less(_: TooMany) -> Response:
        text = "too many tokens that the API server does not know came from this address"
        response = explain(Problem(HTTPStatus.TOO_MANY_REQUESTS, text))
        response.headers["Retry-After"] = f"{REMEMBERED_SECONDS:.0f}"
        return response

    @app.errorhandler(Unanswered)
    def say_later(error: Unanswered) -> Response:
        on_error(error)
        text = "the API server does not say who asks and what they may see"
        return explain(Problem(HTTPStatus.SERVICE_UNAVAILABLE, text))

    @app.errorhandler(HTTPException)
    def name_status(error: HTTPException) -> Response:
        status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
        response = explain(Problem(status, status.phrase.lower()))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            response.headers["Allow"] = "POST" if request.path == _DRY_RUN else "GET, HEAD"
        return response

    @app.errorhandler(Exception)
    def admit_bug(error: Exception) -> Response:
        on_error(error)
        return explain(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error"))


def _given(names: frozenset[str]) -> Mapping[str, str]:
    """Read the parameters; each must be known, given once, and not empty."""
    parameters: dict[str, str] = {}
    for name, values in request.args.lists():
        if name not in names:
            known = f"; known: {', '.join(sorted(names))}" if names else ""
            raise Problem(HTTPStatus.BAD_REQUEST, f"unknown parameter {name}{known}")
        if len(values) > 1 or not values[0]:
            raise Problem(HTTPStatus.BAD_REQUEST, f"{name}: must be given once, not empty")
        parameters[name] = values[0]
    return parameters


def _to_json(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(content) + "\n", status=status, mimetype="application/json")
