"""FallbackPolicy: read at one border into a frozen value, or refused with every mistake.

Its fields stand in ``policy_spec``, the one source of the CRD's schema too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.model.fields import FieldError
from webhook.model.policy.policy_adaptation import (
    Accelerator,
    Adaptation,
    Affinity,
    NodeSelectorChanges,
    ResourceChanges,
    TolerationChanges,
    TolerationMatch,
    TolerationSpec,
)
from webhook.model.policy.policy_faults import faults
from webhook.model.policy.policy_fields import Strict
from webhook.model.policy.rules import option_name
from webhook.model.policy.schema import GROUP, KIND, PLURAL, VERSION, schema
from webhook.model.policy.spec import (
    FinishTime,
    Gain,
    Guests,
    LabelSelector,
    Match,
    Mode,
    MoveGain,
    Option,
    Reconsider,
    SelectorExpression,
    Spec,
    Strategy,
    StrategyType,
    ThresholdRule,
)
from webhook.model.policy.validation import prepared

__all__ = [
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "Accelerator",
    "Adaptation",
    "Affinity",
    "FallbackPolicy",
    "FinishTime",
    "Gain",
    "Guests",
    "LabelSelector",
    "Match",
    "Mode",
    "MoveGain",
    "NodeSelectorChanges",
    "Option",
    "PolicyError",
    "Reconsider",
    "ResourceChanges",
    "SelectorExpression",
    "Spec",
    "Strategy",
    "StrategyType",
    "ThresholdRule",
    "TolerationChanges",
    "TolerationMatch",
    "TolerationSpec",
    "read_policy",
]


class FallbackPolicy(Strict):
    """A valid policy. ``generation`` is the object's, for its status."""

    name: str
    generation: int = 0
    spec: Spec
    restrained: str = ""
    """Why it only observes where its object says Enforce; empty: its mode is its own."""


class PolicyError(ValueError):
    """A policy is invalid: every mistake found, each naming its path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "; ".join(str(error) for error in self.errors)


def read_policy(source: Mapping[str, Any]) -> FallbackPolicy:
    """Read the object as the API server serves it or a file holds it.

    Raises:
        PolicyError: with every mistake, each naming its path.

    """
    if errors := faults(source):
        raise PolicyError(errors)
    value = prepared(source, schema())
    spec = value["spec"]
    options = [{**option, "name": option_name(option)} for option in spec["options"]]
    return FallbackPolicy(
        name=value["metadata"]["name"],
        generation=value["metadata"].get("generation", 0),
        spec=Spec.model_validate({**spec, "options": options}),
    )
