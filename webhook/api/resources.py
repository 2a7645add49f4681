"""The table of what is watched: where each resource is served, and what its absence means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.api.errors import NotServed

KUEUE_GROUP = "kueue.x-k8s.io"


def kueue_path(version: str | None, rest: str) -> str:
    """Say where an object or a list of Kueue's is found.

    Raises:
        NotServed: *version* is None, as the API server serves none of Kueue's that is understood.

    """
    if version is None:
        raise NotServed(KUEUE_GROUP)
    return f"/apis/{KUEUE_GROUP}/{version}/{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    kind: str
    """The plural name; ConfigMaps, and Kueue's Deployment, go by their own."""
    path: str
    """With ``{kueue}`` in the place of Kueue's served version."""
    field_selector: str = ""
    label_selector: str = ""
    required: bool = True
    """Without it the state is not synced, and its silence is the state's age."""
    awaited: bool = False
    """Not synced before it was listed once, or it was said that we may not."""
    read: Callable[[str, Mapping[str, Any]], Any] | None = None
    """Kind and object to a ``reduce.Entry``; None: as ``reduce`` reads it."""

    @property
    def params(self) -> dict[str, str]:
        given = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {name: text for name, text in given.items() if text}


CLUSTER_QUEUES = "clusterqueues"
LOCAL_QUEUES = "localqueues"
COHORTS = "cohorts"
FLAVORS = "resourceflavors"
WORKLOADS = "workloads"
CHECKS = "admissionchecks"
MULTIKUEUE_CONFIGS = "multikueueconfigs"
MULTIKUEUE_CLUSTERS = "multikueueclusters"
PRIORITY_CLASSES = "workloadpriorityclasses"
NAMESPACES = "namespaces"
LIMIT_RANGES = "limitranges"
RUNTIME_CLASSES = "runtimeclasses"
POD_PRIORITIES = "priorityclasses"
POLICIES = "fallbackpolicies"
KUEUE_CONFIG = "kueue-manager-config"
KUEUE_DEPLOYMENT = "kueue-controller-manager"
OFF_SWITCH = "kueue-fallback-off"
WEBHOOKS = "mutatingwebhookconfigurations"
SIGNING_KEYS = "kueue-fallback-signing-keys"
"""The name of a Secret."""
RUN_TIMES = "kueue-fallback-run-times"
RUN_TIMES_LABEL = "kueue-fallback.dev/records"
RUN_TIMES_VALUE = "run-times"
JOURNAL = "kueue-fallback-journal"
JOURNAL_VALUE = "journal"
"""Of the same label."""

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


def watched(*, namespace: str, kueue_namespace: str) -> tuple[Resource, ...]:
    """List what is watched when we run in *namespace* and Kueue in *kueue_namespace*."""
    return (
        *(Resource(kind=kind, path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{kind}") for kind in _KUEUE),
        Resource(kind=NAMESPACES, path="/api/v1/namespaces"),
        Resource(kind=LIMIT_RANGES, path="/api/v1/limitranges"),
        Resource(kind=RUNTIME_CLASSES, path="/apis/node.k8s.io/v1/runtimeclasses"),
        Resource(kind=POD_PRIORITIES, path=f"/apis/scheduling.k8s.io/v1/{POD_PRIORITIES}"),
        Resource(kind=POLICIES, path=f"/apis/kueue-fallback.dev/v1alpha1/{POLICIES}"),
        _config_map(kueue_namespace, KUEUE_CONFIG),
        Resource(
            kind=KUEUE_DEPLOYMENT,
            path=f"/apis/apps/v1/namespaces/{kueue_namespace}/deployments",
            field_selector=f"metadata.name={KUEUE_DEPLOYMENT}",
            required=False,
            awaited=True,
        ),
        _config_map(namespace, OFF_SWITCH),
        Resource(
            kind=WEBHOOKS,
            path=f"/apis/admissionregistration.k8s.io/v1/{WEBHOOKS}",
            required=False,
        ),
    )


def watched_on_worker(*, kueue_namespace: str) -> tuple[Resource, ...]:
    """List what is watched of a worker cluster: what its queues hold, and what for."""
    needed = (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS, FLAVORS, WORKLOADS)
    return (
        *(Resource(kind=kind, path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{kind}") for kind in needed),
        Resource(kind=NAMESPACES, path="/api/v1/namespaces"),
        Resource(kind=LIMIT_RANGES, path="/api/v1/limitranges", required=False),
        Resource(kind=RUNTIME_CLASSES, path="/apis/node.k8s.io/v1/runtimeclasses", required=False),
        replace(_config_map(kueue_namespace, KUEUE_CONFIG), required=False),
    )


def signing_keys(namespace: str) -> Resource:
    """Name the Secret with the keys that decisions are signed with.

    It is not among what is ``watched``, of which commands write files.
    """
    return Resource(
        kind=SIGNING_KEYS,
        path=f"/api/v1/namespaces/{namespace}/secrets",
        field_selector=f"metadata.name={SIGNING_KEYS}",
        required=False,
        awaited=True,
    )


def run_times(namespace: str) -> Resource:
    """Name the records of runs for whoever may list ConfigMaps; see ``shards`` for who may not."""
    return Resource(
        kind=RUN_TIMES,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        label_selector=f"{RUN_TIMES_LABEL}={RUN_TIMES_VALUE}",
        required=False,
    )


def journal(namespace: str) -> Resource:
    """Name the journal of Jobs that are over."""
    return Resource(
        kind=JOURNAL,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        label_selector=f"{RUN_TIMES_LABEL}={JOURNAL_VALUE}",
        required=False,
    )


def _config_map(namespace: str, name: str) -> Resource:
    return Resource(
        kind=name,
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        field_selector=f"metadata.name={name}",
    )
