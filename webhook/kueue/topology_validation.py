"""What Kueue's validating webhooks refuse of the topology that a Job's pod sets request.

Each function mirrors one of
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from webhook.kueue.topology_requests import (
    GROUP_NAME,
    PREFERRED,
    REQUIRED,
    SLICE,
    SLICE_SIZE,
    SLICES,
    UNCONSTRAINED,
    requested,
)
from webhook.model.job import PodSet

_Rule: TypeAlias = Callable[[Sequence[PodSet]], Iterator[str]]
_LARGEST_SIZE: Final = 2**31 - 1


def problems(pod_sets: Sequence[PodSet]) -> Iterator[str]:
    """Yield what Kueue would refuse of the pod sets' topology annotations, whatever their size."""
    for rule in _RULES:
        yield from rule(pod_sets)


def _several_requests(pod_sets: Sequence[PodSet]) -> Iterator[str]:
    """``ValidateTASPodSetRequest``: at most one of three."""
    for pod_set in pod_sets:
        named = [
            name
            for name in (REQUIRED, PREFERRED, UNCONSTRAINED)
            if name in pod_set.template.annotations
        ]
        if len(named) > 1:
            yield f"{pod_set.name} would have both {named[0]} and {named[1]}"


def _slices_without_their_size(pod_sets: Sequence[PodSet]) -> Iterator[str]:
    """``ValidateTASPodSetRequest`` and ``validateSliceSizeAnnotation``."""
    for pod_set in pod_sets:
        annotations = pod_set.template.annotations
        for one, other in ((SLICE, SLICE_SIZE), (SLICE_SIZE, SLICE)):
            if one in annotations and other not in annotations:
                yield f"{pod_set.name} would have {one} without {other}"
        size = annotations.get(SLICE_SIZE, "1")
        if not (size.isascii() and size.isdigit() and 1 <= int(size[:11]) <= _LARGEST_SIZE):
            yield f"{SLICE_SIZE} of {pod_set.name} would be no whole number from 1 on"


def larger_slices(pod_sets: Sequence[PodSet]) -> Iterator[str]:
    """Yield which pod sets have too few pods: ``ValidateSliceSizeAnnotationUpperBound``."""
    for pod_set in pod_sets:
        request = requested(pod_set.template)
        for _, size in request.slices[:1] if request is not None else ():
            if size > pod_set.count:
                slices = f"slices of {size} pods"
                yield f"{pod_set.name} would have {slices}, and has {pod_set.count} in all"


def _groups(pod_sets: Sequence[PodSet]) -> Iterator[str]:
    """``validatePodSetGroupNameAnnotation`` and ``ValidatePodSetGroupingTopology``."""
    named = sorted(
        (
            (pod_set.template.annotations[GROUP_NAME], index)
            for index, pod_set in enumerate(pod_sets)
            if GROUP_NAME in pod_set.template.annotations
        ),
    )
    for name, places in groupby(named, itemgetter(0)):
        yield from _group(name, [pod_sets[index] for _, index in places])


def _group(name: str, members: Sequence[PodSet]) -> Iterator[str]:
    names = " and ".join(member.name for member in members)
    if len(members) != len(("leader", "workers")):
        yield f"{names} would be all of podset group {name}, and Kueue wants two pod sets"
        return
    asked = [
        tuple(member.template.annotations.get(key) for key in (REQUIRED, PREFERRED))
        for member in members
    ]
    if asked[0] != asked[1] or asked[0] == (None, None):
        yield f"{names} would request different topologies in podset group {name}"
    if all(member.count != 1 for member in members):
        yield f"neither {' nor '.join(names.split(' and '))} would be one pod in group {name}"
    for member in members:
        if {SLICE, SLICE_SIZE, SLICES} & set(member.template.annotations):
            yield f"{member.name} would have slices in podset group {name}"


_RULES: Final[tuple[_Rule, ...]] = (
    _several_requests,
    _slices_without_their_size,
    _groups,
)
