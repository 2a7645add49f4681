"""A FallbackPolicy's spec: which Jobs it is for, the options they have, and how one is chosen."""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from webhook.model.costs.devices import Isolation
from webhook.model.policy import patterns
from webhook.model.policy.patterns import LONGEST_LABEL
from webhook.model.policy.rules import RULES

if TYPE_CHECKING:
    from pydantic.config import JsonDict


class Strict(BaseModel):
    """Frozen, camelCase outside, and a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Structural(Strict):
    """An object of a policy, read as the API server stores it; it keeps the rules on it."""

    @model_validator(mode="before")
    @classmethod
    def _store(cls, given: Any) -> Any:
        return _stored(given, {field.alias for field in cls.model_fields.values()})

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        rules = RULES.get(type(self).__name__, ())
        broken = [rule for rule in rules if not rule.holds(self)]
        if broken:
            raise _mistakes((tuple(rule.field.split(".")[1:]), rule.text(self)) for rule in broken)
        return self


def _stored(given: Any, nullable: Container[str | None] | None = None) -> Any:
    """Leave out nulls, of all keys or of *nullable*, and write whole floats as ints."""
    if not isinstance(given, dict):
        return given
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in given.items()
        if value is not None or (nullable is not None and name not in nullable)
    }


def unique(items: tuple[str, ...]) -> tuple[str, ...]:
    repeated = [index for index, text in enumerate(items) if text in items[:index]]
    if repeated:
        raise _mistakes(((index,), f"{items[index]!r} is there already") for index in repeated)
    return items


def _mistakes(placed: Iterable[tuple[tuple[str | int, ...], str]]) -> ValidationError:
    """Return an error with several mistakes, each at a place below."""
    mistakes = [
        InitErrorDetails(
            type=PydanticCustomError("rule", "{text}", {"text": text}), loc=place, input=None
        )
        for place, text in placed
    ]
    return ValidationError.from_exception_data("policy", mistakes)


def _text(amount: Any) -> Any:
    is_whole = isinstance(amount, int) and not isinstance(amount, bool)
    return str(amount) if is_whole else amount


OptionName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.NAME)
]
"""A label value, because it is one on the Job and its pods."""
QueueName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.SUBDOMAIN)
]
"""A LocalQueue's name: the value of the label ``kueue.x-k8s.io/queue-name``."""
QueueOrNone: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_LABEL, pattern=patterns.SUBDOMAIN_OR_NONE)
]
ObjectName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=patterns.SUBDOMAIN)
]
UserName: TypeAlias = Annotated[str, Field(min_length=1, max_length=512)]
"""A user's or a group's name as the API server has authenticated it."""
ObjectOrNone: TypeAlias = Annotated[str, Field(max_length=253, pattern=patterns.SUBDOMAIN_OR_NONE)]
ContainerName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.LABEL)
]
Key: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=316, pattern=patterns.QUALIFIED_NAME)
]
"""A qualified name: a label key, a resource, a taint key."""
KeyOrNone: TypeAlias = Annotated[
    str, Field(max_length=316, pattern=patterns.QUALIFIED_NAME_OR_NONE)
]
LabelValue: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_LABEL, pattern=patterns.LABEL_VALUE)
]
FreeText: TypeAlias = Annotated[str, Field(max_length=4096)]
Image: TypeAlias = Annotated[str, Field(max_length=512, pattern=patterns.IMAGE)]
FlagName: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=patterns.FLAG)]
"""As a command line has it, with its dashes: ``--steps``, ``-s``."""
EnvName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.ENV_NAME)]
RuntimeClassName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=patterns.RUNTIME_CLASS)
]
Duration: TypeAlias = Annotated[str, Field(min_length=2, max_length=32, pattern=patterns.DURATION)]
"""As Go writes it: ``30s``, ``1h30m``, ``1.5h``, ``500ms``."""
Amount: TypeAlias = Annotated[
    str,
    Field(
        max_length=32,
        pattern=patterns.QUANTITY,
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
    BeforeValidator(_text),
]
"""A quantity that is not negative; a whole number in YAML is read as its text."""
Decimal: TypeAlias = Annotated[
    str,
    Field(
        max_length=16,
        pattern=patterns.DECIMAL,
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
    BeforeValidator(_text),
]
"""A number that is not negative, as text, since a CRD has no exact fractions; a whole number in
YAML is read as its text."""

Amounts: TypeAlias = Annotated[dict[str, Amount], Field(max_length=16), BeforeValidator(_stored)]
DeviceCount: TypeAlias = Annotated[
    str,
    Field(
        max_length=9,
        pattern=patterns.COUNT,
        json_schema_extra={"x-kubernetes-int-or-string": True, "minimum": 1},
    ),
    BeforeValidator(_text),
]
"""A whole number of at least 1; one in YAML is read as its text."""
DeviceCounts: TypeAlias = Annotated[
    dict[str, DeviceCount], Field(max_length=8), BeforeValidator(_stored)
]
ReplicaCounts: TypeAlias = Annotated[
    dict[str, Annotated[int, Field(strict=True, ge=1, le=100_000)]],
    Field(max_length=18),
    BeforeValidator(_stored),
]
"""Pod set to its number of replicas."""
Labels: TypeAlias = Annotated[dict[str, LabelValue], Field(max_length=32), BeforeValidator(_stored)]
Texts: TypeAlias = Annotated[dict[str, FreeText], Field(max_length=64), BeforeValidator(_stored)]
Strings: TypeAlias = Annotated[dict[str, str], BeforeValidator(_stored)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]

UNIQUE: JsonDict = {"x-kubernetes-list-type": "set"}
ATOMIC: JsonDict = {"x-kubernetes-list-type": "atomic"}
FILLED: JsonDict = {"default": {}}
"""An absent object is filled in, so that its own defaults stand in it."""


class Accelerator(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"
    REPLACE = "Replace"


class Affinity(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"


class ResourceChanges(Structural):
    """Changes to the containers' requests and limits; what is taken away goes first."""

    remove: Annotated[
        tuple[Key, ...], Field(max_length=16, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Resources to take away from requests and limits, such as `nvidia.com/gpu`."""
    requests: Amounts = Field(default_factory=dict)
    """Requests to set: resource to quantity."""
    limits: Amounts = Field(default_factory=dict)
    """Limits to set: resource to quantity, none below the request given here."""


class NodeSelectorChanges(Structural):
    """Changes to the pod's `nodeSelector`; what is taken away goes first."""

    remove: Annotated[
        tuple[Key, ...], Field(max_length=32, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Label keys to take away."""
    set: Labels = Field(default_factory=dict)
    """Labels to ask for: key to value."""


Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TolerationSpec(Structural):
    """A toleration as in a pod's `tolerations`."""

    key: KeyOrNone = ""
    """Taint key; empty, with operator Exists, tolerates every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """How the taint's value is compared."""
    value: LabelValue = ""
    """Taint value, for operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Taint effect; empty means every effect."""
    toleration_seconds: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    """How long a NoExecute taint is tolerated; absent: for ever."""


class TolerationMatch(Structural):
    """Tolerations to take away: those whose given fields are equal."""

    key: Key
    """Taint key."""
    value: LabelValue | None = None
    """Taint value; absent: any."""
    effect: Effect | None = None
    """Taint effect; absent: any."""


class TolerationChanges(Structural):
    """Changes to the pod's `tolerations`; what is taken away goes first."""

    remove: Annotated[
        tuple[TolerationMatch, ...], Field(max_length=16, json_schema_extra=ATOMIC)
    ] = ()
    """Tolerations to take away."""
    add: Annotated[tuple[TolerationSpec, ...], Field(max_length=16, json_schema_extra=ATOMIC)] = ()
    """Tolerations to add, unless the pod has them."""


class Adaptation(Structural):
    """What this option changes in the pod templates. Absent: nothing but the queue."""

    pod_sets: (
        Annotated[
            tuple[ContainerName, ...],
            Field(min_length=1, max_length=18, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Pod sets that all of this applies to, by the names that Kueue gives them: `main` in a Job,
    `head` and the groups of workers in a RayJob, the replicated Jobs in a JobSet. Absent: all."""
    replicas: ReplicaCounts = Field(default_factory=dict)
    """Numbers of replicas to set, by pod set, where its kind allows it: groups of workers in a
    RayJob or RayCluster, replicated Jobs in a JobSet, `worker` and `ps` in Kubeflow's kinds. A
    Job's own bounds, as `maxReplicas`, are kept."""
    accelerator: Accelerator = Accelerator.KEEP
    """Keep, or Remove: take away every extended accelerator resource, the node selectors,
    affinity terms and tolerations that pin to it and the runtime class. No variable is set: where
    such pods may land on nodes whose default runtime is NVIDIA's, an image can still make all
    GPUs visible, unless `env` has NVIDIA_VISIBLE_DEVICES: void. Replace: give `by` for each device
    instead, such as a MIG slice; selectors, affinity terms and tolerations that name a product go,
    and those for another vendor's nodes."""
    by: DeviceCounts = Field(default_factory=dict)
    """What is given for each device that is replaced, as requests and limits of the container that
    asked for it, such as `nvidia.com/mig-2g.20gb: 1`. Only with `accelerator: Replace`."""
    per_removed: Amounts = Field(default_factory=dict)
    """Requests given for each accelerator removed, on the container that lost it; limits below
    them are raised. Only with `accelerator: Remove`."""
    containers: (
        Annotated[
            tuple[ContainerName, ...],
            Field(min_length=1, max_length=16, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Containers that `resources` and `image` apply to, by name. Absent: those that ask for a
    removed resource."""
    resources: ResourceChanges = Field(default_factory=ResourceChanges)
    """Changes to the containers' requests and limits."""
    env: Texts = Field(default_factory=dict)
    """Environment variables to set, in all containers and init containers: name to value. A
    variable that the Job sets itself is read from an annotation of the pod template, so that the
    decision can be undone while the Job is pending; one that it does not set is a plain value."""
    image: Image = ""
    """Image to run; empty: unchanged."""
    node_selector: NodeSelectorChanges = Field(default_factory=NodeSelectorChanges)
    """Changes to the pod's `nodeSelector`."""
    tolerations: TolerationChanges = Field(default_factory=TolerationChanges)
    """Changes to the pod's `tolerations`."""
    affinity: Affinity = Affinity.KEEP
    """Keep, or Remove: take the pod's whole affinity away."""
    runtime_class_name: RuntimeClassName = "Keep"
    """Keep, Remove, or the name of a RuntimeClass to set."""
    labels: Labels = Field(default_factory=dict)
    """Labels to set on the pod template."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations to set on the pod template."""


class Mode(StrEnum):
    OBSERVE = "Observe"
    ADVISE = "Advise"
    ENFORCE = "Enforce"


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


class StrategyType(StrEnum):
    COST = "Cost"
    FINISH_TIME = "FinishTime"
    THRESHOLD = "Threshold"


Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class Gain(Structural):
    """What leaving a more preferred option must gain: at least both."""

    time: Duration = "30s"
    """Earlier by at least this time."""
    percent: Percent = 10
    """Earlier by at least this part of the expected time."""


class MoveGain(Gain):
    """What a move of a pending Job must gain: at least both."""

    time: Duration = "60s"
    """Earlier by at least this time."""
    percent: Percent = 20
    """Earlier by at least this part of the expected time."""


class FinishTime(Structural):
    """Take the option that is expected to finish the Job first."""

    minimum_gain: Gain = Field(default_factory=Gain, json_schema_extra=FILLED)
    """Leave a more preferred option only for at least both."""
    run_time: Duration | None = None
    """Expected run time in the first option before any run was seen; absent: unknown."""


class Saving(Structural):
    """What leaving a more preferred option must save: at least both."""

    amount: Decimal = "0"
    """At least this much money."""
    percent: Percent = 10
    """At least this part of what the preferred option costs in all."""


class MoveSaving(Saving):
    """What a move of a pending Job must save: at least both."""

    percent: Percent = 20
    """At least this part of what the Job costs in all where it is."""


class LatenessWeight(Structural):
    """How the price of lateness follows what Jobs with a deadline meet."""

    most: Decimal = "4"
    """At most so many times the price."""
    target: Percent = 5
    """This percentage of Jobs may end late; with more the price rises, with fewer it falls."""


class Lateness(Structural):
    """Money for being done after the Job's annotation `deadline`."""

    per_hour: Decimal | None = None
    """Money for each hour after it. Absent: four times `timeValue`."""
    fixed: Decimal = "0"
    """Money for being late at all."""
    adapt: LatenessWeight | None = None
    """Follow the share of late Jobs. Absent: the price stays as it is; beside a congestion price
    nothing was gained by it in simulations."""


class CongestionType(StrEnum):
    ADAPTIVE = "Adaptive"
    NONE = "None"


class Congestion(Structural):
    """A price for what is scarce, which rises while Jobs wait for it, and falls while they do not.

    It is charged in decisions, to nobody.
    """

    type: CongestionType = CongestionType.ADAPTIVE
    """Adaptive: the leading controller changes it each minute. None: there is none."""
    most: Decimal = "5"
    """At most so many times the rate of what is scarce."""
    wait: Duration = "5m"
    """It rises while Jobs are expected to wait for longer, and falls while for less than half."""


class HoldRules(Structural):
    """Keep Jobs that may wait from admission until a cheaper hour."""

    longest: Duration = "12h"
    """At most so long, whatever a Job allows."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """What it must save of rates, electricity and CO2: at least both."""
    jobs: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 200
    """While we hold so many Jobs in the cluster, no further one is held."""


class LeastCost(Structural):
    """Take the option with the least expected cost: money, energy, time, lateness, congestion."""

    time_value: Decimal | None = None
    """Money that an hour until the Job is done is worth. Absent: what an hour of the first option
    costs, or 1 where that is nothing."""
    lateness: Lateness = Field(default_factory=Lateness, json_schema_extra=FILLED)
    """What being late costs, for Jobs with a deadline."""
    carbon_price: Decimal = "0"
    """Money for a kilogram of CO2."""
    congestion: Congestion = Field(default_factory=Congestion, json_schema_extra=FILLED)
    """A price for what is scarce."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """Leave a more preferred option only for at least both; for twice as much where the run there
    is a guess by the devices' speed."""
    trial: Annotated[int, Field(strict=True, ge=0, le=1_000)] = 1
    """At most so many Jobs of a class are sent to an option on such a guess until one of them has
    ended there; 0: none is."""
    run_time: Duration | None = None
    """Expected run time in the first option before any run was seen; absent: unknown."""
    hold: HoldRules | None = None
    """Hold Jobs with a deadline, or that ask for it, until a cheaper hour. Absent: none is held."""


_DEFAULTS: Final = LeastCost()


class ThresholdRule(Structural):
    """When one option is taken.

    It fits and fewer than `andReservingBelow` Workloads have quota reserved in its queue, or fewer
    than `orPendingBelow` are pending there.
    """

    option: OptionName
    """Name of the option."""
    or_pending_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Take it also when fewer Workloads than this are pending in its queue."""
    and_reserving_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Take it only while fewer Workloads than this have quota reserved in its queue."""


class Strategy(Structural):
    """How an option is chosen. Only the block of the type in use may be given."""

    type: StrategyType = StrategyType.FINISH_TIME
    """FinishTime: the earliest expected finish. Cost: the least expected cost. Threshold: counts
    and quotas alone."""
    finish_time: FinishTime | None = None
    """For type FinishTime."""
    cost: LeastCost | None = None
    """For type Cost."""
    threshold: (
        Annotated[
            tuple[ThresholdRule, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
        ]
        | None
    ) = None
    """For type Threshold: rules in order; when none holds, the first option is taken."""

    @property
    def forecasts(self) -> bool:
        """Return whether starts and finishes must be known to decide by it."""
        return self.type is not StrategyType.THRESHOLD

    @property
    def least_cost(self) -> LeastCost | None:
        """Return how costs are compared, with defaults; None: they are not."""
        return (self.cost or _DEFAULTS) if self.type is StrategyType.COST else None

    @property
    def run_time(self) -> str | None:
        """Return the expected run time in the first option that the policy gives; None: none."""
        settings = self.finish_time or self.cost
        return settings.run_time if settings is not None else None


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
