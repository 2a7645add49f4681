"""One Workload as the API server has it now, and the worker clusters that are nominated on it.

The one writer of nominations; who nominates, which clusters and when, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.managed_fields import applied_by, part_of
from webhook.api.resources import kueue_path
from webhook.api.watch import get_by_list
from webhook.model.queues import MULTIKUEUE
from webhook.state.snapshot import Snapshot
from webhook.state.workload import KUEUES_MANAGER, NOMINATED, AwaitingCluster, Workload

MOST_NOMINATED: Final = 20
"""As many as Kueue's schema allows."""


def read_anew(transport: KubernetesApi, workload: Workload) -> Mapping[str, Any] | None:
    """Return a Workload as it is now, read by the right to list them; None: it was deleted."""
    return get_by_list(transport, workloads_path(transport, workload), workload.name)


def workloads_path(transport: KubernetesApi, workload: Workload) -> str:
    place = f"namespaces/{workload.namespace}/workloads"
    return kueue_path(transport.kueue_version(), place)


def clusters_of(found: AwaitingCluster, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the clusters among which one is to be nominated; none: what it waits for is not that.

    They are in the order of the MultiKueueConfig.
    """
    check = snapshot.setup.checks.get(found.check)
    if check is None or check.controller != MULTIKUEUE:
        return ()
    return tuple(snapshot.setup.multikueue_configs.get(check.parameters, ()))


def with_added(
    found: AwaitingCluster, added: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Return those that are nominated, as far as they are still among *names*, and the *added*."""
    kept = tuple(name for name in found.nominated if name in names)
    return (*kept, *added)[:MOST_NOMINATED]


def nominate(
    transport: KubernetesApi,
    workload: Workload,
    source: Mapping[str, Any],
    nominated: Sequence[str],
) -> None:
    """Write the nominated clusters on a Workload that was read as *source*.

    Raises:
        ClusterError: it cannot be written; a conflict: it has changed meanwhile.
        FieldError: what Kueue has applied cannot be read.

    """
    path = f"{workloads_path(transport, workload)}/{workload.name}/status"
    transport.apply(path, applied(source, nominated), manager=KUEUES_MANAGER)


def applied(source: Mapping[str, Any], nominated: Sequence[str]) -> Mapping[str, Any]:
    """Return what to apply to a Workload's status, for Kueue's own field manager.

    Kueue takes the nomination away, when a cluster has taken the Workload, by applying its status
    without it. That works only for a field that its manager has applied; and applying one for it
    takes away what else it has applied, unless that is repeated. The resourceVersion refuses it
    where any of that has changed meanwhile.

    Raises:
        FieldError: what Kueue has applied cannot be read.

    """
    known = applied_by(KUEUES_MANAGER, source, "status")
    kept = part_of(source, known.paths).get("status", {}) if known is not None else {}
    names = ("name", "namespace", "resourceVersion")
    return {
        "apiVersion": source.get("apiVersion"),
        "kind": "Workload",
        "metadata": {name: source["metadata"][name] for name in names},
        "status": {**kept, NOMINATED: list(nominated)},
    }
