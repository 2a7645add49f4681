"""A Job as it would be under an option: the closed vocabulary of ``adaptation``, on frozen values.

Adapting twice is adapting once, so that a Job decided again is not changed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from webhook.decide import accelerators, pins
from webhook.decide.adapt_containers import adapt_containers
from webhook.model.fields import Json
from webhook.model.job import Job
from webhook.model.pods import PodTemplate
from webhook.model.policy import (
    Accelerator,
    Adaptation,
    Affinity,
    Option,
    TolerationChanges,
    TolerationMatch,
    TolerationSpec,
)

_NOTHING = Adaptation()


def adapt(job: Job, option: Option) -> Job:
    """Apply the option's adaptation to each pod set; the very same Job where nothing changes.

    Raises:
        FieldError: a quantity that has to be compared cannot be read.

    """
    if option.adaptation == _NOTHING:
        return job
    pod_sets = tuple(
        replace(pod_set, template=_adapt_template(pod_set.template, option.adaptation))
        for pod_set in job.pod_sets
    )
    return job if pod_sets == job.pod_sets else replace(job, pod_sets=pod_sets)


def _adapt_template(template: PodTemplate, adaptation: Adaptation) -> PodTemplate:
    """Take away first, then give, so that what an author gives always stands at the end."""
    if adaptation.accelerator is Accelerator.REMOVE:
        template = _unpinned(template)
    containers, init_containers = adapt_containers(template, adaptation)
    removed = adaptation.node_selector.remove
    return replace(
        template,
        containers=containers,
        init_containers=init_containers,
        labels={**template.labels, **adaptation.labels},
        annotations={**template.annotations, **adaptation.annotations},
        node_selector={
            **{key: value for key, value in template.node_selector.items() if key not in removed},
            **adaptation.node_selector.set,
        },
        tolerations=_tolerations(template, adaptation.tolerations),
        affinity=None if adaptation.affinity is Affinity.REMOVE else template.affinity,
        runtime_class=_runtime_class(template, adaptation),
    )


def _unpinned(template: PodTemplate) -> PodTemplate:
    return replace(
        template,
        annotations={
            key: value
            for key, value in template.annotations.items()
            if key not in accelerators.TOPOLOGY_ANNOTATIONS
        },
        node_selector=pins.without_selector(template.node_selector),
        affinity=pins.without_affinity(template.affinity),
        tolerations=pins.without_tolerations(template.tolerations),
    )


def _runtime_class(template: PodTemplate, adaptation: Adaptation) -> str | None:
    wanted, current = adaptation.runtime_class_name, template.runtime_class
    if wanted == "Remove":
        return None
    if wanted != "Keep":
        return wanted
    removes = adaptation.accelerator is Accelerator.REMOVE
    return None if removes and accelerators.is_accelerator_runtime(current) else current


def _tolerations(
    template: PodTemplate, changes: TolerationChanges
) -> tuple[Mapping[str, Json], ...]:
    kept = [
        item
        for item in template.tolerations
        if not any(_is_meant(match, item) for match in changes.remove)
    ]
    for spec in changes.add:
        added = _written(spec)
        if all(_normal(item) != _normal(added) for item in kept):
            kept.append(added)
    return tuple(kept)


def _is_meant(match: TolerationMatch, toleration: Mapping[str, Json]) -> bool:
    """Compare the fields that the policy gives."""
    return (
        toleration.get("key") == match.key
        and match.value in (None, toleration.get("value", ""))
        and match.effect in (None, toleration.get("effect", ""))
    )


def _normal(toleration: Mapping[str, Json]) -> tuple[Json, ...]:
    """Read a toleration with its defaults, so that two ways to write it are one."""
    get = toleration.get
    return (
        get("key") or "",
        get("operator") or "Equal",
        get("value") or "",
        get("effect") or "",
        get("tolerationSeconds"),
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
