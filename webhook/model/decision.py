"""A decision: the option taken, and every option refused with its reason and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from webhook.model.costs.prices import Cost, Place
from webhook.model.edits import Edit
from webhook.model.forecasts import Forecast
from webhook.model.holds import Hold
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.queues import Arrival, PodSetNeeds
from webhook.model.reasons import Explained, LeftAlone, Obstacle, Reason, Skip, Stayed


class Fit(IntEnum):
    """How an option's ClusterQueue would take the Job, from worst to best."""

    NEVER = 0
    WAITS = 1
    MAY_PREEMPT = 2
    FITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    reason: Reason
    detail: str
    """With the numbers, for people: ``limits cpu 4 below its request 8 in container main``."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Why an option that is expected to be better than the one taken was not taken."""

    reason: Stayed
    detail: str
    """With the numbers, to follow the option's own: ``22s sooner is less than ...``."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


# Not frozen: filters, forecasts and the choice each fill in what they find, and nobody after them.
@dataclass(slots=True, kw_only=True)
class Assessment:
    """One option as it stands for one Job. Numbers are None where the option was refused early."""

    option: str
    queue: str
    cluster_queue: str = ""
    cluster: str = ""
    """The worker cluster where it would run; empty: none, or it is not known which."""
    clusters: tuple[Assessment, ...] = ()
    """The same in every worker cluster behind its queue; of one that is not watched, the name."""
    fit: Fit | None = None
    starts_now: bool = False
    preempts: int = 0
    """How many Workloads Kueue would preempt for it; 0 also where that is not known."""
    is_placed: bool = False
    """It is known whether the domains of its flavors' Topologies have room for it now."""
    level: str = ""
    """That of the domain in which all of its pods would be; empty: it is not known."""
    pending: int | None = None
    reserving: int | None = None
    detail: str = ""
    """The numbers behind ``fit``: ``needs nvidia.com/gpu 1 (flavor t4), 0 free``."""
    rejection: Rejection | None = None
    passed_over: PassedOver | None = None
    """None: it was refused, taken, or is expected to be no better than what was taken."""
    forecast: Forecast | None = None
    """None: nothing is forecast for its queue, or nobody asked."""
    cost: Cost | None = None
    """What it would cost there; None: nothing is known of prices, or it is not forecast."""
    place: Place | None = None
    """What it would use there, and what that costs; None: it is not forecast where it would run."""
    job: Job | None = None
    """The Job as it would be under this option."""
    needs: tuple[PodSetNeeds, ...] = ()


HISTORY_KEPT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One option that a Job was sent to: since when, and why."""

    time: str
    option: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    id: str
    time: str
    """RFC 3339, UTC, whole seconds."""
    policy: str
    mode: Mode
    option: str | None
    """None: left as submitted."""
    left_alone: LeftAlone | None
    reason: str
    """One sentence for people, at most 230 characters."""
    from_queue: str
    state_age_seconds: float
    options: tuple[Assessment, ...] = ()
    moves: int = 0
    """How often the Job was moved; this decision is the last of them."""
    history: tuple[Stay, ...] = ()
    """Of a moved Job the last stays, this one included, the oldest first."""
    hold: Hold | None = None
    """How long the Job is held from admission; None: it is not."""
    changed: tuple[str, ...] = ()
    """What the option taken changes, in words; empty under Observe, where it is not worked out."""

    @property
    def taken(self) -> Assessment | None:
        """Return the option taken as it was assessed; None: left as submitted."""
        return next((option for option in self.options if option.option == self.option), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What every outcome of a review has. ``edits`` is empty where the Job passes untouched."""

    edits: tuple[Edit, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def why_not(self) -> Explained | None:
        """Why what was wished, or a decision, is not made; None: it is."""
        return None

    @property
    def audit(self) -> dict[str, str]:
        """The annotations of the API server's audit event."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Created(_Answered):
    """What the outcome of a create has beside it."""

    arrival: Arrival | None = None
    """What the ledger must remember: also for Jobs left as submitted, when they name a queue."""
    job: Job | None = field(default=None, compare=False)
    """The Job as it was submitted, for those that record it; None in a repeated review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped(_Created):
    """A Job that is not decided at all."""

    skip: Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(_Created):
    """A Job that a policy has decided, if only to leave it as submitted."""

    decision: Decision

    @property
    def why_not(self) -> Explained | None:
        return self.decision.left_alone

    @property
    def audit(self) -> dict[str, str]:
        return _audit(self.decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(_Answered):
    """A pending Job that goes to another option, as was asked."""

    decision: Decision

    @property
    def audit(self) -> dict[str, str]:
        return _audit(self.decision)


def _audit(taken: Decision) -> dict[str, str]:
    option = taken.option or "none"
    return {"option": option, "policy": taken.policy, "reason": taken.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone(_Answered):
    """A Job that is again as it was submitted, as was asked."""

    sentence: str
    """What came of it, for people."""

    @property
    def audit(self) -> dict[str, str]:
        return {"undone": self.sentence}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(_Answered):
    """A move or an undo that was asked for and is not made."""

    obstacle: Obstacle
    detail: str = ""
    """Why, in this case; empty: the obstacle's own words say it."""

    @property
    def why_not(self) -> Explained | None:
        return self.obstacle

    @property
    def audit(self) -> dict[str, str]:
        return {"not-moved": str(self.obstacle)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(_Answered):
    """A manifest that was applied again: its edits put back what the decision had changed."""


CreateOutcome: TypeAlias = Skipped | Decided
UpdateOutcome: TypeAlias = Moved | Undone | Declined | Restored
Outcome: TypeAlias = CreateOutcome | UpdateOutcome
"""What one review comes to."""
