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
    """What the pod sets ask of a Topology, by Kueue's annotations on their pods."""

    mode: TopologyMode = TopologyMode.KEEP
    """Keep what the Job says; Required: all pods of a pod set in one domain of `level`; Preferred:
    in one such domain, else in as few as possible; Unconstrained: anywhere; Remove: nothing is
    asked. Auto: Required where some domain is large enough for the pod set, else Preferred, a
    single pod Preferred at the lowest level, and nothing where no flavor has a Topology."""
    level: KeyOrNone = ""
    """The Node label of one of the Topology's levels, such as `nvidia.com/gpu.clique`; with
    Required, Preferred and Auto."""


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
    topology: TopologyChanges = Field(default_factory=TopologyChanges)
    """What the pod sets ask of a Topology (Topology Aware Scheduling)."""
    runtime_class_name: RuntimeClassName = "Keep"
    """Keep, Remove, or the name of a RuntimeClass to set."""
    labels: Labels = Field(default_factory=dict)
    """Labels to set on the pod template."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations to set on the pod template."""
