"""HTTP calls to an API server, up to parsed JSON.

The models of the Kubernetes client are not used: building those costs more than everything else
together, and they drop fields unknown to them. What objects mean is not known here.
"""

from __future__ import annotations

import codecs
import http
import io
import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from webhook.api import calls
from webhook.api.cluster_access import ClusterAccess
from webhook.api.connection import ApiServer, connection
from webhook.api.kubernetes_api import (
    Cause,
    Forbidden,
    Gone,
    NotServed,
    Refused,
    TooLarge,
    Unreachable,
)
from webhook.api.resources import KUEUE_GROUP
from webhook.model.fields import DEEPEST

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')
"""Strings, and opening and closing brackets."""


def parse(chunks: list[bytes]) -> Mapping[str, Any]:
    """Parse an answer; its *chunks* are taken out of the list, so that only the text is held."""
    try:
        document = _loaded(_text_of(chunks))
    except ValueError as error:
        raise Unreachable(f"an answer that is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Unreachable("an answer that is not an object")
    return document


def _text_of(chunks: list[bytes]) -> str:
    """Decode *chunks* one by one and drop each: they may be megabytes that a tenant wrote."""
    decoder, text = codecs.getincrementaldecoder("utf-8")(), io.StringIO()
    chunks.reverse()
    while chunks:
        text.write(decoder.decode(chunks.pop()))
    text.write(decoder.decode(b"", final=True))
    return text.getvalue()


def _loaded(content: str) -> Any:
    """Parse JSON; what is nested deeper than anything we read becomes null.

    Anyone who may create a Job may nest its ``managedFields`` thousands deep.
    """
    try:
        return json.loads(content)
    except RecursionError:
        return json.loads("".join(_shallow(content)))


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


def events(response: urllib3.BaseHTTPResponse) -> Iterator[Mapping[str, Any]]:
    line: list[bytes] = []
    try:
        for chunk in response.stream(1 << 16):
            # A line of a megabyte comes in many chunks. None is held while its event is dealt with
            # and the next one is waited for.
            *ends, begun = chunk.split(b"\n")
            for end in ends:
                line.append(end)
                if any(part.strip() for part in line):
                    yield parse(line)
                line.clear()
            line.append(begun)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(str(error)) from error
    finally:
        # A watch that was abandoned still has bytes in flight, so its connection is not reused.
        response.close()


def _page(response: urllib3.BaseHTTPResponse, path: str) -> list[bytes]:
    """Read a page of a list, in chunks.

    Raises:
        TooLarge: it has more than ``MOST_BYTES``.

    """
    chunks: list[bytes] = []
    left = MOST_BYTES
    while chunk := response.read(_CHUNK):
        chunks.append(chunk)
        left -= len(chunk)
        if left < 0:
            # The rest is still in flight, so the connection is not reused.
            response.close()
            raise TooLarge(path)
    return chunks


def warnings(response: urllib3.BaseHTTPResponse) -> tuple[str, ...]:
    """Return the warnings of admission and of the API server."""
    return tuple(map(_text, response.headers.getlist("Warning")))


def refusal(response: urllib3.BaseHTTPResponse) -> tuple[str, tuple[Cause, ...]]:
    """Return message and causes of the Status in a failed response, and release its connection."""
    try:
        status = json.loads(response.read())
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        status = None
    finally:
        response.release_conn()
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


MOST_BYTES = 8 << 20
"""Of one page of a list. A tenant may have hundreds of Jobs of 1.5 MB; reading a page of them takes
several times its size, in processes with a few hundred megabytes."""
_CHUNK = 1 << 18
_ONE = "1"
"""The limit of a page that is read whatever its size, which etcd bounds."""
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_METADATA_OF_LISTS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA_OF_EVENTS = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_CONNECTIONS = 32
"""In the pool; each watch occupies one."""
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
        kubeconfig: str | Mapping[str, Any] | ClusterAccess = "",
        *,
        metadata_only: bool = False,
        answer_seconds: float = _READ_SECONDS,
    ) -> None:
        """Connect on first use; with *metadata_only* lists and watches carry only metadata.

        A call, but not a watch, fails after *answer_seconds* without data.
        """
        self._kubeconfig = kubeconfig
        self._answer_seconds = answer_seconds
        access = kubeconfig if isinstance(kubeconfig, ClusterAccess) else ClusterAccess()
        self._impersonation = tuple(access.impersonation())
        self._accepted = ("application/json", "application/json")
        if metadata_only:
            self._accepted = (_METADATA_OF_LISTS, _METADATA_OF_EVENTS)
        self._lock = threading.Lock()
        self._loaded: ApiServer | None = None
        self._kueue_version: str | None = None

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        return self._call("GET", path, params)

    def get_text(self, path: str) -> str:
        """Get what is not JSON, such as metrics through the API server's proxy."""
        response = self._open("GET", path, {}, headers={"Accept": "*/*"})
        try:
            return response.read().decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(str(error)) from error
        finally:
            response.release_conn()

    def post(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        return self._call("POST", path, params, body=body)

    def put(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        return self._call("PUT", path, params, body=body)

    def post_with_warnings(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Create an object; return it and the API server's warnings."""
        return self._ask("POST", path, params, body=body, content_type="application/json")

    def patch(
        self,
        path: str,
        body: object,
        *,
        content_type: str = "application/merge-patch+json",
        params: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        return self._call("PATCH", path, params, body=body, content_type=content_type)

    def apply(self, path: str, body: object, *, manager: str) -> Mapping[str, Any]:
        return self.patch(
            path,
            body,
            content_type="application/apply-patch+yaml",
            params={"fieldManager": manager, "force": "true"},
        )

    def patch_with_warnings(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Patch an object as ``patch`` does; return it and the API server's warnings."""
        return self._ask(
            "PATCH", path, params, body=body, content_type="application/merge-patch+json"
        )

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Delete an object; *options* are meta/v1 DeleteOptions."""
        return self._call("DELETE", path, None, body=options)

    def watch(
        self, path: str, params: Mapping[str, str], *, read_seconds: float
    ) -> Iterator[Mapping[str, Any]]:
        """Open a watch; return its events once the API server has accepted it.

        After *read_seconds* without data it raises Unreachable; it ends cleanly when the server
        closes it.
        """
        response = self._open("GET", path, {**params, "watch": "true"}, read_seconds=read_seconds)
        return events(response)

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

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        body: object = None,
        content_type: str = "application/json",
    ) -> Mapping[str, Any]:
        return self._ask(method, path, params, body=body, content_type=content_type)[0]

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        body: object,
        content_type: str,
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        response = self._open(
            method, path, params or {}, body=body, headers={"Content-Type": content_type}
        )
        is_page = (params or {}).get("limit", _ONE) != _ONE
        try:
            chunks = _page(response, path) if is_page else [response.read()]
            return parse(chunks), warnings(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(str(error)) from error
        finally:
            response.release_conn()

    def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        read_seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        server = self._connection()
        connect_seconds = min(_CONNECT_SECONDS, self._answer_seconds)
        query = f"?{urlencode(params)}" if params else ""
        try:
            response = server.pool.request(
                method,
                f"{server.host}{path}{query}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._sent(
                    {
                        **self._headers(server),
                        "Accept": self._accepted["watch" in params],
                        **(headers or {}),
                    }
                ),
                preload_content=False,
                timeout=urllib3.Timeout(
                    connect=connect_seconds, read=read_seconds or self._answer_seconds
                ),
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(calls.why_unreached(error, server.host)) from error
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            self._refuse(response, method, path)
        return response

    def _refuse(self, response: urllib3.BaseHTTPResponse, method: str, path: str) -> None:
        status, (message, causes) = response.status, refusal(response)
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

    def _connection(self) -> ApiServer:
        with self._lock:
            if self._loaded is None:
                self._loaded = connection(self._kubeconfig, connections=_CONNECTIONS)
            return self._loaded

    def _sent(self, headers: Mapping[str, str]) -> urllib3.HTTPHeaderDict:
        """Add the headers of impersonation, of which one may come several times."""
        sent = urllib3.HTTPHeaderDict(headers)
        for name, value in self._impersonation:
            sent.add(name, value)
        return sent

    def _headers(self, server: ApiServer) -> dict[str, str]:
        with self._lock:  # it may refresh the token
            return {"User-Agent": "kueue-fallback", **server.credentials()}


def connect(kubeconfig: str = "") -> Client:
    """Return a client that was able to make one call.

    Raises:
        Unreachable: there is no configuration, or no answer.

    """
    client = Client(kubeconfig)
    client.kueue_version()
    return client


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
