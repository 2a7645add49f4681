"""What objects of our own kinds have in common: metadata, conditions, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from webhook.model.fields import FieldError, field_errors
from webhook.model.policy.field_types import ObjectName, Strings, Structural
from webhook.model.policy.patterns import FORMS
from webhook.model.policy.rules import RULES, Rule


class PolicyError(ValueError):
    """An object of ours is invalid: every mistake found, each naming its path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "; ".join(str(error) for error in self.errors)


class Metadata(Structural):
    """What an object's metadata may hold; most of it is the API server's own."""

    name: ObjectName
    generation: int = 0
    labels: Strings = Field(default_factory=dict)
    annotations: Strings = Field(default_factory=dict)
    creation_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    deletion_timestamp: Any = None
    finalizers: Any = None
    generate_name: Any = None
    managed_fields: Any = None
    namespace: Any = None
    owner_references: Any = None
    resource_version: Any = None
    self_link: Any = None
    uid: Any = None


class StatusCondition(Structural):
    type: Annotated[str, Field(max_length=316)]
    """Type of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: (
        Annotated[int, Field(strict=True, ge=0, json_schema_extra={"format": "int64"})] | None
    ) = None
    """Generation of the object that the condition was set for."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    reason: Annotated[str, Field(max_length=1024)]
    """One word that says why the condition has its status."""
    message: Annotated[str, Field(max_length=32768)]
    """The details, for people."""


Conditions: TypeAlias = Annotated[
    tuple[StatusCondition, ...],
    Field(
        max_length=8,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]


class CustomObject(Structural):
    """A whole object, as the API server serves it or a file holds it, but for its spec."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata


_Object = TypeVar("_Object", bound=CustomObject)


def read_object(
    model: type[_Object],
    source: Mapping[str, Any],
    rules: Mapping[str, tuple[Rule, ...]] = RULES,
) -> _Object:
    """Read a whole object as *model*, which and whose parts must keep the *rules* on them.

    Raises:
        PolicyError: with every mistake, each naming its path.

    """
    try:
        return model.model_validate(source, by_alias=True, by_name=False, context=rules)
    except ValidationError as error:
        raise PolicyError(field_errors(error, FORMS)) from error
