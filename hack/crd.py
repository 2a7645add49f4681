"""Write the CRD of FallbackPolicy into the chart: `python -m hack.crd`.

It is generated from the pydantic models of a policy and the rules on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from webhook.model.policy.fallback_policy import GROUP, KIND, PLURAL, VERSION, PolicyStatus
from webhook.model.policy.rules import RULES, Rule, quoted
from webhook.model.policy.spec import Spec, Structural

Schema: TypeAlias = dict[str, Any]

TARGET: Final = Path(__file__).resolve().parent.parent / "helm" / "files" / "fallbackpolicies.yaml"
_HEADER = "# Generated from webhook/model by `python -m hack.crd`; change it there.\n"


class _Dumper(yaml.SafeDumper):
    """Write every list and object out, none by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - its signature
        return True


def text() -> str:
    """Write it out; deleting it would delete every policy, so helm shall keep it on uninstall."""
    definition = crd()
    kept = {**definition["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    definition = {**definition, "metadata": kept}
    return _HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=96)


def schema() -> Schema:
    """Generate the structural schema of the whole object."""
    return {
        "description": "Where Jobs may run instead of where they were submitted, and when.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _schema_of(Spec),
            "status": _schema_of(PolicyStatus),
        },
        "x-kubernetes-validations": [_validation(rule) for rule in RULES["PolicyObject"]],
    }


def crd() -> Schema:
    """Generate the CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["fbp"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
            {"name": "Strategy", "type": "string", "jsonPath": ".spec.strategy.type"},
            {
                "name": "Ready",
                "type": "string",
                "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
            },
            {
                "name": "Message",
                "type": "string",
                "priority": 1,
                "jsonPath": ".status.conditions[?(@.type=='Ready')].message",
            },
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "schema": {"openAPIV3Schema": schema()},
    }


def _schema_of(model: type[Structural]) -> Schema:
    generated = model.model_json_schema(by_alias=True)
    return _structural(generated, generated.get("$defs", {}), model.__name__)


def _structural(node: Mapping[str, Any], models: Mapping[str, Any], model: str = "") -> Schema:
    """Turn pydantic's JSON Schema into a structural one: no references, no unions, no titles."""
    node = _without_null(node)
    if "$ref" in node:
        model = node["$ref"].rsplit("/", 1)[-1]
        node = {**models[model], **node}
    if node.get("x-kubernetes-int-or-string"):
        return _int_or_string(node)
    found = _values(node)
    if "items" in node:
        found["items"] = _structural(node["items"], models)
    if isinstance(node.get("additionalProperties"), dict):
        found["additionalProperties"] = _structural(node["additionalProperties"], models)
    if "properties" in node:
        properties = node["properties"].items()
        found["properties"] = {name: _structural(value, models) for name, value in properties}
    if node.get("default") == {}:
        found["default"] = _defaults(found)
    if model in RULES:
        found["x-kubernetes-validations"] = [_validation(rule) for rule in RULES[model]]
    return found


def _validation(rule: Rule) -> Schema:
    """Write a rule as an item of ``x-kubernetes-validations``."""
    item = {"rule": rule.cel, "message": rule.message}
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
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
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
        "minimum": 0,
    }


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _defaults(schema: Schema) -> Schema:
    """Write an absent object out: rules are run on defaults before those within are filled in."""
    return {
        name: value["default"] for name, value in schema["properties"].items() if "default" in value
    }


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
