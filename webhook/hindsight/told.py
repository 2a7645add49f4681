"""What is known of Jobs that are over, and what replays of their arrivals have told of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.hindsight.counterfactual import Elsewhere
from webhook.hindsight.journal import Entry
from webhook.learn.learned import NOTHING, Learned
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Snapshot
from webhook.simulate.results import JobResult
from webhook.simulate.scenario import Worker

_ENFORCED: Final = "Enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is known besides the entries."""

    snapshot: Snapshot
    """Queues and policies, as they are now; what the queues hold does not matter."""
    learned: Learned = NOTHING
    """Of runs, by now."""
    now: float
    """Seconds since 1970."""
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """The clusters behind MultiKueue whose queues are known, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One Job with what became of it in each of the replays; None: it was not in this one."""

    entry: Entry
    policy: FallbackPolicy | None
    """That decided, or would; None: none matches."""
    elsewhere: Elsewhere
    submitted_queue: str
    unseen: tuple[str, ...] = ()
    """Worker clusters that bear on it and of which nothing is known: it was in no replay."""
    happened: JobResult | None = None
    static: JobResult | None = None
    promised: JobResult | None = None

    @property
    def is_enforced(self) -> bool:
        if self.entry.mode:
            return self.entry.mode == _ENFORCED
        return self.policy is not None and self.policy.spec.mode == _ENFORCED

    @property
    def acts(self) -> bool:
        """Tell whether the comparison is with what would have been without decisions."""
        return self.is_enforced or (self.policy is None and self.static is not None)

    @property
    def is_over(self) -> bool:
        return bool(self.entry.outcome and self.entry.admitted)

    @property
    def turnaround(self) -> float:
        return self.entry.finished - self.entry.created


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    told: tuple[Told, ...]
    """By creation."""
    left_out: int = 0
    """Jobs that a replay cannot submit: their queues are gone, or they cannot be read."""
    handover_seconds: float = 0.0
