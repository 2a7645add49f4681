"""A FallbackPolicy's spec: which Jobs it is for, the options they have, and how one is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
)

from webhook.model.costs.devices import Isolation
from webhook.model.policy.custom_object import (
    ATOMIC,
    FILLED,
    UNIQUE,
    Amounts,
    ContainerName,
    Decimal,
    DeviceCounts,
    Duration,
    EnvName,
    ExternalMetricName,
    Flag,
    FlagName,
    FreeText,
    Image,
    Key,
    KeyOrNone,
    Labels,
    LabelValue,
    Message,
    MetricName,
    ObjectName,
    ObjectOrNone,
    OptionName,
    QueueName,
    QueueOrNone,
    Replicas,
    RuntimeClassName,
    Structural,
    Texts,
    UserName,
    unique,
)
from webhook.model.policy.strategy import MoveGain, MoveSaving, Strategy


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


class Accelerator(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"
    REPLACE = "Replace"


class Affinity(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"


class TopologyMode(StrEnum):
    KEEP = "Keep"
    AUTO = "Auto"
    REQUIRED = "Required"
    PREFERRED = "Preferred"
    UNCONSTRAINED = "Unconstrained"
    REMOVE = "Remove"


class TopologyChanges(Structural):
    """What pod sets request from a Topology, set by Kueue's annotations on their pods."""

    mode: TopologyMode = TopologyMode.KEEP
    """Keep: leave the Job's own topology request. Required: put all pods of a pod set into one
    domain of `level`. Preferred: use one such domain, or else as few as possible. Unconstrained:
    place pods anywhere. Remove: request nothing. Auto: choose for each pod set. It uses Required if
    a domain is large enough, and else Preferred; Preferred at the lowest level for a single pod;
    and no request if no flavor has a Topology."""
    level: KeyOrNone = ""
    """The Node label of one of the Topology's levels, such as `nvidia.com/gpu.clique`. It is for
    the modes Required, Preferred and Auto."""


class ResourceChanges(Structural):
    """Changes to the containers' requests and limits. Removals come first."""

    remove: Annotated[
        tuple[Key, ...], Field(max_length=16, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Resources to remove from requests and limits, such as `nvidia.com/gpu`."""
    requests: Amounts = Field(default_factory=dict)
    """Requests to set, as resource to quantity."""
    limits: Amounts = Field(default_factory=dict)
    """Limits to set, as resource to quantity. None may be below the request given here."""


class NodeSelectorChanges(Structural):
    """Changes to the pod's `nodeSelector`. Removals come first."""

    remove: Annotated[
        tuple[Key, ...], Field(max_length=32, json_schema_extra=UNIQUE), AfterValidator(unique)
    ] = ()
    """Label keys to remove."""
    set: Labels = Field(default_factory=dict)
    """Labels to require, as key to value."""


Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TolerationSpec(Structural):
    """A toleration as in a pod's `tolerations`."""

    key: KeyOrNone = ""
    """Taint key. An empty key with operator Exists tolerates every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """How the taint's value is compared."""
    value: LabelValue = ""
    """Taint value, for operator Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Taint effect. Empty: every effect."""
    toleration_seconds: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    """How many seconds a NoExecute taint is tolerated. Absent: for ever."""


class TolerationMatch(Structural):
    """Tolerations to remove: those in which all given fields are equal."""

    key: Key
    """Taint key."""
    value: LabelValue | None = None
    """Taint value. Absent: any."""
    effect: Effect | None = None
    """Taint effect. Absent: any."""


class TolerationChanges(Structural):
    """Changes to the pod's `tolerations`. Removals come first."""

    remove: Annotated[
        tuple[TolerationMatch, ...], Field(max_length=16, json_schema_extra=ATOMIC)
    ] = ()
    """Tolerations to remove."""
    add: Annotated[tuple[TolerationSpec, ...], Field(max_length=16, json_schema_extra=ATOMIC)] = ()
    """Tolerations to add, unless the pod already has them."""


class Adaptation(Structural):
    """What this option changes in the pod templates. Absent: it changes only the queue."""

    accelerator: Accelerator = Accelerator.KEEP
    """Keep: change nothing. Remove: remove every extended accelerator resource, and the runtime
    class, node selectors, affinity terms and tolerations that go with it. Remove sets no variable.
    If such pods may run on nodes whose default runtime is NVIDIA's, they need the variable
    NVIDIA_VISIBLE_DEVICES: void; otherwise an image can still make all GPUs visible. Replace: put
    `by` in place of each device, such as a MIG slice. Selectors, affinity terms and tolerations
    that name a product or another vendor's nodes are removed."""
    by: DeviceCounts = Field(default_factory=dict)
    """What replaces each device, such as `nvidia.com/mig-2g.20gb: 1`. It becomes a request and a
    limit of the container that asked for the device. Only with `accelerator: Replace`."""
    per_removed: Amounts = Field(default_factory=dict)
    """Requests to add for each removed accelerator, on the container that had it. Lower limits are
    raised to them. Only with `accelerator: Remove`."""
    containers: (
        Annotated[
            tuple[ContainerName, ...],
            Field(min_length=1, max_length=16, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Names of the containers whose resources, or image, change. Absent: the containers that
    request a removed resource."""
    resources: ResourceChanges = Field(default_factory=ResourceChanges)
    """Changes to the containers' requests and limits."""
    pod_sets: (
        Annotated[
            tuple[ContainerName, ...],
            Field(min_length=1, max_length=18, json_schema_extra=UNIQUE),
            AfterValidator(unique),
        ]
        | None
    ) = None
    """Pod sets to change, by the names that Kueue gives them. A Job has `main`; a RayJob has `head`
    and its worker groups; a JobSet has its replicated Jobs. Absent: all."""
    replicas: Replicas = Field(default_factory=dict)
    """Numbers of replicas to set, by pod set; or Auto, for services with strategy Cost: as many as
    hold the service's `target-latency`. These pod sets can be scaled: worker groups of a RayJob or
    RayCluster, replicated Jobs of a JobSet, `worker` and `ps` in Kubeflow's kinds, and the first
    pod set of a service, which is `leader` or `main`. A Job's own bounds, such as `maxReplicas`,
    are kept. The API server does not check the numbers; the condition Ready says what is wrong."""
    env: Texts = Field(default_factory=dict)
    """Environment variables to set in all containers and init containers, as name to value. If the
    Job sets the variable itself, the pod reads the new value from an annotation of the pod
    template, so that the decision can be undone while the Job is pending. Otherwise the variable is
    added with a plain value."""
    image: Image = ""
    """Image to run. Empty: unchanged."""
    node_selector: NodeSelectorChanges = Field(default_factory=NodeSelectorChanges)
    """Changes to the pod's `nodeSelector`."""
    tolerations: TolerationChanges = Field(default_factory=TolerationChanges)
    """Changes to the pod's `tolerations`."""
    affinity: Affinity = Affinity.KEEP
    """Keep: change nothing. Remove: remove the pod's whole affinity."""
    topology: TopologyChanges = Field(default_factory=TopologyChanges)
    """What the pod sets request from a Topology (Topology Aware Scheduling)."""
    runtime_class_name: RuntimeClassName = "Keep"
    """Keep: change nothing. Remove: remove the RuntimeClass. Any other value is the name of a
    RuntimeClass to set."""
    labels: Labels = Field(default_factory=dict)
    """Labels to set on the pod template."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations to set on the pod template."""

    @property
    def given_replicas(self) -> Mapping[str, int]:
        """The numbers of replicas that it gives itself, by pod set; Auto gives none."""
        return {} if isinstance(self.replicas, str) else self.replicas

    @property
    def given_runtime_class(self) -> str:
        """Return the RuntimeClass that pods get; empty: none."""
        kept = self.runtime_class_name in ("Keep", "Remove")
        return "" if kept else self.runtime_class_name


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


class ReplicaServing(Structural):
    """What one replica of a service does on this option's device."""

    requests_per_second: Decimal
    """The most requests a second that it can answer."""
    latency: Duration
    """The 95th percentile of the time for a request that does not wait."""


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
    serving: ReplicaServing | None = None
    """For services: what one replica does here. Absent: learned, or else derived from the first
    option of which either is known, by the speed of the devices or by `slowdown`. Only with
    strategy Cost."""

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
    horizon: Duration = "24h"
    """For services, which never end: the time over which a move must save `minimumSaving`."""
    ready_within: Duration = "10m"
    """For services: how long the new pods of a move may take until they are ready. After that, the
    service is put back."""


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


class ServingMetrics(Structural):
    """Metrics in Prometheus that services report, with the labels `namespace` and `pod`."""

    requests: MetricName
    """A counter of answered requests."""
    latency: MetricName
    """A histogram of the seconds that requests took, named without `_bucket`."""


class Autoscale(Structural):
    """A HorizontalPodAutoscaler that the controller keeps for each service.

    It does so if the chart's `controller.autoscale` is on. The targets are those at which the
    service's `target-latency` holds.
    """

    min_replicas: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    """The fewest replicas, which stay warm. Absent: what the service's request rate needs."""
    queue_length: ExternalMetricName | None = None
    """An external metric with the number of requests that wait or are answered. It is asked for
    with the label `deployment` or `leaderworkerset`, the service's name. Absent: not followed."""
    latency: ExternalMetricName | None = None
    """Likewise, an external metric with the 95th percentile of the latency in seconds. Without
    either of them the CPU's utilisation is followed."""


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
    serving: ServingMetrics | None = None
    """From which metrics it is learned what one replica of a service does. Absent: nothing is
    learned. Only with strategy Cost."""
    autoscale: Autoscale | None = None
    """Let the controller keep a HorizontalPodAutoscaler for each service. Absent: it keeps none.
    Only with strategy Cost."""
