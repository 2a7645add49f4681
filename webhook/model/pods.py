"""A pod template as a frozen value, and the selectors, terms and taints by which it is placed.

Equal pod sets are shared, and what was worked out for them is kept beside them. Quantities stay in
the submitter's own words (``500m``), so that an edit can put them back exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, wraps
from typing import Any, Generic, ParamSpec, TypeVar

from webhook.model import fields
from webhook.model.fields import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    image: str = ""
    resources: Resources = field(default_factory=Resources)
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: tuple[Mapping[str, Json], ...] = ()
    sidecar: bool = False
    """An init container with ``restartPolicy: Always``."""
    claims: bool = False
    """It names a resource claim (DRA)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Json], ...] = ()
    affinity: Mapping[str, Json] | None = None
    runtime_class: str | None = None
    priority_class: str = ""
    overhead: Mapping[str, str] = field(default_factory=dict)
    resources: Resources | None = None
    """Pod-level resources; None when the template has none."""
    claims: bool = False
    """It lists resource claims (DRA)."""
    spread: tuple[Mapping[str, Json], ...] = ()
    """Those of its topology spread constraints without which it is not scheduled."""


def read_template(source: Mapping[str, Any], path: str) -> PodTemplate:
    """Read a PodTemplateSpec; *path* is its place in the object, for errors."""
    metadata, spec = fields.mapping(source, "metadata", path), fields.mapping(source, "spec", path)
    meta_path, here = fields.child(path, "metadata"), fields.child(path, "spec")
    return PodTemplate(
        labels=fields.texts(metadata, "labels", meta_path),
        annotations=fields.texts(metadata, "annotations", meta_path),
        containers=_read_containers(spec, "containers", here),
        init_containers=_read_containers(spec, "initContainers", here),
        node_selector=fields.texts(spec, "nodeSelector", here),
        tolerations=fields.mappings(spec, "tolerations", here),
        affinity=fields.mapping(spec, "affinity", here) if spec.get("affinity") else None,
        runtime_class=fields.text(spec, "runtimeClassName", here) or None,
        priority_class=fields.text(spec, "priorityClassName", here),
        overhead=_read_quantities(spec, "overhead", here),
        resources=read_resources(spec, here) if spec.get("resources") else None,
        claims=bool(fields.sequence(spec, "resourceClaims", here)),
        spread=tuple(
            constraint
            for constraint in fields.mappings(spec, "topologySpreadConstraints", here)
            if constraint.get("whenUnsatisfiable") != "ScheduleAnyway"
        ),
    )


def read_resources(source: Mapping[str, Any], path: str) -> Resources:
    resources, here = fields.mapping(source, "resources", path), fields.child(path, "resources")
    return Resources(
        requests=_read_quantities(resources, "requests", here),
        limits=_read_quantities(resources, "limits", here),
    )


def _read_containers(spec: Mapping[str, Any], key: str, path: str) -> tuple[Container, ...]:
    return tuple(
        Container(
            name=fields.text(container, "name", here),
            image=fields.text(container, "image", here),
            resources=read_resources(container, here),
            command=fields.sequence(container, "command", here),
            args=fields.sequence(container, "args", here),
            env=fields.mappings(container, "env", here),
            sidecar=fields.text(container, "restartPolicy", here) == "Always",
            claims=bool(fields.mapping(container, "resources", here).get("claims")),
        )
        for container, here in fields.objects(spec, key, path)
    )


def _read_quantities(source: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    quantities = fields.mapping(source, key, path)
    for name, value in quantities.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            where = fields.child(fields.child(path, key), name)
            raise fields.FieldError(where, f"expected a quantity, got {fields.kind_of(value)}")
    return {
        name: value if isinstance(value, str) else str(value) for name, value in quantities.items()
    }


P = ParamSpec("P")
T = TypeVar("T")


def recalling(*, most: int, longest: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that caches results, the *most* used last.

    The result for arguments of more than *longest* characters is not cached.
    """

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        kept: Callable[..., T] = lru_cache(maxsize=most)(work)

        @wraps(work)
        def recall(*args: P.args, **kwargs: P.kwargs) -> T:
            if _size(args) > longest:
                return work(*args, **kwargs)
            return kept(*args, **kwargs)

        return recall

    return decorate


class Memo(Generic[T]):
    """A cache of results by key, which is emptied when it is full.

    A result takes memory in proportion to the text that it was worked out from, often ten times as
    much, so that text is what is counted: bounding the number alone would let a few hundred Jobs of
    one tenant take tens of megabytes. Threads may share it: at worst work is done twice.
    """

    def __init__(self, *, most: int, most_bytes: int, longest: int | None = None) -> None:
        """Keep *most* results, worked out from at most *most_bytes* bytes together.

        What is worked out from more than *longest* bytes is not kept.
        """
        self._most, self._most_bytes = most, most_bytes
        self._longest = most_bytes if longest is None else longest
        self._kept: dict[Hashable, T] = {}
        self._bytes = 0

    def recall(self, key: Hashable, size: int, work: Callable[[], T]) -> T:
        """Return the result of *key*, or do *work*; *size*: bytes that it is worked out from."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        made = work()
        if size <= self._longest:
            if len(self._kept) >= self._most or self._bytes + size > self._most_bytes:
                self.clear()
            self._kept[key] = made
            self._bytes += size
        return made

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def _size(values: tuple[Any, ...]) -> int:
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, tuple):
            size += _size(value)
    return size


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
        if not (self.labels or self.expressions):
            return True
        for expression in self.expressions:
            if not expression.matches(labels):
                return False
        return self.labels.items() <= labels.items()


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
            key=fields.text(expression, "key", here),
            operator=_read_operator(expression, here),
            values=fields.strings(expression, "values", here),
        )
        for expression, here in fields.objects(source, key, path)
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
