"""The CRD of FallbackPolicy, generated from its pydantic models and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from webhook.model.policy.rules import RULES
from webhook.model.policy.spec import Spec

Schema: TypeAlias = dict[str, Any]

GROUP: Final = "kueue-fallback.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "FallbackPolicy"
PLURAL: Final = "fallbackpolicies"


@cache
def schema() -> Schema:
    """Generate the structural schema of the whole object."""
    generated = Spec.model_json_schema(by_alias=True)
    spec = _structural(generated, generated.get("$defs", {}), "Spec")
    return {
        "description": "Where Jobs may run instead of where they were submitted, and when.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _status(),
        },
        "x-kubernetes-validations": [rule.schema() for rule in RULES["FallbackPolicy"]],
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
        found["x-kubernetes-validations"] = [rule.schema() for rule in RULES[model]]
    return found


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


def _status() -> Schema:
    return {
        "description": "What the controller found out about the policy.",
        "type": "object",
        "properties": {
            "conditions": {
                "description": "Ready: every option can be taken, as far as is known now. "
                "KueueTested: this Kueue is one that decisions are tested with.",
                "type": "array",
                "maxItems": 8,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                    "properties": {
                        "type": {"type": "string", "maxLength": 316},
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                        "lastTransitionTime": {"type": "string", "format": "date-time"},
                        "reason": {"type": "string", "maxLength": 1024},
                        "message": {"type": "string", "maxLength": 32768},
                    },
                },
            }
        },
    }
