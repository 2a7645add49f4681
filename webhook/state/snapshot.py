"""What is known of a cluster at one instant: the value that decisions are made on.

Where decisions would rest on an untested Kueue, policies only observe in it.

Pure: where the parts come from, and what was there before, is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import is_not
from typing import Any, Final

from webhook.kueue.tree_forecast import TreeForecast
from webhook.model.kueue_support import Doubt, doubts
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
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


class Restraint:
    """Restrains snapshots; what has not changed since the last one stays the same object."""

    def __init__(self, *, stated_version: str = "", enforces: bool = False) -> None:
        """Judge with *stated_version*, Kueue's version as the settings have it; empty: none.

        *enforces*: doubts are reported, and policies keep their modes all the same.
        """
        self._stated_version = stated_version
        self._enforces = enforces
        self._judged: tuple[object, ...] = ()
        self._doubts: tuple[Doubt, ...] = ()
        self._policies: tuple[FallbackPolicy, ...] = ()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with doubts about its Kueue, and with policies restrained by them."""
        setup, policies = snapshot.setup, snapshot.fallback.policies
        # Snapshots come several times a second, and Kueue's configuration hardly ever changes.
        asked = (setup.kueue, setup.kueue_manager, policies)
        if not self._judged or any(map(is_not, asked, self._judged)):
            self._judged = asked
            self._doubts = doubts(setup.kueue, setup.kueue_manager, self._stated_version)
            self._policies = policies
            if self._is_restrained:
                # Forecasts follow Kueue's rules in the versions that were tested: with others they
                # would be guesses (decision 0019).
                self._policies = tuple(restrained(policy, self._doubts[0]) for policy in policies)
        return updated(
            snapshot,
            doubts=self._doubts,
            policies=self._policies,
            is_restrained=self._is_restrained,
        )

    @property
    def _is_restrained(self) -> bool:
        return bool(self._doubts) and not self._enforces


def restrained(policy: FallbackPolicy, doubt: Doubt) -> FallbackPolicy:
    """Return a policy that only observes in the place of one that enforces.

    A policy that advises stays as it is, because it changes nothing that runs.
    """
    if policy.spec.mode is not Mode.ENFORCE:
        return policy
    spec = policy.spec.model_copy(update={"mode": Mode.OBSERVE})
    return policy.model_copy(update={"spec": spec, "restrained": doubt.message})
