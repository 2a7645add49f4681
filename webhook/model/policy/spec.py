"""A FallbackPolicy's spec: which Jobs it is for, the options they have, and how one is chosen."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
)

from webhook.model.costs.devices import Isolation
from webhook.model.policy.changes import Adaptation
from webhook.model.policy.field_types import (
    ATOMIC,
    FILLED,
    UNIQUE,
    Duration,
    EnvName,
    Flag,
    FlagName,
    Key,
    Message,
    ObjectName,
    ObjectOrNone,
    OptionName,
    QueueName,
    Structural,
    unique,
)
from webhook.model.policy.matching import LabelSelector, Match, PriorityClasses, UserNames
from webhook.model.policy.strategy import MoveGain, MoveSaving, Strategy


class Mode(StrEnum):
    OBSERVE = "Observe"
    ADVISE = "Advise"
    ENFORCE = "Enforce"


class Guests(Structural):
    """Limits on the Jobs that this policy sends to an option's queue."""

    max_jobs: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    """At most so many Jobs of this policy there at once from one namespace, or from all those that
    share (`sharedNamespaces`), pending or reserving quota."""
    priority_class: ObjectOrNone = ""
    """WorkloadPriorityClass that they get; empty: unchanged."""


class Only(Structural):
    """Whom an option is for: all that is given must hold.

    Users and groups are those of who creates the Job, or of the person who moves it. The controller
    moves no Job to an option that is kept for some, as it does not know who created it.
    """

    users: UserNames | None = None
    """Users, by the name with which the API server has authenticated them."""
    groups: UserNames | None = None
    """Groups, of which the user must be in one."""
    priority_classes: PriorityClasses | None = None
    """Priority classes, of which the Job must name one. Who may create Jobs may name any of them,
    so they do not keep anybody out."""


class Option(Structural):
    """One way to run the Job: a LocalQueue of its namespace and an adaptation."""

    name: OptionName = ""
    """Name of the option, unique in the policy: a label on the Job and its pods. Absent: the
    queue's name."""
    queue: QueueName = ""
    """A LocalQueue of the Job's namespace. Either this or `clusterQueue`."""
    cluster_queue: ObjectName = ""
    """A ClusterQueue: the one LocalQueue of the Job's namespace that points to it."""
    slowdown: Annotated[float, Field(strict=True, gt=0, le=1000)] | None = None
    """Expected run time relative to the first option's, until enough runs were seen. Absent: not
    known until then."""
    start_delay: Duration = "0s"
    """Expected time from the reservation of quota to running pods: AdmissionChecks, the way to a
    worker cluster, node start-up, image pull. What of it is learned takes its place."""
    max_wait: Duration | None = None
    """Refused to Jobs that are expected to start later than this, counted from the decision; a
    start that is not known refuses nothing. Not with strategy Threshold, which knows no starts.
    Absent: however late."""
    guests: Guests | None = None
    """Limits on the Jobs that this policy sends here. Absent: none."""
    only: Only | None = None
    """Whom this option is for; it is refused to others. Absent: for all."""
    priority_class: ObjectOrNone = ""
    """WorkloadPriorityClass that Jobs get with this option; empty: unchanged. Either this or
    `guests.priorityClass`."""
    adaptation: Adaptation = Field(default_factory=Adaptation)
    """What this option changes in the pod template. Absent: nothing but the queue."""

    @property
    def given_priority(self) -> str:
        """Return the WorkloadPriorityClass that Jobs get with this option; empty: their own."""
        return self.priority_class or (self.guests.priority_class if self.guests else "")


class Reconsider(Structural):
    """When the decision is revisited while the Job is pending."""

    after: Duration = "30s"
    """How long a Job stays where it is before it may be moved."""
    minimum_gain: MoveGain = Field(default_factory=MoveGain, json_schema_extra=FILLED)
    """Move only for at least both. Under Cost `minimumSaving` takes its place."""
    minimum_saving: MoveSaving | None = None
    """Under Cost: what a move must save, in money of all who wait. Absent: 20 percent."""
    max_moves: Annotated[int, Field(strict=True, ge=1, le=100)] = 2
    """At most so many moves of one Job."""
    adopt: Flag = False
    """Also look at matching pending Jobs that have no decision yet."""


class UnknownMemory(StrEnum):
    REFUSE = "Refuse"
    ALLOW = "Allow"


class Slices(Structural):
    """When options with `accelerator: Replace` are enough for a Job."""

    pods: Flag = False
    """Also Jobs with several pods that each use a device: slices cannot reach one another as whole
    devices of a node can."""
    unknown: UnknownMemory = UnknownMemory.REFUSE
    """Where it is not known how much device memory a Job needs, or a slice has: Refuse the option
    (`memoryUnknown`), or Allow it, for queues of tiny Jobs."""
    isolation: Isolation = Isolation.MEMORY
    """What must at least keep those apart who share a device: Exclusive: nobody shares it;
    Hardware: MIG, SR-IOV; Memory: MPS, HAMi; None: time-slicing, too, for Jobs that say by the
    annotation `gpu-memory` what they need, as nothing enforces it."""


class Spec(Structural):
    """Which Jobs may run where, and how one place is chosen."""

    mode: Mode = Mode.OBSERVE
    """Observe: decide, count and log, touch nothing. Advise: also warn and annotate. Enforce:
    also change the Job."""
    priority: Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)] = 0
    """Where several policies match, the highest applies, then the first by name."""
    match: Match
    """Which Jobs this policy is for."""
    job_class_label: Key | None = None
    """Label of the Jobs whose value tells which of them run alike. Absent, and for Jobs without it:
    Jobs with the same images, commands, arguments and requests do."""
    job_class_args: Annotated[
        tuple[FlagName, ...], Field(max_length=8, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Flags, such as `--steps`, whose values tell Jobs apart that do not run alike. Without them,
    and while few runs were seen, Jobs whose arguments differ in numbers alone are taken for
    alike."""
    job_class_env: Annotated[
        tuple[EnvName, ...], Field(max_length=8, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Environment variables, such as `STEPS`, whose values tell Jobs apart likewise."""
    shared_namespaces: LabelSelector | None = None
    """Namespaces, by their labels, whose Jobs of this policy learn from one another: run times,
    failures and the count of guests are theirs together; `{}` means all. Absent: each namespace
    has its own."""
    options: Annotated[
        tuple[Option, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
    ]
    """Ways to run the Job, the most preferred first."""
    strategy: Strategy = Field(default_factory=Strategy, json_schema_extra=FILLED)
    """How an option is chosen."""
    slices: Slices = Field(default_factory=Slices)
    """When options that replace devices by slices or shares of them are enough. Absent: one pod,
    a need that is known, no time-slicing."""
    reconsider: Reconsider | None = None
    """When the decision is revisited while the Job is pending. Absent: only a person may move it.
    Environment variables that differ between the options are then read from annotations of the
    pod template, whichever option is taken. A Job that lacks a variable which only some options
    set is not moved."""
    message: Message = ""
    """What is said after the warnings of a decision, in one of its own: whom to ask, or a link to
    your own page. At most 103 characters of ASCII in one line. Empty: nothing."""
    warn: Flag = True
    """Whether whoever creates a Job is warned of what is changed, or cannot be read, of it. Without
    it the Job's annotation `reason` and its Events still tell; who asks for a move or an undo is
    answered all the same."""
