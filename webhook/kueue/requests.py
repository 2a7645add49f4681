"""What the pods of a Job ask for, computed as Kueue does before it compares it with quota.

The steps are those of Kueue's ``AdjustResources`` and ``totalRequestsFromPodSets``, in their order;
the sum over containers is ``PodRequests`` of k8s.io/component-helpers, with sidecars (KEP-753).
A Job's priority is read here too, and what of the Job is not modelled. Usage is not known.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/resources.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Final, TypeAlias

from webhook.kueue.topology_requests import ANNOTATIONS
from webhook.model import quantity
from webhook.model.fields import EMPTY, FieldError, child
from webhook.model.job import PRIORITY_LABEL, Job, PodSet, of_pod_sets
from webhook.model.kueue_support import is_on
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.policy.fallback_policy import Option
from webhook.model.queues import KueueConfig, LimitRangeItem, PodSetNeeds, Transformation
from webhook.model.snapshot_parts import ClusterObjects, KueueSetup

_Nanos: TypeAlias = "dict[str, int | Fraction]"
"""Resource to an exact amount in billionths of its unit; it is rounded once, at the end."""
# The resources, besides huge pages, for which Kubernetes supports requests of the whole pod.
_POD_LEVEL = frozenset({"cpu", "memory"})


def needs(job: Job, cluster: ClusterObjects, kueue: KueueConfig) -> tuple[PodSetNeeds, ...]:
    """Return what each pod set of *job* asks for, in the order of its pod sets.

    Raises:
        FieldError: a quantity cannot be read.

    """
    limit_ranges = cluster.limit_ranges.get(job.namespace, ())
    return of_pod_sets(_needs, job.pod_sets, limit_ranges, cluster.overheads, kueue)


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
                pod_set.counted,
                limit_ranges=limit_ranges,
                overheads=overheads,
                kueue=kueue,
                path=".".join(pod_set.path or ()),
            ),
            template=_of_flavors(pod_set.template),
            min_count=min_count(pod_set, kueue),
            devices=_rounded(_of_devices(pod_set.counted, limit_ranges, kueue, "spec.template"))
            if kueue.devices
            else {},
            on_node=on_node(pod_set.counted, limit_ranges, overheads, kueue),
        )
        for pod_set in pod_sets
    )


_PLAIN: Final = KueueConfig()


def on_node(
    template: PodTemplate,
    limit_ranges: tuple[LimitRangeItem, ...],
    overheads: Mapping[str, Mapping[str, str]],
    kueue: KueueConfig,
) -> Mapping[str, int]:
    """Return what one pod takes of its Node; empty: what is counted against quota.

    Raises:
        FieldError: a quantity cannot be read.

    """
    if not (kueue.excluded_prefixes or kueue.transformations or kueue.devices):
        return EMPTY
    return per_pod(template, limit_ranges=limit_ranges, overheads=overheads, kueue=_PLAIN)


def declared(template: PodTemplate, path: str = "spec.template") -> Mapping[str, int]:
    """Return what one pod asks for by its own words, in the units of ``per_pod``.

    LimitRanges, RuntimeClasses and Kueue's configuration add nothing to it. *path* is the
    template's path in the object, for errors.

    Raises:
        FieldError: a quantity cannot be read.

    """
    return per_pod(template, limit_ranges=(), overheads=EMPTY, kueue=_PLAIN, path=path)


def min_count(pod_set: PodSet, kueue: KueueConfig) -> int | None:
    """Return the fewest pods with which Kueue may admit a pod set; None: all or none."""
    is_partial = is_on("PartialAdmission", kueue.gates, kueue.release)
    return pod_set.min_count if is_partial else None


def _of_flavors(template: PodTemplate) -> PodTemplate:
    """Return the part of a template that flavors depend on.

    Placements hold it until their Workloads are observed, and commands may have a megabyte.
    """
    annotations = {name: text for name, text in template.annotations.items() if name in ANNOTATIONS}
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
    asked = _of_pod(template, limit_ranges, path)
    # ``PodRequests`` adds the overhead after pod-level requests have replaced the sum.
    _add(asked, _overhead(template, overheads, path))
    # Kueue excludes before it transforms, so an excluded resource is never an input.
    kept = {
        resource: amount
        for resource, amount in asked.items()
        if not resource.startswith(kueue.excluded_prefixes)
    }
    if kueue.transformations:
        kept = _transformed(kept, kueue)
    if kueue.devices:
        # Under their own names they count neither where they are excluded nor transformed.
        devices = _of_devices(template, limit_ranges, kueue, path)
        kept = {resource: amount for resource, amount in kept.items() if resource not in devices}
        for resource, amount in devices.items():
            _add(kept, {kueue.devices[resource]: amount})
    return _rounded(kept)


def _rounded(amounts: _Nanos) -> Mapping[str, int]:
    return {
        # Kueue rounds up first and then floors at zero (``FloorToZero``).
        resource: max(0, quantity.from_nano(amount, resource=resource))
        for resource, amount in amounts.items()
    }


def _of_devices(
    template: PodTemplate,
    limit_ranges: tuple[LimitRangeItem, ...],
    kueue: KueueConfig,
    path: str,
) -> _Nanos:
    """Return what one pod asks for of extended resources that DeviceClasses stand for."""
    # ``ResolveExtendedResourceQuota``: init containers run one after another, also sidecars.
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/extended_resources.go#L203
    if not _requests_devices(template, kueue):
        return {}
    defaults = _defaults(limit_ranges, "Container")
    total: _Nanos = {}
    start: _Nanos = {}
    for container, here in _placed(template.containers, path, "containers"):
        _add(total, _filled(container.resources, defaults, here))
    for container, here in _placed(template.init_containers, path, "initContainers"):
        _raise_to(start, _filled(container.resources, defaults, here))
    _raise_to(total, start)
    return {name: amount for name, amount in total.items() if amount > 0 and name in kueue.devices}


def _requests_devices(template: PodTemplate, kueue: KueueConfig) -> bool:
    """Return whether a container requests a device; a limit without a request is none to Kueue."""
    # It looks before it takes limits for requests (``NeedsDRAReconcile``):
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/core/workload_controller.go#L1311
    containers = (*template.containers, *template.init_containers)
    return any(
        name in kueue.devices
        for container in containers
        for name, amount in container.resources.requests.items()
        if quantity.nano(amount)
    )


def is_refused(
    template: PodTemplate, limit_ranges: tuple[LimitRangeItem, ...], path: str = "spec.template"
) -> bool:
    """Return whether Kueue admits no pod of a template, whatever quota there is.

    It admits none that asks for more than its own limits, or for what a LimitRange forbids.

    Raises:
        FieldError: a quantity cannot be read.

    """
    # ``ValidateAdmissibility``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/resources.go#L231
    of_containers = _container_amounts(template, limit_ranges, path)
    at_all_levels = list(of_containers)
    if template.resources is not None:
        here = child(child(path, "spec"), "resources")
        defaults = _defaults(limit_ranges, "Pod")
        at_all_levels.append(_amounts(template.resources, defaults, here))
    if any(_exceeds(asked, limits) for asked, limits in at_all_levels):
        return True
    return bool(limit_ranges) and (
        any(_is_outside(limit_ranges, "Container", amounts, path) for amounts in of_containers)
        or _is_outside(limit_ranges, "Pod", (_of_pod(template, limit_ranges, path),), path)
    )


def _container_amounts(
    template: PodTemplate, limit_ranges: tuple[LimitRangeItem, ...], path: str
) -> Sequence[tuple[_Nanos, _Nanos]]:
    defaults = _defaults(limit_ranges, "Container")
    placed = chain(
        _placed(template.containers, path, "containers"),
        _placed(template.init_containers, path, "initContainers"),
    )
    return [_amounts(container.resources, defaults, here) for container, here in placed]


def _amounts(resources: Resources, defaults: Resources | None, path: str) -> tuple[_Nanos, _Nanos]:
    """Return requests and limits, with their defaults."""
    default = EMPTY if defaults is None else defaults.limits
    limits = _read({**default, **resources.limits}, child(path, "limits"))
    return _filled(resources, defaults, path), limits


def _is_outside(
    limit_ranges: tuple[LimitRangeItem, ...], kind: str, amounts: Iterable[_Nanos], path: str
) -> bool:
    """Return whether one of the amounts is beyond what LimitRanges of a kind allow."""
    smallest: _Nanos = {}
    largest: _Nanos = {}
    for of_one in amounts:
        _lower_to(smallest, of_one)
        _raise_to(largest, of_one)
    return any(
        _exceeds(largest, _read(item.max, path)) or _exceeds(_read(item.min, path), smallest)
        for item in limit_ranges
        if item.type == kind
    )


def _exceeds(left: _Nanos, right: _Nanos) -> bool:
    """Return whether of some resource that both name *left* is more (``GreaterKeys``)."""
    return any(name in right and amount > right[name] for name, amount in left.items())


def _of_pod(template: PodTemplate, limit_ranges: tuple[LimitRangeItem, ...], path: str) -> _Nanos:
    """Return what one pod asks for without its overhead."""
    return _of_containers(template, limit_ranges, path) | _of_the_pod(template, limit_ranges, path)


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
    amounts = template.overhead or overheads.get(template.runtime_class or "", EMPTY)
    return _read(amounts, child(child(path, "spec"), "overhead"))


def _placed(
    containers: Iterable[Container], path: str, key: str
) -> Iterable[tuple[Container, str]]:
    here = child(child(path, "spec"), key)
    for index, container in enumerate(containers):
        yield container, child(child(here, index), "resources")


def _defaults(limit_ranges: tuple[LimitRangeItem, ...], kind: str) -> Resources | None:
    """Merge the defaults of a namespace's LimitRanges for one kind; None: there are none."""
    of_kind = [limit_range for limit_range in limit_ranges if limit_range.type == kind]
    if not of_kind:
        return None
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    # Of several defaults of a resource the first wins, as in ``Summarize`` of Kueue's
    # ``pkg/util/limitrange``.
    for limit_range in reversed(of_kind):
        default.update(limit_range.default)
        default_request.update(limit_range.default_request)
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


def _raise_to(total: _Nanos, least: Mapping[str, int | Fraction]) -> None:
    for resource, amount in least.items():
        if resource not in total or amount > total[resource]:
            total[resource] = amount


def _lower_to(total: _Nanos, most: Mapping[str, int | Fraction]) -> None:
    for resource, amount in most.items():
        if resource not in total or amount < total[resource]:
            total[resource] = amount


def _transformed(asked: _Nanos, kueue: KueueConfig) -> _Nanos:
    """Apply the ``resources.transformations`` of Kueue's configuration.

    Outputs are summed apart from what the pod asks for and floored at zero, so a negative factor
    lowers other outputs but never what was asked for. A release that does not do so replaces or
    adds to what is asked for under an output's name, as a random order has it; here it adds.
    """
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go#L554
    by_input = {transformation.input: transformation for transformation in kueue.transformations}
    retained: _Nanos = {}
    generated: _Nanos = {}
    for resource, amount in asked.items():
        rule = by_input.get(resource)
        scaled = amount if rule is None else _multiplied(rule, amount, asked)
        if rule is None or not rule.replace:
            retained[resource] = scaled if kueue.release.multiplies_retained else amount
        if rule is not None:
            _add(generated, _outputs(rule, scaled))
    if kueue.release.floors_outputs:
        generated = {resource: max(0, amount) for resource, amount in generated.items()}
    _add(retained, generated)
    return retained


def _multiplied(rule: Transformation, amount: int | Fraction, asked: _Nanos) -> int | Fraction:
    if rule.multiply_by not in asked:
        return amount
    return amount * Fraction(asked[rule.multiply_by], quantity.NANO)


def _outputs(rule: Transformation, amount: int | Fraction) -> _Nanos:
    return {
        resource: amount * Fraction(quantity.nano(factor), quantity.NANO)
        for resource, factor in rule.outputs.items()
    }


def priority_of(job: Job, option: Option, cluster: ClusterObjects) -> int:
    """Return the priority of the Job's Workload if the Job takes an option."""
    # The option's class becomes the Job's label, so it comes before the Job's own.
    given = option.given_priority
    return cluster.priority_classes.get(given, 0) if given else own_priority(job, cluster)


def own_priority(job: Job, cluster: ClusterObjects) -> int:
    """Return the priority that the Job itself asks for.

    This is the value of the WorkloadPriorityClass in its label, else of the PriorityClass that a
    field of its kind or the first of its pod sets names, else of the cluster's default one.
    """
    # A class that does not exist counts as 0. Kueue makes no Workload for such a Job, and it is
    # left as submitted (``unmodelled``).
    name = job.labels.get(PRIORITY_LABEL, "")
    if name:
        return cluster.priority_classes.get(name, 0)
    name = job.pod_priority_class
    return cluster.pod_priorities.get(name, 0) if name else cluster.default_priority


def unknown_class(job: Job, cluster: ClusterObjects) -> str:
    """Return the kind and name of the Job's priority class where it does not exist; else "".

    A Job that names no class uses the default, which always exists.
    """
    name = job.labels.get(PRIORITY_LABEL, "")
    if name:
        return "" if name in cluster.priority_classes else f"WorkloadPriorityClass {name}"
    name = job.pod_priority_class
    return f"PriorityClass {name}" if name and name not in cluster.pod_priorities else ""


MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


def unmodelled(job: Job, queue: str, setup: KueueSetup, cluster: ClusterObjects) -> str:
    """Return what is not modelled about a Job in a LocalQueue, in words; empty: nothing.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    if name := unknown_class(job, cluster):
        return f"the priority of {name}, which is not there,"
    if of_pod_sets(_claims, job.pod_sets):
        return "the use of resource claims"
    # With partial admission Kueue may admit fewer pods than the Job asks for.
    if MIN_PARALLELISM in job.annotations:
        return f"its annotation {MIN_PARALLELISM}"
    if job.unmodelled:
        return job.unmodelled
    return _mapped_device(job, queue, setup, cluster)


def _claims(pod_sets: Sequence[PodSet]) -> bool:
    templates = [pod_set.template for pod_set in pod_sets]
    return any(
        template.claims
        or any(container.claims for container in (*template.containers, *template.init_containers))
        for template in templates
    )


def _mapped_device(job: Job, queue: str, setup: KueueSetup, cluster: ClusterObjects) -> str:
    """Return an extended resource that Kueue may count as devices of a DeviceClass; empty: none.

    A resource that no quota covers by its own name may be covered by that of a DeviceClass that was
    not read, or of one whose devices are counted in parts.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/extended_resources.go
    local_queue = setup.local_queues.get((job.namespace, queue))
    name = local_queue.cluster_queue if local_queue is not None else ""
    cluster_queue = setup.cluster_queues.get(name)
    if cluster_queue is None or not setup.kueue.device_mappings:
        return ""
    covered = {resource for group in cluster_queue.groups for resource in group.resources}
    asked = {
        resource for pod_set in needs(job, cluster, setup.kueue) for resource in pod_set.per_pod
    }
    # The name of an extended resource has a domain, and so a slash.
    mapped = sorted(resource for resource in asked - covered if "/" in resource)
    return f"{mapped[0]} by deviceClassMappings" if mapped else ""
