"""Writes what an option asks of a Topology as Kueue's annotations on a pod set's template.

Which domains there are is not known here: with ``Auto`` pods are placed together where that can be,
until somebody who knows the Nodes says that it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from webhook.kueue.topology_requests import ANNOTATIONS, PREFERRED, REQUIRED, UNCONSTRAINED
from webhook.model.pods import PodTemplate
from webhook.model.policy.fallback_policy import TopologyChanges, TopologyMode
from webhook.model.topologies import HOSTNAME

_LEVELS: Final = {TopologyMode.REQUIRED: REQUIRED, TopologyMode.PREFERRED: PREFERRED}


def with_topology(template: PodTemplate, count: int, changes: TopologyChanges) -> PodTemplate:
    """Return a template whose *count* pods ask for what the changes say; else the same object."""
    if changes.mode is TopologyMode.KEEP:
        return template
    given = _given(count, changes)
    kept = {name: text for name, text in template.annotations.items() if name not in ANNOTATIONS}
    annotations = {**kept, **given}
    if annotations == template.annotations:
        return template
    return replace(template, annotations=annotations)


def _given(count: int, changes: TopologyChanges) -> Mapping[str, str]:
    if changes.mode is TopologyMode.AUTO:
        return {PREFERRED: HOSTNAME if count == 1 else changes.level}
    if changes.mode is TopologyMode.UNCONSTRAINED:
        return {UNCONSTRAINED: "true"}
    name = _LEVELS.get(changes.mode)
    return {} if name is None else {name: changes.level}
