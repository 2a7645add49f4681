"""FallbackPolicy: read at one border into a frozen value, or refused with every mistake.

Its fields stand in ``policy_spec``, the one source of the CRD's schema too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.model import quantity
from webhook.model.fields import FieldError
from webhook.model.policy.rules import option_name
from webhook.model.policy.schema import GROUP, KIND, PLURAL, VERSION, schema
from webhook.model.policy.spec import (
    Accelerator,
    Adaptation,
    Affinity,
    FinishTime,
    Gain,
    Guests,
    LabelSelector,
    Match,
    Mode,
    MoveGain,
    NodeSelectorChanges,
    Option,
    Reconsider,
    ResourceChanges,
    SelectorExpression,
    Spec,
    Strategy,
    StrategyType,
    Strict,
    ThresholdRule,
    TolerationChanges,
    TolerationMatch,
    TolerationSpec,
)
from webhook.model.policy.validation import faults, prepared
from webhook.model.selector import Expression, Operator, Selector

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


_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def selector(given: LabelSelector | None, default: Selector) -> Selector:
    """Turn a policy's label selector into one that matches; *default* stands for an absent one."""
    if given is None:
        return default
    return Selector(
        labels=given.match_labels,
        expressions=tuple(
            Expression(key=one.key, operator=Operator(one.operator), values=one.values)
            for one in given.match_expressions
        ),
    )


def seconds(duration: str) -> float:
    """Tell how many seconds a valid duration such as ``1h30m`` is."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def amounts(given: Mapping[str, str]) -> Mapping[str, int]:
    """Turn valid quantities into ints, as ``model.quantity`` counts them."""
    return {name: quantity.parse(text, resource=name) for name, text in given.items()}


def queues_of(policy: FallbackPolicy) -> frozenset[str]:
    """Name the LocalQueues that Jobs must be submitted to: given, or the options' own."""
    if policy.spec.match.queues is not None:
        return frozenset(policy.spec.match.queues)
    return frozenset(option.queue for option in policy.spec.options if option.queue)


def sort_key(policy: FallbackPolicy) -> tuple[int, str]:
    """Order policies so that the one that applies comes first: priority down, then name."""
    return (-policy.spec.priority, policy.name)
