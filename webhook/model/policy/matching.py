"""Which Jobs a policy is for."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
)

from webhook.model.policy.field_types import (
    ATOMIC,
    UNIQUE,
    Amounts,
    EnvName,
    Flag,
    FlagName,
    FreeText,
    Key,
    Labels,
    LabelValue,
    ObjectName,
    QueueOrNone,
    Structural,
    UserName,
    unique,
)


class SelectorExpression(Structural):
    """One requirement on labels; all must hold."""

    key: Key
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to `values`."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = ()
    """For In and NotIn at least one; for Exists and DoesNotExist none."""


class LabelSelector(Structural):
    """A label selector: all that is given must hold, and `{}` selects everything."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: Annotated[
        tuple[SelectorExpression, ...], Field(max_length=16, json_schema_extra=ATOMIC)
    ] = ()
    """Requirements on labels."""


KindName: TypeAlias = Literal[
    "AppWrapper",
    "Deployment",
    "JAXJob",
    "Job",
    "JobSet",
    "LeaderWorkerSet",
    "MPIJob",
    "PaddleJob",
    "Pod",
    "PyTorchJob",
    "RayCluster",
    "RayJob",
    "SparkApplication",
    "StatefulSet",
    "TFJob",
    "TrainJob",
    "XGBoostJob",
]
Bound = Annotated[int, Field(strict=True, ge=0, le=10**15)]


class ValueMatch(Structural):
    """What a value must be."""

    at_most: Bound | None = None
    """The value is a number, and not above this."""
    at_least: Bound | None = None
    """The value is a number, and not below this."""
    equals: FreeText | None = None
    """The value is this text."""


class ArgMatch(ValueMatch):
    """A flag of a container's command or args: `--steps 30`, `--steps=30` or `-s 30`."""

    flag: FlagName
    """The flag with its dashes, such as `--steps`. Where it is repeated, the last one counts."""


class EnvMatch(ValueMatch):
    """An environment variable of a container, given as a plain value."""

    name: EnvName
    """Name of the variable."""


UserNames: TypeAlias = Annotated[
    tuple[UserName, ...],
    Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
    AfterValidator(unique),
]
PriorityClasses: TypeAlias = Annotated[
    tuple[ObjectName, ...],
    Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
    AfterValidator(unique),
]


class Match(Structural):
    """Which Jobs this policy is for: all that is given must hold.

    Something besides `kinds`, `namespaceSelector` and `queues` must be given; `jobSelector: {}`
    says every Job.
    """

    kinds: Annotated[
        tuple[KindName, ...],
        Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ("Job",)
    """Kinds of Jobs; each must be among the chart's `kinds`, and switched on in Kueue."""
    namespace_selector: LabelSelector | None = None
    """Namespaces, by their labels. Absent: all but system namespaces and our own."""
    job_selector: LabelSelector | None = None
    """Jobs, by their own labels; `{}` means every Job."""
    max_requests: Amounts | None = None
    """Only Jobs that ask for at most this in all, such as `nvidia.com/gpu: 1`."""
    min_requests: Amounts | None = None
    """Only Jobs that ask for at least this in all, such as `nvidia.com/gpu: 2`."""
    users: UserNames | None = None
    """Only Jobs that one of these users creates, by the name with which the API server has
    authenticated them. The controller of CronJobs creates theirs."""
    groups: UserNames | None = None
    """Only Jobs whose creator is in one of these groups."""
    priority_classes: PriorityClasses | None = None
    """Only Jobs that name one of these: the WorkloadPriorityClass of their label
    `kueue.x-k8s.io/priority-class`, else the PriorityClass of their pods."""
    args: (
        Annotated[tuple[ArgMatch, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)]
        | None
    ) = None
    """Only Jobs in which some container is run with each of these flags, of such a value. A value
    that is no number, or negative, is neither at most nor at least anything."""
    env: (
        Annotated[tuple[EnvMatch, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)]
        | None
    ) = None
    """Only Jobs in which some container has each of these environment variables, likewise."""
    queues: (
        Annotated[
            tuple[QueueOrNone, ...],
            Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Only Jobs submitted to one of these LocalQueues; "" stands for Jobs that name no queue.
    Absent: the queues of the options."""
    without_queue: Flag = False
    """Also Jobs that name no queue, in namespaces without a LocalQueue `default`."""
