"""Turns two versions of a Job into the words for what differs, short enough for a warning.

It must not know why they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from webhook.model.fields import Json
from webhook.model.job import ENV_PREFIX, OURS, PRIORITY_LABEL, Job, PodSet, of_pod_sets
from webhook.model.pods import Container, PodTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs between two versions of a Job, but for our own marks.

    A variable that is read from an annotation of the same value does not differ.
    """

    queue: bool = False
    lost: tuple[str, ...] = ()
    """Resources that are requested no longer."""
    gained: tuple[str, ...] = ()
    """Resources that were not requested before."""
    others: tuple[str, ...] = ()
    """Everything else, in words: ``cpu``, ``image``, ``env RUN_ENV``."""

    @property
    def names(self) -> tuple[str, ...]:
        """All differences in words; empty: the Job stays as it is."""
        return (*(("queue",) if self.queue else ()), *self.lost, *self.gained, *self.others)


def between(before: Job, after: Job, *, left: str, taken: str) -> Differences:
    """Compare a Job of the LocalQueue *left* with what it becomes in the LocalQueue *taken*."""
    # Recalled for the very same pod sets, as most Jobs come from few templates (decision 0008).
    lost, gained, others = of_pod_sets(_of_pods, before.pod_sets, after.pod_sets)
    if before.labels.get(PRIORITY_LABEL) != after.labels.get(PRIORITY_LABEL):
        others = (*others, "priority class")
    return Differences(queue=left != taken, lost=lost, gained=gained, others=others)


def _of_pods(before: Sequence[PodSet], after: Sequence[PodSet]) -> tuple[tuple[str, ...], ...]:
    pairs = [(old.template, new.template) for old, new in zip(before, after, strict=True)]
    had = set(chain.from_iterable(_resources(old) for old, _ in pairs))
    has = set(chain.from_iterable(_resources(new) for _, new in pairs))
    others = dict.fromkeys(chain.from_iterable(_others(*pair, had & has) for pair in pairs))
    return tuple(sorted(had - has)), tuple(sorted(has - had)), tuple(others)


def _resources(template: PodTemplate) -> Iterator[str]:
    for container in _containers(template):
        yield from container.resources.requests
        yield from container.resources.limits


def _others(before: PodTemplate, after: PodTemplate, kept: set[str]) -> Iterator[str]:
    pairs = list(zip(_containers(before), _containers(after), strict=True))
    # A resource that is lost or gained is named as such already.
    yield from sorted(name for name in kept if any(_amounts_differ(*each, name) for each in pairs))
    if any(old.image != new.image for old, new in pairs):
        yield "image"
    for old, new in pairs:
        was, is_now = _env(old, before.annotations), _env(new, after.annotations)
        yield from (f"env {n}" for n in {**was, **is_now} if was.get(n) != is_now.get(n))
    for name, differs in (
        ("node selector", before.node_selector != after.node_selector),
        ("tolerations", before.tolerations != after.tolerations),
        ("affinity", _meant(before.affinity) != _meant(after.affinity)),
        ("runtime class", before.runtime_class != after.runtime_class),
        # Kueue and we write labels and annotations of our own; ours are left out.
        ("labels", _of_others(before.labels) != _of_others(after.labels)),
        ("annotations", _of_others(before.annotations) != _of_others(after.annotations)),
    ):
        if differs:
            yield name


def _meant(affinity: Json) -> Json:
    """Leave out the empty objects of an affinity, which ask for nothing."""
    if not isinstance(affinity, Mapping):
        return affinity or {}
    found = {key: _meant(value) for key, value in affinity.items()}
    return {key: value for key, value in found.items() if value not in ({}, [])}


def _containers(template: PodTemplate) -> Iterable[Container]:
    return (*template.init_containers, *template.containers)


def _amounts_differ(before: Container, after: Container, resource: str) -> bool:
    old, new = before.resources, after.resources
    return (old.requests.get(resource), old.limits.get(resource)) != (
        new.requests.get(resource),
        new.limits.get(resource),
    )


def _env(container: Container, annotations: Mapping[str, str]) -> dict[str, Json]:
    """Return each variable's value, literal or from an annotation; of several entries the last."""
    return {str(entry.get("name")): _value(entry, annotations) for entry in container.env}


def _value(entry: Mapping[str, Json], annotations: Mapping[str, str]) -> Json:
    source = entry.get("valueFrom")
    if source is None:
        return entry.get("value", "")
    field = source.get("fieldRef") if isinstance(source, Mapping) else None
    path = str(field.get("fieldPath")) if isinstance(field, Mapping) else ""
    # Only our own annotations: what a Job itself reads through valueFrom is compared as it is.
    held = path.removeprefix("metadata.annotations['").removesuffix("']")
    return annotations.get(held, "") if held.startswith(ENV_PREFIX) else source


def _of_others(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if not name.startswith(OURS)}
