"""What pod sets ask of a Topology by Kueue's annotations, and what of that Kueue refuses.

Mirrors ``NewPodSetTopologyRequest``, with the names of its fields, and the functions by which
validating webhooks check it:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from webhook.model.job import PodSet
from webhook.model.pods import PodTemplate

_PREFIX: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = _PREFIX + "required-topology"
PREFERRED: Final = _PREFIX + "preferred-topology"
UNCONSTRAINED: Final = _PREFIX + "unconstrained-topology"
SLICE: Final = _PREFIX + "slice-required-topology"
SLICE_SIZE: Final = _PREFIX + "slice-size"
SLICES: Final = _PREFIX + "slice-required-topology-constraints"
GROUP_NAME: Final = _PREFIX + "group-name"
ASKING: Final = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE, SLICES)
"""The annotations by which a pod set asks for a topology."""
ANNOTATIONS: Final = frozenset((*ASKING, SLICE_SIZE, GROUP_NAME))
"""All that say how."""


class Placing(StrEnum):
    REQUIRED = "required"
    PREFERRED = "preferred"
    UNCONSTRAINED = "unconstrained"
    SLICES = "slices"
    """Only its slices have to be placed together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    placing: Placing
    level: str = ""
    """The Node label of the level; empty where none is named."""
    slices: tuple[tuple[str, int], ...] = ()
    """Level and number of pods of the slices, the largest first; empty: single pods."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Return every level that is named."""
        return (*((self.level,) if self.level else ()), *(level for level, _ in self.slices))


def asks_for_topology(template: PodTemplate) -> bool:
    return any(name in template.annotations for name in ASKING)


def requested(template: PodTemplate) -> TopologyRequest | None:
    """Return what a template asks of a Topology; None: nothing, or nothing that can be read."""
    texts = template.annotations
    slices = _slices(template)
    if REQUIRED in texts:
        return TopologyRequest(placing=Placing.REQUIRED, level=texts[REQUIRED], slices=slices)
    if PREFERRED in texts:
        return TopologyRequest(placing=Placing.PREFERRED, level=texts[PREFERRED], slices=slices)
    if slices:
        return TopologyRequest(placing=Placing.SLICES, slices=slices)
    if UNCONSTRAINED in texts:
        return TopologyRequest(placing=Placing.UNCONSTRAINED)
    return None


def _slices(template: PodTemplate) -> tuple[tuple[str, int], ...]:
    texts = template.annotations
    if SLICES in texts:
        return _layers(texts[SLICES])
    size = texts.get(SLICE_SIZE, "")
    is_read = SLICE in texts and size.isascii() and size.isdigit() and len(size) < len("2147483647")
    return ((texts[SLICE], int(size)),) if is_read and int(size) else ()


def _layers(text: str) -> tuple[tuple[str, int], ...]:
    """Read the slices of several levels; empty where they cannot be read."""
    try:
        layers: Any = json.loads(text)
        found = tuple((str(layer["topology"]), int(layer["size"])) for layer in layers)
    except (ValueError, TypeError, KeyError):
        return ()
    return found if all(size > 0 for _, size in found) else ()


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
