"""Turns environment variables into references to annotations, which an undo or a move can change.

After a Job's creation Kubernetes accepts changes of its pod template's annotations, but not of its
environment. So a variable to which an option gives another value is read from an annotation, which
holds the value of the option taken (decision 0020).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.adapt.adaptation import is_adapted
from webhook.model.fields import Json
from webhook.model.job import ENV_PREFIX, Job, PodSet, PodSets
from webhook.model.pods import Container, PodTemplate
from webhook.model.policy.fallback_policy import FallbackPolicy, Option

_NAME = re.compile(r"[-A-Za-z0-9_.]{0,58}[A-Za-z0-9]")
"""What may follow ``env.`` in an annotation's name, of 63 characters in all."""
_EXPANDED = re.compile(r"\$[($]")
"""What the kubelet expands in a literal value, but not in one that is read from an annotation."""
_AS_SUBMITTED: Mapping[str, str] = {}
"""The env that a Job has without any option: what it sets itself."""


def can_be_read(name: str, value: str) -> bool:
    """Return whether an annotation can hold this variable without changing its value in the pod."""
    return _NAME.fullmatch(name) is not None and not _EXPANDED.search(value)


def with_movable_env(job: Job, adapted: Job, option: Option, policy: FallbackPolicy) -> Job:
    """Return *adapted* (*job* under *option*) with the variables as references that may change.

    Those are the variables that *option* changes, so that an undo can give their values back; where
    the policy reconsiders, all that differ between its options. A variable stays literal, which
    rules an undo or a move out, if the Job itself reads it through ``valueFrom``, if it is unset
    before or after the change, or if two containers would need different values.
    """
    if policy.spec.reconsider is None and not option.adaptation.env:
        return adapted
    pod_sets = _movable(job.pod_sets, adapted.pod_sets, option, policy)
    return adapted if pod_sets is adapted.pod_sets else replace(adapted, pod_sets=pod_sets)


def still_movable(job: Job, undone: Job) -> Job:
    """Return *undone* with the references that *job* has, to annotations with the submitted values.

    Both have the same containers. A variable stays literal, which rules the undo out, where one
    annotation cannot hold its submitted value for all containers that read it.
    """
    pod_sets = tuple(
        replace(then, template=_still_reading(now.template, then.template))
        for now, then in zip(job.pod_sets, undone.pod_sets, strict=True)
    )
    return undone if pod_sets == undone.pod_sets else replace(undone, pod_sets=pod_sets)


def as_literals(job: Job) -> Job:
    """Return *job* with literals for what it reads from our annotations; the same if nothing."""
    pod_sets = tuple(
        replace(pod_set, template=_with_literals(pod_set.template)) for pod_set in job.pod_sets
    )
    return job if pod_sets == job.pod_sets else replace(job, pod_sets=pod_sets)


def _with_literals(template: PodTemplate) -> PodTemplate:
    def literal(container: Container) -> Container:
        entries: dict[str, Mapping[str, Json]] = {}
        for name in _read_from_annotations(container):
            value = template.annotations.get(ENV_PREFIX + name)
            if value is not None:
                # The API server stores an empty value by leaving it out.
                entries[name] = {"name": name, "value": value} if value else {"name": name}
        return replace(container, env=_replaced(container.env, entries))

    return replace(
        template,
        containers=tuple(map(literal, template.containers)),
        init_containers=tuple(map(literal, template.init_containers)),
    )


def _still_reading(now: PodTemplate, then: PodTemplate) -> PodTemplate:
    values = _values_to_read(now, then)
    if not values:
        return then

    def refer(reading: Container, submitted: Container) -> Container:
        names = _read_from_annotations(reading) & values.keys()
        return replace(submitted, env=_referring(submitted.env, names))

    read = {ENV_PREFIX + name: value for name, value in values.items()}
    pairs = zip(now.containers, then.containers, strict=True)
    init_pairs = zip(now.init_containers, then.init_containers, strict=True)
    return replace(
        then,
        annotations={**then.annotations, **read},
        containers=tuple(refer(*pair) for pair in pairs),
        init_containers=tuple(refer(*pair) for pair in init_pairs),
    )


def _values_to_read(now: PodTemplate, then: PodTemplate) -> Mapping[str, str]:
    """Return the value that each annotation must hold, by variable; without those that vary."""
    wanted: dict[str, set[str | None]] = {}
    for reading, submitted in _pairs(now, then):
        for name in _read_from_annotations(reading):
            wanted.setdefault(name, set()).add(_literal(name, submitted))
    return {
        name: value
        for name, (value, *others) in wanted.items()
        if not others and value is not None and not _EXPANDED.search(value)
    }


def _pairs(now: PodTemplate, then: PodTemplate) -> Iterator[tuple[Container, Container]]:
    yield from zip(now.containers, then.containers, strict=True)
    yield from zip(now.init_containers, then.init_containers, strict=True)


def _read_from_annotations(container: Container) -> set[str]:
    # The kubelet uses the last of several entries with one name.
    last = {str(entry.get("name")): entry for entry in container.env}
    return {name for name, entry in last.items() if entry == _reference(name)}


def _movable(
    before: Sequence[PodSet], after: tuple[PodSet, ...], option: Option, policy: FallbackPolicy
) -> tuple[PodSet, ...]:
    movable = PodSets(
        replace(new, template=_with_references(old.template, new.template, option, policy))
        if is_adapted(new, option.adaptation)
        else new
        for old, new in zip(before, after, strict=True)
    )
    return after if movable == after else movable


def _with_references(
    before: PodTemplate, after: PodTemplate, option: Option, policy: FallbackPolicy
) -> PodTemplate:
    options = policy.spec.options if policy.spec.reconsider is not None else (option,)
    envs = [alternative.adaptation.env for alternative in options]
    kept: dict[str, Sequence[Mapping[str, str]]] = {}
    read: dict[str, str] = {}
    for name in dict.fromkeys(name for env in envs for name in env):
        # A variable that the Job did not set cannot be undone, but may be moved between options.
        for between in ([*envs, _AS_SUBMITTED], envs):
            if values := _values_to_keep(name, before, between):
                kept[name] = between
                read[ENV_PREFIX + name] = values[options.index(option)]
                break
    if not kept:
        return after

    def refer(old: Container, new: Container) -> Container:
        varying = {name for name in kept if _varies(_values(name, old, kept[name]))}
        return replace(new, env=_referring(new.env, varying)) if varying else new

    pairs = zip(before.containers, after.containers, strict=True)
    init_pairs = zip(before.init_containers, after.init_containers, strict=True)
    return replace(
        after,
        annotations={**after.annotations, **read},
        containers=tuple(refer(old, new) for old, new in pairs),
        init_containers=tuple(refer(old, new) for old, new in init_pairs),
    )


def _values_to_keep(
    name: str, template: PodTemplate, envs: Sequence[Mapping[str, str]]
) -> Sequence[str]:
    """Return a variable's value under each of *envs*; empty: it stays literal."""
    containers = (*template.containers, *template.init_containers)
    readings = {_values(name, container, envs) for container in containers}
    # One annotation has one value, so all containers that read it must agree.
    readings = {values for values in readings if _varies(values)}
    if len(readings) != 1 or not _NAME.fullmatch(name):
        return ()
    (values,) = readings
    known = [value for value in values if value is not None and not _EXPANDED.search(value)]
    return known if len(known) == len(envs) else ()


def _values(
    name: str, container: Container, envs: Sequence[Mapping[str, str]]
) -> tuple[str | None, ...]:
    """Return a variable's value in one container under each of *envs*; None: none, or not literal.

    Of several entries with one name the last counts.
    """
    own, literal = _own(name, container), _literal(name, container)
    given = tuple(env.get(name, literal) for env in envs)
    # Where the Job reads it from is not ours to change, and a reference cannot hold its value.
    if own is not None and "valueFrom" in own and _varies(given):
        return (None,) * len(envs)
    return given


def _literal(name: str, container: Container) -> str | None:
    own = _own(name, container)
    return None if own is None or "valueFrom" in own else str(own.get("value", ""))


def _own(name: str, container: Container) -> Mapping[str, Json] | None:
    return next((entry for entry in reversed(container.env) if entry.get("name") == name), None)


def _varies(values: Sequence[str | None]) -> bool:
    return len(set(values)) > 1 or None in values


def _referring(
    env: tuple[Mapping[str, Json], ...], names: set[str]
) -> tuple[Mapping[str, Json], ...]:
    return _replaced(env, {name: _reference(name) for name in names})


def _replaced(
    env: tuple[Mapping[str, Json], ...], entries: Mapping[str, Mapping[str, Json]]
) -> tuple[Mapping[str, Json], ...]:
    """Return *env* with each of *entries* in its variable's place; of several the last one."""
    places = {str(entry.get("name")): index for index, entry in enumerate(env)}
    replaced = list(env)
    for name in entries.keys() & places.keys():
        replaced[places[name]] = entries[name]
    return tuple(replaced)


def _reference(name: str) -> Mapping[str, Json]:
    """Return the reference to a variable's annotation, as the API server serves it."""
    # With the default ``apiVersion``, or the stored entry would differ from ours.
    path = f"metadata.annotations['{ENV_PREFIX}{name}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
