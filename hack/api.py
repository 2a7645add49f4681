"""A small client of the API server: JSON in, JSON out, kept-alive connections, many at once."""

import contextlib
import dataclasses
import functools
import itertools
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TIMEOUT_SECONDS: Final = 60.0
_CONNECTIONS: Final = 64
"""That are kept; more are opened where more is asked at once."""

WATCH_SECONDS: Final = 7200
"""The API server would end a watch earlier by itself."""

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said, with the warnings that kubectl would print."""

    status: int
    body: bytes
    warnings: tuple[str, ...]

    def json(self) -> Object:
        return json.loads(self.body)  # type: ignore[no-any-return]


class ApiClient:
    """Talk to one API server with a client certificate or a token."""

    def __init__(self, port: int, *, tls: ssl.SSLContext, token: str = "") -> None:
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"Accept": "application/json", **authorization}
        self._pool = urllib3.HTTPSConnectionPool(
            "127.0.0.1", port, ssl_context=tls, maxsize=_CONNECTIONS, retries=False
        )
        self._find_resource = functools.cache(self._discover)

    @classmethod
    def with_certificate(
        cls, port: int, *, authority: Path, certificate: Path, key: Path
    ) -> "ApiClient":
        tls = ssl.create_default_context(cafile=authority)
        tls.load_cert_chain(certificate, key)
        return cls(port, tls=tls)

    def close(self) -> None:
        self._pool.close()

    # Objects, each named by its apiVersion and kind.

    def get(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> Object:
        return self.send("GET", self.path(api_version, kind, namespace=namespace, name=name)).json()

    def find(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> Object | None:
        """Return the object, or None when there is none."""
        try:
            return self.get(api_version, kind, name, namespace=namespace)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(
        self, api_version: str, kind: str, *, namespace: str = "", selector: str = ""
    ) -> list[Object]:
        query = {"labelSelector": selector} if selector else {}
        answer = self.send("GET", self.path(api_version, kind, namespace=namespace), query=query)
        items: list[Object] = answer.json()["items"]
        return items

    def create(self, item: Object, *, dry_run: bool = False) -> Object:
        return self.create_for_answer(item, dry_run=dry_run).json()

    def create_for_answer(self, item: Object, *, dry_run: bool = False) -> Answer:
        """Create an object; the answer holds the warnings too."""
        namespace = item["metadata"].get("namespace", "")
        path = self.path(item["apiVersion"], item["kind"], namespace=namespace)
        return self.send("POST", path, item, query={"dryRun": "All"} if dry_run else {})

    def create_all(self, items: Sequence[Object], *, at_once: int = 8) -> tuple[Object, ...]:
        """Create many objects in parallel; return them in the given order."""
        with ThreadPoolExecutor(max_workers=at_once) as pool:
            return tuple(pool.map(self.create, items))

    def apply(self, item: Object, *, field_manager: str = "hack") -> Object:
        """Apply on the server, taking over fields of other managers."""
        query = {"fieldManager": field_manager, "force": "true"}
        return self.send(
            "PATCH", self.path_of(item), item, content_type=APPLY_PATCH, query=query
        ).json()

    def apply_all(self, items: Sequence[Object], *, at_once: int = 8) -> None:
        """Apply many objects, in parallel among those of one kind, kinds in order of coming."""
        for _, group in itertools.groupby(items, key=lambda item: item["kind"]):
            with ThreadPoolExecutor(max_workers=at_once) as pool:
                tuple(pool.map(self.apply, group))

    def replace(self, item: Object) -> Object:
        return self.send("PUT", self.path_of(item), item).json()

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        change: Object | Sequence[Object],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> Object:
        """Patch with a list as JSON Patch, with a mapping as JSON Merge Patch."""
        path = self.path(api_version, kind, namespace=namespace, name=name)
        content_type = MERGE_PATCH if isinstance(change, Mapping) else JSON_PATCH
        full = f"{path}/{subresource}" if subresource else path
        return self.send("PATCH", full, change, content_type=content_type).json()

    def delete(self, api_version: str, kind: str, name: str, *, namespace: str = "") -> None:
        """Delete an object and, in the background, what it owns; nothing when it is gone."""
        path = self.path(api_version, kind, namespace=namespace, name=name)
        try:
            self.send("DELETE", path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def delete_all(self, items: Sequence[Object]) -> None:
        """Delete objects, the last one first."""
        for item in reversed(items):
            metadata = item["metadata"]
            self.delete(
                item["apiVersion"],
                item["kind"],
                metadata["name"],
                namespace=metadata.get("namespace", ""),
            )

    @contextlib.contextmanager
    def watching(
        self, api_version: str, kind: str, *, selector: str = ""
    ) -> Iterator[Iterator[Object]]:
        """Watch all objects of a kind from now on, those that are there first.

        The events end with the `with` block, in whichever thread they are read.
        """
        query = {"watch": "1", "labelSelector": selector, "timeoutSeconds": WATCH_SECONDS}
        response = self._pool.request(
            "GET",
            f"{self.path(api_version, kind)}?{urlencode(query)}",
            headers=self._headers,
            timeout=None,
            preload_content=False,
        )
        try:
            yield _events(response)
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                response.shutdown()

    # Paths.

    def path_of(self, item: Object) -> str:
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "")
        return self.path(
            item["apiVersion"], item["kind"], namespace=namespace, name=metadata["name"]
        )

    def path(self, api_version: str, kind: str, *, namespace: str = "", name: str = "") -> str:
        resource = self._find_resource(api_version, kind)
        parts = [_group_path(api_version)]
        # Charts give even cluster-scoped objects a namespace.
        if namespace and resource["namespaced"]:
            parts += ["namespaces", namespace]
        parts.append(resource["name"])
        return "/".join([*parts, name] if name else parts)

    def _discover(self, api_version: str, kind: str) -> Object:
        for resource in self.send("GET", _group_path(api_version)).json()["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                return dict(resource)
        raise ApiError(NOT_FOUND, f"{api_version} has no kind {kind}")

    # The wire.

    def send(
        self,
        method: str,
        path: str,
        body: Object | Sequence[Object] | bytes | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one call and return its answer.

        Raises:
            ApiError: its status is 400 or above.
            ConnectionError: there is none.

        """
        target = f"{path}?{urlencode(query)}" if query else path
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type, **self._headers}
        try:
            response = self._pool.request(
                method, target, body=content, headers=headers, timeout=TIMEOUT_SECONDS
            )
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(str(error)) from error
        if response.status >= BAD_REQUEST:
            raise ApiError(response.status, _message(response.data))
        warnings = response.headers.getlist("Warning")
        return Answer(response.status, response.data, tuple(map(_warning_text, warnings)))


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Object]:
    # What is cut off by the end of the watch is no event. Whoever reads it closes it.
    ends = (OSError, ValueError, urllib3.exceptions.HTTPError)
    with contextlib.closing(response), contextlib.suppress(*ends):
        for line in response:
            yield json.loads(line)


def _group_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _warning_text(header: str) -> str:
    """Take the text out of `299 - "text"`."""
    return header.split('"', 1)[-1].removesuffix('"').replace('\\"', '"')


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
