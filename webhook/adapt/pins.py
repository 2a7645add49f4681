"""Removes what pins a pod to nodes with accelerators: selectors, affinity terms, tolerations.

Affinities stay the JSON that they are: a part that does not have the API's shape is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.adapt import accelerators
from webhook.model.fields import Json
from webhook.model.pods import PodTemplate

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PINNING_OPERATORS = frozenset({"In", "Exists", "Gt", "Lt"})

_SUSPICIOUS = re.compile(
    r"gpu|accelerator|cuda|nvidia|gaudi|neuron|(?<![a-z])(tpu|[ahlbv]100s?|[bh]200|t4|l4|l40s?|mi\d+)"
    r"(?![a-z0-9])"
)
_INSTANCE_KEYS = ("instance-type", "instance-family", "machine-family")
_INSTANCES = re.compile(
    # EC2's accelerated families, Google's a2/a3/a4/g2/g4 and TPU machines, Azure's N series.
    r"(p[2-6][a-z]*|g[3-7][a-z]*|trn\d[a-z]*|inf\d|dl\d[a-z]*)([.]|$)|(a[2-4]|g[24]|ct\d[a-z]*)(-|$)"
    r"|standard_n[cdv]"
)


def without_selector(node_selector: Mapping[str, str]) -> Mapping[str, str]:
    kept = {
        key: value
        for key, value in node_selector.items()
        if not accelerators.pins_label(key, value)
    }
    return kept if len(kept) < len(node_selector) else node_selector


def tolerates_accelerator(toleration: Mapping[str, Json]) -> bool:
    """Return whether a toleration is for accelerators' taints; one without a key is for all."""
    return accelerators.pins_taint(str(toleration.get("key", "")), str(toleration.get("value", "")))


def without_affinity(affinity: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """Return the affinity without terms that pin to accelerators; None where nothing is left."""
    node = (affinity or {}).get("nodeAffinity")
    if affinity is None or not isinstance(node, Mapping):
        return affinity
    kept_node = {**_required(node), **_preferred(node)}
    rest = {key: value for key, value in node.items() if key not in (_REQUIRED, _PREFERRED)}
    kept_node |= rest
    if kept_node == node:
        return affinity
    others = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return ({**others, "nodeAffinity": kept_node} if kept_node else others) or None


def _required(node: Mapping[str, Json]) -> dict[str, Json]:
    """Return the required terms without pins; a node must match one of them.

    Terms that name no accelerator already say where the pod may run without one, so only they stay.
    Where every term pins, each loses its pins. If one asked for nothing else, any node will do, so
    the whole requirement goes.
    """
    # A term that is left empty would match no node at all.
    required = node.get(_REQUIRED)
    if required is None:
        return {}
    terms = _terms(required)
    stripped = [_without_pins(term) for term in terms]
    if all(new is old for new, old in zip(stripped, terms, strict=True)):
        return {_REQUIRED: required}
    kept = [term for term, old in zip(stripped, terms, strict=True) if term is old]
    if not kept:
        kept = stripped if all(_asks(term) for term in stripped) else []
    return {_REQUIRED: {"nodeSelectorTerms": kept}} if kept else {}


def _preferred(node: Mapping[str, Json]) -> dict[str, Json]:
    preferred = node.get(_PREFERRED)
    if not isinstance(preferred, Sequence) or isinstance(preferred, str):
        return {} if preferred is None else {_PREFERRED: preferred}
    kept = []
    for weighted in preferred:
        term = weighted.get("preference") if isinstance(weighted, Mapping) else None
        stripped = _without_pins(term) if isinstance(term, Mapping) else term
        if stripped is term:
            kept.append(weighted)
        elif isinstance(weighted, Mapping) and isinstance(stripped, Mapping) and _asks(stripped):
            kept.append({**weighted, "preference": stripped})
    return {_PREFERRED: kept} if kept else {}


def _terms(required: Json) -> list[Mapping[str, Json]]:
    terms = required.get("nodeSelectorTerms") if isinstance(required, Mapping) else None
    if not isinstance(terms, Sequence) or isinstance(terms, str):
        return []
    return [term for term in terms if isinstance(term, Mapping)]


def _without_pins(term: Mapping[str, Json]) -> Mapping[str, Json]:
    expressions = term.get("matchExpressions")
    if not isinstance(expressions, Sequence) or isinstance(expressions, str):
        return term
    kept = [expression for expression in expressions if not _pins(expression)]
    if len(kept) == len(expressions):
        return term
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**rest, "matchExpressions": kept} if kept else rest


def _pins(expression: Json) -> bool:
    if not isinstance(expression, Mapping):
        return False
    key, operator = str(expression.get("key", "")), str(expression.get("operator", ""))
    if operator not in _PINNING_OPERATORS:
        return False
    values = _values(expression) or ("true",)
    return any(accelerators.pins_label(key, value) for value in values)


def _asks(term: Mapping[str, Json]) -> bool:
    """Return whether a term has a condition; an empty one matches no node."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def left_over(before: PodTemplate, after: PodTemplate) -> Iterator[str]:
    """Yield the submitter's own selectors that are left and seem to pin to accelerators."""
    for key, value in after.node_selector.items():
        if before.node_selector.get(key) == value and _seems_pinned(key, value):
            yield f"node selector {key}={value}"
    if after.affinity is None:
        return
    for expression in _required_expressions(after.affinity):
        key, operator = str(expression.get("key", "")), str(expression.get("operator", ""))
        values = _values(expression) or ("",)
        if operator == "Exists" and _seems_pinned(key, "true"):
            yield f"required node affinity {key} {operator}"
        elif operator == "In" and all(_seems_pinned(key, value) for value in values):
            yield f"required node affinity {key} {operator} {', '.join(values)}"


def _required_expressions(affinity: Mapping[str, Json]) -> Iterator[Mapping[str, Any]]:
    """Yield the expressions of the only term; with several, the scheduler may match another one."""
    node = affinity.get("nodeAffinity")
    terms = _terms(node.get(_REQUIRED)) if isinstance(node, Mapping) else []
    if len(terms) != 1:
        return
    expressions = terms[0].get("matchExpressions")
    if isinstance(expressions, Sequence):
        yield from (expression for expression in expressions if isinstance(expression, Mapping))


def _seems_pinned(key: str, value: str) -> bool:
    key, value = key.lower(), value.lower()
    if value in accelerators.NEGATIVE or value.startswith(("no-", "non-")):
        return False
    if key.rpartition("/")[2].endswith(_INSTANCE_KEYS) and _INSTANCES.match(value):
        return True
    return _SUSPICIOUS.search(f"{key.rpartition('/')[2]} {value}") is not None


def _values(expression: Mapping[str, Json]) -> tuple[str, ...]:
    values = expression.get("values")
    if not isinstance(values, Sequence) or isinstance(values, str):
        return ()
    return tuple(str(value) for value in values)
