"""Speaks raw JSON with the API server.

It takes configuration, credentials and connection pool of the Kubernetes client and no models:
building those costs more than everything else together, and they drop fields that they do not know.
"""

from __future__ import annotations

import http
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

from webhook.api import answers
from webhook.api.configuration import Configuration, connection
from webhook.api.errors import ClusterError, Forbidden, Gone, NotServed, Refused, Unreachable
from webhook.api.resources import KUEUE_GROUP

__all__ = [
    "Client",
    "ClusterError",
    "Forbidden",
    "Gone",
    "NotServed",
    "Refused",
    "Unreachable",
    "connect",
]

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_METADATA_OF_LISTS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA_OF_EVENTS = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_CONNECTIONS = 32
"""A watch holds one each."""
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")
"""The one with the most exact fields first."""


class Client:
    """One API server. Threads may share it.

    The configuration is *kubeconfig*, a file or what stands in one, else the pod's ServiceAccount,
    else KUBECONFIG or ``~/.kube/config``; it is read again after a 401, so that rotated
    credentials are picked up.
    """

    def __init__(
        self,
        kubeconfig: str | Mapping[str, Any] = "",
        *,
        metadata_only: bool = False,
        answer_seconds: float = _READ_SECONDS,
    ) -> None:
        """Speak with the API server; *metadata_only*: lists and watches carry nothing else.

        *answer_seconds* of silence end a call, but not a watch.
        """
        self._kubeconfig = kubeconfig
        self._answer_seconds = answer_seconds
        self._accepted = ("application/json", "application/json")
        if metadata_only:
            self._accepted = (_METADATA_OF_LISTS, _METADATA_OF_EVENTS)
        self._lock = threading.Lock()
        self._loaded: tuple[Configuration, urllib3.PoolManager] | None = None
        self._kueue_version: str | None = None

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        return self._call("GET", path, params)

    def get_text(self, path: str) -> str:
        """Get what is no JSON, such as metrics through the API server's proxy."""
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

    def put(self, path: str, body: object) -> Mapping[str, Any]:
        return self._call("PUT", path, None, body=body)

    def post_with_warnings(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Create an object, and also return what the API server warns of."""
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

    def patch_with_warnings(
        self, path: str, body: object, params: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Patch an object as ``patch`` does, and also return what the API server warns of."""
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

        *read_seconds* of silence end it as unreachable; it ends cleanly when the server closes it.
        """
        response = self._open("GET", path, {**params, "watch": "true"}, read_seconds=read_seconds)
        return answers.events(response)

    def kueue_version(self) -> str | None:
        """Name Kueue's newest served version that is understood; None: no Kueue there."""
        if self._kueue_version is None:
            try:
                group = self.get(f"/apis/{KUEUE_GROUP}")
            except NotServed:
                return None
            served = {version.get("version") for version in group.get("versions") or ()}
            self._kueue_version = next((v for v in _KUEUE_VERSIONS if v in served), None)
        return self._kueue_version

    def forget_versions(self) -> None:
        """Ask again which versions are served: Kueue has been installed, upgraded or removed."""
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
        found, _ = self._ask(method, path, params, body=body, content_type=content_type)
        return found

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
        try:
            return answers.parse(response.read()), answers.warnings(response)
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
        configuration, pool = self._connection()
        connect_seconds = min(_CONNECT_SECONDS, self._answer_seconds)
        query = f"?{urlencode(params)}" if params else ""
        try:
            response = pool.request(
                method,
                f"{configuration.host}{path}{query}",
                body=None if body is None else json.dumps(body).encode(),
                headers={
                    **self._headers(configuration),
                    "Accept": self._accepted["watch" in params],
                    **(headers or {}),
                },
                preload_content=False,
                timeout=urllib3.Timeout(
                    connect=connect_seconds, read=read_seconds or self._answer_seconds
                ),
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(str(error)) from error
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            self._refuse(response, path)
        return response

    def _refuse(self, response: urllib3.BaseHTTPResponse, path: str) -> None:
        status, (message, causes) = response.status, answers.refusal(response)
        match status:
            case http.HTTPStatus.UNAUTHORIZED:
                with self._lock:
                    self._loaded = None
                raise Unreachable(f"401 {message}")
            case http.HTTPStatus.FORBIDDEN:
                raise Forbidden(path, message)
            case http.HTTPStatus.NOT_FOUND:
                raise NotServed(path)
            case http.HTTPStatus.GONE:
                raise Gone
            case http.HTTPStatus.TOO_MANY_REQUESTS:
                raise Unreachable(f"429 {message}")
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unreachable(f"{status} {message}")
        raise Refused(status, message, causes)

    def _connection(self) -> tuple[Configuration, urllib3.PoolManager]:
        with self._lock:
            if self._loaded is None:
                self._loaded = connection(self._kubeconfig, connections=_CONNECTIONS)
            return self._loaded

    def _headers(self, configuration: Configuration) -> dict[str, str]:
        with self._lock:  # it may refresh the token
            settings: Any = configuration.auth_settings().values()
            credentials = {item["key"]: item["value"] for item in settings if item["value"]}
        return {"User-Agent": "kueue-fallback", **credentials}


def connect(kubeconfig: str = "") -> Client:
    """Make a client and let it answer once.

    Raises:
        Unreachable: there is no configuration, or no answer.

    """
    client = Client(kubeconfig)
    client.kueue_version()
    return client
