"""Worker clusters behind MultiKueue, as their manager knows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCluster:
    """A MultiKueueCluster. Kueue sends nothing to one that is not active."""

    name: str
    active: bool = True
    inactive_because: str = ""
    """The Active condition's message while it is not True."""
