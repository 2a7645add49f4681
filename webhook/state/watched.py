"""The table of watched resources: where each is served, and what its absence means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from webhook.api.resources import (
    ACCELERATOR_PROFILES,
    AUTOSCALERS,
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CONGESTION,
    DEVICE_CLASSES,
    FLAVORS,
    JOURNAL,
    JOURNAL_VALUE,
    KUEUE_CONFIG,
    KUEUE_DEPLOYMENT,
    KUEUE_GROUP,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    NODES,
    OFF_SWITCH,
    POD_PRIORITIES,
    POLICIES,
    PRIORITY_CLASSES,
    RUN_TIMES,
    RUN_TIMES_LABEL,
    RUN_TIMES_VALUE,
    RUNTIME_CLASSES,
    SERIES,
    SIGNING_KEYS,
    TARIFFS,
    TEAM_POLICIES,
    TOPOLOGIES,
    TRAINING_RUNTIMES,
    WEBHOOKS,
    WORKLOADS,
    Limit,
    Resource,
    our_path,
)
from webhook.model.policy.fallback_policy import MOST_OF_TEAM, MOST_OF_TEAMS
from webhook.state.readers import read_by_kind
from webhook.state.signing_keys import KeyRing

_TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
_KUEUE = (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    COHORTS,
    FLAVORS,
    WORKLOADS,
    CHECKS,
    MULTIKUEUE_CONFIGS,
    MULTIKUEUE_CLUSTERS,
    PRIORITY_CLASSES,
)


OF_TEAMS = Limit(in_namespace=MOST_OF_TEAM, in_cluster=MOST_OF_TEAMS)


NODES_WITH_ROOM = Resource(kind=NODES, read=read_by_kind, path="/api/v1/nodes", required=False)


def watched(
    *,
    namespace: str,
    kueue_namespace: str,
    series_names: Iterable[str] = (),
    nodes: bool = False,
    team_policies: bool = False,
) -> tuple[Resource, ...]:
    """Return what is watched if we run in *namespace* and Kueue in *kueue_namespace*.

    *series_names* are ConfigMaps with prices by the hour, of our namespace or with theirs before.
    With *nodes* Nodes are, with *team_policies* these are, too.
    """
    return (
        *((replace(_ours(TEAM_POLICIES), limit=OF_TEAMS),) * team_policies),
        *((NODES_WITH_ROOM,) * nodes),
        *(series(name, namespace) for name in series_names),
        *(
            Resource(kind=kind, read=read_by_kind, path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{kind}")
            for kind in _KUEUE
        ),
        # Where they may not be read, nothing is known of what they have, and that is said.
        Resource(
            kind=TOPOLOGIES,
            read=read_by_kind,
            path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{TOPOLOGIES}",
            required=False,
        ),
        Resource(kind=NAMESPACES, read=read_by_kind, path="/api/v1/namespaces"),
        Resource(kind=LIMIT_RANGES, read=read_by_kind, path="/api/v1/limitranges"),
        Resource(
            kind=RUNTIME_CLASSES, read=read_by_kind, path="/apis/node.k8s.io/v1/runtimeclasses"
        ),
        Resource(
            kind=POD_PRIORITIES,
            read=read_by_kind,
            path=f"/apis/scheduling.k8s.io/v1/{POD_PRIORITIES}",
        ),
        _device_classes(),
        _ours(POLICIES),
        # Nothing is decided by these alone, so their absence keeps nothing from being so.
        replace(_ours(ACCELERATOR_PROFILES), required=False),
        replace(_ours(TARIFFS), required=False),
        _config_map(kueue_namespace, KUEUE_CONFIG),
        Resource(
            read=read_by_kind,
            kind=KUEUE_DEPLOYMENT,
            path=f"/apis/apps/v1/namespaces/{kueue_namespace}/deployments",
            field_selector=f"metadata.name={KUEUE_DEPLOYMENT}",
            required=False,
            awaited=True,
        ),
        _config_map(namespace, OFF_SWITCH),
        # Without them nothing is scarce.
        replace(_config_map(namespace, CONGESTION), required=False),
        Resource(
            read=read_by_kind,
            kind=WEBHOOKS,
            path=f"/apis/admissionregistration.k8s.io/v1/{WEBHOOKS}",
            required=False,
        ),
    )


def _ours(kind: str) -> Resource:
    return Resource(kind=kind, read=read_by_kind, path=our_path(kind))


def watched_on_worker(*, kueue_namespace: str) -> tuple[Resource, ...]:
    """Return what is watched of a worker cluster: its queues and what they hold."""
    needed = (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, FLAVORS, WORKLOADS)
    return (
        *(
            Resource(kind=kind, read=read_by_kind, path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{kind}")
            for kind in needed
        ),
        Resource(kind=NAMESPACES, read=read_by_kind, path="/api/v1/namespaces"),
        Resource(kind=LIMIT_RANGES, read=read_by_kind, path="/api/v1/limitranges", required=False),
        Resource(
            kind=RUNTIME_CLASSES,
            read=read_by_kind,
            path="/apis/node.k8s.io/v1/runtimeclasses",
            required=False,
        ),
        _device_classes(),
        replace(_config_map(kueue_namespace, KUEUE_CONFIG), required=False),
    )


def training_runtimes() -> tuple[Resource, ...]:
    """Return what TrainJobs refer to; watched where these are among the kinds switched on."""
    return tuple(
        Resource(kind=kind, read=read_by_kind, path=f"{_TRAINER}/{kind}", required=False)
        for kind in TRAINING_RUNTIMES
    )


def autoscalers() -> Resource:
    """Return what scales services; watched where these are among the kinds switched on."""
    path = f"/apis/autoscaling/v2/{AUTOSCALERS}"
    return Resource(kind=AUTOSCALERS, read=read_by_kind, path=path, required=False)


def signing_keys(namespace: str) -> Resource:
    """Return the Secret with the keys that decisions are signed with.

    It is not in ``watched``, since commands write to files what that lists.
    """
    return Resource(
        read=read_by_kind,
        kind=SIGNING_KEYS,
        path=f"/api/v1/namespaces/{namespace}/secrets",
        field_selector=f"metadata.name={SIGNING_KEYS}",
        required=False,
        awaited=True,
    )


def run_times(namespace: str) -> Resource:
    """Return the ConfigMaps with the records of runs, for those who may list ConfigMaps.

    Those who may not read them by name: see ``run_records_reader``.
    """
    return Resource(
        read=read_by_kind,
        kind=RUN_TIMES,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        label_selector=f"{RUN_TIMES_LABEL}={RUN_TIMES_VALUE}",
        required=False,
    )


def journal(namespace: str) -> Resource:
    """Return the journal of finished Jobs."""
    return Resource(
        read=read_by_kind,
        kind=JOURNAL,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        label_selector=f"{RUN_TIMES_LABEL}={JOURNAL_VALUE}",
        required=False,
    )


def _device_classes() -> Resource:
    # Clusters without dynamic resource allocation do not serve it.
    path = f"/apis/resource.k8s.io/v1/{DEVICE_CLASSES}"
    return Resource(kind=DEVICE_CLASSES, read=read_by_kind, path=path, required=False)


def _config_map(namespace: str, name: str) -> Resource:
    return Resource(
        read=read_by_kind,
        kind=name,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        field_selector=f"metadata.name={name}",
    )


def series(name: str, namespace: str) -> Resource:
    """Return a ConfigMap with prices by the hour, of *namespace* or of that before its name."""
    where, _, own = name.rpartition("/")
    config_map = _config_map(where or namespace, own)
    return replace(config_map, kind=f"{SERIES}{name}", required=False)


def proven(resources: Iterable[Resource], ring: KeyRing) -> tuple[Resource, ...]:
    """Return the resources; marks of Workloads count only if signed with a key of the *ring*."""
    read_with = ring.reading(read_by_kind)
    return tuple(
        replace(resource, read=read_with) if resource.kind == WORKLOADS else resource
        for resource in resources
    )
