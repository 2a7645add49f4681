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
from webhook.model.policy.matching import (
    LabelSelector,
    Match,
    PriorityClasses,
    UserNames,
)
from webhook.model.policy.strategy import MoveGain, MoveSaving, Strategy


class Mode(StrEnum):
    OBSERVE = "Observe"
    ADVISE = "Advise"
    ENFORCE = "Enforce"


class Guests(Structural):
    """Limits on the Jobs that this policy sends to an option's queue."""

    max_jobs: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    """The most Jobs of one namespace that this policy has in the queue at once, pending or with
    reserved quota. Namespaces that share (`sharedNamespaces`) count together."""
    priority_class: ObjectOrNone = ""
    """WorkloadPriorityClass that these Jobs get. Empty: unchanged."""


class Only(Structural):
    """Who may get an option. All given parts must hold.

    Users and groups are those of the user who creates or moves the Job. The controller moves no
    Job to such an option, because it does not know who created the Job.
    """

    users: UserNames | None = None
    """Names of users, as the API server authenticates them."""
    groups: UserNames | None = None
    """The user must be in one of these groups."""
    priority_classes: PriorityClasses | None = None
    """The Job must name one of these priority classes. This protects nothing: anyone who may create
    Jobs may name any of them."""


class Option(Structural):
    """One way to run the Job: a LocalQueue of its namespace and an adaptation."""

    name: OptionName = ""
    """Name of the option, unique in the policy. It becomes a label on the Job and its pods. Absent:
    the queue's name."""
    queue: QueueName = ""
    """A LocalQueue of the Job's namespace."""
    slowdown: Annotated[float, Field(strict=True, gt=0, le=1000)] | None = None
    """Expected run time, as a multiple of the first option's. It is used until enough runs were
    seen. Absent: the run time is unknown until then."""
    start_delay: Duration = "0s"
    """Expected time from reserved quota to running pods, such as for AdmissionChecks, dispatch to a
    worker cluster, node start-up and image pull. Learned times replace it."""
    max_wait: Duration | None = None
    """Refuse this option if the Job is expected to start later than this after the decision. An
    unknown start is not refused. Not with strategy Threshold, which forecasts no starts. Absent: no
    limit."""
    adaptation: Adaptation = Field(default_factory=Adaptation)
    """What this option changes in the pod templates. Absent: it changes only the queue."""
    cluster_queue: ObjectName = ""
    """A ClusterQueue. The Job goes to the one LocalQueue of its namespace that points to it. Give
    either this or `queue`."""
    guests: Guests | None = None
    """Limits on the Jobs that this policy sends to this option. Absent: no limits."""
    only: Only | None = None
    """Who may get this option; it is refused to all others. Absent: everybody."""
    priority_class: ObjectOrNone = ""
    """WorkloadPriorityClass that Jobs get with this option. Empty: unchanged. Give either this or
    `guests.priorityClass`."""

    @property
    def given_priority(self) -> str:
        """Return the WorkloadPriorityClass that Jobs get with this option; empty: their own."""
        return self.priority_class or (self.guests.priority_class if self.guests else "")


class Reconsider(Structural):
    """When the decision is reconsidered while the Job is pending."""

    after: Duration = "30s"
    """How long a Job stays in its queue before it may be moved."""
    minimum_gain: MoveGain = Field(default_factory=MoveGain, json_schema_extra=FILLED)
    """Move a Job only if the gain is at least both. With strategy Cost, `minimumSaving` replaces
    it."""
    minimum_saving: MoveSaving | None = None
    """With strategy Cost: how much money a move must save, summed over all pending Jobs. Absent: 20
    percent."""
    max_moves: Annotated[int, Field(strict=True, ge=1, le=100)] = 2
    """The most moves of one Job."""
    adopt: Flag = False
    """Also move matching pending Jobs that have no decision yet."""


class UnknownMemory(StrEnum):
    REFUSE = "Refuse"
    ALLOW = "Allow"


class Slices(Structural):
    """When an option with `accelerator: Replace` is enough for a Job."""

    pods: Flag = False
    """Also allow Jobs with several pods that each use a device. Slices cannot communicate with each
    other as whole devices of a node can."""
    unknown: UnknownMemory = UnknownMemory.REFUSE
    """What happens if it is unknown how much device memory the Job needs or the slice has. Refuse:
    refuse the option (`memoryUnknown`). Allow: take it, for queues of tiny Jobs."""
    isolation: Isolation = Isolation.MEMORY
    """The weakest isolation allowed between Jobs that share a device. Exclusive: nobody else uses
    the device. Hardware: MIG or SR-IOV. Memory: MPS or HAMi. None: also time-slicing, but only for
    Jobs that state their need in the annotation `gpu-memory`, as nothing enforces it."""


class Spec(Structural):
    """Which Jobs may run where, and how one place is chosen."""

    mode: Mode = Mode.OBSERVE
    """Observe: decide, count and log; change nothing. Advise: also warn and annotate. Enforce: also
    change the Job."""
    priority: Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)] = 0
    """If several policies match a Job, the one with the highest priority applies, and of equal ones
    the first by name. A TeamFallbackPolicy applies only if no FallbackPolicy matches."""
    match: Match
    """Which Jobs this policy is for."""
    options: Annotated[
        tuple[Option, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
    ]
    """Ways to run the Job, the most preferred first."""
    strategy: Strategy = Field(default_factory=Strategy, json_schema_extra=FILLED)
    """How an option is chosen."""
    message: Message = ""
    """A further warning, shown after the warnings of a decision, such as whom to ask or a link to
    your own page. At most 103 ASCII characters in one line. Empty: none."""
    warn: Flag = True
    """Whether the creator of a Job gets a warning if the Job was changed or has a value that cannot
    be read. If false, the Job's annotation `reason` and its Events still say so. Moves and undos
    are always answered."""
    job_class_label: Key | None = None
    """A label of the Jobs. Jobs with the same value are expected to run alike, and form a class.
    Absent, and for Jobs without the label: Jobs with the same images, commands, arguments and
    requests form a class."""
    job_class_args: Annotated[
        tuple[FlagName, ...], Field(max_length=8, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Flags, such as `--steps`, whose values separate classes of Jobs. Without such flags, and
    while few runs were seen, Jobs whose arguments differ only in numbers are one class."""
    job_class_env: Annotated[
        tuple[EnvName, ...], Field(max_length=8, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Environment variables, such as `STEPS`, whose values separate classes of Jobs."""
    shared_namespaces: LabelSelector | None = None
    """Selects namespaces, by their labels, that learn together. Jobs of this policy there share run
    times, failures and the number of guests. `{}` selects all. Absent: each namespace learns
    alone."""
    slices: Slices = Field(default_factory=Slices)
    """When a slice or a share of a device may replace the whole device. Absent: the Job has one
    pod, its memory need is known, and there is no time-slicing."""
    reconsider: Reconsider | None = None
    """When the decision is reconsidered while the Job is pending. Absent: only a person can move
    the Job. With it, pods read the environment variables that differ between options from
    annotations of the pod template, whichever option is taken. A Job is not moved if only some
    options set a variable and the Job itself lacks it."""
