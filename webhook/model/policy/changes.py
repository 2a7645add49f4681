"""What an option changes in a Job's pod template."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
)

from webhook.model.policy.field_types import (
    ATOMIC,
    UNIQUE,
    Amounts,
    ContainerName,
    DeviceCounts,
    Image,
    Key,
    KeyOrNone,
    Labels,
    LabelValue,
    ReplicaCounts,
    RuntimeClassName,
    Structural,
    Texts,
    unique,
)


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
    replicas: ReplicaCounts = Field(default_factory=dict)
    """Numbers of replicas to set, by pod set. These pod sets can be scaled: worker groups of a
    RayJob or RayCluster, replicated Jobs of a JobSet, and `worker` and `ps` in Kubeflow's kinds. A
    Job's own bounds, such as `maxReplicas`, are kept."""
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
    def given_runtime_class(self) -> str:
        """Return the RuntimeClass that pods get; empty: none."""
        kept = self.runtime_class_name in ("Keep", "Remove")
        return "" if kept else self.runtime_class_name
