"""A Job as a frozen value, whatever its kind: where it was submitted, who owns it, its pod sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.model.pods import PodTemplate

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

OURS = "kueue-fallback.dev/"
OPTION_LABEL = OURS + "option"
"""On the Job and its pod template: the option's name."""
DECISION = OURS + "decision"
REASON = OURS + "reason"
DECISION_ID = OURS + "decision-id"
"""On the pod template; Kueue copies it into the Workload, where the ledger finds it again."""
DECIDED_BY = OURS + "decided-by"
"""On the pod template: the policy's name, by which guests are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controlling owner reference."""

    api_version: str
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one shape: ``count`` runs at once, as Kueue counts them."""

    name: str
    count: int
    template: PodTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    namespace: str
    name: str
    generate_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    managed_by: str | None = None
    active_deadline_seconds: int | None = None
    pod_sets: tuple[PodSet, ...] = ()

    @property
    def queue(self) -> str:
        """The LocalQueue's name it was submitted to; empty: none, as Kueue reads it."""
        return self.labels.get(QUEUE_LABEL, "")
