"""What objects of our own kinds have in common: types of fields, metadata, how they are read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from webhook.model.fields import FieldError, field_errors
from webhook.model.policy import patterns
from webhook.model.policy.patterns import FORMS, LONGEST_LABEL, LONGEST_MESSAGE
from webhook.model.policy.rules import RULES, Rule

if TYPE_CHECKING:
    from pydantic.config import JsonDict


class Strict(BaseModel):
    """Frozen, camelCase outside, and a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        # Most processes read few of the models, or none: what validates is built when it is needed.
        defer_build=True,
    )


class Structural(Strict):
    """An object of a policy, read as the API server stores it; it keeps the rules on it."""

    @model_validator(mode="before")
    @classmethod
    def _store(cls, given: Any) -> Any:
        return stored(given, {field.alias for field in cls.model_fields.values()})

    @model_validator(mode="after")
    def _keep_rules(self, info: ValidationInfo) -> Self:
        """Keep the rules that the reader gives as the context, or else those of ``RULES``."""
        rules = (info.context or RULES).get(type(self).__name__, ())
        broken = [rule for rule in rules if not rule.fact.holds(self)]
        if broken:
            raise _mistakes((tuple(rule.field.split(".")[1:]), rule.text(self)) for rule in broken)
        return self


def stored(given: Any, nullable: Container[str | None] | None = None) -> Any:
    """Leave out nulls, of all keys or of *nullable*, and write whole floats as ints."""
    if not isinstance(given, dict):
        return given
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in given.items()
        if value is not None or (nullable is not None and name not in nullable)
    }


def unique(items: tuple[str, ...]) -> tuple[str, ...]:
    repeated = [index for index, text in enumerate(items) if text in items[:index]]
    if repeated:
        raise _mistakes(((index,), f"{items[index]!r} is there already") for index in repeated)
    return items


def _mistakes(placed: Iterable[tuple[tuple[str | int, ...], str]]) -> ValidationError:
    """Return an error with several mistakes, each at a place below."""
    mistakes = [
        InitErrorDetails(
            type=PydanticCustomError("rule", "{text}", {"text": text}), loc=place, input=None
        )
        for place, text in placed
    ]
    return ValidationError.from_exception_data("policy", mistakes)


def _text(amount: Any) -> Any:
    is_whole = isinstance(amount, int) and not isinstance(amount, bool)
    return str(amount) if is_whole else amount


OptionName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.NAME)
]
"""A label value, because it is one on the Job and its pods."""
QueueName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.SUBDOMAIN)
]
"""A LocalQueue's name: the value of the label ``kueue.x-k8s.io/queue-name``."""
QueueOrNone: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_LABEL, pattern=patterns.SUBDOMAIN_OR_NONE)
]
ObjectName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=patterns.SUBDOMAIN)
]
NamespaceName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.LABEL)
]
UserName: TypeAlias = Annotated[str, Field(min_length=1, max_length=512)]
"""A user's or a group's name as the API server has authenticated it."""
ObjectOrNone: TypeAlias = Annotated[str, Field(max_length=253, pattern=patterns.SUBDOMAIN_OR_NONE)]
ContainerName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=patterns.LABEL)
]
Key: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=316, pattern=patterns.QUALIFIED_NAME)
]
"""A qualified name: a label key, a resource, a taint key."""
KeyOrNone: TypeAlias = Annotated[
    str, Field(max_length=316, pattern=patterns.QUALIFIED_NAME_OR_NONE)
]
LabelValue: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_LABEL, pattern=patterns.LABEL_VALUE)
]
FreeText: TypeAlias = Annotated[str, Field(max_length=4096)]
Image: TypeAlias = Annotated[str, Field(max_length=512, pattern=patterns.IMAGE)]
Message: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_MESSAGE, pattern=patterns.ONE_LINE_OR_NONE)
]
"""A warning's text; the API server sends it in a header."""
FlagName: TypeAlias = Annotated[str, Field(min_length=1, max_length=64, pattern=patterns.FLAG)]
"""As a command line has it, with its dashes: ``--steps``, ``-s``."""
EnvName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.ENV_NAME)]
RuntimeClassName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=patterns.RUNTIME_CLASS)
]
Duration: TypeAlias = Annotated[str, Field(min_length=2, max_length=32, pattern=patterns.DURATION)]
"""As Go writes it: ``30s``, ``1h30m``, ``1.5h``, ``500ms``."""
Amount: TypeAlias = Annotated[
    str,
    Field(
        max_length=32,
        pattern=patterns.QUANTITY,
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
    BeforeValidator(_text),
]
"""A quantity that is not negative; a whole number in YAML is read as its text."""
Decimal: TypeAlias = Annotated[
    str,
    Field(
        max_length=16,
        pattern=patterns.DECIMAL,
        json_schema_extra={"x-kubernetes-int-or-string": True},
    ),
    BeforeValidator(_text),
]
"""A number that is not negative, as text, since a CRD has no exact fractions; a whole number in
YAML is read as its text."""

Amounts: TypeAlias = Annotated[dict[str, Amount], Field(max_length=16), BeforeValidator(stored)]
DeviceCount: TypeAlias = Annotated[
    str,
    Field(
        max_length=9,
        pattern=patterns.COUNT,
        json_schema_extra={"x-kubernetes-int-or-string": True, "minimum": 1},
    ),
    BeforeValidator(_text),
]
"""A whole number of at least 1; one in YAML is read as its text."""
DeviceCounts: TypeAlias = Annotated[
    dict[str, DeviceCount], Field(max_length=8), BeforeValidator(stored)
]
_MOST_POD_SETS: Final = 18
AUTO: Final = "Auto"
"""In place of numbers of replicas: as many as hold a service's latency."""
ReplicaCounts: TypeAlias = Annotated[
    dict[ContainerName, Annotated[int, Field(strict=True, ge=1, le=100_000)]],
    Field(max_length=_MOST_POD_SETS),
    BeforeValidator(stored),
]
"""Pod set to its number of replicas."""


def _form_of_replicas(given: Any) -> str | None:
    if isinstance(given, dict):
        return "<map>"
    return "<text>" if given == AUTO else None


Replicas: TypeAlias = Annotated[
    Annotated[Literal["Auto"], Tag("<text>")] | Annotated[ReplicaCounts, Tag("<map>")],
    Discriminator(
        _form_of_replicas,
        custom_error_type="replicas",
        custom_error_message="must be Auto or numbers by pod set",
    ),
    Field(
        json_schema_extra={
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": f"^{AUTO}$",
            "maxProperties": _MOST_POD_SETS,
        }
    ),
]
"""``AUTO`` or numbers. Structural schemas have no type for a text or a map: to the API server a
text must be ``AUTO``, and anything else is taken and stored as it is."""
MetricName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256, pattern=patterns.METRIC)]
ExternalMetricName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=patterns.EXTERNAL_METRIC)
]
Labels: TypeAlias = Annotated[dict[str, LabelValue], Field(max_length=32), BeforeValidator(stored)]
Texts: TypeAlias = Annotated[dict[str, FreeText], Field(max_length=64), BeforeValidator(stored)]
Strings: TypeAlias = Annotated[dict[str, str], BeforeValidator(stored)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]

UNIQUE: JsonDict = {"x-kubernetes-list-type": "set"}
ATOMIC: JsonDict = {"x-kubernetes-list-type": "atomic"}
FILLED: JsonDict = {"default": {}}
"""An absent object is filled in, so that its own defaults stand in it."""


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
