"""One rule that a schema cannot say: once in CEL for the API server, once in Python for us."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from webhook.model.policy.policy_fields import ENV_NAME, QUALIFIED_NAME

Object: TypeAlias = Mapping[str, Any]

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"

_RESERVED: Final = ("kueue.x-k8s.io/", "kueue-fallback.dev/", "batch.kubernetes.io/")
"""Kueue's, ours, and those that the API server gives to the pods of Jobs itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule on one object of a policy. Both forms see it with its defaults filled in."""

    cel: str
    holds: Callable[[Object], bool]
    message: str
    field: str = ""
    """Where the mistake is, below the object: ``.name``."""
    reason: str = INVALID
    offender_cel: str = ""
    """Names what breaks the rule, at the end of the message; and the same in Python."""
    offender: Callable[[Object], str] | None = None

    def schema(self) -> dict[str, str]:
        """Write the rule as an item of ``x-kubernetes-validations``."""
        item = {"rule": self.cel, "message": self.message}
        if self.offender_cel:
            item["messageExpression"] = f"{quoted(self.message + ': ')} + {self.offender_cel}"
        if self.field:
            item["fieldPath"] = self.field
        return item if self.reason == INVALID else item | {"reason": self.reason}

    def text(self, value: Object) -> str:
        if self.offender is None:
            return self.message
        return f"{self.message}: {self.offender(value)}"


def quoted(text: str) -> str:
    """Write *text* as a CEL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def for_keys(name: str, *, cel: str, good: Callable[[str], bool], message: str) -> Rule:
    """Demand of each key ``k`` of the map *name* that it be good."""
    here = f"self.{name}"

    def bad(value: Object) -> list[str]:
        return sorted(key for key in value.get(name, ()) if not good(key))

    return Rule(
        cel=f"!has({here}) || {here}.all(k, {cel})",
        holds=lambda value: not bad(value),
        message=message,
        field=f".{name}",
        offender_cel=f"{here}.filter(k, !({cel}))[0]",
        offender=lambda value: bad(value)[0],
    )


def resource_names(name: str) -> Rule:
    return _matching(name, QUALIFIED_NAME, 316, "not the name of a resource")


def label_keys(name: str) -> Rule:
    return _matching(name, QUALIFIED_NAME, 316, "not a key that Kubernetes takes")


def env_names(name: str) -> Rule:
    return _matching(name, ENV_NAME, 253, "not the name of an environment variable")


def free_keys(name: str) -> Rule:
    """Demand that no key be one that belongs to Kueue, to us or to the API server."""
    return for_keys(
        name,
        cel=" && ".join(f"!k.startsWith({quoted(prefix)})" for prefix in _RESERVED),
        good=lambda key: not key.startswith(_RESERVED),
        message="not for an option to set",
    )


def _matching(name: str, pattern: str, length: int, message: str) -> Rule:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")
    return for_keys(
        name,
        cel=f"size(k) <= {length} && k.matches({quoted(pattern)})",
        good=lambda key: len(key) <= length and compiled.match(key) is not None,
        message=message,
    )
