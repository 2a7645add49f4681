"""Whether one ResourceFlavor may serve a pod: taints, node selector, required node affinity.

Kueue looks only at the flavor's own label keys; what a Job asks of other labels is left to the
scheduler (``flavorassigner.go``, ``checkFlavorForPodSets``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.model import fields
from webhook.model.pods import PodTemplate
from webhook.model.queues import ResourceFlavor
from webhook.model.selector import Expression, Taint, read_expressions, read_toleration

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
TOPOLOGY = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
_AFFINITY = "spec.template.spec.affinity.nodeAffinity"


def asks_for_topology(template: PodTemplate) -> bool:
    return any(name in template.annotations for name in TOPOLOGY)


def mismatch(template: PodTemplate, flavor: ResourceFlavor) -> str | None:
    """Say why *flavor* is not for this pod; None: it is.

    Raises:
        FieldError: a toleration or an affinity term cannot be read.

    """
    taint = _untolerated(template, flavor)
    if taint is not None:
        return f"flavor {flavor.name} has the taint {_written(taint)}, which is not tolerated"
    for key, value in template.node_selector.items():
        if key in flavor.node_labels and flavor.node_labels[key] != value:
            has = flavor.node_labels[key]
            return f"flavor {flavor.name} has {key}={has}, the node selector asks for {value}"
    if not _affinity_matches(template, flavor):
        return f"flavor {flavor.name} does not match the required node affinity"
    return None


def _untolerated(template: PodTemplate, flavor: ResourceFlavor) -> Taint | None:
    taints = [taint for taint in flavor.taints if taint.effect in _KEEPS_OUT]
    if not taints:
        return None
    tolerations = [
        read_toleration(item, f"spec.template.spec.tolerations[{index}]")
        for index, item in enumerate(template.tolerations)
    ]
    tolerations += flavor.tolerations
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def _affinity_matches(template: PodTemplate, flavor: ResourceFlavor) -> bool:
    """Tell whether one term matches; a term that names none of the flavor's labels matches."""
    terms = _required_terms(template)
    if not terms:
        return True
    for term in terms:
        relevant = [item for item in term if item.key in flavor.node_labels]
        if all(expression.matches(flavor.node_labels) for expression in relevant):
            return True
    return False


def _required_terms(template: PodTemplate) -> list[tuple[Expression, ...]]:
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
