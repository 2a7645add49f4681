"""Tells whether the API server, a LimitRange or Kueue would refuse an adapted Job, and why.

A patch that applies may still make an object that is refused, and then the user's create fails
because of us. Only what the adaptation changed is judged: what the submitter wrote is between them
and the API server; what the namespace's LimitRanges add to it is added first. It must not know
queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.adapt import accelerators, pins
from webhook.kueue import topology_requests
from webhook.kueue.requests import MIN_PARALLELISM
from webhook.model import quantity
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.job import Job, PodSet
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.queues import LimitRangeItem
from webhook.model.reasons import Reason

_CONTAINER, _POD = "Container", "Pod"


def with_defaults(container: Container, limit_ranges: Sequence[LimitRangeItem]) -> Resources:
    """Return the container's resources with defaults from its own limits and the LimitRanges."""
    # A container's own limit is its default request; that comes before a LimitRange's default.
    limits = dict(container.resources.limits)
    requests = {**limits, **container.resources.requests}
    for limit_range in limit_ranges:
        if limit_range.type == _CONTAINER:
            limits = {**limit_range.default, **limits}
            requests = {**limit_range.default_request, **requests}
    return Resources(requests=requests, limits=limits)


def problems(template: PodTemplate, limit_ranges: Sequence[LimitRangeItem]) -> Iterator[str]:
    """Yield why the LimitRanges would refuse a pod of *template*, in words.

    Raises:
        FieldError: a quantity cannot be read.

    """
    filled = _filled(template, limit_ranges)
    for limit_range in limit_ranges:
        if limit_range.type == _CONTAINER:
            for container in (*filled.containers, *filled.init_containers):
                yield from _refused(limit_range, container.resources, f"container {container.name}")
        elif limit_range.type == _POD:
            yield from _refused(limit_range, _of_pod(filled), "the pod")


def _filled(template: PodTemplate, limit_ranges: Sequence[LimitRangeItem]) -> PodTemplate:
    def fill(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(
            replace(container, resources=with_defaults(container, limit_ranges))
            for container in containers
        )

    return replace(
        template,
        containers=fill(template.containers),
        init_containers=fill(template.init_containers),
    )


def _refused(limit_range: LimitRangeItem, asked: Resources, where: str) -> Iterator[str]:
    for resource, minimum in limit_range.min.items():
        yield from _too_small(resource, minimum, asked, where)
    for resource, maximum in limit_range.max.items():
        yield from _too_large(resource, maximum, asked, where)
    for resource, ratio in limit_range.max_ratio.items():
        yield from _too_far_apart(resource, ratio, asked, where)


def _too_small(resource: str, minimum: str, asked: Resources, where: str) -> Iterator[str]:
    if resource not in asked.requests:
        yield f"LimitRange wants a {resource} request of at least {minimum}, {where} has none"
        return
    for word, amounts in (("request", asked.requests), ("limit", asked.limits)):
        if resource in amounts and _exceeds(minimum, amounts[resource]):
            amount = amounts[resource]
            yield f"{resource} {word} {amount} below LimitRange's minimum {minimum} in {where}"


def _too_large(resource: str, maximum: str, asked: Resources, where: str) -> Iterator[str]:
    if resource not in asked.limits:
        yield f"LimitRange wants a {resource} limit of at most {maximum}, {where} has none"
        return
    for word, amounts in (("limit", asked.limits), ("request", asked.requests)):
        if resource in amounts and _exceeds(amounts[resource], maximum):
            amount = amounts[resource]
            yield f"{resource} {word} {amount} over LimitRange's maximum {maximum} in {where}"


def _too_far_apart(resource: str, ratio: str, asked: Resources, where: str) -> Iterator[str]:
    request = quantity.nano(asked.requests.get(resource, "0"))
    limit = quantity.nano(asked.limits.get(resource, "0"))
    if not request or not limit:
        yield f"LimitRange wants a {resource} request and limit, {where} lacks one"
    elif limit * quantity.NANO > quantity.nano(ratio) * request:
        times = f"{limit / request:g}"
        yield f"{resource} limit is {times} times its request, over LimitRange's {ratio} in {where}"


def _of_pod(template: PodTemplate) -> Resources:
    """Return the pod's resources as LimitRanger sums them up, pod-level ones in their place."""
    # Init containers run one by one, sidecars beside all that come after them.
    requests = _total(template, [container.resources.requests for container in _every(template)])
    limits = _total(template, [container.resources.limits for container in _every(template)])
    if template.resources is not None:
        requests |= template.resources.requests
        limits |= template.resources.limits
    return Resources(requests=requests, limits=limits)


def _every(template: PodTemplate) -> tuple[Container, ...]:
    return (*template.containers, *template.init_containers)


def _total(template: PodTemplate, amounts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the pod's total of *amounts*, which come in the order of ``_every``."""
    count = len(template.containers)
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    start: dict[str, int] = {}
    for main in amounts[:count]:
        _add(total, _nanos(main))
    for container, init in zip(template.init_containers, amounts[count:], strict=True):
        asked = _nanos(init)
        _add(asked, sidecars)
        if container.sidecar:
            _add(total, _nanos(init))
            sidecars = asked
        start = {name: max(asked.get(name, 0), start.get(name, 0)) for name in {**start, **asked}}
    return {
        name: _render(name, max(total.get(name, 0), start.get(name, 0)))
        for name in {**total, **start}
    }


def _render(resource: str, nanos: int) -> str:
    return quantity.render(quantity.from_nano(nanos, resource=resource), resource=resource)


def _nanos(amounts: Mapping[str, str]) -> dict[str, int]:
    return {name: quantity.nano(amount) for name, amount in amounts.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _exceeds(amount: str, limit: str) -> bool:
    return quantity.nano(amount) > quantity.nano(limit)


_MAX_ANNOTATION_BYTES = 256 * 1024
_OWN_ANNOTATION_BYTES = 512
"""Bytes kept free for our own marks on the pod template."""
_POD_LEVEL = frozenset({"cpu", "memory"})


def refusal(before: Job, after: Job, limit_ranges: Sequence[LimitRangeItem]) -> Rejection | None:
    """Return why the adapted Job *after* must not be sent; None: it may be.

    *before* is the Job as submitted; *limit_ranges* are those of its namespace.
    """
    has_minimum = MIN_PARALLELISM in before.annotations
    return _refusal(before.pod_sets, after.pod_sets, limit_ranges, has_minimum=has_minimum)


def _refusal(
    before: Sequence[PodSet],
    after: Sequence[PodSet],
    limit_ranges: Sequence[LimitRangeItem],
    *,
    has_minimum: bool,
) -> Rejection | None:
    if before is after:
        return None
    for reason, check in (
        (Reason.REPLICAS_NOT_ALLOWED, topology_requests.larger_slices),
        (Reason.WOULD_BE_INVALID, topology_requests.problems),
    ):
        submitted = frozenset(check(before))
        for problem in check(after):
            if problem not in submitted:
                return Rejection(reason=reason, detail=problem)
    for old, new in zip(before, after, strict=True):
        if old.template is new.template or old.template == new.template:
            continue
        for reason, details in (
            (
                Reason.UNSUPPORTED,
                _unsupported(old.template, new.template, has_minimum=has_minimum),
            ),
            (Reason.WOULD_BE_INVALID, _invalid(old.template, new.template, limit_ranges)),
            (Reason.STILL_PINNED, _pinned(old.template, new.template)),
        ):
            try:
                detail = next(details, None)
            except FieldError as error:
                return Rejection(reason=Reason.WOULD_BE_INVALID, detail=str(error))
            if detail is not None:
                return Rejection(reason=reason, detail=detail)
    return None


def _unsupported(before: PodTemplate, after: PodTemplate, *, has_minimum: bool) -> Iterator[str]:
    changed = _changed_resources(before, after)
    if not changed:
        return
    if after.claims or any(container.claims for container in _every(after)):
        yield "resources would change in a pod with resource claims"
    if has_minimum:
        yield f"resources would change in a Job with the annotation {MIN_PARALLELISM}"
    level = sorted(name for name in changed if name in _POD_LEVEL or name.startswith("hugepages-"))
    if after.resources is not None and level:
        yield f"{', '.join(level)} would change in a pod with pod-level resources"


def _changed_resources(before: PodTemplate, after: PodTemplate) -> set[str]:
    return {
        name
        for old, new in zip(_every(before), _every(after), strict=True)
        if old.resources != new.resources
        for name in _differences(old.resources, new.resources)
    }


def _differences(old: Resources, new: Resources) -> Iterator[str]:
    for was, now in ((old.requests, new.requests), (old.limits, new.limits)):
        yield from (name for name in {**was, **now} if was.get(name) != now.get(name))


def _invalid(
    before: PodTemplate, after: PodTemplate, limit_ranges: Sequence[LimitRangeItem]
) -> Iterator[str]:
    if before.annotations != after.annotations:
        yield from _too_long(after)
    if after.overhead and before.runtime_class != after.runtime_class:
        yield "the runtime class would change, and the pod's own overhead belongs to the old one"
    if not _changed_resources(before, after):
        return
    for old, new in zip(_every(before), _every(after), strict=True):
        if old.resources != new.resources:
            yield from _refused_resources(new.name, new.resources)
            filled = with_defaults(new, limit_ranges)
            asks_as_a_whole = after.resources is not None and _asks(after.resources)
            if _asks(old.resources) and not (_asks(filled) or asks_as_a_whole):
                # Kueue would give it no flavor and count no quota, and an admin's policy may
                # refuse it:
                # https://kueue.sigs.k8s.io/docs/tasks/manage/enforce_job_management/setup_job_admission_policy/
                yield f"container {new.name} would request nothing"
            yield from _over_limits(new.name, filled, " (LimitRange's default)")
    if limit_ranges:
        # What the Job had against it as submitted is not the adaptation's fault.
        submitted = frozenset(problems(before, limit_ranges))
        adapted = problems(after, limit_ranges)
        yield from (problem for problem in adapted if problem not in submitted)


def _asks(resources: Resources) -> bool:
    return any(
        quantity.nano(amount) > 0
        for amounts in (resources.requests, resources.limits)
        for amount in amounts.values()
    )


def _too_long(template: PodTemplate) -> Iterator[str]:
    """Yield why the API server would refuse the annotations: together they have a longest size."""
    # ``ValidateAnnotationsSize`` in k8s.io/apimachinery:
    # https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/
    size = sum(
        len(text.encode(errors="surrogatepass"))
        for annotation in template.annotations.items()
        for text in annotation
    )
    allowed = _MAX_ANNOTATION_BYTES - _OWN_ANNOTATION_BYTES
    if size > allowed:
        yield f"the pod template's annotations would be {size} bytes long, over {allowed}"


def _refused_resources(name: str, resources: Resources) -> Iterator[str]:
    """Yield what the API server's ``validateResourceRequirements`` would refuse in a container."""
    both = {**resources.limits, **resources.requests}
    for word, amounts in (("request", resources.requests), ("limit", resources.limits)):
        for resource, amount in amounts.items():
            yield from _refused_amount(name, f"{resource} {word} {amount}", resource, amount)
    yield from _over_limits(name, resources, "")
    for resource, amount in resources.requests.items():
        # Extended resources and hugepages cannot be overcommitted: request and limit must be equal.
        if _overcommits(resource):
            continue
        limit = resources.limits.get(resource)
        if limit is None:
            yield f"{resource} request {amount} has no limit in container {name}"
        elif quantity.nano(amount) != quantity.nano(limit):
            yield f"{resource} request {amount} differs from its limit {limit} in container {name}"
    if any(resource.startswith("hugepages-") for resource in both) and _POD_LEVEL.isdisjoint(both):
        yield f"hugepages need cpu or memory in container {name}"


def _refused_amount(name: str, what: str, resource: str, amount: str) -> Iterator[str]:
    billionths = quantity.nano(amount)
    if billionths < 0:
        yield f"{what} is negative in container {name}"
    if _is_extended(resource) and billionths % quantity.NANO:
        yield f"{what} is not a whole number in container {name}"
    if resource.startswith("hugepages-"):
        size = quantity.nano(resource.removeprefix("hugepages-"))
        if size <= 0 or billionths % size:
            yield f"{what} is no multiple of the page size in container {name}"


def _over_limits(name: str, resources: Resources, note: str) -> Iterator[str]:
    for resource, amount in resources.requests.items():
        limit = resources.limits.get(resource)
        if limit is not None and quantity.nano(amount) > quantity.nano(limit):
            yield (f"{resource} limit {limit}{note} below its request {amount} in container {name}")


def _is_extended(resource: str) -> bool:
    return "/" in resource and "kubernetes.io/" not in resource


def _overcommits(resource: str) -> bool:
    return not _is_extended(resource) and not resource.startswith("hugepages-")


def _pinned(before: PodTemplate, after: PodTemplate) -> Iterator[str]:
    """Yield what still selects nodes with accelerators that the pod no longer requests."""
    had, has = _accelerators(before), _accelerators(after)
    if had and not has:
        yield from pins.left_over(before, after)
        yield from _processes_by_device(after)
        # Taken off it would take a sandbox from people who rely on it.
        if after.runtime_class == before.runtime_class and accelerators.needs_device(
            after.runtime_class
        ):
            yield f"runtime class {after.runtime_class}"
    elif had and had.isdisjoint(has):
        yield from pins.left_over_product(before, after)


_BY_DEVICE = re.compile(r"--?nproc[-_]per[-_]node[= ]gpu\b")
_BY_DEVICE_VARIABLES = frozenset({"NPROC_PER_NODE", "PET_NPROC_PER_NODE"})
"""As torchrun reads them: https://docs.pytorch.org/docs/stable/elastic/run.html"""


def _processes_by_device(template: PodTemplate) -> Iterator[str]:
    """Yield which containers would start a process for each GPU."""
    for container in _every(template):
        given = {str(entry.get("name")): entry.get("value") for entry in container.env}
        is_set = any(given.get(name) == "gpu" for name in _BY_DEVICE_VARIABLES)
        if is_set or _BY_DEVICE.search(" ".join((*container.command, *container.args))):
            yield f"container {container.name} starts a process for each GPU (nproc-per-node)"


def _accelerators(template: PodTemplate) -> set[str]:
    return {
        resource
        for container in _every(template)
        for resource in (*container.resources.requests, *container.resources.limits)
        if accelerators.is_accelerator(resource)
    }
