"""LabelSelector, node selector terms and taints: how Kubernetes says "only there"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from webhook.model import fields


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell as apimachinery's ``labels.Requirement`` does: an absent key satisfies NotIn."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        return _compares(value, self.operator, self.values)


def _compares(value: str | None, operator: Operator, values: tuple[str, ...]) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator is Operator.GT else left < right


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A LabelSelector. ``EVERYTHING`` is ``{}``; ``NOTHING`` is what an absent one often means."""

    labels: Mapping[str, str]
    expressions: tuple[Expression, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            expression.matches(labels) for expression in self.expressions
        )


EVERYTHING = Selector(labels={})
NOTHING = Selector(labels={}, nothing=True)


def read_selector(source: Mapping[str, Any], path: str) -> Selector:
    """Read a LabelSelector (``matchLabels``, ``matchExpressions``)."""
    return Selector(
        labels=dict(fields.texts(source, "matchLabels", path)),
        expressions=read_expressions(source, "matchExpressions", path),
    )


def read_expressions(source: Mapping[str, Any], key: str, path: str) -> tuple[Expression, ...]:
    return tuple(
        Expression(
            key=fields.text(item, "key", here),
            operator=_read_operator(item, here),
            values=fields.strings(item, "values", here),
        )
        for item, here in fields.objects(source, key, path)
    )


def _read_operator(source: Mapping[str, Any], path: str) -> Operator:
    value = fields.text(source, "operator", path)
    if value in Operator.__members__.values():
        return Operator(value)
    expected = ", ".join(Operator)
    raise fields.FieldError(
        fields.child(path, "operator"), f"expected one of {expected}, got {value!r}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Tell as ``v1.Toleration.ToleratesTaint``: empty key or effect means any."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or self.value == taint.value


def read_taint(source: Mapping[str, Any], path: str) -> Taint:
    return Taint(
        key=fields.text(source, "key", path),
        value=fields.text(source, "value", path),
        effect=fields.text(source, "effect", path),
    )


def read_toleration(source: Mapping[str, Any], path: str) -> Toleration:
    return Toleration(
        key=fields.text(source, "key", path),
        operator=fields.text(source, "operator", path, "Equal") or "Equal",
        value=fields.text(source, "value", path),
        effect=fields.text(source, "effect", path),
    )
