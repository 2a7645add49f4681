"""Write the CRDs of our kinds into the chart: `python -m hack.crd`.

They are generated from the pydantic models of each kind and the rules on them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from webhook.api import resources
from webhook.model.costs.accelerator_profile import (
    PROFILE_KIND,
    AcceleratorProfileSpec,
    AcceleratorProfileStatus,
)
from webhook.model.costs.tariff import TARIFF_KIND, TariffSpec, TariffStatus
from webhook.model.policy.custom_object import Structural
from webhook.model.policy.fallback_policy import (
    GROUP,
    KIND,
    TEAM_FIELDS,
    TEAM_KIND,
    VERSION,
    Fields,
    PolicyStatus,
)
from webhook.model.policy.rules import RULES, TEAM_RULES, Rule, quoted
from webhook.model.policy.spec import Spec

Schema: TypeAlias = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parent.parent / "helm" / "files"
_HEADER = "# Generated from webhook/model by `python -m hack.crd`; change it there.\n"
_Column: TypeAlias = Mapping[str, Any]
_Rules: TypeAlias = Mapping[str, tuple[Rule, ...]]


def _ready(part: str, **rest: Any) -> _Column:
    """Return the column with one part of the condition Ready."""
    path = f".status.conditions[?(@.type=='Ready')].{part}"
    name = "Ready" if part == "status" else part.capitalize()
    return {"name": name, "type": "string", **rest, "jsonPath": path}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One kind of ours: its names, its models, and what ``kubectl get`` shows of it."""

    kind: str
    plural: str
    short: str
    description: str
    spec: type[Structural]
    status: type[Structural]
    columns: tuple[_Column, ...]
    rules: _Rules
    """Model to the rules on it."""
    whole: str = ""
    """The name of the model of the whole object, where rules are on it."""
    fields: Fields | None = None
    """The fields that it has of its spec's model; None: all."""
    scope: str = "Cluster"

    @property
    def target(self) -> Path:
        return FOLDER / f"{self.plural}.yaml"


POLICIES: Final = Definition(
    kind=KIND,
    plural=resources.POLICIES,
    short="fbp",
    description="Which other queues Jobs may run in, and when.",
    spec=Spec,
    rules=RULES,
    status=PolicyStatus,
    whole="PolicyObject",
    columns=(
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
        {"name": "Strategy", "type": "string", "jsonPath": ".spec.strategy.type"},
    ),
)
TEAM_POLICIES: Final = replace(
    POLICIES,
    kind=TEAM_KIND,
    plural=resources.TEAM_POLICIES,
    short="tfbp",
    description="Where Jobs of one namespace may run that no FallbackPolicy matches, and when; "
    "only where the chart's teamPolicies.enabled is true.",
    whole="TeamPolicyObject",
    rules=TEAM_RULES,
    fields=TEAM_FIELDS,
    scope="Namespaced",
)
PROFILES: Final = Definition(
    kind=PROFILE_KIND,
    plural=resources.ACCELERATOR_PROFILES,
    short="fbap",
    description="Memory, speed and power of one kind of device, and which ResourceFlavors have it.",
    spec=AcceleratorProfileSpec,
    rules=RULES,
    status=AcceleratorProfileStatus,
    columns=(
        {"name": "Like", "type": "string", "jsonPath": ".spec.like"},
        {"name": "Flavors", "type": "string", "jsonPath": ".status.flavors"},
    ),
)
TARIFFS: Final = Definition(
    kind=TARIFF_KIND,
    plural=resources.TARIFFS,
    short="fbt",
    description="What an hour of each resource costs, in money, electricity and carbon.",
    spec=TariffSpec,
    rules=RULES,
    status=TariffStatus,
    columns=(
        {"name": "Zone", "type": "string", "jsonPath": ".spec.timeZone"},
        {"name": "Electricity", "type": "string", "jsonPath": ".status.now.electricity"},
        {"name": "Carbon", "type": "string", "jsonPath": ".status.now.carbon"},
    ),
)
DEFINITIONS: Final = (POLICIES, TEAM_POLICIES, PROFILES, TARIFFS)


class _Dumper(yaml.SafeDumper):
    """Write every list and object out, none by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - its signature
        return True


def text(definition: Definition = POLICIES) -> str:
    """Write it out; deleting it would delete its objects, so helm shall keep it on uninstall."""
    whole = crd(definition)
    kept = {**whole["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    return _HEADER + yaml.dump(
        {**whole, "metadata": kept}, Dumper=_Dumper, sort_keys=False, width=96
    )


def schema(definition: Definition = POLICIES) -> Schema:
    """Generate the structural schema of the whole object."""
    found: Schema = {
        "description": definition.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _within(_schema_of(definition.spec, definition.rules), definition.fields),
            "status": _schema_of(definition.status, definition.rules),
        },
    }
    if definition.whole:
        found["x-kubernetes-validations"] = _validations(definition.rules[definition.whole])
    return found


def crd(definition: Definition = POLICIES) -> Schema:
    """Generate the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": definition.scope,
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
                "shortNames": [definition.short],
            },
            "versions": [_version(definition)],
        },
    }


def _version(definition: Definition) -> Schema:
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *map(dict, definition.columns),
            _ready("status"),
            _ready("message", priority=1),
            age,
        ],
        "schema": {"openAPIV3Schema": schema(definition)},
    }


@cache
def _describe_fields() -> None:
    """Take the text below each field for its description.

    pydantic could, but would read the sources of all models at each start of each process.
    """
    models = list(_below(Structural))
    for model in models:
        for owner in reversed(model.__mro__):
            if owner in models:
                for name, text in _texts_in(owner):
                    model.model_fields[name].description = text
    for model in models:
        model.model_rebuild(force=True)


def _below(model: type[Structural]) -> Iterator[type[Structural]]:
    for child in model.__subclasses__():
        yield child
        yield from _below(child)


def _texts_in(model: type) -> Iterator[tuple[str, str]]:
    module = ast.parse(textwrap.dedent(inspect.getsource(model)))
    classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    for field, below in pairwise(next(classes).body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                yield name, " ".join(text.split())


def _schema_of(model: type[Structural], rules: _Rules) -> Schema:
    _describe_fields()
    generated = model.model_json_schema(by_alias=True)
    models = generated.get("$defs", {}) | {model.__name__: generated}
    return _structural({"$ref": model.__name__}, models, rules)


def _within(schema: Schema, fields: Fields | None) -> Schema:
    """Leave out all fields but those given."""
    if fields is None:
        return schema
    if "items" in schema:
        return {**schema, "items": _within(schema["items"], fields)}
    properties = {
        name: _within(below, fields[name])
        for name, below in schema["properties"].items()
        if name in fields
    }
    return {**schema, "properties": properties}


def _structural(node: Mapping[str, Any], models: Mapping[str, Any], rules: _Rules) -> Schema:
    """Turn pydantic's JSON Schema into a structural one: no references, no unions, no titles."""
    model = ""
    node = _without_null(node)
    if "$ref" in node:
        model = node["$ref"].rsplit("/", 1)[-1]
        node = {**models[model], **node}
    if node.get("x-kubernetes-int-or-string"):
        return _int_or_string(node)
    found = _values(node)
    if "items" in node:
        found["items"] = _structural(node["items"], models, rules)
    if isinstance(node.get("additionalProperties"), dict):
        found["additionalProperties"] = _structural(node["additionalProperties"], models, rules)
    if "properties" in node:
        properties = node["properties"].items()
        found["properties"] = {
            name: _structural(value, models, rules) for name, value in properties
        }
    if node.get("default") == {}:
        found["default"] = _defaults(found)
    if model in rules:
        found["x-kubernetes-validations"] = _validations(rules[model])
    return found


def _validations(rules: Iterable[Rule]) -> list[Schema]:
    """Write the rules that the API server can keep."""
    return [_validation(rule) for rule in rules if rule.fact.cel]


def _validation(rule: Rule) -> Schema:
    """Write a rule as an item of ``x-kubernetes-validations``."""
    item = {"rule": rule.fact.cel, "message": rule.message}
    if rule.offender_cel:
        item["messageExpression"] = f"{quoted(rule.message + ': ')} + {rule.offender_cel}"
    if rule.field:
        item["fieldPath"] = rule.field
    return item | ({"reason": rule.reason} if rule.reason else {})


def _values(node: Mapping[str, Any]) -> Schema:
    """Keep what structural schemas have too, in their form."""
    found: Schema = {key: node[key] for key in _KEPT if key in node}
    if "description" in found:
        found["description"] = " ".join(found["description"].split())
    if "exclusiveMinimum" in node:
        found |= {"minimum": node["exclusiveMinimum"], "exclusiveMinimum": True}
    if node.get("default") not in (None, "", {}, [], ()):
        found["default"] = _whole(node["default"])
    return found


_KEPT: Final = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
)


def _without_null(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take ``null`` out of a union: an absent field is simply not there."""
    if "anyOf" not in node:
        return node
    (kept,) = (one for one in node["anyOf"] if one.get("type") != "null")
    return {**kept, **{key: value for key, value in node.items() if key != "anyOf"}}


def _int_or_string(node: Mapping[str, Any]) -> Schema:
    return {
        "x-kubernetes-int-or-string": True,
        "pattern": node["pattern"],
        "maxLength": node["maxLength"],
        "minimum": node.get("minimum", 0),
    } | {key: node[key] for key in ("description", "default", "maximum") if node.get(key)}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _defaults(schema: Schema) -> Schema:
    """Write an absent object out: rules are run on defaults before those within are filled in."""
    return {
        name: value["default"] for name, value in schema["properties"].items() if "default" in value
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in DEFINITIONS:
        each.target.write_text(text(each), encoding="utf-8")
        print(each.target)
