"""Suggests a FallbackPolicy from what Jobs with accelerators waited for, and the queues there are.

What it assumes is said beside it: a person reads it before anything is decided by it. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from webhook.adapt.accelerators import is_accelerator
from webhook.hindsight.journal import JournalEntry
from webhook.model.job import PLAIN
from webhook.model.queues import ClusterQueue, Snapshot

NAME: Final = "suggested"
WITHOUT_DEVICES: Final = 4.0
"""How many times as long a Job is assumed to run without its accelerators."""
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    manifest: Mapping[str, Any]
    assumed: tuple[str, ...]
    """Sentences, one for each thing that is assumed."""


def suggest(entries: Iterable[JournalEntry], snapshot: Snapshot) -> Suggestion | None:
    """Return a policy for the LocalQueue in which Jobs with accelerators waited most.

    None: no Job had any, or its namespaces have no other queue that could take them.
    """
    waited: defaultdict[str, float] = defaultdict(float)
    namespaces: defaultdict[str, set[str]] = defaultdict(set)
    resources: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        devices = {resource for (_, resource), _ in entry.used if is_accelerator(resource)}
        if entry.kind == PLAIN and entry.admitted and devices:
            waited[entry.queue] += entry.admitted - entry.created
            namespaces[entry.queue].add(entry.namespace)
            resources[entry.queue] |= devices
    for queue in sorted(waited, key=lambda name: (-waited[name], name)):
        others = _others(queue, namespaces[queue], resources[queue], snapshot)
        if others:
            return _suggestion(queue, others)
    return None


_Other = tuple[str, bool]
"""A LocalQueue's name, and whether its ClusterQueue has the same accelerators."""


def _others(
    queue: str, namespaces: set[str], devices: set[str], snapshot: Snapshot
) -> Sequence[_Other]:
    """Return the other queues that each of the namespaces has, the same accelerators first."""
    targets: dict[str, list[ClusterQueue]] = defaultdict(list)
    for (namespace, name), local_queue in snapshot.local_queues.items():
        cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
        if namespace in namespaces and name != queue and cluster_queue is not None:
            targets[name].append(cluster_queue)
    everywhere = {name: found for name, found in targets.items() if len(found) == len(namespaces)}
    same = [name for name, found in everywhere.items() if all(map(_has(devices), found))]
    without = [
        name
        for name, found in everywhere.items()
        if not any(is_accelerator(resource) for queue in found for resource in _resources(queue))
        and all(map(_has({_CPU}), found))
    ]
    return [*((name, True) for name in sorted(same)), *((name, False) for name in sorted(without))]


def _has(wanted: set[str]) -> Any:
    return lambda queue: wanted <= _resources(queue)


def _resources(queue: ClusterQueue) -> set[str]:
    return {resource for group in queue.groups for _, resource in group.quotas}


def _suggestion(queue: str, others: Sequence[_Other]) -> Suggestion:
    options: list[Mapping[str, Any]] = [{"name": queue, "queue": queue}]
    assumed = []
    for name, has_same in others:
        if has_same:
            options.append({"name": name, "queue": name, "slowdown": 1})
            assumed.append(f"Jobs run as fast in {name} as in {queue}")
        else:
            adaptation = {"accelerator": "Remove"}
            slower = WITHOUT_DEVICES
            options.append(
                {"name": name, "queue": name, "slowdown": slower, "adaptation": adaptation}
            )
            assumed.append(
                f"Jobs run {slower:g} times as long in {name} without accelerators, and can do so"
            )
    return Suggestion(
        manifest={
            "apiVersion": "kueue-fallback.dev/v1alpha1",
            "kind": "FallbackPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "mode": "Observe",
                "match": {"jobSelector": {}},
                "options": options,
                "strategy": {"type": "FinishTime"},
            },
        },
        assumed=tuple(assumed),
    )
