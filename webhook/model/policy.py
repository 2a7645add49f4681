"""FallbackPolicy: the one source of its fields, from which the CRD's schema is generated too."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "kueue-fallback.dev"
VERSION = "v1alpha1"
KIND = "FallbackPolicy"
PLURAL = "fallbackpolicies"

DURATION = r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ENV_NAME = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"


class Mode(StrEnum):
    OBSERVE = "Observe"
    ADVISE = "Advise"
    ENFORCE = "Enforce"


class Strict(BaseModel):
    """Frozen, camelCase outside, and a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


Text = Annotated[str, Field(max_length=63)]
Duration = Annotated[str, Field(pattern=DURATION, max_length=32)]
Amount = Annotated[str, Field(min_length=1, max_length=32)]
"""A quantity; numbers in YAML are read as text."""
AmountsByName = Annotated[dict[str, Amount], Field(max_length=32)]


class SelectorExpression(Strict):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Strict):
    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[SelectorExpression, ...] = ()


class Match(Strict):
    """Which Jobs a policy is for; all that is given must hold."""

    namespace_selector: LabelSelector | None = None
    job_selector: LabelSelector | None = None
    max_requests: AmountsByName | None = None
    queues: tuple[Text, ...] | None = None
    without_queue: bool = False


class ResourceChanges(Strict):
    remove: tuple[str, ...] = ()
    requests: dict[str, Amount] = Field(default_factory=dict)
    limits: dict[str, Amount] = Field(default_factory=dict)


class NodeSelectorChanges(Strict):
    remove: tuple[str, ...] = ()
    set: dict[str, str] = Field(default_factory=dict)


class TolerationSpec(Strict):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class TolerationMatch(Strict):
    """Tolerations to take away: those whose given fields are equal."""

    key: str
    value: str | None = None
    effect: str | None = None


class TolerationChanges(Strict):
    remove: tuple[TolerationMatch, ...] = ()
    add: tuple[TolerationSpec, ...] = ()


class Accelerator(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"


class Affinity(StrEnum):
    KEEP = "Keep"
    REMOVE = "Remove"


class Adaptation(Strict):
    """What an option changes in the pod template: a closed vocabulary, never a free patch."""

    accelerator: Accelerator = Accelerator.KEEP
    per_removed: dict[str, Amount] = Field(default_factory=dict)
    containers: tuple[Text, ...] | None = None
    resources: ResourceChanges = Field(default_factory=ResourceChanges)
    env: dict[str, str] = Field(default_factory=dict)
    image: str = ""
    node_selector: NodeSelectorChanges = Field(default_factory=NodeSelectorChanges)
    tolerations: TolerationChanges = Field(default_factory=TolerationChanges)
    affinity: Affinity = Affinity.KEEP
    runtime_class_name: str = "Keep"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Guests(Strict):
    max_jobs: int = Field(ge=0)
    priority_class: str = ""


class Option(Strict):
    """One way to run the Job: a LocalQueue (or the one that points to a ClusterQueue)."""

    name: Text = ""
    """Filled with the queue's name where the author gave none."""
    queue: str = ""
    cluster_queue: str = ""
    slowdown: float = 1.0
    start_delay: Duration = "0s"
    guests: Guests | None = None
    adaptation: Adaptation = Field(default_factory=Adaptation)


class StrategyType(StrEnum):
    FINISH_TIME = "FinishTime"
    THRESHOLD = "Threshold"


class Gain(Strict):
    time: Duration = "30s"
    percent: int = Field(default=10, ge=0, le=100)


class FinishTime(Strict):
    minimum_gain: Gain = Field(default_factory=Gain)
    run_time: Duration | None = None


class ThresholdRule(Strict):
    option: Text
    or_pending_below: int | None = Field(default=None, ge=0)
    and_reserving_below: int | None = Field(default=None, ge=0)


class Strategy(Strict):
    type: StrategyType = StrategyType.FINISH_TIME
    finish_time: FinishTime | None = None
    threshold: tuple[ThresholdRule, ...] | None = None


class Reconsider(Strict):
    after: Duration = "30s"
    minimum_gain: Gain = Field(default_factory=Gain)
    max_moves: int = Field(default=2, ge=1)
    adopt: bool = False


class Spec(Strict):
    mode: Mode = Mode.OBSERVE
    priority: int = 0
    match: Match
    options: tuple[Option, ...] = Field(min_length=1, max_length=8)
    strategy: Strategy = Field(default_factory=Strategy)
    reconsider: Reconsider | None = None


class FallbackPolicy(Strict):
    """A valid policy. ``generation`` is the object's, for its status."""

    name: str
    generation: int = 0
    spec: Spec


def read_policy(source: dict[str, Any]) -> FallbackPolicy:
    """Read the object as the API server serves it or a file holds it.

    Raises:
        PolicyError: with every mistake, each naming its path.

    """
    raise NotImplementedError
