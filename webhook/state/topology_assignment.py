"""Reads in which domains of their Topologies the pods of an admitted Workload are.

Mirrors ``InternalSeqFrom``, by which Kueue reads its own compact form:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/tas/tas_assignment.go#L129
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

from webhook.kueue.requests import declared
from webhook.model import fields
from webhook.model.fields import EMPTY, child
from webhook.model.pods import read_template
from webhook.model.topologies import HOSTNAME, PODS, Domain, PlacedPods

_ADMISSION = "status.admission"
_MOST_DOMAINS = 100_000
"""Of one part of an assignment; that of Kueue's schema."""


def read_placed(spec: Mapping[str, Any], admission: Mapping[str, Any]) -> tuple[PlacedPods, ...]:
    """Return the pods of a Workload by domain; empty: Kueue has not placed them.

    Raises:
        FieldError: the assignment, or what a pod asks for, cannot be read.

    """
    assignments = fields.objects(admission, "podSetAssignments", _ADMISSION)
    placed = [(each, here) for each, here in assignments if each.get("topologyAssignment")]
    if not placed:
        return ()
    asked = dict(_asked(spec, {fields.text(each, "name", here) for each, here in placed}))
    return _shared(
        tuple(
            pods
            for each, here in placed
            for pods in _of_pod_set(each, here, asked.get(fields.text(each, "name", here), EMPTY))
        )
    )


@lru_cache(maxsize=4096)
def _shared(placed: tuple[PlacedPods, ...]) -> tuple[PlacedPods, ...]:
    return placed


def _asked(spec: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield what one pod of each of these pod sets takes of its Node, itself among it."""
    for pod_set, here in fields.objects(spec, "podSets", "spec"):
        name = fields.text(pod_set, "name", here)
        if name in names:
            path = child(here, "template")
            template = read_template(fields.mapping(pod_set, "template", here), path)
            asked = declared(template, path)
            yield name, {**asked, PODS: asked.get(PODS, 0) + 1}


def _of_pod_set(
    assignment: Mapping[str, Any], path: str, asked: Mapping[str, int]
) -> Iterator[PlacedPods]:
    here = child(path, "topologyAssignment")
    topology = fields.mapping(assignment, "topologyAssignment", path)
    levels = fields.strings(topology, "levels", here)
    # Flavors share Nodes, but not domains of other levels.
    is_node = levels[-1:] == (HOSTNAME,)
    names = fields.texts(assignment, "flavors", path).values()
    flavors = [""] if is_node else [intern(name) for name in dict.fromkeys(names)]
    for domain, count in _domains(topology, here, len(levels)):
        amounts = tuple((intern(name), amount * count) for name, amount in asked.items())
        for flavor in flavors:
            yield PlacedPods(flavor=flavor, domain=domain, amounts=amounts)


def _domains(topology: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[Domain, int]]:
    # Kueue's v1beta1 lists the domains one by one.
    for each, here in fields.objects(topology, "domains", path):
        values = tuple(map(intern, fields.strings(each, "values", here)))
        if len(values) == depth:
            yield values, fields.integer(each, "count", here) or 0
    for part, here in fields.objects(topology, "slices", path):
        number = min(fields.integer(part, "domainCount", here) or 0, _MOST_DOMAINS)
        levels = [
            _values(level, at, number) for level, at in fields.objects(part, "valuesPerLevel", here)
        ]
        counts = _counts(fields.mapping(part, "podCounts", here), number)
        if len(levels) == depth:
            yield from zip(zip(*levels, strict=False), counts, strict=False)


def _values(level: Mapping[str, Any], path: str, number: int) -> Sequence[str]:
    """Return the value of a level for each domain."""
    if "universal" in level:
        return [intern(fields.text(level, "universal", path))] * number
    each, here = fields.mapping(level, "individual", path), child(path, "individual")
    prefix, suffix = (fields.text(each, end, here) for end in ("prefix", "suffix"))
    roots = fields.strings(each, "roots", here)
    return [intern(f"{prefix}{root}{suffix}") for root in roots]


def _counts(counts: Mapping[str, Any], number: int) -> Sequence[int]:
    if isinstance(universal := counts.get("universal"), int):
        return [universal] * number
    individual = counts.get("individual")
    return [each for each in individual if isinstance(each, int)] if individual else []
