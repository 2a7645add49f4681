"""Removes what pins a pod to nodes with accelerators: selectors, affinity terms, tolerations.

Affinities stay the JSON that they are: a part that does not have the API's shape is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from webhook.adapt import accelerators
from webhook.model import device_names
from webhook.model.fields import Json
from webhook.model.pods import PodTemplate

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_PINNING_OPERATORS = frozenset({"In", "Exists", "Gt", "Lt"})

IsPin: TypeAlias = Callable[[str, str], bool]
"""Tells of a label and its value whether nodes that are selected by it are not to be asked for."""

_HOW_CUT = re.compile(
    r"gpu[.-](sharing-strategy|replicas|memory|count|partition-size)|/mig[.-]"
    r"|max-shared-clients-per-gpu"
)
"""Labels that say into which parts the devices of a node are cut, or how large they are."""


def without_selector(node_selector: Mapping[str, str], is_pin: IsPin) -> Mapping[str, str]:
    kept = {key: value for key, value in node_selector.items() if not is_pin(key, value)}
    return kept if len(kept) < len(node_selector) else node_selector


def tolerates_accelerator(toleration: Mapping[str, Json]) -> bool:
    """Return whether a toleration is for accelerators' taints; one without a key is for all."""
    return accelerators.pins_taint(str(toleration.get("key", "")), str(toleration.get("value", "")))


def names_product(toleration: Mapping[str, Json]) -> bool:
    """Return whether a toleration is for the taint of one product."""
    key, value = str(toleration.get("key", "")), str(toleration.get("value", ""))
    return accelerators.pins_product(key, value or "true")


def without_affinity(
    affinity: Mapping[str, Json] | None, is_pin: IsPin
) -> Mapping[str, Json] | None:
    """Return the affinity without terms that pin to accelerators; None where nothing is left."""
    node = (affinity or {}).get("nodeAffinity")
    if affinity is None or not isinstance(node, Mapping):
        return affinity
    kept_node = {**_required(node, is_pin), **_preferred(node, is_pin)}
    rest = {key: value for key, value in node.items() if key not in (_REQUIRED, _PREFERRED)}
    kept_node |= rest
    if kept_node == node:
        return affinity
    others = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
    return ({**others, "nodeAffinity": kept_node} if kept_node else others) or None


def _required(node: Mapping[str, Json], is_pin: IsPin) -> dict[str, Json]:
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
    stripped = [_without_pins(term, is_pin) for term in terms]
    if all(new is old for new, old in zip(stripped, terms, strict=True)):
        return {_REQUIRED: required}
    kept = [term for term, old in zip(stripped, terms, strict=True) if term is old]
    if not kept:
        kept = stripped if all(_asks(term) for term in stripped) else []
    return {_REQUIRED: {"nodeSelectorTerms": kept}} if kept else {}


def _preferred(node: Mapping[str, Json], is_pin: IsPin) -> dict[str, Json]:
    preferred = node.get(_PREFERRED)
    if not isinstance(preferred, Sequence) or isinstance(preferred, str):
        return {} if preferred is None else {_PREFERRED: preferred}
    kept = []
    for weighted in preferred:
        term = weighted.get("preference") if isinstance(weighted, Mapping) else None
        stripped = _without_pins(term, is_pin) if isinstance(term, Mapping) else term
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


def _without_pins(term: Mapping[str, Json], is_pin: IsPin) -> Mapping[str, Json]:
    expressions = term.get("matchExpressions")
    if not isinstance(expressions, Sequence) or isinstance(expressions, str):
        return term
    kept = [expression for expression in expressions if not _pins(expression, is_pin)]
    if len(kept) == len(expressions):
        return term
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**rest, "matchExpressions": kept} if kept else rest


def _pins(expression: Json, is_pin: IsPin) -> bool:
    if not isinstance(expression, Mapping):
        return False
    key, operator = str(expression.get("key", "")), str(expression.get("operator", ""))
    if operator not in _PINNING_OPERATORS:
        return False
    values = _values(expression) or ("true",)
    return any(is_pin(key, value) for value in values)


def _asks(term: Mapping[str, Json]) -> bool:
    """Return whether a term has a condition; an empty one matches no node."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def left_over(before: PodTemplate, after: PodTemplate) -> Iterator[str]:
    """Yield the submitter's own selectors that are left and seem to pin to accelerators."""
    yield from _left_over(before, after, _seems_accelerated)
    yield from _domains_left_over(after)


def left_over_product(before: PodTemplate, after: PodTemplate) -> Iterator[str]:
    """Yield those that are left and seem to pin to one product, or to devices cut in one way."""
    yield from _left_over(before, after, _seems_product)


def _left_over(before: PodTemplate, after: PodTemplate, seems_pin: IsPin) -> Iterator[str]:
    for key, value in after.node_selector.items():
        if before.node_selector.get(key) == value and seems_pin(key, value):
            yield f"node selector {key}={value}"
    node = (after.affinity or {}).get("nodeAffinity")
    terms = _terms(node.get(_REQUIRED)) if isinstance(node, Mapping) else []
    pinned = [next(_pinned_expressions(term, seems_pin), "") for term in terms]
    # The scheduler may match any of the terms.
    if pinned and all(pinned):
        yield f"required node affinity {' or '.join(pinned)}"


def _pinned_expressions(term: Mapping[str, Json], seems_pin: IsPin) -> Iterator[str]:
    expressions = term.get("matchExpressions")
    for expression in expressions if isinstance(expressions, Sequence) else ():
        if not isinstance(expression, Mapping):
            continue
        key, operator = str(expression.get("key", "")), str(expression.get("operator", ""))
        values = _values(expression) or ("",)
        if operator == "Exists" and seems_pin(key, "true"):
            yield f"{key} {operator}"
        elif operator in ("In", "Gt", "Lt") and all(seems_pin(key, value) for value in values):
            yield f"{key} {operator} {', '.join(values)}"


def _domains_left_over(after: PodTemplate) -> Iterator[str]:
    """Yield by which labels of accelerators' nodes pods must be placed together, or spread.

    A node without the label takes no such pod:
    https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
    """
    affinity = (after.affinity or {}).get("podAffinity")
    together = affinity.get(_REQUIRED) if isinstance(affinity, Mapping) else None
    for what, terms in (("pod affinity", together), ("topology spread", after.spread)):
        for term in terms if isinstance(terms, Sequence) else ():
            key = str(term.get("topologyKey", "")) if isinstance(term, Mapping) else ""
            if _seems_accelerated(key, "true"):
                yield f"{what} by {key}"


def _seems_product(key: str, value: str) -> bool:
    # The vendor's own labels and a pool's name may well hold for its slices, too.
    is_known = accelerators.is_label(key) and not accelerators.pins_product(key, value)
    if is_known:
        return _HOW_CUT.search(key) is not None
    return not _is_denied(value) and (
        device_names.names_product(key.rpartition("/")[2], value)
        or (_is_instance(key) and device_names.names_accelerated_node(key, value))
    )


def _seems_accelerated(key: str, value: str) -> bool:
    return not _is_denied(value) and device_names.names_accelerated_node(key, value)


def _is_instance(key: str) -> bool:
    return key.endswith(("instance-type", "instance-family", "machine-family"))


def _is_denied(value: str) -> bool:
    written = value.lower()
    return written in accelerators.NEGATIVE or written.startswith(("no-", "non-"))


def _values(expression: Mapping[str, Json]) -> tuple[str, ...]:
    values = expression.get("values")
    if not isinstance(values, Sequence) or isinstance(values, str):
        return ()
    return tuple(str(value) for value in values)
