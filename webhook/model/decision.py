"""A decision: the option taken, and every option refused with its reason and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    StrictInt,
)
from pydantic.alias_generators import to_camel

from webhook.model.costs.prices import Cost, Place
from webhook.model.costs.service import ServiceLevel
from webhook.model.edits import Edit
from webhook.model.fields import FieldError, seconds_since_1970
from webhook.model.forecasts import Forecast
from webhook.model.holds import Hold, hold_json, read_hold
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.quantity import Amounts
from webhook.model.queues import Arrival, PodSetNeeds
from webhook.model.reasons import Explained, LeftAlone, Obstacle, Reason, Skip, Stayed
from webhook.model.words import harmless, plain_number


class Fit(IntEnum):
    """How an option's ClusterQueue would take the Job, from worst to best."""

    NEVER = 0
    WAITS = 1
    MAY_PREEMPT = 2
    FITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why an option is refused, or not taken although it is expected to be better."""

    reason: Reason | Stayed
    """``Stayed`` where it would be better than the one taken."""
    detail: str
    """With the numbers, for people: ``limits cpu 4 below its request 8 in container main``, or to
    follow the option's own: ``22s sooner is less than ...``."""

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
    passed_over: Rejection | None = None
    """None: it was refused, taken, or is expected to be no better than what was taken."""
    forecast: Forecast | None = None
    """None: nothing is forecast for its queue, or nobody asked."""
    cost: Cost | None = None
    """What it would cost there; None: nothing is known of prices, or it is not forecast."""
    place: Place | None = None
    """What it would use there, and what that costs; None: it is not forecast where it would run."""
    service: ServiceLevel | None = None
    """How a service would do there, whose ``cost`` is that of an hour; None: it is none that says
    its request rate, or that is not known."""
    usage: Amounts = field(default_factory=dict)
    """The quota that all replicas of such a service would be charged."""
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

    @property
    def unix(self) -> float:
        """``time`` in seconds since 1970; 0: it cannot be read."""
        return _unix(self.time)


VERSION = 1
ShownText = Annotated[str, AfterValidator(harmless)]
"""Anybody may write it, and people see it in lines and tables, of which it must not make more."""
_Name = Annotated[ShownText, Field(max_length=253)]
"""Kubernetes allows no longer name of any object."""
_NO_STAY = {"time": "", "option": "", "reason": ""}


def _stay(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    texts = {key: text for key, text in given.items() if isinstance(text, str)}
    return {**_NO_STAY, **given, **{key: harmless(text) for key, text in texts.items()}}


_Stay = Annotated[Stay, BeforeValidator(_stay)]
_History = Annotated[
    tuple[_Stay, ...], FailFast(), AfterValidator(lambda stays: stays[-HISTORY_KEPT:])
]
"""We write no more stays than are kept, so further ones are not ours."""


def _known_mode(given: Any) -> Any:
    # A mode that a newer version added counts as the one that changes nothing on a Job.
    is_unknown = isinstance(given, str) and given not in Mode.__members__.values()
    return Mode.OBSERVE if is_unknown else given


def _known_reason(given: Any) -> LeftAlone | None:
    return _LEFT_ALONE.get(given) if isinstance(given, str) else None


_LEFT_ALONE: Final = {str(reason): reason for reason in LeftAlone}
_Queue = Annotated[
    _Name,
    Field(alias="from"),
    BeforeValidator(lambda given: given.get("queue", "") if isinstance(given, dict) else ""),
    PlainSerializer(lambda queue: {"queue": queue}),
]
_Age = Annotated[
    float,
    Field(alias="stateAge"),
    BeforeValidator(lambda given: given if type(given) in (int, float) else 0.0),
    PlainSerializer(lambda age: plain_number(round(age, 3))),
]
OptionT = TypeVar("OptionT")


# With slots, Python 3.11 fails to make one by an alias that names its options.
@dataclass(frozen=True, kw_only=True)
class DecisionWith(Generic[OptionT]):
    """A decision, with its options as they were assessed or as they are recorded.

    Its fields are in the order in which they are written; one that has its default is not.
    """

    # Anybody who may edit the Job can have changed it, so every field is checked and bounded.
    __pydantic_config__ = ConfigDict(alias_generator=to_camel, allow_inf_nan=False)

    version: Annotated[StrictInt, Field(ge=1)] = VERSION
    id: _Name
    time: ShownText
    """RFC 3339, UTC, whole seconds."""
    policy: _Name
    mode: Annotated[Mode, BeforeValidator(_known_mode)]
    """Observe also where it is not known, so that nobody takes the Job for one that was changed."""
    option: Annotated[_Name | None, AfterValidator(lambda name: name or None)] = None
    """None: left as submitted."""
    left_alone: Annotated[LeftAlone | None, BeforeValidator(_known_reason)] = None
    """Why no option was taken; None: one was, or it was not recorded."""
    reason: ShownText
    """One sentence for people, at most 230 characters."""
    from_queue: _Queue
    state_age_seconds: _Age
    hold: Annotated[Hold | None, BeforeValidator(read_hold), PlainSerializer(hold_json)] = None
    """How long the Job is held from admission; None: it is not, or that cannot be read."""
    job_class: ShownText = ""
    """The class of a service from which it is learned what a replica does, as ``mark_text`` writes
    it; empty: nothing is learned from this one, or its Workload says it."""
    changed: Annotated[tuple[ShownText, ...], FailFast()] = ()
    """What the option taken changes, in words; empty under Observe, where it is not worked out."""
    moves: Annotated[StrictInt, Field(ge=0)] = 0
    """How often the Job was moved; this decision is the last of them."""
    history: _History = ()
    """Of a moved Job the last stays, this one included, the oldest first."""
    options: Annotated[tuple[OptionT, ...], FailFast()] = ()
    """As they were at the decision or the last move."""
    original: dict[str, Any] = field(default_factory=dict)
    """JSON Pointer to what was submitted there, as ``admission.patch`` writes it; empty also where
    it is not recorded yet."""

    @property
    def unix(self) -> float:
        """``time`` in seconds since 1970; 0: it cannot be read."""
        return _unix(self.time)

    @property
    def moved_unix(self) -> float:
        """When the Job was last moved, in seconds since 1970; 0: never, or it cannot be read."""
        return self.history[-1].unix if self.moves and self.history else 0.0

    @property
    def is_newer(self) -> bool:
        """Return whether a newer version of this program wrote it: only that one can undo it."""
        return self.version > VERSION


Decision: TypeAlias = DecisionWith[Assessment]


def taken_of(decision: Decision) -> Assessment | None:
    """Return the option taken as it was assessed; None: left as submitted."""
    for option in decision.options:
        if option.option == decision.option:
            return option
    return None


def _unix(time: str) -> float:
    try:
        return seconds_since_1970(time, "time")
    except FieldError:
        return 0.0


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
    recorded: DecisionWith[Any] | None = field(default=None, compare=False)
    """What the Job's annotation says of the decision; None: nothing was written."""

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
    recorded: DecisionWith[Any] = field(compare=False)
    """What the Job's annotation says of the decision."""

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
