"""A scenario's worker clusters: their objects read, and checked against what leads to them.

Pure but for the files, which a function given here reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from webhook.kueue import multikueue
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import KIND
from webhook.model.queues import Snapshot
from webhook.simulate import objects
from webhook.simulate.objects import Object, ReadText
from webhook.simulate.scenario import Worker
from webhook.simulate.scenario_spec import Cluster
from webhook.state.snapshot_file import snapshot_of


def read(
    given: Sequence[Cluster],
    manager: Snapshot,
    templates: Collection[Object],
    read_text: ReadText,
) -> Mapping[str, Worker]:
    """Read all clusters; none given: the manager's quota is all there is.

    Raises:
        FieldError: one cannot be read, nothing leads to it, or one is missing.

    """
    found: dict[str, Worker] = {}
    for number, spec in enumerate(given):
        path = f"clusters[{number}]"
        _check_name(spec.name, found, manager, f"{path}.name")
        found[spec.name] = _worker(spec, path, templates, read_text)
    if found:
        _check_all(found, manager)
    return found


def _worker(spec: Cluster, path: str, templates: Collection[Object], read_text: ReadText) -> Worker:
    # Decisions are made at the manager: policies of a worker are about its own users.
    placed = [each for each in objects.listed(spec, path, read_text) if each[0].get("kind") != KIND]
    snapshot = snapshot_of(objects.with_namespaces(placed, templates))
    return Worker(snapshot=replace(snapshot, policies=()), watched=spec.watched)


def _check_name(name: str, before: Collection[str], manager: Snapshot, path: str) -> None:
    if name in before:
        raise FieldError(path, f"{name} is there twice")
    reached = multikueue.reached(manager)
    if name not in reached:
        there = ", ".join(reached) or "none"
        message = f"no ClusterQueue in `cluster` leads to {name} through MultiKueue; there is "
        raise FieldError(path, message + there)
    if name not in manager.worker_clusters:
        there = ", ".join(manager.worker_clusters) or "none"
        raise FieldError(path, f"no MultiKueueCluster {name} in `cluster`; there is {there}")


def _check_all(found: Collection[str], manager: Snapshot) -> None:
    """Refuse a cluster in which Jobs would be lost because nothing is said of it."""
    for queue in manager.cluster_queues.values():
        for name in multikueue.unknown(queue, manager, found):
            raise FieldError("clusters", f"expected {name} too: a ClusterQueue leads there")
