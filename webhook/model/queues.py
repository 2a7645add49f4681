"""Kueue's queues and what they hold at one instant.

Amounts are ints as in ``model.quantity``. Mappings are never changed after construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.model.forecasts import JobClass, RunTime
from webhook.model.pods import EVERYTHING, NOTHING, PodTemplate, Selector, Taint, Toleration
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.topologies import PlacedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCluster:
    """A MultiKueueCluster. Kueue sends nothing to one that is not active."""

    active: bool = True
    inactive_because: str = ""
    """The Active condition's message while it is not True."""


Guest: TypeAlias = tuple[str, str, str]
"""(policy, option, namespace)"""
Trial: TypeAlias = tuple[str, str, str]
"""Policy, option and the key of a class of Jobs."""


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class Queueing(StrEnum):
    BEST_EFFORT = "BestEffortFIFO"
    STRICT = "StrictFIFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One cell of a quota table. Limits are None where none is set."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that get their flavor together; flavors in the order in which they are tried."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    quotas: Mapping[FlavorResource, Quota]


NEVER: Final = "Never"
LOWER_PRIORITY: Final = "LowerPriority"
LOWER_OR_NEWER_EQUAL_PRIORITY: Final = "LowerOrNewerEqualPriority"
ANY: Final = "Any"
"""Whom a ClusterQueue may preempt, as its ``preemption`` says in Kueue's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    within_cluster_queue: str = NEVER
    reclaim_within_cohort: str = NEVER
    borrow_within_cohort: str = NEVER
    max_priority_threshold: int | None = None
    """``borrowWithinCohort.maxPriorityThreshold``: the highest priority that a Workload which
    borrows may preempt; None: any below its own."""


BORROWING_OVER_PREEMPTION: Final = "BorrowingOverPreemption"
PREEMPTION_OVER_BORROWING: Final = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    queueing: Queueing = Queueing.BEST_EFFORT
    namespaces: Selector = NOTHING
    stop_policy: StopPolicy = StopPolicy.NONE
    active: bool = True
    inactive_because: str = ""
    """The Active condition's message while it is not True."""
    preemption: Preemption = field(default_factory=Preemption)
    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = BORROWING_OVER_PREEMPTION
    """``flavorFungibility.preference``"""
    checks: tuple[str, ...] = ()
    """AdmissionChecks' names."""
    checks_by_flavor: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of those that hold for some flavors only (``onFlavors``) to these flavors."""
    fair_sharing: bool = False
    fair_weight: float = 1.0
    """``fairSharing.weight``; at 0 its share counts as infinite as soon as it borrows."""
    usage_based: bool = False
    """Which of its LocalQueues is served next depends on what each has used of late."""

    def checks_on(self, flavors: Iterable[str]) -> tuple[str, ...]:
        """Return the AdmissionChecks that a Workload with these flavors has to pass."""
        # ``admissionChecksForAdmission`` in Kueue:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go#L1505
        if not self.checks_by_flavor:
            return self.checks
        assigned, somewhere = frozenset(flavors), self.checks_by_flavor
        return tuple(
            name
            for name in self.checks
            if name not in somewhere or not assigned.isdisjoint(somewhere[name])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Exists also where only ClusterQueues name it; then it has no quota of its own."""

    name: str
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    fair_weight: float = 1.0
    """As a ClusterQueue's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    namespace: str
    name: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: float = 1.0
    """``fairSharing.weight``, by which what it has used is divided (AdmissionFairSharing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedResources:
    """What a LocalQueue has used of late, as Kueue has written it (AdmissionFairSharing)."""

    amounts: Mapping[str, float]
    """In whole units: CPUs, bytes, devices. They decay with ``half_life_seconds``."""
    updated: int = 0
    """When Kueue wrote it, in seconds since 1970; 0: it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheck:
    controller: str = ""
    parameters: str = ""
    """The name of what holds its parameters: under MultiKueue, a MultiKueueConfig."""


MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRangeItem:
    """One entry of a LimitRange's ``spec.limits``; amounts in the author's own words."""

    type: str
    default: Mapping[str, str] = field(default_factory=dict)
    default_request: Mapping[str, str] = field(default_factory=dict)
    min: Mapping[str, str] = field(default_factory=dict)
    max: Mapping[str, str] = field(default_factory=dict)
    max_ratio: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """Kueue's ``resources.transformations[]``; factors as written, they may be fractions."""

    input: str
    outputs: Mapping[str, str]
    replace: bool = False
    multiply_by: str = ""


class Effect(Enum):
    """What something in Kueue does to that on which decisions rest."""

    NOTHING = "nothing"
    MODELLED = "modelled"
    """It is read, and decisions follow it."""
    JOB_BY_JOB = "job by job"
    """It matters to Jobs or queues that are left alone each for itself, whatever it says."""
    UNMODELLED = "unmodelled"
    """With a value other than the default, what Kueue does is not what is forecast."""


@dataclass(frozen=True, slots=True)
class Gate:
    default: bool | None
    """None: to say anything is to change something."""
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueRelease:
    """What Kueue does in one of the tested versions; the defaults are the newest one's.

    The table is ``model.kueue_support.RELEASES``.
    """

    gates: Mapping[str, Gate] = field(default_factory=dict)
    """Those that are not as in ``kueue_support.GATES``."""
    no_candidates_last: bool = True
    """A flavor in which a Workload would find nobody to preempt ranks below those in which it could
    be admitted, whatever ``flavorFungibility.preference`` is."""
    multiplies_retained: bool = False
    """``multiplyBy`` of a transformation scales the input that is retained, too."""
    floors_outputs: bool = True
    """Outputs of transformations that add up to less than zero count as zero, and do not lower what
    a pod asks for."""
    dispatches_by_name: bool = False
    """MultiKueue's incremental dispatcher asks worker clusters in the order of their names, not in
    that of the MultiKueueConfig."""
    weightless_last: bool = True
    """A LocalQueue of weight 0 that has used nothing is served last of those ordered by usage."""


LESS_THAN_OR_EQUAL_TO_FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"
LESS_THAN_INITIAL_SHARE: Final = "LessThanInitialShare"
DEFAULT_STRATEGIES: Final = (LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, LESS_THAN_INITIAL_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """Kueue's ``admissionFairSharing``, which orders LocalQueues by what they have used."""

    half_life_seconds: float
    """After so long, use counts half; 0: it is forgotten at once."""
    sampling_seconds: float = 300.0
    """How often Kueue updates what LocalQueues have consumed."""
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """1 for a resource that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueConfig:
    """What Kueue's own configuration says that changes a decision. Defaults are Kueue's."""

    excluded_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    ignore_undeclared: bool = False
    manage_without_queue: bool = False
    managed_namespaces: Selector = EVERYTHING
    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    fair_sharing: bool = False
    preemption_strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    """``fairSharing.preemptionStrategies``, in the order in which they are tried."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """None: LocalQueues are not ordered by what they have used, whatever ClusterQueues say."""
    block_admission: bool = False
    """``waitForPodsReady.blockAdmission``"""
    requeues_by_eviction: bool = True
    """``waitForPodsReady.requeuingStrategy.timestamp``: Workloads whose pods were not ready in time
    queue again by when they were evicted, and not by when they were created."""
    device_mappings: Mapping[str, str] = field(default_factory=dict)
    """``resources.deviceClassMappings``: DeviceClass to the name by which Kueue counts its devices;
    empty where it does not count devices, but what they consist of."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Extended resource that a DeviceClass stands for to the name by which Kueue counts it."""
    clusters_per_round: int = 0
    """How many worker clusters MultiKueue's incremental dispatcher asks at a time; 0: MultiKueue
    asks all of them at once."""
    external_dispatcher: bool = False
    """MultiKueue leaves it to somebody else's controller which clusters are asked."""
    own_dispatcher: bool = False
    """It leaves it to ours, which asks one at a time."""
    requeue_seconds: float = 1.0
    """From when quota is released until those who were tried in vain are tried again."""
    unmodelled_fields: tuple[str, ...] = ()
    """Fields that may make Kueue do something else than is forecast."""
    release: KueueRelease = KueueRelease()
    """That of the version that runs; the newest where it is not known, or not tested."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Those that are set, on the command line or in the configuration."""
    is_read: bool = True
    """False: these are defaults, because nothing was found, or it could not be read."""


class Stage(StrEnum):
    """What a Workload counts as for Kueue."""

    PENDING = "pending"
    RESERVING = "reserving"
    NEITHER = "neither"
    """Finished, deactivated, on hold, gated: neither queued nor charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetNeeds:
    """What one pod set asks for: per pod, and where it may run."""

    name: str
    count: int
    per_pod: Mapping[str, int]
    template: PodTemplate
    """At least what flavors depend on: selectors, tolerations, affinity, topology annotations."""
    min_count: int | None = None
    """As in ``PodSet``."""
    group: str = ""
    """Likewise."""
    held: Amounts = field(default_factory=dict)
    """What the slice of an elastic Job that it replaces holds for this pod set: it keeps those
    flavors, and only what it asks for beyond has to be free."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """What one pod asks for of extended resources that Kueue counts by other names."""
    on_node: Mapping[str, int] = field(default_factory=dict)
    """What one pod takes of its Node, where Kueue counts something else against quota."""
    is_refused: bool = False
    """Kueue never admits its pods, because LimitRanges or their own limits forbid them."""
    known: dict[tuple[int, ...], tuple[object, Any]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What has been worked out of it for a ClusterQueue; equal templates share their needs."""

    @property
    def asked(self) -> Mapping[str, int]:
        """What all pods ask for, devices by the names in the template as well."""
        by_own_name = {name: amount * self.count for name, amount in self.devices.items()}
        return {**by_own_name, **self.total}

    @property
    def of_node(self) -> Mapping[str, int]:
        """Return what one pod takes of its Node."""
        return self.on_node or self.per_pod

    @property
    def total(self) -> Mapping[str, int]:
        return {resource: amount * self.count for resource, amount in self.per_pod.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Workloads of one shape that want quota: pending ones as seen, or a placement.

    Which of them reserve quota now and which wait is what ``kueue.occupancy`` predicts.
    """

    key: str
    """The decision's id, or ``namespace/name`` of its Job for Jobs left as submitted."""
    namespace: str
    local_queue: str
    needs: tuple[PodSetNeeds, ...]
    priority: int = 0
    policy: str = ""
    option: str = ""
    count: int = 1
    created: int = 0
    """Of pending ones the time by which Kueue orders the first, in seconds since 1970."""
    run: RunTime | None = None
    """What a placement's run is expected to take, where that is known; without a decision, what
    its time limits let it take."""
    job_class: JobClass | None = None
    """A placement's, where nothing else tells of its run."""
    cluster: str = ""
    """The worker cluster where a placement is expected to run; empty: it is not known, or here."""

    @property
    def local_queue_key(self) -> str:
        """``namespace/name`` of its LocalQueue."""
        return f"{self.namespace}/{self.local_queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first pending Workload of a ClusterQueue in which others wait behind it.

    That is so under StrictFIFO, and where its search for flavors goes round for ever.
    """

    priority: int
    height: int
    """How far up its cohorts it would borrow from; 0: not at all."""
    set_aside: Amounts
    """Quota that Kueue keeps free for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one ClusterQueue holds: counts of Workloads and quota charged to it."""

    pending: int = 0
    reserving: int = 0
    ready: int = 0
    """Of the reserving, those whose pods are known to be ready."""
    usage: Amounts = field(default_factory=dict)
    guests: Mapping[Guest, int] = field(default_factory=dict)
    """To its Workloads here, pending or reserving."""
    trials: Mapping[Trial, int] = field(default_factory=dict)
    """Likewise, by class; of policies by cost alone, and of placements whose run is a guess."""
    lowest_priority: int | None = None
    """Of its reserving Workloads; None where nothing is known of them."""
    placed: tuple[PlacedPods, ...] = ()
    """Its pods in the domains of Topologies."""
    head: Head | None = None
    """None: nobody waits there, it is not known who does, or they do not wait for a head."""


HolderOrder: TypeAlias = tuple[bool, float, float, str, str]


class QuotaHolder(NamedTuple):
    """A Workload that holds quota, with what decides whether Kueue preempts it."""

    key: str
    """``namespace/name``; in a Simulation, what tells it from the others there."""
    priority: float
    reserved_at: float
    """When it got its quota, in seconds since 1970, or since the simulation's beginning; 0: it does
    not say."""
    queued_at: float
    """The time by which its queue would order it, in seconds since 1970; in a Simulation, its place
    by that time."""
    uid: str = ""
    local_queue: str = ""
    """``namespace/name``, as in the usages by which admission fair sharing orders LocalQueues."""
    is_evicted: bool = False
    charge: tuple[tuple[FlavorResource, int], ...] = ()
    # From here on what a tree of quota has to know.
    leaf: int = -1
    """Its ClusterQueue's node."""
    taken: tuple[tuple[int, int], ...] = ()
    """The charge, in the tree's indices."""

    @property
    def order(self) -> HolderOrder:
        """Sort as Kueue preempts those of one ClusterQueue without admission fair sharing."""
        # ``CandidatesOrdering``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go#L42
        return not self.is_evicted, self.priority, -self.reserved_at, self.uid, self.key


def in_order(arrivals: Iterable[Iterable[Arrival]]) -> tuple[Arrival, ...]:
    """Return the arrivals of several queues in the order of Kueue: by priority, then by age."""
    return tuple(sorted(chain.from_iterable(arrivals), key=_rank))


def _rank(arrival: Arrival) -> tuple[int, int]:
    return -arrival.priority, arrival.created
