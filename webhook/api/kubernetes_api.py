"""The one protocol for reading and writing objects of an API server; ``Client`` implements it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol


class KubernetesApi(Protocol):
    """Objects are parsed JSON; each call raises an ``api.errors.ClusterError`` if it fails."""

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]: ...

    def post(self, path: str, body: object) -> Mapping[str, Any]: ...

    def put(self, path: str, body: object) -> Mapping[str, Any]: ...

    def patch(self, path: str, body: object) -> Mapping[str, Any]: ...

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Mapping[str, Any]: ...

    def watch(
        self, path: str, params: Mapping[str, str], *, read_seconds: float
    ) -> Iterator[Mapping[str, Any]]:
        """Yield watch events until the server ends the watch.

        After *read_seconds* without data ``Unreachable`` is raised.
        """

    def kueue_version(self) -> str | None:
        """Return the served version of Kueue's API, as ``v1beta2``.

        None: none that is understood.
        """

    def forget_versions(self) -> None:
        """Discover Kueue's version again at the next call."""
