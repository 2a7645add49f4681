"""Judge an object by a structural schema as the API server does, in the API server's own words.

Sources: kube-openapi's validation package, apiextensions-apiserver's defaulting, pruning, list
types and CEL validation. Only what our own schema uses is here; tests compare with a real one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from webhook.model.fields import FieldError
from webhook.model.policy.rules import FORBIDDEN, INVALID, REQUIRED, RULES, Rule
from webhook.model.policy.schema import schema
from webhook.model.policy.spec import SUBDOMAIN

Schema: TypeAlias = Mapping[str, Any]

ROOT: Final = "<nil>"
"""How the API server writes the path of the whole object."""
UNCHECKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    path: str
    text: str
    blocking: bool = False
    """Rules are not run on an object with such a mistake."""

    def error(self) -> FieldError:
        return FieldError(self.path or ROOT, self.text)


class DecodingError(FieldError):
    """The object cannot be decoded: the text stands alone, as decoders write it."""

    def __str__(self) -> str:
        return self.message


def unknown_field(path: str) -> DecodingError:
    return DecodingError(path, f'unknown field "{path}"')


def unknown_fields(value: Any, schema: Schema, path: str = "") -> Iterator[FieldError]:
    """Find the fields that strict decoding refuses; of an object in a wrong place, each one."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unknown_fields(inner, schema.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in value.items():
        here = join(path, name)
        if name not in known and others is None:
            yield unknown_field(here)
        elif here != "metadata":
            yield from unknown_fields(inner, known.get(name, others), here)


def prepared(value: Any, schema: Schema) -> Any:
    """Copy an object with its defaults filled in and its nulls taken out, as it would be stored."""
    if isinstance(value, dict):
        return _prepared_object(value, schema)
    if isinstance(value, list):
        return [prepared(item, schema.get("items", {})) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _prepared_object(value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    properties: Schema = schema.get("properties", {})
    others: Schema = schema.get("additionalProperties", {})
    kept = {
        name: prepared(item, properties.get(name, others))
        for name, item in value.items()
        if item is not None
    }
    missing = {
        name: prepared(inner["default"], inner)
        for name, inner in properties.items()
        if "default" in inner and name not in kept
    }
    return kept | missing


def mistakes(value: Any, schema: Schema, path: str = "") -> Iterator[Mistake]:
    """Find what the schema itself refuses in a prepared value."""
    kind = _kind(value)
    expected = _types(schema)
    if expected and kind not in expected and not (kind == "integer" and "number" in expected):
        yield _wrong_type(path, ",".join(expected), kind)
        if (kind, *expected) == ("number", "integer"):
            text = "Checked value must be of type integer (default format) in"
            yield Mistake(path="", text=f'Invalid value: "": {text} {path}')
    if kind == "string":
        yield from _string(value, schema, path)
    elif kind in ("integer", "number"):
        yield from _number(value, schema, path)
    elif kind == "array":
        yield from _array(value, schema, path)
    elif kind == "object":
        yield from _object(value, schema, path)
    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(f'"{one}"' for one in schema["enum"])
        text = f"Unsupported value: {_shown(value)}: supported values: {supported}"
        yield Mistake(path=path, text=text, blocking=True)


def repetitions(value: Any, schema: Schema, path: str = "") -> Iterator[Mistake]:
    """Find what occurs twice in lists that are sets."""
    if isinstance(value, list):
        if schema.get("x-kubernetes-list-type") == "set":
            yield from _repeated(value, path)
        for index, item in enumerate(value):
            yield from repetitions(item, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, {})
            yield from repetitions(item, inner, join(path, name))


def join(path: str, name: str) -> str:
    """Name a place below *path*; keys of maps are joined by a dot too, as in the schema's texts."""
    return f"{path}.{name}" if path else name


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean"}
    kinds |= {int: "integer", float: "number", type(None): "null"}
    return kinds.get(type(value), "string")


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if "type" in schema else ()


def _wrong_type(path: str, expected: str, kind: str) -> Mistake:
    text = f'Invalid value: "{kind}": {path} in body must be of type {expected}: "{kind}"'
    return Mistake(path=path, text=text, blocking=True)


def _string(value: str, schema: Schema, path: str) -> Iterator[Mistake]:
    """Name the first mistake alone, as the API server does for a string."""
    if len(value) > (longest := schema.get("maxLength", len(value))):
        text = f"Too long: may not be more than {longest} bytes"
        yield Mistake(path=path, text=text, blocking=True)
    elif len(value) < (shortest := schema.get("minLength", 0)):
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    elif "pattern" in schema and not _compiled(schema["pattern"]).search(value):
        yield _invalid(path, value, f"should match '{schema['pattern']}'")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile with Go's meaning: ``$`` is the end alone, and classes are ASCII."""
    return re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII)


def _number(value: float, schema: Schema, path: str) -> Iterator[Mistake]:
    if "minimum" in schema:
        bound = schema["minimum"]
        if schema.get("exclusiveMinimum") and value <= bound:
            yield _invalid(path, value, f"should be greater than {bound}")
        elif value < bound:
            yield _invalid(path, value, f"should be greater than or equal to {bound}")
    if value > schema.get("maximum", value):
        yield _invalid(path, value, f"should be less than or equal to {schema['maximum']}")


def _array(value: Sequence[Any], schema: Schema, path: str) -> Iterator[Mistake]:
    for index, item in enumerate(value):
        yield from mistakes(item, schema.get("items", {}), f"{path}[{index}]")
    if len(value) < (fewest := schema.get("minItems", 0)):
        yield _invalid(path, len(value), f"should have at least {fewest} items")
    if len(value) > (most := schema.get("maxItems", len(value))):
        yield _too_many(path, len(value), most)


def _object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Mistake]:
    if len(value) > (most := schema.get("maxProperties", len(value))):
        yield _too_many(path, len(value), most)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        yield from mistakes(item, properties.get(name, others), join(path, name))
    for name in schema.get("required", ()):
        if name not in value:
            yield Mistake(path=join(path, name), text="Required value", blocking=True)


def _repeated(value: Sequence[Any], path: str) -> Iterator[Mistake]:
    seen: list[Any] = []
    for index, item in enumerate(value):
        if seen.count(item) == 1:
            yield Mistake(path=f"{path}[{index}]", text=f"Duplicate value: {_shown(item)}")
        seen.append(item)


def _invalid(path: str, value: Any, demand: str) -> Mistake:
    return Mistake(path=path, text=f"Invalid value: {_shown(value)}: {path} in body {demand}")


def _too_many(path: str, count: int, most: int) -> Mistake:
    text = f"Too many: {count}: must have at most {most} item{'s' * (most != 1)}"
    return Mistake(path=path, text=text, blocking=True)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    if unknown := (*_unknown_metadata(source), *unknown_fields(source, schema())):
        return unknown
    value = prepared(source, schema())
    found = [
        *_bad_name(value),
        *mistakes(value, schema()),
        *repetitions(value, schema()),
    ]
    if any(mistake.blocking for mistake in found):
        found.append(Mistake(path="", text=UNCHECKED))
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
        yield from _broken_rules(inner, below, join(path, name))


@cache
def _by_cel() -> Mapping[tuple[str, str], Rule]:
    return {(rule.cel, rule.field): rule for rules in RULES.values() for rule in rules}
