"""FallbackPolicy: read at one border into a frozen value, or refused with every mistake.

Its fields stand in ``policy_spec``, the one source of the CRD's schema too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.policy_adaptation import (
    Accelerator,
    Adaptation,
    Affinity,
    NodeSelectorChanges,
    ResourceChanges,
    TolerationChanges,
    TolerationMatch,
    TolerationSpec,
)
from webhook.model.policy_fields import Strict
from webhook.model.policy_spec import (
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

GROUP: Final = "kueue-fallback.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "FallbackPolicy"
PLURAL: Final = "fallbackpolicies"


class FallbackPolicy(Strict):
    """A valid policy. ``generation`` is the object's, for its status."""

    name: str
    generation: int = 0
    spec: Spec


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
    try:
        metadata = fields.mapping(source, "metadata", "")
        return FallbackPolicy.model_validate(
            {
                "name": fields.text(metadata, "name", "metadata"),
                "generation": fields.integer(metadata, "generation", "metadata") or 0,
                "spec": _with_names(fields.mapping(source, "spec", "")),
            }
        )
    except FieldError as error:
        raise PolicyError((error,)) from error
    except ValidationError as error:
        raise PolicyError(tuple(_field_errors(error))) from error


def _with_names(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give each option without a name that of its queue."""
    options = [
        {"name": option.get("queue") or option.get("clusterQueue"), **option}
        for option, _ in fields.objects(spec, "options", "spec")
    ]
    return {**spec, "options": options}


def _field_errors(error: ValidationError) -> list[FieldError]:
    return [FieldError(_path(found["loc"]), found["msg"]) for found in error.errors()]


def _path(parts: tuple[int | str, ...]) -> str:
    path = ""
    for part in parts:
        path = fields.child(path, part)
    return path
