"""HTTP calls to an API server, up to parsed JSON.

They go through the pool of the Kubernetes client, not through its models: those drop fields unknown
to them, and building them costs more than everything else together. What objects mean is not known
here.
"""

from __future__ import annotations

import http
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError

from webhook.api import calls
from webhook.api.clock import ClockOffset
from webhook.api.connection import KubeconfigSource, authorization, connection
from webhook.api.kubernetes_api import (
    Cause,
    ClusterAccess,
    Forbidden,
    Gone,
    NotServed,
    Refused,
    TooLarge,
    Unreachable,
)
from webhook.api.resources import KUEUE_GROUP
from webhook.model.fields import DEEPEST, EMPTY

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')
"""Strings, and opening and closing brackets."""


def parse(content: bytes) -> Mapping[str, Any]:
    """Parse an answer; what is nested deeper than anything we read becomes null.

    Anyone who may create a Job may nest its ``managedFields`` thousands deep.
    """
    try:
        try:
            document = json.loads(content)
        except RecursionError:
            document = json.loads("".join(_shallow(content.decode())))
    except ValueError as error:
        raise Unreachable(f"an answer that is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Unreachable("an answer that is not an object")
    return document


def _shallow(content: str) -> Iterator[str]:
    depth = kept = 0
    for token in _TOKENS.finditer(content):
        if token[0] in "{[":
            depth += 1
            if depth == DEEPEST + 1:
                yield content[kept : token.start()] + "null"
        elif token[0] in "}]":
            if depth == DEEPEST + 1:
                kept = token.end()
            depth -= 1
    yield content[kept:]


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Mapping[str, Any]]:
    try:
        yield from (parse(line) for line in response if line.strip())
    except (HTTPError, OSError) as error:
        raise Unreachable(str(error)) from error
    finally:
        # A watch that was abandoned still has bytes in flight, so its connection is not reused.
        response.close()


def _status(response: urllib3.BaseHTTPResponse, path: str) -> tuple[str, tuple[Cause, ...]]:
    """Return message and causes of the Status in a failed response."""
    try:
        status = json.loads(calls.read_answer(response, path))
    except (HTTPError, OSError, ValueError, TooLarge):
        status = None
    if not isinstance(status, dict):
        return str(response.reason), ()
    return str(status.get("message") or response.reason), tuple(_causes(status))


def _causes(status: Mapping[str, Any]) -> Iterator[Cause]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict):
            yield Cause(*(str(cause.get(key, "")) for key in ("field", "reason", "message")))


def _text(header: str) -> str:
    """Return the text in ``299 - "text"``."""
    _, _, quoted = header.partition('"')
    return re.sub(r"\\(.)", r"\1", quoted.removesuffix('"'))


_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_ONE = "1"
"""The limit of a page that is read whatever its size, which etcd bounds."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""The one with the most precise fields first."""


class Client:
    """A connection to one API server, which threads may share.

    The configuration is *kubeconfig*, a file, its content or what kubectl's flags say, else the
    pod's ServiceAccount, else KUBECONFIG or ``~/.kube/config``; it is read again after a 401, so
    that rotated credentials are picked up.
    """

    def __init__(
        self,
        kubeconfig: KubeconfigSource = "",
        *,
        metadata_only: bool = False,
        answer_seconds: float = calls.ANSWER_SECONDS,
    ) -> None:
        """Connect on first use; with *metadata_only* lists and watches carry only metadata.

        A call, but not a watch, fails after *answer_seconds* without data.
        """
        self.clock = ClockOffset()
        self._kubeconfig = kubeconfig
        self._answer_seconds = answer_seconds
        access = kubeconfig if isinstance(kubeconfig, ClusterAccess) else ClusterAccess()
        self._impersonation = tuple(access.impersonation())
        self._accepted = ("application/json", "application/json")
        if metadata_only:
            self._accepted = (_METADATA.format("List"), _METADATA.format(""))
        self._lock = threading.Lock()
        self._loaded: ApiClient | None = None
        self._kueue_version: str | None = None

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        return self.ask("GET", path, params=params)[0]

    def get_text(self, path: str) -> str:
        """Get what is not JSON, such as metrics through the API server's proxy."""
        response = self._open("GET", path, {}, headers={"Accept": "*/*"})
        return self._body(response, path).decode(errors="replace")

    def post(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        return self.ask("POST", path, body, params)[0]

    def put(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        return self.ask("PUT", path, body, params)[0]

    def patch(self, path: str, body: object) -> Mapping[str, Any]:
        return self.ask("PATCH", path, body)[0]

    def apply(self, path: str, body: object, *, manager: str) -> Mapping[str, Any]:
        params = {"fieldManager": manager, "force": "true"}
        return self.ask("PATCH", path, body, params, content_type=_APPLY_PATCH)[0]

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Delete an object; *options* are meta/v1 DeleteOptions."""
        return self.ask("DELETE", path, options)[0]

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        params: Mapping[str, str] | None = None,
        *,
        content_type: str = "",
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the object that is answered, and the warnings of admission and the API server.

        The *content_type* of a patch is by default that of a merge patch.
        """
        given = params or EMPTY
        usual = _MERGE_PATCH if method == "PATCH" else "application/json"
        sent = {"Content-Type": content_type or usual}
        response = self._open(method, path, given, body=body, headers=sent)
        is_page = given.get("limit", _ONE) != _ONE
        content = self._body(response, path, most=calls.MOST_BYTES if is_page else inf)
        return parse(content), tuple(map(_text, response.headers.getlist("Warning")))

    def watch(
        self, path: str, params: Mapping[str, str], *, read_seconds: float
    ) -> Iterator[Mapping[str, Any]]:
        """Open a watch; return its events once the API server has accepted it.

        After *read_seconds* without data it raises Unreachable; it ends cleanly when the server
        closes it.
        """
        return _events(self._open("GET", path, {**params, "watch": "true"}, seconds=read_seconds))

    def kueue_version(self) -> str | None:
        """Return the best served version of Kueue's API that is understood; None: no Kueue."""
        if self._kueue_version is None:
            try:
                group = self.get(f"/apis/{KUEUE_GROUP}")
            except NotServed:
                return None
            served = {version.get("version") for version in group.get("versions") or ()}
            self._kueue_version = next((v for v in _KUEUE_VERSIONS if v in served), None)
        return self._kueue_version

    def forget_versions(self) -> None:
        """Discover the served versions again: Kueue was installed, upgraded or removed."""
        self._kueue_version = None

    def _body(self, response: urllib3.BaseHTTPResponse, path: str, *, most: float = inf) -> bytes:
        try:
            return calls.read_answer(response, path, most=most)
        except (HTTPError, OSError) as error:
            raise Unreachable(str(error)) from error

    def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: object = None,
        headers: Mapping[str, str] = EMPTY,
        seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        server = self._server()
        host = server.configuration.host
        accept = self._accepted["watch" in params]
        query = f"?{urlencode(params)}" if params else ""
        sent = time.time()
        try:
            response = server.rest_client.pool_manager.request(
                method,
                f"{host}{path}{query}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers(server, {"Accept": accept, **headers}),
                timeout=calls.timeout(seconds or self._answer_seconds),
                **calls.ONCE,
            )
        except (HTTPError, OSError) as error:
            raise Unreachable(calls.why_unreached(error, host)) from error
        self.clock.note(response.headers.get("Date"), sent=sent, received=time.time())
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            self._refuse(response, method, path)
        return response

    def _refuse(self, response: urllib3.BaseHTTPResponse, method: str, path: str) -> None:
        status, (message, causes) = response.status, _status(response, path)
        match status:
            case http.HTTPStatus.UNAUTHORIZED:
                with self._lock:
                    self._loaded = None
                raise Unreachable(f"401 {message}")
            case http.HTTPStatus.FORBIDDEN:
                # A proxy in between gives no reason that names verb and resource.
                bare = message == response.reason
                raise Forbidden(path, f"{message}: {method} {path}" if bare else message)
            case http.HTTPStatus.NOT_FOUND:
                raise NotServed(path)
            case http.HTTPStatus.GONE:
                raise Gone
            case http.HTTPStatus.TOO_MANY_REQUESTS:
                raise Unreachable(f"429 {message}")
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unreachable(f"{status} {message}")
        raise Refused(status, message, causes)

    def _server(self) -> ApiClient:
        with self._lock:
            if self._loaded is None:
                self._loaded = connection(self._kubeconfig)
            return self._loaded

    def _headers(self, server: ApiClient, given: Mapping[str, str]) -> urllib3.HTTPHeaderDict:
        with self._lock:  # it may make a new token
            who = authorization(server)
        headers = urllib3.HTTPHeaderDict({"User-Agent": "kueue-fallback", **given, **who})
        for name, value in self._impersonation:  # one may come several times
            headers.add(name, value)
        return headers


_RESOURCES_CHANGE: Final = (1, 36)
"""https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/features/kube_features.go,
MutablePodResourcesForSuspendedJobs"""


def lets_resources_change(version: Mapping[str, object]) -> bool:
    """Return whether a suspended Job's resources may change; an emulated version counts."""
    written = (
        str(version.get(f"emulation{part.title()}") or version.get(part, "")).rstrip("+")
        for part in ("major", "minor")
    )
    return tuple(int(number) if number.isdigit() else 0 for number in written) >= _RESOURCES_CHANGE
