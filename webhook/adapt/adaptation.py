"""A Job as it would be under an option: the closed vocabulary of ``adaptation``, on frozen values.

Adapting twice is adapting once, so that a Job decided again is not changed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from webhook.adapt import accelerators, pins
from webhook.adapt.containers import adapt_containers
from webhook.model.fields import Json
from webhook.model.job import Job, PodSet, PodSets, of_pod_sets
from webhook.model.pods import PodTemplate
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    Affinity,
    Option,
    TolerationMatch,
    TolerationSpec,
)

_Pins: TypeAlias = tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Json] | None]
"""(annotations, node selector, affinity)"""


def adapt(job: Job, option: Option) -> Job:
    """Apply the option's adaptation to each pod set; the very same Job where nothing changes.

    Raises:
        FieldError: a quantity that has to be compared cannot be read.

    """
    # Nothing given, nothing to do; comparing whole adaptations would cost more than most of them.
    if not option.adaptation.model_fields_set:
        return job
    pod_sets = of_pod_sets(_adapt, job.pod_sets, option.adaptation)
    return job if pod_sets is job.pod_sets else replace(job, pod_sets=pod_sets)


def _adapt(pod_sets: tuple[PodSet, ...], adaptation: Adaptation) -> tuple[PodSet, ...]:
    adapted = PodSets(
        replace(pod_set, template=_adapt_template(pod_set.template, adaptation))
        for pod_set in pod_sets
    )
    return pod_sets if adapted == pod_sets else adapted


def _adapt_template(template: PodTemplate, adaptation: Adaptation) -> PodTemplate:
    """Take away first, then give, so that what an author gives always stands at the end."""
    containers, init_containers = adapt_containers(template, adaptation)
    annotations, node_selector, affinity = _pins(template, adaptation)
    removed = adaptation.node_selector.remove
    return replace(
        template,
        containers=containers,
        init_containers=init_containers,
        labels={**template.labels, **adaptation.labels},
        annotations={**annotations, **adaptation.annotations},
        node_selector={
            **{key: value for key, value in node_selector.items() if key not in removed},
            **adaptation.node_selector.set,
        },
        tolerations=_tolerations(template, adaptation),
        affinity=None if adaptation.affinity is Affinity.REMOVE else affinity,
        runtime_class=_runtime_class(template, adaptation),
    )


def _pins(template: PodTemplate, adaptation: Adaptation) -> _Pins:
    """Give what may tie the pod to nodes, without what ties it to accelerators."""
    if adaptation.accelerator is not Accelerator.REMOVE:
        return template.annotations, template.node_selector, template.affinity
    annotations = {
        key: value
        for key, value in template.annotations.items()
        if key not in accelerators.TOPOLOGY_ANNOTATIONS
    }
    selector = pins.without_selector(template.node_selector)
    return annotations, selector, pins.without_affinity(template.affinity)


def _runtime_class(template: PodTemplate, adaptation: Adaptation) -> str | None:
    wanted, current = adaptation.runtime_class_name, template.runtime_class
    if wanted == "Remove":
        return None
    if wanted != "Keep":
        return wanted
    removes = adaptation.accelerator is Accelerator.REMOVE
    return None if removes and accelerators.is_accelerator_runtime(current) else current


def _tolerations(template: PodTemplate, adaptation: Adaptation) -> tuple[Mapping[str, Json], ...]:
    """Take tolerations away and add others; one that the author adds stays where it stands."""
    added = [_written(spec) for spec in adaptation.tolerations.add]
    wanted = {_normal(item) for item in added}
    kept = [
        item
        for item in template.tolerations
        if _normal(item) in wanted or not _is_removed(item, adaptation)
    ]
    present = {_normal(item) for item in kept}
    for item in added:
        if _normal(item) not in present:
            present.add(_normal(item))
            kept.append(item)
    return tuple(kept)


def _is_removed(toleration: Mapping[str, Json], adaptation: Adaptation) -> bool:
    if adaptation.accelerator is Accelerator.REMOVE and pins.tolerates_accelerator(toleration):
        return True
    return any(_is_meant(match, toleration) for match in adaptation.tolerations.remove)


def _is_meant(match: TolerationMatch, toleration: Mapping[str, Json]) -> bool:
    """Compare the fields that the policy gives."""
    return (
        toleration.get("key") == match.key
        and match.value in (None, toleration.get("value", ""))
        and match.effect in (None, toleration.get("effect", ""))
    )


def _normal(toleration: Mapping[str, Json]) -> tuple[str, ...]:
    """Read a toleration with its defaults, so that two ways to write it are one."""
    get = toleration.get
    return (
        str(get("key") or ""),
        str(get("operator") or "Equal"),
        str(get("value") or ""),
        str(get("effect") or ""),
        str(get("tolerationSeconds")),
    )


def _written(spec: TolerationSpec) -> Mapping[str, Json]:
    """Write a toleration as the API server would serve it: without empty fields."""
    every: dict[str, Json] = {
        "key": spec.key,
        "operator": spec.operator,
        "value": spec.value,
        "effect": spec.effect,
        "tolerationSeconds": spec.toleration_seconds,
    }
    return {name: value for name, value in every.items() if value not in ("", None)}
