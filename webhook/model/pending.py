"""A Job that waits for quota, as far as moving it is concerned."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.model.job import Job
from webhook.model.moves import Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    uid: str
    version: str
    """Its resourceVersion."""
    created: float
    """Seconds since 1970."""
    job: Job
    """As it was submitted: without any decision."""
    queue: str
    """The LocalQueue that it names now."""
    policy: str = ""
    """By which it was decided; empty: no decision stands on it."""
    option: str = ""
    """Where it was sent; empty: it was left as submitted."""
    moves: int = 0
    undone: str = ""
    """The policy whose decision was undone, if it was in another queue before; empty: none was."""
    changed: float = 0.0
    """When it was decided, or moved last, in seconds since 1970."""
    obstacle: Obstacle | None = None
    """What of the Job itself keeps it from being moved."""

    @property
    def has_left(self) -> bool:
        """Whether it was sent from one queue to another while it waited."""
        return self.moves > 0 or bool(self.undone)

    @property
    def key(self) -> str:
        return f"{self.job.namespace}/{self.job.name}"
