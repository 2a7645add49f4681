"""What is known of a cluster at one instant: the value that decisions are made on.

Pure: where the parts come from, and what was there before, is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from webhook.kueue.tree_forecast import TreeForecast
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.snapshot_parts import (
    ClusterObjects,
    CostInputs,
    FallbackSetup,
    KueueSetup,
    LearnedRuns,
    QueuedWorkloads,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Queues, what they hold, and policies at one instant."""

    setup: KueueSetup = field(default_factory=KueueSetup)
    cluster: ClusterObjects = field(default_factory=ClusterObjects)
    workloads: QueuedWorkloads = field(default_factory=QueuedWorkloads)
    fallback: FallbackSetup = field(default_factory=FallbackSetup)
    learned: LearnedRuns = field(default_factory=LearnedRuns)
    costs: CostInputs = field(default_factory=CostInputs)
    forecasts: Mapping[str, TreeForecast] = field(default_factory=dict)
    """ClusterQueue to the forecast of its tree."""
    generation: int = 0
    as_of: float = 0.0
    """Seconds on the monotonic clock (files: on the clock that ``now`` is read from) of the last
    sign of life of the watch that has been silent the longest."""

    def with_policies(self, policies: tuple[FallbackPolicy, ...]) -> Snapshot:
        """Return the same with other policies."""
        return replace(self, fallback=replace(self.fallback, policies=policies))


_PARTS: Final[Mapping[str, type]] = {
    "setup": KueueSetup,
    "cluster": ClusterObjects,
    "workloads": QueuedWorkloads,
    "fallback": FallbackSetup,
    "learned": LearnedRuns,
    "costs": CostInputs,
}
_PART_OF: Final[Mapping[str, str]] = {
    part_field.name: part for part, of_part in _PARTS.items() for part_field in fields(of_part)
}
"""Field of a part to the part; no two parts have a field of the same name."""
FIELDS: Final = (*_PART_OF, "forecasts", "generation", "as_of")
"""All fields that have a value of their own, those of the parts included."""


def value_of(snapshot: Snapshot, name: str) -> Any:
    """Return the value of one of ``FIELDS``."""
    part = _PART_OF.get(name)
    return getattr(snapshot if part is None else getattr(snapshot, part), name)


def updated(snapshot: Snapshot, **values: Any) -> Snapshot:
    """Return the snapshot with other values of some of ``FIELDS``; the other parts stay as is."""
    own: dict[str, Any] = {}
    of_parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in values.items():
        part = _PART_OF.get(name)
        (own if part is None else of_parts[part])[name] = value
    for part, of_part in of_parts.items():
        own[part] = replace(getattr(snapshot, part), **of_part)
    return replace(snapshot, **own)
