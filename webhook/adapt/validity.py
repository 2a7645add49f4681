"""Tells whether the API server, a LimitRange or Kueue would refuse an adapted Job, and why.

A patch that applies may still make an object that is refused, and then the user's create fails
because of us. Only what the adaptation changed is judged: what the submitter wrote is between them
and the API server. It must not know queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.adapt import accelerators, limit_ranges, pins
from webhook.kueue.requests import MIN_PARALLELISM
from webhook.model import quantity
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.job import Job, PodSet, of_pod_sets
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.queues import LimitRangeItem
from webhook.model.reasons import Reason

_MAX_ANNOTATION_BYTES = 256 * 1024
_OWN_ANNOTATION_BYTES = 512
"""Bytes kept free for our own marks on the pod template."""
_POD_LEVEL = frozenset({"cpu", "memory"})


def refusal(before: Job, after: Job, items: Sequence[LimitRangeItem]) -> Rejection | None:
    """Return why the adapted Job must not be sent; None: it may be."""
    has_minimum = MIN_PARALLELISM in before.annotations
    return of_pod_sets(_refusal, before.pod_sets, after.pod_sets, items, has_minimum)


def _refusal(
    before: Sequence[PodSet],
    after: Sequence[PodSet],
    items: Sequence[LimitRangeItem],
    has_minimum: bool,  # noqa: FBT001 - a value like the others
) -> Rejection | None:
    for old, new in zip(before, after, strict=True):
        if old.template is new.template or old.template == new.template:
            continue
        for reason, found in (
            (
                Reason.UNSUPPORTED,
                _unsupported(old.template, new.template, has_minimum=has_minimum),
            ),
            (Reason.WOULD_BE_INVALID, _invalid(old.template, new.template, items)),
            (Reason.STILL_PINNED, _pinned(old.template, new.template)),
        ):
            try:
                detail = next(found, None)
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
    before: PodTemplate, after: PodTemplate, items: Sequence[LimitRangeItem]
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
            filled = limit_ranges.with_defaults(new, items)
            yield from _over_limits(new.name, filled, " (LimitRange's default)")
    if items:
        # What the Job had against it as submitted is not the adaptation's fault.
        submitted = frozenset(limit_ranges.problems(before, items))
        found = limit_ranges.problems(after, items)
        yield from (problem for problem in found if problem not in submitted)


def _too_long(template: PodTemplate) -> Iterator[str]:
    """https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/."""
    size = sum(
        len(text.encode(errors="surrogatepass"))
        for item in template.annotations.items()
        for text in item
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
    """Yield what still selects accelerator nodes for a pod that no longer requests one."""
    if _asks_for_accelerator(before) and not _asks_for_accelerator(after):
        yield from pins.left_over(before, after)


def _asks_for_accelerator(template: PodTemplate) -> bool:
    return any(
        accelerators.is_accelerator(resource)
        for container in _every(template)
        for resource in (*container.resources.requests, *container.resources.limits)
    )


def _every(template: PodTemplate) -> tuple[Container, ...]:
    return (*template.containers, *template.init_containers)
