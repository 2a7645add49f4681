"""What a pod set asks of a Topology, read from Kueue's annotations on its template.

Mirrors ``NewPodSetTopologyRequest`` and the names of its fields:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas.go
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from webhook.model.pods import PodTemplate

_PREFIX: Final = "kueue.x-k8s.io/podset-"
REQUIRED: Final = _PREFIX + "required-topology"
PREFERRED: Final = _PREFIX + "preferred-topology"
UNCONSTRAINED: Final = _PREFIX + "unconstrained-topology"
SLICE: Final = _PREFIX + "slice-required-topology"
SLICE_SIZE: Final = _PREFIX + "slice-size"
SLICES: Final = _PREFIX + "slice-required-topology-constraints"
_SIZE: Final = re.compile(r"0*[1-9][0-9]{0,8}")
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
