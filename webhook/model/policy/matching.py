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
    """How the label's value is compared with `values`."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = ()
    """Values of the label. In and NotIn need at least one; Exists and DoesNotExist take none."""


class LabelSelector(Structural):
    """A label selector. All given parts must hold; `{}` selects everything."""

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
    """What the value must be."""

    at_most: Bound | None = None
    """The value must be a number, and at most this."""
    at_least: Bound | None = None
    """The value must be a number, and at least this."""
    equals: FreeText | None = None
    """The value must be this text."""


class ArgMatch(ValueMatch):
    """A flag of a container's command or args: `--steps 30`, `--steps=30` or `-s 30`."""

    flag: FlagName
    """The flag with its dashes, such as `--steps`. If it is repeated, the last one counts."""


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
    """Which Jobs this policy is for. All given parts must hold.

    Give something besides the kinds, namespaces and queues; `jobSelector: {}` selects every Job.
    """

    kinds: Annotated[
        tuple[KindName, ...],
        Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
        AfterValidator(unique),
    ] = ("Job",)
    """Kinds of Jobs. Each must be among the chart's `kinds`, and switched on in Kueue."""
    job_selector: LabelSelector | None = None
    """Selects Jobs by their labels; `{}` selects every Job."""
    max_requests: Amounts | None = None
    """Only Jobs whose total requests are at most this, such as `nvidia.com/gpu: 1`."""
    min_requests: Amounts | None = None
    """Only Jobs whose total requests are at least this, such as `nvidia.com/gpu: 2`."""
    namespace_selector: LabelSelector | None = None
    """Selects namespaces by their labels. Absent: all namespaces except the system's and this
    release's own."""
    users: UserNames | None = None
    """Only Jobs created by one of these users, named as the API server authenticates them. Jobs of
    a CronJob are created by Kubernetes' CronJob controller."""
    groups: UserNames | None = None
    """Only Jobs whose creator is in one of these groups."""
    priority_classes: PriorityClasses | None = None
    """Only Jobs that name one of these priority classes. A Job names a WorkloadPriorityClass by its
    label `kueue.x-k8s.io/priority-class`, or else a PriorityClass on its pods."""
    args: (
        Annotated[tuple[ArgMatch, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)]
        | None
    ) = None
    """Only Jobs in which a container has each of these flags with a matching value. `atMost` and
    `atLeast` never match a negative value or one that is not a number."""
    env: (
        Annotated[tuple[EnvMatch, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)]
        | None
    ) = None
    """Only Jobs in which a container has each of these environment variables with a matching value.
    Values are compared as for `args`."""
    queues: (
        Annotated[
            tuple[QueueOrNone, ...],
            Field(min_length=1, max_length=32, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Only Jobs submitted to one of these LocalQueues; "" means Jobs that name no queue, and is not
    for teams. Absent: the queues of the options."""
    without_queue: Flag = False
    """Also match Jobs that name no queue, in namespaces without a LocalQueue `default`."""
