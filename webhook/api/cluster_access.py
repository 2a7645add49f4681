"""Which API server is meant, and as whom it is asked: what kubectl's connection flags say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """A context of a kubeconfig, and a user to impersonate; empty: what kubectl takes then."""

    kubeconfig: str = ""
    """One file, or several as in KUBECONFIG."""
    context: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()

    def as_oneself(self) -> ClusterAccess:
        """Return the same cluster without impersonation."""
        return replace(self, user="", groups=())

    def impersonation(self) -> Iterator[tuple[str, str]]:
        """Yield the headers that impersonate: one for each group."""
        if self.user:
            yield "Impersonate-User", self.user
        for group in self.groups:
            yield "Impersonate-Group", group
