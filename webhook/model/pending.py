"""A Job that waits for quota, as far as moving it is concerned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from webhook.model.fields import FieldError, seconds_since_1970
from webhook.model.job import Job
from webhook.model.reasons import Obstacle

LONGEST_LEFT: Final = 4096
"""Characters: a time and the names of as many ClusterQueues as a policy has options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A move or an undo, as far as it matters to who finds the Job's Workload with quota."""

    unix: float
    """When it was, in seconds since 1970."""
    cluster_queues: frozenset[str]
    """Those of the Job's other options, as they were then: in none of them does it belong."""


def left_written(time: str, cluster_queues: Iterable[str]) -> str:
    """Write one as it stands on a Job."""
    return f"{time} {','.join(sorted(cluster_queues))}"


def read_left(text: str) -> Left | None:
    """Read it back; None: nobody of ours wrote it."""
    time, _, names = text[:LONGEST_LEFT].partition(" ")
    try:
        unix = seconds_since_1970(time, "")
    except FieldError:
        return None
    return Left(unix=unix, cluster_queues=frozenset(names.split(",")))


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
    left: Left | None = None
    """Its last move, or its undo; None also where it is not known which queues it has left."""
    has_ready_pods: bool = False
    started: float = 0.0
    """Since when it has not been suspended, in seconds since 1970; 0: it is."""

    @property
    def has_left(self) -> bool:
        """Whether it was sent from one queue to another while it waited."""
        return self.moves > 0 or bool(self.undone)

    @property
    def key(self) -> str:
        return f"{self.job.namespace}/{self.job.name}"
