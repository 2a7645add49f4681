"""The worker clusters behind a ClusterQueue: where MultiKueue would send what is admitted there."""

from __future__ import annotations

from collections.abc import Collection

from webhook.model.queues import MULTIKUEUE, ClusterQueue, Snapshot


def is_multikueue(cluster_queue: ClusterQueue, snapshot: Snapshot) -> bool:
    return bool(_checks(cluster_queue, snapshot))


def behind(cluster_queue: ClusterQueue, snapshot: Snapshot) -> tuple[str, ...]:
    """Name its clusters, in the order of their MultiKueueConfig; none: it is no such queue."""
    return tuple(
        name
        for check in _checks(cluster_queue, snapshot)
        for name in snapshot.multikueue_configs.get(check, ())
    )


def reached(snapshot: Snapshot) -> tuple[str, ...]:
    """Name the clusters behind any ClusterQueue, each once."""
    queues = snapshot.cluster_queues.values()
    return tuple(dict.fromkeys(name for queue in queues for name in behind(queue, snapshot)))


def unknown(
    cluster_queue: ClusterQueue, snapshot: Snapshot, known: Collection[str]
) -> tuple[str, ...]:
    """Name the active clusters behind a ClusterQueue that are not among those that are *known*."""
    return tuple(
        name
        for name in behind(cluster_queue, snapshot)
        if name not in known and not inactive(name, snapshot)
    )


def flavors_behind(snapshot: Snapshot) -> frozenset[str]:
    """Name the manager's ResourceFlavors that stand for what workers have."""
    return frozenset(
        flavor
        for queue in snapshot.cluster_queues.values()
        if is_multikueue(queue, snapshot)
        for group in queue.groups
        for flavor in group.flavors
    )


def inactive(name: str, snapshot: Snapshot) -> str:
    """Say why Kueue sends nothing to a cluster; empty: it does."""
    cluster = snapshot.worker_clusters.get(name)
    if cluster is None:
        return "not found"
    if cluster.active:
        return ""
    because = cluster.inactive_because.rstrip(".")
    return f"inactive: {because}" if because else "inactive"


def only_multikueue(cluster_queue: ClusterQueue, snapshot: Snapshot) -> bool:
    """Tell whether nothing but another cluster decides on what has quota there."""
    return len(_checks(cluster_queue, snapshot)) == len(cluster_queue.checks)


def _checks(cluster_queue: ClusterQueue, snapshot: Snapshot) -> tuple[str, ...]:
    """Name the parameters of its MultiKueue checks; there is at most one in Kueue."""
    if not cluster_queue.checks:
        return ()
    found = (snapshot.checks.get(name) for name in cluster_queue.checks)
    return tuple(
        check.parameters for check in found if check is not None and check.controller == MULTIKUEUE
    )
