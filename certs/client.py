"""Speaks raw JSON with the API server; the only module here that imports the Kubernetes client."""

from __future__ import annotations

import http
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration

from certs.store import Conflict, Missing, Unavailable

# Short: while an answer is waited for, no certificate is signed; the next look asks again.
_TIMEOUT = urllib3.Timeout(connect=3.0, read=3.0)
_ALWAYS = {"Accept": "application/json", "User-Agent": "kueue-fallback-certs"}
# A JSON patch whose test does not hold is answered with 422.
_CONFLICTS = (http.HTTPStatus.CONFLICT, http.HTTPStatus.UNPROCESSABLE_ENTITY)
# A part of a kubeconfig with all that it says, in an error of the Kubernetes client.
_QUOTED = re.compile(r"/?\{.*\}", re.DOTALL)


class Client:
    """One API server, as *kubeconfig*, the pod's ServiceAccount or ``~/.kube/config`` name it."""

    def __init__(
        self, kubeconfig: str = "", connect: Callable[[str], ApiClient] | None = None
    ) -> None:
        """Let *connect* read the kubeconfig at the first call, and again after a 401.

        It raises Unavailable if the kubeconfig cannot be used.
        """
        self._kubeconfig = kubeconfig
        self._connect = connect or _connected
        self._loaded: ApiClient | None = None

    def get(self, path: str) -> Mapping[str, Any]:
        return self._call("GET", path)

    def post(self, path: str, body: object) -> Mapping[str, Any]:
        return self._call("POST", path, body)

    def put(self, path: str, body: object) -> Mapping[str, Any]:
        return self._call("PUT", path, body)

    def patch(self, path: str, operations: object) -> Mapping[str, Any]:
        return self._call("PATCH", path, operations, content_type="application/json-patch+json")

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
    ) -> Mapping[str, Any]:
        try:
            server = self._server()
            response = server.rest_client.pool_manager.request(
                method,
                f"{server.configuration.host}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": content_type, **_ALWAYS, **_authorization(server)},
                timeout=_TIMEOUT,
                retries=False,
            )
        except (config.ConfigException, urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(str(error)) from error
        return self._answer(response, path)

    def _answer(self, response: urllib3.BaseHTTPResponse, path: str) -> Mapping[str, Any]:
        try:
            found = json.loads(response.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unavailable(f"{response.status}: an answer that is not an object")
        if response.status < http.HTTPStatus.MULTIPLE_CHOICES:
            return found
        message = str(found.get("message") or response.status)
        if response.status == http.HTTPStatus.NOT_FOUND:
            raise Missing(path)
        if response.status in _CONFLICTS:
            raise Conflict(message)
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            # Credentials are rotated too: read them again.
            self._loaded = None
        raise Unavailable(message, reached=response.status < http.HTTPStatus.INTERNAL_SERVER_ERROR)

    def _server(self) -> ApiClient:
        if self._loaded is None:
            self._loaded = self._connect(self._kubeconfig)
        return self._loaded


def _connected(kubeconfig: str) -> ApiClient:
    configuration = Configuration()
    try:
        if kubeconfig:
            config.load_kube_config(kubeconfig, client_configuration=configuration)
        else:
            try:
                config.load_incluster_config(configuration)
            except config.ConfigException:
                config.load_kube_config(client_configuration=configuration)
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        said = _QUOTED.sub("", str(error))
        raise Unavailable(f"{kubeconfig or 'kubeconfig'}: {said}") from None
    return ApiClient(configuration)


def _authorization(server: ApiClient) -> Mapping[str, str]:
    """Return the header that says who asks; it may read the token again, or make a new one."""
    token = server.configuration.get_api_key_with_prefix("BearerToken", "authorization")
    # A token's file may end with a line break. An error of the HTTP library would quote the rest.
    token = (token or "").strip()
    if not (token.isascii() and token.isprintable()):
        raise Unavailable("expected a token of one line of ASCII")
    return {"authorization": token} if token else {}
