"""Turns a pod template into what a namespace's LimitRanges add to it and refuse in it.

As in the LimitRanger admission plugin, defaults come first, then minimum, maximum and ratio, of
containers and of the whole pod. It must not know policies.
https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from webhook.model import quantity
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.queues import LimitRangeItem

_CONTAINER, _POD = "Container", "Pod"


def with_defaults(container: Container, items: Sequence[LimitRangeItem]) -> Resources:
    """Return the container's resources with defaults: its own limits, then the LimitRanges'."""
    # A container's own limit is its default request; that comes before a LimitRange's default.
    limits = dict(container.resources.limits)
    requests = {**limits, **container.resources.requests}
    for item in items:
        if item.type == _CONTAINER:
            limits = {**item.default, **limits}
            requests = {**item.default_request, **requests}
    return Resources(requests=requests, limits=limits)


def problems(template: PodTemplate, items: Sequence[LimitRangeItem]) -> Iterator[str]:
    """Yield why the LimitRanges would refuse a pod of *template*, in words.

    Raises:
        FieldError: a quantity cannot be read.

    """
    filled = _filled(template, items)
    for item in items:
        if item.type == _CONTAINER:
            for container in (*filled.containers, *filled.init_containers):
                yield from _refused(item, container.resources, f"container {container.name}")
        elif item.type == _POD:
            yield from _refused(item, _of_pod(filled), "the pod")


def _filled(template: PodTemplate, items: Sequence[LimitRangeItem]) -> PodTemplate:
    def fill(containers: tuple[Container, ...]) -> tuple[Container, ...]:
        return tuple(replace(one, resources=with_defaults(one, items)) for one in containers)

    return replace(
        template,
        containers=fill(template.containers),
        init_containers=fill(template.init_containers),
    )


def _refused(item: LimitRangeItem, asked: Resources, where: str) -> Iterator[str]:
    for resource, minimum in item.min.items():
        yield from _too_small(resource, minimum, asked, where)
    for resource, maximum in item.max.items():
        yield from _too_large(resource, maximum, asked, where)
    for resource, ratio in item.max_ratio.items():
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
        found = f"{limit / request:g}"
        yield f"{resource} limit is {found} times its request, over LimitRange's {ratio} in {where}"


def _of_pod(template: PodTemplate) -> Resources:
    """Return the pod's resources as LimitRanger sums them up, pod-level ones in their place."""
    # Init containers run one by one, sidecars beside all that come after them.
    requests = _total(template, [one.resources.requests for one in _every(template)])
    limits = _total(template, [one.resources.limits for one in _every(template)])
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
