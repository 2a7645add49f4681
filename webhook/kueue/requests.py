"""What the pods of a Job ask for, computed as Kueue does before it compares it with quota.

The steps are those of Kueue's ``AdjustResources`` and ``totalRequestsFromPodSets``, in their order;
the sum over containers is ``PodRequests`` of k8s.io/component-helpers, with sidecars (KEP-753).
Queues and quota are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/resources.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from webhook.kueue.flavor_plan import TOPOLOGY
from webhook.model import quantity
from webhook.model.fields import EMPTY, FieldError, child
from webhook.model.job import Job, PodSet, of_pod_sets
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.queues import KueueConfig, LimitRangeItem, PodSetNeeds, Snapshot, Transformation

_Nanos: TypeAlias = "dict[str, int | Fraction]"
"""Resource to an exact amount in billionths of its unit; it is rounded once, at the end."""
# The resources, besides huge pages, for which Kubernetes supports requests of the whole pod.
_POD_LEVEL = frozenset({"cpu", "memory"})


def needs(job: Job, snapshot: Snapshot) -> tuple[PodSetNeeds, ...]:
    """Return what each pod set of *job* asks for, in the order of its pod sets.

    Raises:
        FieldError: a quantity cannot be read.

    """
    limit_ranges = snapshot.limit_ranges.get(job.namespace, ())
    return of_pod_sets(_needs, job.pod_sets, limit_ranges, snapshot.overheads, snapshot.kueue)


def _needs(
    pod_sets: Sequence[PodSet],
    limit_ranges: tuple[LimitRangeItem, ...],
    overheads: Mapping[str, Mapping[str, str]],
    kueue: KueueConfig,
) -> tuple[PodSetNeeds, ...]:
    return tuple(
        PodSetNeeds(
            name=pod_set.name,
            count=pod_set.count,
            per_pod=per_pod(
                pod_set.template, limit_ranges=limit_ranges, overheads=overheads, kueue=kueue
            ),
            template=_of_flavors(pod_set.template),
            min_count=pod_set.min_count,
        )
        for pod_set in pod_sets
    )


def _of_flavors(template: PodTemplate) -> PodTemplate:
    """Return the part of a template that flavors depend on.

    Placements hold it until their Workloads are observed, and commands may have a megabyte.
    """
    annotations = {name: text for name, text in template.annotations.items() if name in TOPOLOGY}
    return PodTemplate(
        annotations=annotations,
        node_selector=template.node_selector,
        tolerations=template.tolerations,
        affinity=template.affinity,
    )


def per_pod(
    template: PodTemplate,
    *,
    limit_ranges: tuple[LimitRangeItem, ...],
    overheads: Mapping[str, Mapping[str, str]],
    kueue: KueueConfig,
    path: str = "spec.template",
) -> Mapping[str, int]:
    """Return what one pod asks for: cpu in milli-CPU, all else in whole units, rounded up.

    *path* is the template's path in the object, for errors.

    Raises:
        FieldError: a quantity cannot be read.

    """
    asked = _of_containers(template, limit_ranges, path)
    # ``PodRequests`` adds the overhead after pod-level requests have replaced the sum.
    asked.update(_of_the_pod(template, limit_ranges, path))
    _add(asked, _overhead(template, overheads, path))
    # Kueue excludes before it transforms, so an excluded resource is never an input.
    kept = {
        resource: amount
        for resource, amount in asked.items()
        if not resource.startswith(kueue.excluded_prefixes)
    }
    if kueue.transformations:
        kept = _transformed(kept, kueue.transformations)
    return {
        # Kueue rounds up first and then floors at zero (``FloorToZero``).
        resource: max(0, quantity.from_nano(amount, resource=resource))
        for resource, amount in kept.items()
    }


def _of_containers(
    template: PodTemplate, limit_ranges: tuple[LimitRangeItem, ...], path: str
) -> _Nanos:
    """Return, for each resource, the most that is asked for at any time of a pod's life.

    Init containers run one after another, then all containers at once. A sidecar runs beside every
    later init container and beside the containers.
    """
    defaults = _defaults(limit_ranges, "Container")
    total: _Nanos = {}
    for container, here in _placed(template.containers, path, "containers"):
        _add(total, _filled(container.resources, defaults, here))
    sidecars: _Nanos = {}
    start: _Nanos = {}
    for container, here in _placed(template.init_containers, path, "initContainers"):
        asked = _filled(container.resources, defaults, here)
        if container.sidecar:
            _add(total, asked)
            _add(sidecars, asked)
            # At this moment the sidecars so far run alone.
            _raise_to(start, sidecars)
        else:
            _add(asked, sidecars)
            _raise_to(start, asked)
    _raise_to(total, start)
    return total


def _of_the_pod(
    template: PodTemplate, limit_ranges: tuple[LimitRangeItem, ...], path: str
) -> _Nanos:
    """Read pod-level requests, which replace the sum over the containers (KEP-2837)."""
    if template.resources is None:
        return {}
    here = child(child(path, "spec"), "resources")
    asked = _filled(template.resources, _defaults(limit_ranges, "Pod"), here)
    return {
        resource: amount
        for resource, amount in asked.items()
        if resource in _POD_LEVEL or resource.startswith("hugepages-")
    }


def _overhead(
    template: PodTemplate, overheads: Mapping[str, Mapping[str, str]], path: str
) -> _Nanos:
    # As in ``handlePodOverhead``, the RuntimeClass counts where the template has no overhead.
    found = template.overhead or overheads.get(template.runtime_class or "", EMPTY)
    return _read(found, child(child(path, "spec"), "overhead"))


def _placed(
    containers: Iterable[Container], path: str, key: str
) -> Iterable[tuple[Container, str]]:
    here = child(child(path, "spec"), key)
    for index, container in enumerate(containers):
        yield container, child(child(here, index), "resources")


def _defaults(limit_ranges: tuple[LimitRangeItem, ...], kind: str) -> Resources | None:
    """Merge the defaults of a namespace's LimitRanges for one kind; None: there are none."""
    items = [item for item in limit_ranges if item.type == kind]
    if not items:
        return None
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    # Of several defaults of a resource the first wins, as in ``Summarize`` of Kueue's
    # ``pkg/util/limitrange``.
    for item in reversed(items):
        default.update(item.default)
        default_request.update(item.default_request)
    return Resources(requests=default_request, limits=default)


def _filled(resources: Resources, defaults: Resources | None, path: str) -> _Nanos:
    """Read requests; a missing one is its default, else its limit, else its default limit."""
    # Kueue fills in the defaults first, and then uses limits as the requests that are missing.
    asked = {**resources.limits, **resources.requests}
    if defaults is not None:
        asked = {
            **defaults.limits,
            **resources.limits,
            **defaults.requests,
            **resources.requests,
        }
    return _read(asked, child(path, "requests"))


def _read(amounts: Mapping[str, str], path: str) -> _Nanos:
    """Parse quantities.

    Raises:
        FieldError: one cannot be read; its path ends with the resource.

    """
    try:
        return {resource: quantity.nano(amount) for resource, amount in amounts.items()}
    except FieldError as error:
        wrong = next(name for name in amounts if not quantity.is_quantity(amounts[name]))
        raise FieldError(child(path, wrong), error.message) from None


def _add(total: _Nanos, more: Mapping[str, int | Fraction]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: _Nanos, other: Mapping[str, int | Fraction]) -> None:
    for resource, amount in other.items():
        if resource not in total or amount > total[resource]:
            total[resource] = amount


def _transformed(asked: _Nanos, transformations: tuple[Transformation, ...]) -> _Nanos:
    """Apply the ``resources.transformations`` of Kueue's configuration.

    Outputs are summed apart from what the pod asks for and floored at zero, so a negative factor
    lowers other outputs but never what was asked for.
    """
    by_input = {item.input: item for item in transformations}
    retained: _Nanos = {}
    generated: _Nanos = {}
    for resource, amount in asked.items():
        rule = by_input.get(resource)
        if rule is None or not rule.replace:
            retained[resource] = amount
        if rule is not None:
            _add(generated, _outputs(rule, amount, asked))
    _add(retained, {resource: max(0, amount) for resource, amount in generated.items()})
    return retained


def _outputs(rule: Transformation, amount: int | Fraction, asked: _Nanos) -> _Nanos:
    # The amount of ``multiplyBy`` scales the outputs only; a retained input stays as it is.
    if rule.multiply_by in asked:
        amount = amount * Fraction(asked[rule.multiply_by], quantity.NANO)
    return {
        resource: amount * Fraction(quantity.nano(factor), quantity.NANO)
        for resource, factor in rule.outputs.items()
    }
