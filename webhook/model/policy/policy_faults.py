"""Everything that is wrong with a FallbackPolicy, as ``kubectl apply`` would say it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from webhook.model.fields import FieldError
from webhook.model.policy import validation
from webhook.model.policy.policy_fields import SUBDOMAIN
from webhook.model.policy.rule import FORBIDDEN, INVALID, REQUIRED, Rule
from webhook.model.policy.rules import RULES
from webhook.model.policy.schema import schema
from webhook.model.policy.validation import DecodingError, Mistake, Schema, unknown_field

_METADATA: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_BAD_NAME: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_GO_KINDS: Final = {bool: "bool", dict: "object", list: "array"}
_PREFIXES: Final = {
    INVALID: "Invalid value",
    REQUIRED: "Required value",
    FORBIDDEN: "Forbidden",
}


def faults(source: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """List the mistakes in the order of the API server's stages: a stage that fails ends it."""
    if undecodable := tuple(_undecodable(source)):
        return undecodable
    if unknown := (*_unknown_metadata(source), *validation.unknown_fields(source, schema())):
        return unknown
    value = validation.prepared(source, schema())
    found = [
        *_bad_name(value),
        *validation.mistakes(value, schema()),
        *validation.repetitions(value, schema()),
    ]
    if any(mistake.blocking for mistake in found):
        found.append(Mistake(path="", text=validation.UNCHECKED))
    else:
        found.extend(_broken_rules(value, schema(), ""))
    return tuple(mistake.error() for mistake in found)


def _undecodable(source: Mapping[str, Any]) -> Iterator[FieldError]:
    """Find labels and annotations that are no texts, which no object can hold."""
    metadata = source.get("metadata")
    if not isinstance(metadata, dict):
        return
    for field in ("labels", "annotations"):
        found = metadata.get(field)
        for name, value in found.items() if isinstance(found, dict) else ():
            if value is not None and not isinstance(value, str):
                text = (
                    f"json: cannot unmarshal {_GO_KINDS.get(type(value), 'number')} into Go "
                    f"struct field ObjectMeta.metadata.{field} of type string"
                )
                yield DecodingError(f"metadata.{field}.{name}", text)


def _unknown_metadata(source: Mapping[str, Any]) -> Iterator[FieldError]:
    metadata = source.get("metadata")
    if isinstance(metadata, dict):
        yield from (unknown_field(f"metadata.{name}") for name in metadata if name not in _METADATA)


def _bad_name(value: Mapping[str, Any]) -> Iterator[Mistake]:
    metadata = value.get("metadata", {})
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name is None or name == "":
        text = "Required value: name or generateName is required"
        yield Mistake(path="metadata.name", text=text, blocking=True)
    elif not isinstance(name, str) or not re.fullmatch(SUBDOMAIN, name):
        text = f'Invalid value: "{name}": {_BAD_NAME}'
        yield Mistake(path="metadata.name", text=text)


def _broken_rules(value: Any, node: Schema, path: str) -> Iterator[Mistake]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken_rules(item, node.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    for item in node.get("x-kubernetes-validations", ()):
        rule = _by_cel()[item["rule"], item.get("fieldPath", "")]
        if not rule.holds(value):
            text = f"{_PREFIXES[rule.reason]}: {rule.text(value)}"
            yield Mistake(path=path + rule.field, text=text)
    for name, inner in value.items():
        below = node.get("properties", {}).get(name, {})
        yield from _broken_rules(inner, below, validation.join(path, name))


@cache
def _by_cel() -> Mapping[tuple[str, str], Rule]:
    return {(rule.cel, rule.field): rule for rules in RULES.values() for rule in rules}
