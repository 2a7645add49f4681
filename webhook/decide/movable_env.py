"""Environment variables that a move can change: read from an annotation of the pod template.

After a Job's creation Kubernetes takes no change of its environment, but of annotations. So a
variable whose value differs between the options of a policy that reconsiders is a reference to an
annotation, which holds the value of the option taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.model.fields import Json
from webhook.model.job import ENV_PREFIX, Job, PodSet, PodSets, of_pod_sets
from webhook.model.pods import Container, PodTemplate
from webhook.model.policy import Option

_NAME = re.compile(r"[-A-Za-z0-9_.]{0,58}[A-Za-z0-9]")
"""What may follow ``env.`` in an annotation's name, of 63 characters in all."""
_EXPANDED = re.compile(r"\$[($]")
"""What the kubelet replaces in a literal value, and in no other."""


def with_movable_env(job: Job, adapted: Job, option: Option, options: Sequence[Option]) -> Job:
    """Write the variables that differ between *options* so that a move can change them.

    *adapted* is *job* under *option*. A variable stays literal, and a move that would change it is
    impossible, where the Job itself reads it from somewhere, where only some options have it, and
    where two containers would need different values.
    """
    pod_sets = of_pod_sets(_movable, job.pod_sets, adapted.pod_sets, option, options)
    return adapted if pod_sets is adapted.pod_sets else replace(adapted, pod_sets=pod_sets)


def still_movable(job: Job, undone: Job) -> tuple[Job, tuple[str, ...]]:
    """Let *undone* go on reading from annotations what *job* reads there; name these variables.

    Both have the same containers. A variable is left as it was submitted, which is no move, where
    an annotation cannot hold that for all containers that read it.
    """
    names: dict[str, None] = {}
    pod_sets: list[PodSet] = []
    for now, then in zip(job.pod_sets, undone.pod_sets, strict=True):
        kept = _values_to_read(now.template, then.template)
        pod_sets.append(replace(then, template=_reading(now.template, then.template, kept)))
        names |= dict.fromkeys(kept)
    return (replace(undone, pod_sets=tuple(pod_sets)), tuple(names)) if names else (undone, ())


def _values_to_read(now: PodTemplate, then: PodTemplate) -> Mapping[str, str]:
    """Find what each annotation that is read must hold."""
    wanted: dict[str, set[str | None]] = {}
    for reading, submitted in _pairs(now, then):
        for name in _read_from_annotations(reading):
            wanted.setdefault(name, set()).add(_literal(name, submitted))
    return {
        name: value
        for name, (value, *others) in wanted.items()
        if not others and value is not None and not _EXPANDED.search(value)
    }


def _reading(now: PodTemplate, then: PodTemplate, values: Mapping[str, str]) -> PodTemplate:
    if not values:
        return then

    def refer(reading: Container, submitted: Container) -> Container:
        names = _read_from_annotations(reading) & values.keys()
        return replace(submitted, env=tuple(_referring(submitted.env, names)))

    read = {ENV_PREFIX + name: value for name, value in values.items()}
    pairs = zip(now.containers, then.containers, strict=True)
    init_pairs = zip(now.init_containers, then.init_containers, strict=True)
    return replace(
        then,
        annotations={**then.annotations, **read},
        containers=tuple(refer(*pair) for pair in pairs),
        init_containers=tuple(refer(*pair) for pair in init_pairs),
    )


def _pairs(now: PodTemplate, then: PodTemplate) -> Iterator[tuple[Container, Container]]:
    yield from zip(now.containers, then.containers, strict=True)
    yield from zip(now.init_containers, then.init_containers, strict=True)


def _read_from_annotations(container: Container) -> set[str]:
    last = {str(entry.get("name")): entry for entry in container.env}
    return {name for name, entry in last.items() if entry == _reference(name)}


def _movable(
    before: Sequence[PodSet], after: tuple[PodSet, ...], option: Option, options: Sequence[Option]
) -> tuple[PodSet, ...]:
    found = PodSets(
        replace(new, template=_with_references(old.template, new.template, option, options))
        for old, new in zip(before, after, strict=True)
    )
    return after if found == after else found


def _with_references(
    before: PodTemplate, after: PodTemplate, option: Option, options: Sequence[Option]
) -> PodTemplate:
    names = dict.fromkeys(name for each in options for name in each.adaptation.env)
    kept = {name: found for name in names if (found := _values_to_keep(name, before, options))}
    if not kept:
        return after
    place = options.index(option)
    read = {ENV_PREFIX + name: values[place] for name, values in kept.items()}

    def refer(old: Container, new: Container) -> Container:
        varying = {name for name in kept if _varies(_values(name, old, options))}
        return replace(new, env=tuple(_referring(new.env, varying))) if varying else new

    pairs = zip(before.containers, after.containers, strict=True)
    init_pairs = zip(before.init_containers, after.init_containers, strict=True)
    return replace(
        after,
        annotations={**after.annotations, **read},
        containers=tuple(refer(old, new) for old, new in pairs),
        init_containers=tuple(refer(old, new) for old, new in init_pairs),
    )


def _values_to_keep(name: str, template: PodTemplate, options: Sequence[Option]) -> Sequence[str]:
    """Give a variable's value under each option; none: it stays literal."""
    containers = (*template.containers, *template.init_containers)
    found = {_values(name, container, options) for container in containers}
    found = {values for values in found if _varies(values)}
    if len(found) != 1 or not _NAME.fullmatch(name):
        return ()
    (values,) = found
    known = [value for value in values if value is not None and not _EXPANDED.search(value)]
    return known if len(known) == len(options) else ()


def _values(name: str, container: Container, options: Sequence[Option]) -> tuple[str | None, ...]:
    """Tell a variable's value in one container under each option; None: not a literal one.

    Of several entries with one name the last counts.
    """
    own, literal = _own(name, container), _literal(name, container)
    given = tuple(option.adaptation.env.get(name, literal) for option in options)
    if own is not None and "valueFrom" in own and _varies(given):
        return (None,) * len(options)
    return given


def _literal(name: str, container: Container) -> str | None:
    own = _own(name, container)
    return None if own is None or "valueFrom" in own else str(own.get("value", ""))


def _own(name: str, container: Container) -> Mapping[str, Json] | None:
    return next((item for item in reversed(container.env) if item.get("name") == name), None)


def _varies(values: Sequence[str | None]) -> bool:
    return len(set(values)) > 1 or None in values


def _referring(
    env: tuple[Mapping[str, Json], ...], names: set[str]
) -> Iterator[Mapping[str, Json]]:
    places = {entry.get("name"): index for index, entry in enumerate(env)}
    for index, entry in enumerate(env):
        name = entry.get("name")
        is_meant = name in names and places[name] == index
        yield _reference(str(name)) if is_meant else entry


def _reference(name: str) -> Mapping[str, Json]:
    """Refer to the annotation as the API server would serve it, with its default."""
    path = f"metadata.annotations['{ENV_PREFIX}{name}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
