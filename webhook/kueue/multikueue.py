"""The worker clusters behind a ClusterQueue: where MultiKueue sends what gets quota there.

Only the manager's objects are read; what the workers hold is not known here (docs/decisions/0016).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from webhook.model.queues import MULTIKUEUE, ClusterQueue
from webhook.model.snapshot_parts import KueueSetup


def is_multikueue(cluster_queue: ClusterQueue, setup: KueueSetup) -> bool:
    return bool(_checks(cluster_queue, setup))


def behind(cluster_queue: ClusterQueue, setup: KueueSetup) -> tuple[str, ...]:
    """Return the worker clusters behind a ClusterQueue, in the order of its MultiKueueConfig.

    Empty if the ClusterQueue has no AdmissionCheck of MultiKueue.
    """
    return tuple(
        name
        for check in _checks(cluster_queue, setup)
        for name in setup.multikueue_configs.get(check, ())
    )


_ROUND_SECONDS = 300.0


def asked_after(name: str, cluster_queue: ClusterQueue, setup: KueueSetup) -> float:
    """Return the seconds from a reservation at the manager until Kueue asks a worker cluster."""
    # ``incrementalDispatcherRoundTimeout`` in Kueue; inactive clusters are asked in their round,
    # too, and those that were asked before stay so:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/workloaddispatcher/incrementaldispatcher.go#L141
    step = setup.kueue.clusters_per_round
    if not step:
        return 0.0
    names: Sequence[str] = behind(cluster_queue, setup)
    if setup.kueue.release.dispatches_by_name:
        names = sorted(names)
    return _ROUND_SECONDS * (names.index(name) // step)


def reached(setup: KueueSetup) -> tuple[str, ...]:
    """Return the worker clusters behind any ClusterQueue, each once."""
    queues = setup.cluster_queues.values()
    return tuple(dict.fromkeys(name for queue in queues for name in behind(queue, setup)))


def unknown(
    cluster_queue: ClusterQueue, setup: KueueSetup, known: Collection[str]
) -> tuple[str, ...]:
    """Return the active worker clusters behind a ClusterQueue that are not among *known*."""
    return tuple(
        name
        for name in behind(cluster_queue, setup)
        if name not in known and not inactive(name, setup)
    )


def flavors_behind(setup: KueueSetup) -> frozenset[str]:
    """Return the manager's ResourceFlavors whose quota represents the workers' capacity."""
    return frozenset(
        flavor
        for queue in setup.cluster_queues.values()
        if is_multikueue(queue, setup)
        for group in queue.groups
        for flavor in group.flavors
    )


def inactive(name: str, setup: KueueSetup) -> str:
    """Return why Kueue sends nothing to a worker cluster; empty: it does send there."""
    cluster = setup.worker_clusters.get(name)
    if cluster is None:
        return "not found"
    if cluster.active:
        return ""
    because = cluster.inactive_because.rstrip(".")
    return f"inactive: {because}" if because else "inactive"


def only_multikueue(cluster_queue: ClusterQueue, setup: KueueSetup) -> bool:
    """Return whether all AdmissionChecks of a ClusterQueue are MultiKueue's.

    True also where it has none.
    """
    # Then a Workload with quota waits for a worker cluster alone, and for no other controller.
    return len(_checks(cluster_queue, setup)) == len(cluster_queue.checks)


def _checks(cluster_queue: ClusterQueue, setup: KueueSetup) -> tuple[str, ...]:
    """Return the MultiKueueConfigs that the MultiKueue checks of a ClusterQueue name."""
    # A ClusterQueue with more than one is inactive in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/clusterqueue.go
    if not cluster_queue.checks:
        return ()
    checks = (setup.checks.get(name) for name in cluster_queue.checks)
    return tuple(
        check.parameters for check in checks if check is not None and check.controller == MULTIKUEUE
    )
