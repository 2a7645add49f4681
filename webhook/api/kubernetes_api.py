"""What is asked of an API server: the one protocol of whoever reads and writes objects there."""

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
        """Yield watch events until the server ends the watch, or is silent for so long."""

    def kueue_version(self) -> str | None:
        """Return the version of Kueue's API that is served, as ``v1beta2``; None: none we know."""

    def forget_versions(self) -> None:
        """Ask anew for Kueue's version when it is next wanted."""
