"""The kinds of text that a FallbackPolicy is made of, each with the limits that its schema states.

Every text, list and map has an upper bound: the API server refuses a rule whose cost it cannot
bound.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

LONGEST_LABEL: Final = 63
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
DURATION: Final = r"^([0-9]{1,5}(\.[0-9]{1,3})?(h|m|s|ms))+$"
SUBDOMAIN: Final = f"^{_SUBDOMAIN}$"
LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_VALUE: Final = f"^({_NAME})?$"
QUALIFIED_NAME: Final = f"^({_SUBDOMAIN}/)?{_NAME}$"
ENV_NAME: Final = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
QUANTITY: Final = (
    r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
)


class Strict(BaseModel):
    """Frozen, camelCase outside, and a misspelt field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
    )


OptionName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=f"^{_NAME}$")
]
"""A label value, because it is one on the Job and its pods."""
QueueName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=SUBDOMAIN)
]
"""A LocalQueue's name: the value of the label ``kueue.x-k8s.io/queue-name``."""
QueueOrNone: TypeAlias = Annotated[
    str, Field(max_length=LONGEST_LABEL, pattern=f"^({_SUBDOMAIN})?$")
]
ObjectName: TypeAlias = Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)]
ObjectOrNone: TypeAlias = Annotated[str, Field(max_length=253, pattern=f"^({_SUBDOMAIN})?$")]
ContainerName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=LABEL)
]
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=316, pattern=QUALIFIED_NAME)]
"""A qualified name: a label key, a resource, a taint key."""
KeyOrNone: TypeAlias = Annotated[
    str, Field(max_length=316, pattern=f"^(({_SUBDOMAIN}/)?{_NAME})?$")
]
LabelValue: TypeAlias = Annotated[str, Field(max_length=LONGEST_LABEL, pattern=LABEL_VALUE)]
FreeText: TypeAlias = Annotated[str, Field(max_length=4096)]
Image: TypeAlias = Annotated[str, Field(max_length=512, pattern=r"^\S*$")]
RuntimeClassName: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=253, pattern=f"^(Keep|Remove|{_SUBDOMAIN})$")
]
Duration: TypeAlias = Annotated[str, Field(min_length=2, max_length=32, pattern=DURATION)]
"""As Go writes it: ``30s``, ``1h30m``, ``1.5h``, ``500ms``."""
Amount: TypeAlias = Annotated[
    str,
    Field(max_length=32, pattern=QUANTITY, json_schema_extra={"x-kubernetes-int-or-string": True}),
]
"""A quantity that is not negative; a whole number in YAML is read as its text."""

Amounts: TypeAlias = Annotated[dict[str, Amount], Field(max_length=16)]
Labels: TypeAlias = Annotated[dict[str, LabelValue], Field(max_length=32)]
Texts: TypeAlias = Annotated[dict[str, FreeText], Field(max_length=64)]
