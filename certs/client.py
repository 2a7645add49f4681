"""Speaks raw JSON with the API server; the only module here that imports the Kubernetes client.

It does so only for whoever brings no connection of their own.
"""

from __future__ import annotations

import http
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import urllib3
import yaml

from certs.errors import Conflict, Missing, Unavailable

# Short: while an answer is waited for, no certificate is signed; the next look asks again.
_TIMEOUT = urllib3.Timeout(connect=3.0, read=3.0)
_ALWAYS = {"Accept": "application/json", "User-Agent": "kueue-fallback-certs"}
CONNECTIONS = 2
# A JSON patch whose test does not hold is answered with 422.
_CONFLICTS = (http.HTTPStatus.CONFLICT, http.HTTPStatus.UNPROCESSABLE_ENTITY)


class ApiServer(NamedTuple):
    """How an API server is reached: its address, a pool, and the headers that say who asks."""

    host: str
    pool: urllib3.PoolManager
    credentials: Callable[[], Mapping[str, str]]


class Client:
    """One API server, as *kubeconfig*, the pod's ServiceAccount or ``~/.kube/config`` name it."""

    def __init__(
        self, kubeconfig: str = "", connect: Callable[[str], ApiServer] | None = None
    ) -> None:
        """Ask *connect* for the server, at first and after a 401.

        Raises:
            Unavailable: from it, the kubeconfig cannot be used.

        """
        self._kubeconfig = kubeconfig
        self._connect = connect or _connected
        self._loaded: ApiServer | None = None

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
            server = self._connection()
            response = server.pool.request(
                method,
                f"{server.host}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": content_type, **_ALWAYS, **server.credentials()},
                timeout=_TIMEOUT,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
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

    def _connection(self) -> ApiServer:
        if self._loaded is None:
            self._loaded = self._connect(self._kubeconfig)
        return self._loaded


def _connected(kubeconfig: str) -> ApiServer:
    from kubernetes import config  # noqa: PLC0415 - 10 MB
    from kubernetes.client.configuration import Configuration  # noqa: PLC0415
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415

    # The client's own annotations are partial.
    from_file: Any = config.load_kube_config
    from_pod: Any = config.load_incluster_config
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    try:
        if kubeconfig:
            from_file(kubeconfig, client_configuration=configuration)
        else:
            try:
                from_pod(client_configuration=configuration)
            except config.ConfigException:
                from_file(client_configuration=configuration)
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise Unavailable(f"{kubeconfig or 'kubeconfig'}: {error}") from error

    def credentials() -> Mapping[str, str]:
        settings: Any = configuration.auth_settings().values()
        return {item["key"]: item["value"] for item in settings if item["value"]}

    pool = RESTClientObject(configuration).pool_manager
    return ApiServer(configuration.host, pool, credentials)
