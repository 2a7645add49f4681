"""What ClusterQueues hold, of which quota, and how long the next Job would wait there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from webhook.api.errors import NotServed
from webhook.api.resources import kueue_path
from webhook.commands.connect import pages
from webhook.commands.look import Part
from webhook.kueue.demand import Choice, Demand
from webhook.kueue.profile import start_of
from webhook.model.quantity import CPU, render
from webhook.model.queues import ClusterQueue, FlavorResource, Held, StopPolicy
from webhook.state.forecast_input import Survey, Surveyor
from webhook.state.snapshot_file import fetch_state

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.model.forecasts import Profile
    from webhook.state.state import State

_GIBI = 1 << 30
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")


def cluster_queues(client: Client, namespace: str, kueue_namespace: str) -> Part:
    """Count them from Workloads, as decisions do, and foresee them.

    Raises:
        Forbidden: the user may not list something of it.

    """
    state = fetch_state(client, namespace=namespace, kueue_namespace=kueue_namespace)
    unix = time.time()
    snapshot = state.snapshot(0.0, unix)
    counted = {name: state.census(name) for name in snapshot.cluster_queues}
    survey = Survey(snapshot=snapshot, counted=counted, now=0.0, unix=unix)
    profiles = Surveyor().profiles(survey)
    shown = [
        _queue(queue, snapshot.held.get(name, Held()), state, profiles.get(name))
        for name, queue in sorted(snapshot.cluster_queues.items())
    ]
    return Part(shown=shown)


def local_queues(client: Client, namespace: str) -> Part:
    """List those of one namespace, with what Kueue says of them: for who may see no more.

    Raises:
        Forbidden: the user may not list them either.

    """
    try:
        path = kueue_path(client.kueue_version(), f"namespaces/{namespace}/localqueues")
        found = [item for page in pages(client, path) for item in page.get("items") or ()]
    except NotServed:
        return Part(unknown="Kueue is not installed")
    return Part(shown=[_local_queue(item) for item in found])


def _local_queue(source: Mapping[str, Any]) -> dict[str, Any]:
    status = source.get("status") or {}
    return {
        "name": source["metadata"]["name"],
        "namespace": source["metadata"]["namespace"],
        "clusterQueue": source["spec"].get("clusterQueue", ""),
        "pending": status.get("pendingWorkloads", 0),
        "reserving": status.get("reservingWorkloads", 0),
    }


def _queue(
    queue: ClusterQueue, held: Held, state: State, profile: Profile | None
) -> dict[str, Any]:
    census = state.census(queue.name)
    return {
        "name": queue.name,
        "cohort": queue.cohort,
        "state": _state_of(queue),
        "pending": sum(len(group.members) for group in census.waiting),
        "reserving": len(census.holding),
        "quotas": list(_quotas(queue, held, profile)),
    }


def _state_of(queue: ClusterQueue) -> str:
    if queue.stop_policy is not StopPolicy.NONE:
        return "stopped"
    return "active" if queue.active else "inactive"


def _quotas(queue: ClusterQueue, held: Held, profile: Profile | None) -> Iterator[dict[str, Any]]:
    for group in queue.groups:
        for cell, quota in group.quotas.items():
            flavor, resource = cell
            yield {
                "flavor": flavor,
                "resource": resource,
                "used": render(held.usage.get(cell, 0), resource=resource),
                "quota": render(quota.nominal, resource=resource),
                **_next_free(profile, cell),
            }


def _next_free(profile: Profile | None, cell: FlavorResource) -> dict[str, Any]:
    """Foresee when a new Job gets one unit, after all who wait; None: that is not in sight."""
    if profile is None:
        return {"nextFreeIn": None, "uncertain": []}
    choice = Choice(flavor=cell[0], usage=((cell, _unit(cell[1])),))
    start = start_of(profile, Demand(parts=((choice,),), combinations=())).start
    seconds = None if start.seconds == inf else round(start.seconds, 1)
    return {"nextFreeIn": seconds, "uncertain": list(start.uncertain)}


def _unit(resource: str) -> int:
    """Take a core, a GiB or a device for what the next Job asks for at least."""
    if resource == CPU:
        return 1000
    return _GIBI if resource.startswith(_IN_BYTES) else 1
