"""The parts of a snapshot, each what belongs together: who reads one takes no other.

What Kueue has been told, what it needs to know of the cluster, who waits and runs, what our own
policies say, what was learned of runs, and what things cost. Mappings are never changed after
construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.devices import DeviceUse
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.costs.prices import (
    NO_CONGESTION,
    CompiledTariff,
    CongestionPrices,
    Prices,
    SeenInterruptions,
)
from webhook.model.costs.service import Autoscaler
from webhook.model.forecasts import Dispatch, Estimates
from webhook.model.kueue_support import Doubt, KueueManager
from webhook.model.pods import Selector
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.quantity import FlavorResource
from webhook.model.queues import (
    AdmissionCheck,
    Arrival,
    ClusterQueue,
    Cohort,
    ConsumedResources,
    Held,
    KueueConfig,
    LimitRangeItem,
    LocalQueue,
    QuotaHolder,
    ResourceFlavor,
    WorkerCluster,
    in_order,
)
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys
from webhook.model.topologies import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueSetup:
    """Kueue's own objects, but its Workloads, and its configuration."""

    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], LocalQueue] = field(default_factory=dict)
    consumed: Mapping[tuple[str, str], ConsumedResources] = field(default_factory=dict)
    """LocalQueue to what it has used of late; apart, because Kueue writes it again and again."""
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    node_labels: tuple[Mapping[str, str], ...] = ()
    """What tells flavors and devices of Nodes, each different set once; empty: not watched."""
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)
    multikueue_configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """MultiKueueConfig to the names of its clusters."""
    worker_clusters: Mapping[str, WorkerCluster] = field(default_factory=dict)
    kueue: KueueConfig = field(default_factory=KueueConfig)
    kueue_manager: KueueManager | None = None
    """None: it was not read."""
    doubts: tuple[Doubt, ...] = ()
    """Why this Kueue is untested; see ``model.kueue_support``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """What an admission depends on beside Kueue's own objects."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace to its labels."""
    limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    training_runtimes: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """TrainingRuntimes, by namespace and name, and ClusterTrainingRuntimes, without namespace, as
    the API server has them: ``webhook.jobs`` reads them together with a TrainJob."""
    overheads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """RuntimeClass to ``overhead.podFixed``; a RuntimeClass without overhead maps to {}."""
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """WorkloadPriorityClass to its value."""
    pod_priorities: Mapping[str, int] = field(default_factory=dict)
    """PriorityClass to its value."""
    default_priority: int = 0
    """That of pods that name no PriorityClass."""
    autoscalers: Mapping[tuple[str, str], Autoscaler] = field(default_factory=dict)
    """Namespace and reference of a service to what scales it, but for autoscalers of our own."""

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Find a Namespace's labels; the one that the API server puts on each is always there."""
        return self.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedWorkloads:
    """What ClusterQueues hold: who has quota, and who waits for it."""

    held: Mapping[str, Held] = field(default_factory=dict)
    """ClusterQueue to what it holds; pending are here only those that do not compete for quota."""
    admitted: Mapping[str, Held] = field(default_factory=dict)
    """ClusterQueue to that part of it which Kueue has admitted; in published snapshots empty."""
    competing: Mapping[str, tuple[Arrival, ...]] = field(default_factory=dict)
    """ClusterQueue to its pending Workloads that compete, by shape, in Kueue's order."""
    reserving: Mapping[str, tuple[QuotaHolder, ...]] = field(default_factory=dict)
    """ClusterQueue from which Kueue may preempt to its Workloads with quota, in the order in which
    it would; of very many the first (``state.queue_counts.MOST_HOLDERS``)."""
    obstacles: Mapping[tuple[str, str], Obstacle] = field(default_factory=dict)
    """(namespace, name) of Jobs to what of their Workloads keeps them from being moved."""
    jobs_on_hold: Mapping[str, int] = field(default_factory=dict)
    """Namespace to how many of its Jobs our own gate keeps from admission."""

    @property
    def arrivals(self) -> tuple[Arrival, ...]:
        """List the pending Workloads that compete in any queue, in Kueue's order."""
        return in_order(self.competing[name] for name in sorted(self.competing))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffSwitch:
    """The ConfigMap ``kueue-fallback-off``; no namespaces: everywhere."""

    namespaces: frozenset[str] = frozenset()

    @property
    def is_everywhere(self) -> bool:
        return not self.namespaces

    def covers(self, namespace: str) -> bool:
        return self.is_everywhere or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSetup:
    """What our own objects say: policies, and whose Jobs we are asked about."""

    policies: tuple[FallbackPolicy, ...] = ()
    """The valid ones in their order: the one that applies first at the front, teams' at the end."""
    is_restrained: bool = False
    """Policies that enforce only observe, because of doubts about Kueue (``KueueSetup.doubts``)."""
    off: OffSwitch | None = None
    signing: SigningKeys | None = None
    """What decisions are signed with; None: they are not, and all are believed."""
    runs_before_kueue: bool = True
    """Our mutating webhook is proven to run before Kueue's (it suspends what we give a queue)."""
    reviewed_namespaces: tuple[Selector, ...] = ()
    """Of our webhooks for new Jobs, one each: whose Jobs the API server asks us about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRuns:
    """What earlier runs tell of those to come."""

    run_times: Estimates = field(default_factory=dict)
    start_delays: Estimates = field(default_factory=dict)
    dispatches: Mapping[str, Dispatch] = field(default_factory=dict)
    device_uses: Mapping[str, DeviceUse] = field(default_factory=dict)
    """Job class to what its runs were measured to use of devices."""
    served: Mapping[tuple[str, str], LearnedServing] = field(default_factory=dict)
    """(job class, device and option) to what one replica of such a service does there."""
    interruptions: Mapping[str, SeenInterruptions] = field(default_factory=dict)
    """ResourceFlavor to what was seen of runs there that were evicted as Nodes were lost."""
    failing: frozenset[tuple[str, str, str]] = frozenset()
    """(job class, policy, option) whose runs keep failing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostInputs:
    """What resources cost, and what tells how fast a device is."""

    accelerator_profiles: tuple[AcceleratorProfile, ...] = ()
    """The valid ones, by name."""
    tariffs: tuple[CompiledTariff, ...] = ()
    """Likewise, over the next days."""
    prices: Mapping[str, Prices] = field(default_factory=dict)
    """Worker cluster, or "" for this one, to what resources cost there."""
    currency: str = ""
    """What money is in; empty: not known."""
    scarcity: CongestionPrices = NO_CONGESTION
    """As published last, however long ago."""
    congestion: Mapping[str, Mapping[FlavorResource, float]] = field(default_factory=dict)
    """ClusterQueue to money for one unit and hour of what is scarce there now, beside its rate."""
