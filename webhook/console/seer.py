"""Somebody who asks, and what they may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Seer(Protocol):
    """Somebody who asks."""

    def may_get(self, names: Iterable[str], *, group: str, resource: str) -> frozenset[str]:
        """Say which of these objects without a namespace they may get."""

    def may_list_jobs(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Say in which namespaces they may list Jobs."""


class Everybody:
    """Whoever reaches loopback: port-forward asks for rights of its own."""

    def may_get(self, names: Iterable[str], *, group: str, resource: str) -> frozenset[str]:  # noqa: ARG002 - they may see all
        return frozenset(names)

    def may_list_jobs(self, namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset(namespaces)
