"""Whether pods of a template may use a ResourceFlavor, by its labels and taints.

Quota is not known here, nor what the flavor's Nodes have left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.model import fields
from webhook.model.pods import Expression, PodTemplate, Taint, read_expressions, read_toleration
from webhook.model.queues import ResourceFlavor

_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
_AFFINITY: Final = "spec.template.spec.affinity.nodeAffinity"


def mismatch(template: PodTemplate, flavor: ResourceFlavor) -> str | None:
    """Return why pods of this template cannot use *flavor*; None: they can.

    Raises:
        FieldError: a toleration or an affinity term cannot be read.

    """
    taint = untolerated(template, flavor.taints, flavor)
    if taint is not None:
        return f"flavor {flavor.name} has the taint {_written(taint)}, which is not tolerated"
    # Like Kueue, ignore selectors on labels that the flavor does not set: kube-scheduler checks
    # those on nodes.
    for key, value in template.node_selector.items():
        if key in flavor.node_labels and flavor.node_labels[key] != value:
            has = flavor.node_labels[key]
            return f"flavor {flavor.name} has {key}={has}, the node selector asks for {value}"
    if not _affinity_matches(template, flavor):
        return f"flavor {flavor.name} does not match the required node affinity"
    return None


def untolerated(
    template: PodTemplate, taints: Iterable[Taint], flavor: ResourceFlavor
) -> Taint | None:
    """Return the first taint that keeps pods of this template away; None: none does.

    Raises:
        FieldError: a toleration cannot be read.

    """
    taints = [taint for taint in taints if taint.effect in _KEEPS_OUT]
    if not taints:
        return None
    tolerations = [
        read_toleration(toleration, f"spec.template.spec.tolerations[{index}]")
        for index, toleration in enumerate(template.tolerations)
    ]
    # Kueue adds the flavor's own tolerations to the pods that it admits.
    tolerations += flavor.tolerations
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def _affinity_matches(template: PodTemplate, flavor: ResourceFlavor) -> bool:
    """Return whether the flavor's labels match one of the required terms, or there are none.

    Expressions on labels that the flavor does not set are ignored, so a term of only such matches.
    """
    terms = required_terms(template)
    if not terms:
        return True
    for term in terms:
        relevant = [expression for expression in term if expression.key in flavor.node_labels]
        if all(expression.matches(flavor.node_labels) for expression in relevant):
            return True
    return False


def required_terms(template: PodTemplate) -> list[tuple[Expression, ...]]:
    """Return the terms of the required node affinity, of which one has to match.

    Raises:
        FieldError: one cannot be read.

    """
    if template.affinity is None:
        return []
    affinity: Mapping[str, Any] = template.affinity
    path = fields.child(_AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution")
    node = fields.mapping(affinity, "nodeAffinity", "spec.template.spec.affinity")
    required = fields.mapping(node, "requiredDuringSchedulingIgnoredDuringExecution", _AFFINITY)
    return [
        read_expressions(term, "matchExpressions", here)
        for term, here in fields.objects(required, "nodeSelectorTerms", path)
    ]


def _written(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
