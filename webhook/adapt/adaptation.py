"""Turns a Job into what it is under an option: containers first, then the rest of the template.

``adaptation`` in a policy is a closed vocabulary. Adapting twice changes no more than adapting
once, so a Job that is decided again is not changed again. It must not know queues or quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.adapt import accelerators, pins
from webhook.kueue.topology_requests import ANNOTATIONS, PREFERRED, REQUIRED, UNCONSTRAINED
from webhook.model import quantity
from webhook.model.decision import Rejection
from webhook.model.fields import Json
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    Affinity,
    Option,
    TolerationMatch,
    TolerationSpec,
    TopologyChanges,
    TopologyMode,
)
from webhook.model.reasons import Reason
from webhook.model.topologies import HOSTNAME


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stripped:
    """A container without the resources that the adaptation removes."""

    container: Container
    lost: bool
    """Whether it had requested more than 0 of any of them."""
    units: int
    """How many devices were removed: 8 for ``nvidia.com/gpu: 8``."""


def adapt_containers(
    template: PodTemplate, adaptation: Adaptation
) -> tuple[tuple[Container, ...], tuple[Container, ...]]:
    """Return the adapted (containers, init containers) of a pod template.

    Raises:
        FieldError: a quantity that has to be compared cannot be read.

    """
    mains = [_strip(container, adaptation) for container in template.containers]
    inits = [_strip(container, adaptation) for container in template.init_containers]
    is_target = _targets(adaptation)

    def give(stripped: _Stripped, *, is_main: bool) -> Container:
        return _give(stripped, adaptation, targeted=is_target(stripped, is_main))

    return (
        tuple(give(stripped, is_main=True) for stripped in mains),
        tuple(give(stripped, is_main=False) for stripped in inits),
    )


def _targets(adaptation: Adaptation) -> Callable[[_Stripped, bool], bool]:
    """Return a test: does (container, is it a main one) get the resources and the image given."""
    # Without names, an adaptation that removes resources gives to the containers that lost some;
    # any other gives to all main ones.
    if adaptation.containers is not None:
        names = adaptation.containers
        return lambda stripped, _: stripped.container.name in names
    if adaptation.accelerator is not Accelerator.KEEP or adaptation.resources.remove:
        return lambda stripped, _: stripped.lost
    return lambda _, is_main: is_main


def _strip(container: Container, adaptation: Adaptation) -> _Stripped:
    resources = container.resources
    asked = {**resources.requests, **resources.limits}
    # Requests and limits count alike: an extended resource may be given by its limit alone.
    accelerators_asked = _accelerators(asked, adaptation)
    units = _units(asked, accelerators_asked, adaptation.by)
    removed = accelerators_asked | _named(container, asked, adaptation, units)
    kept = Resources(
        requests=_without(resources.requests, removed),
        limits=_without(resources.limits, removed),
    )
    return _Stripped(
        container=replace(container, resources=kept) if removed else container,
        lost=any(_is_positive(name, asked[name]) for name in removed),
        units=units,
    )


def _accelerators(asked: Mapping[str, str], adaptation: Adaptation) -> set[str]:
    if adaptation.accelerator is Accelerator.KEEP:
        return set()
    return {resource for resource in asked if accelerators.is_accelerator(resource)}


def _units(asked: Mapping[str, str], removed: set[str], by: Mapping[str, str]) -> int:
    """Count the devices removed; a request for a device's memory alone counts as one.

    Where a container asks for what replaces devices already, so many times it does.
    """
    lost = [name for name in removed if _is_positive(name, asked[name])]
    if set(lost) == by.keys():
        times = {divmod(quantity.nano(asked[name]), quantity.nano(by[name])) for name in lost}
        if len(times) == 1 and not any(rest for _, rest in times):
            return next(whole for whole, _ in times)
    counted = [name for name in lost if accelerators.counts_devices(name)]
    devices = sum(quantity.parse(asked[name], resource=name) for name in counted)
    return max(devices, 1) if lost else 0


def _named(
    container: Container, asked: Mapping[str, str], adaptation: Adaptation, units: int
) -> set[str]:
    """Return which resources ``resources.remove`` removes from a container.

    Those in ``perRemoved`` are removed only from containers that lose devices, which get them anew.
    """
    if adaptation.containers is not None and container.name not in adaptation.containers:
        return set()
    # Removed where it is not given anew, it would leave a container without cpu, for example.
    given = set() if units else set(adaptation.per_removed)
    return set(adaptation.resources.remove).intersection(asked) - given


def _give(stripped: _Stripped, adaptation: Adaptation, *, targeted: bool) -> Container:
    container = stripped.container
    resources = container.resources
    if stripped.units:
        resources = _compensated(resources, adaptation.per_removed, stripped.units)
        resources = _given_instead(resources, adaptation.by, stripped.units)
    if targeted:
        changes = adaptation.resources
        resources = Resources(
            requests={**resources.requests, **changes.requests},
            limits={**resources.limits, **changes.limits},
        )
    return replace(
        container,
        resources=resources,
        env=_with_env(container.env, adaptation.env),
        image=adaptation.image or container.image if targeted else container.image,
    )


def _compensated(resources: Resources, per_removed: Mapping[str, str], units: int) -> Resources:
    """Raise requests to what *per_removed* gives for the lost *units*; never lower them.

    A limit below its new request is raised to it.
    """
    requests, limits = dict(resources.requests), dict(resources.limits)
    for resource, per_unit in per_removed.items():
        worth = quantity.nano(per_unit) * units
        # The API server defaults a missing request to its limit.
        current = requests.get(resource, limits.get(resource))
        if current is not None and quantity.nano(current) >= worth:
            continue
        written = _multiple(per_unit, units, resource)
        requests[resource] = written
        if resource in limits and quantity.nano(limits[resource]) < worth:
            limits[resource] = written
    return Resources(requests=requests, limits=limits)


def _given_instead(resources: Resources, by: Mapping[str, str], units: int) -> Resources:
    """Ask for *by* for each of the lost *units*, by limits, too: they must be equal."""
    if not by:
        return resources
    given = {resource: _multiple(each, units, resource) for resource, each in by.items()}
    return Resources(requests={**resources.requests, **given}, limits={**resources.limits, **given})


def _multiple(per_unit: str, units: int, resource: str) -> str:
    """Return *units* times a quantity; for one unit it is kept as the policy's author wrote it."""
    if units == 1:
        return per_unit
    total = quantity.from_nano(quantity.nano(per_unit) * units, resource=resource)
    return quantity.render(total, resource=resource)


def _with_env(
    env: tuple[Mapping[str, Json], ...], wanted: Mapping[str, str]
) -> tuple[Mapping[str, Json], ...]:
    """Set variables where they are, or append them, sorted by name.

    Of several entries with one name the last is set, because it is the one that counts. The place
    matters, as later values may refer to it as ``$(NAME)``; and so does the order of what is
    appended: it must be the same in every option, since it is immutable once the Job exists.
    """
    if not wanted:
        return env
    places = {entry.get("name"): index for index, entry in enumerate(env)}
    changed = list(env)
    for name, value in sorted(wanted.items()):
        entry: Mapping[str, Json] = {"name": name, "value": value}
        index = places.get(name)
        if index is None:
            changed.append(entry)
        elif env[index].get("value", "") != value or "valueFrom" in env[index]:
            changed[index] = entry
    return tuple(changed)


def _without(amounts: Mapping[str, str], removed: set[str]) -> Mapping[str, str]:
    if removed.isdisjoint(amounts):
        return amounts
    return {name: amount for name, amount in amounts.items() if name not in removed}


def _is_positive(resource: str, amount: str) -> bool:
    return quantity.parse(amount, resource=resource) > 0


_Pins: TypeAlias = tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Json] | None]
"""(annotations, node selector, affinity)"""


def adapt(job: Job, option: Option) -> Job:
    """Return the Job as adapted by an option; the very same object where nothing changes.

    Raises:
        FieldError: a quantity that has to be compared cannot be read.

    """
    # Comparing with an empty adaptation would cost more than most adaptations do.
    if not option.adaptation.model_fields_set:
        return job
    pod_sets = _adapt(job.pod_sets, option.adaptation)
    return job if pod_sets is job.pod_sets else job.with_pod_sets(pod_sets)


def _adapt(pod_sets: tuple[PodSet, ...], adaptation: Adaptation) -> tuple[PodSet, ...]:
    scaled = (_with_replicas(pod_set, adaptation) for pod_set in pod_sets)
    adapted = PodSets(
        replace(pod_set, template=_placed(pod_set, adaptation))
        if is_adapted(pod_set, adaptation)
        else pod_set
        for pod_set in scaled
    )
    return pod_sets if adapted == pod_sets else adapted


def is_adapted(pod_set: PodSet, adaptation: Adaptation) -> bool:
    """Return whether an adaptation applies to a pod set, whose template stands in the object."""
    names = adaptation.pod_sets
    return pod_set.path is not None and (names is None or pod_set.name in names)


def _placed(pod_set: PodSet, adaptation: Adaptation) -> PodTemplate:
    """Return the adapted template; what pods ask of a Topology depends on their number, too."""
    template = _adapt_template(pod_set.template, adaptation)
    return with_topology(template, pod_set.count, adaptation.topology)


def _adapt_template(template: PodTemplate, adaptation: Adaptation) -> PodTemplate:
    """Return the adapted template: removals first, so what the policy gives is never removed."""
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
    """Return what pins the pod to nodes, without what pins it to accelerators."""
    is_pin = _pin_test(template, adaptation)
    if is_pin is None:
        return template.annotations, template.node_selector, template.affinity
    selector = pins.without_selector(template.node_selector, is_pin)
    affinity = pins.without_affinity(template.affinity, is_pin)
    given = adaptation.node_selector.set
    lost = {key for key in template.node_selector if key not in selector and key not in given}
    is_pinned = bool(lost) or affinity != template.affinity
    if not (is_pinned or _expects_accelerators(template, adaptation)):
        # Its racks are those of the nodes without accelerators, on which it stays.
        return template.annotations, selector, affinity
    # Racks and blocks of accelerator nodes mean nothing for a pod that asks for none, or for one
    # slice.
    annotations = {
        key: value for key, value in template.annotations.items() if key not in ANNOTATIONS
    }
    return annotations, selector, affinity


def _expects_accelerators(template: PodTemplate, adaptation: Adaptation) -> bool:
    """Return whether a pod asks for an accelerator, runs by its runtime or tolerates its nodes.

    What the adaptation itself gives does not count, so that it changes a pod only once.

    Raises:
        FieldError: a quantity cannot be read.

    """
    runtime, added = template.runtime_class, adaptation.tolerations.add
    given = {_normal(_written(spec)) for spec in added}
    return (
        bool(asked_accelerators(template))
        or (
            runtime != adaptation.runtime_class_name
            and accelerators.is_accelerator_runtime(runtime)
        )
        or any(
            pins.tolerates_accelerator(toleration) and _normal(toleration) not in given
            for toleration in template.tolerations
        )
    )


def _pin_test(template: PodTemplate, adaptation: Adaptation) -> pins.IsPin | None:
    """Return what tells which labels pin the pod to what it loses; None: it loses nothing."""
    if adaptation.accelerator is Accelerator.REMOVE:
        return accelerators.pins_label
    if not _is_replaced(template, adaptation):
        return None
    # A slice is on nodes of the same vendor, of whatever product.
    vendors = set(map(accelerators.vendor, asked_accelerators(template)))
    if vendors <= set(map(accelerators.vendor, adaptation.by)):
        return accelerators.pins_product
    return _pins_anything


def _pins_anything(key: str, value: str) -> bool:
    return accelerators.pins_label(key, value) or accelerators.pins_product(key, value)


def _is_replaced(template: PodTemplate, adaptation: Adaptation) -> bool:
    is_meant = adaptation.accelerator is Accelerator.REPLACE
    return is_meant and bool(asked_accelerators(template))


def asked_accelerators(template: PodTemplate) -> frozenset[str]:
    """Return the accelerators' resources of which some container asks for more than 0.

    Raises:
        FieldError: a quantity cannot be read.

    """
    return frozenset(
        resource
        for container in (*template.containers, *template.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
        for resource, amount in amounts.items()
        if accelerators.is_accelerator(resource) and _is_positive(resource, amount)
    )


def _runtime_class(template: PodTemplate, adaptation: Adaptation) -> str | None:
    wanted, current = adaptation.runtime_class_name, template.runtime_class
    if wanted == "Remove":
        return None
    if wanted != "Keep":
        return wanted
    # The default, Keep, must not keep a runtime that needs an accelerator's driver.
    removes = adaptation.accelerator is Accelerator.REMOVE
    return None if removes and accelerators.is_accelerator_runtime(current) else current


def _tolerations(template: PodTemplate, adaptation: Adaptation) -> tuple[Mapping[str, Json], ...]:
    """Return the tolerations after removals and additions; one that was there keeps its place."""
    added = [_written(spec) for spec in adaptation.tolerations.add]
    wanted = {_normal(toleration) for toleration in added}
    # What the policy adds is never removed, even if it tolerates an accelerator's taint.
    replaced = _is_replaced(template, adaptation)
    kept = [
        toleration
        for toleration in template.tolerations
        if _normal(toleration) in wanted
        or not (
            _is_removed(toleration, adaptation) or (replaced and pins.names_product(toleration))
        )
    ]
    present = {_normal(toleration) for toleration in kept}
    for toleration in added:
        if _normal(toleration) not in present:
            present.add(_normal(toleration))
            kept.append(toleration)
    return tuple(kept)


def _is_removed(toleration: Mapping[str, Json], adaptation: Adaptation) -> bool:
    if adaptation.accelerator is Accelerator.REMOVE and pins.tolerates_accelerator(toleration):
        return True
    return any(_is_meant(match, toleration) for match in adaptation.tolerations.remove)


def _is_meant(match: TolerationMatch, toleration: Mapping[str, Json]) -> bool:
    """Return whether a toleration has the values of all fields that the policy gives."""
    return (
        toleration.get("key") == match.key
        and match.value in (None, toleration.get("value", ""))
        and match.effect in (None, toleration.get("effect", ""))
    )


def _normal(toleration: Mapping[str, Json]) -> tuple[str, ...]:
    """Return a toleration with its defaults filled in, so that two ways to write it are equal."""
    get = toleration.get
    return (
        str(get("key") or ""),
        str(get("operator") or "Equal"),
        str(get("value") or ""),
        str(get("effect") or ""),
        str(get("tolerationSeconds")),
    )


def _written(spec: TolerationSpec) -> Mapping[str, Json]:
    """Return a toleration as the API server serves it: without empty fields."""
    every: dict[str, Json] = {
        "key": spec.key,
        "operator": spec.operator,
        "value": spec.value,
        "effect": spec.effect,
        "tolerationSeconds": spec.toleration_seconds,
    }
    return {name: value for name, value in every.items() if value not in ("", None)}


def refused_replicas(job: Job, adaptation: Adaptation) -> Rejection | None:
    """Return why a Job may not have the replicas that an adaptation gives it; None: it may."""
    if not adaptation.given_replicas:
        return None
    detail = next(_replica_problems(job.pod_sets, adaptation), "")
    return Rejection(reason=Reason.REPLICAS_NOT_ALLOWED, detail=detail) if detail else None


def _replica_problems(pod_sets: Sequence[PodSet], adaptation: Adaptation) -> Iterator[str]:
    by_name = {pod_set.name: pod_set for pod_set in pod_sets}
    for name, wanted in adaptation.given_replicas.items():
        pod_set = by_name.get(name)
        if pod_set is None:
            yield f"no pod set {name}; the Job has {', '.join(by_name)}"
        elif pod_set.replicas is None:
            yield f"the number of pods of {name} may not change"
        elif wanted < pod_set.replicas.least:
            yield f"{wanted} replicas of {name}, at least {pod_set.replicas.least}"
        elif wanted > pod_set.replicas.most:
            yield f"{wanted} replicas of {name}, at most {pod_set.replicas.most}"


def _with_replicas(pod_set: PodSet, adaptation: Adaptation) -> PodSet:
    """Return a pod set with the number of replicas that an adaptation gives; else the same object.

    With ``Auto`` too: how many hold a service's latency is not known here.
    """
    given = adaptation.given_replicas.get(pod_set.name)
    return pod_set if given is None else scaled(pod_set, given)


def scaled(pod_set: PodSet, wanted: int) -> PodSet:
    """Return a pod set with so many replicas; the very same object where nothing changes."""
    now = pod_set.replicas
    if now is None or now.number == wanted:
        return pod_set
    count = pod_set.count if now.are_workloads else wanted * now.pods_each
    return replace(pod_set, count=count, replicas=replace(now, number=wanted, given=wanted))


_LEVELS: Final = {TopologyMode.REQUIRED: REQUIRED, TopologyMode.PREFERRED: PREFERRED}


def with_topology(template: PodTemplate, count: int, changes: TopologyChanges) -> PodTemplate:
    """Return a template whose *count* pods ask for what the changes say; else the same object."""
    if changes.mode is TopologyMode.KEEP:
        return template
    given = _asked_of_topology(count, changes)
    kept = {name: text for name, text in template.annotations.items() if name not in ANNOTATIONS}
    annotations = {**kept, **given}
    if annotations == template.annotations:
        return template
    return replace(template, annotations=annotations)


def _asked_of_topology(count: int, changes: TopologyChanges) -> Mapping[str, str]:
    if changes.mode is TopologyMode.AUTO:
        return {PREFERRED: HOSTNAME if count == 1 else changes.level}
    if changes.mode is TopologyMode.UNCONSTRAINED:
        return {UNCONSTRAINED: "true"}
    name = _LEVELS.get(changes.mode)
    return {} if name is None else {name: changes.level}
