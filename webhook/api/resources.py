"""What a listed and watched resource is, the names of all of them, and the reading of one object.

It makes no call; what an object's fields mean is its reader's to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from webhook.api.kubernetes_api import NotServed
from webhook.model import fields
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.policy.custom_object import PolicyError
from webhook.model.policy.fallback_policy import GROUP, VERSION

KUEUE_GROUP = "kueue.x-k8s.io"


def kueue_path(version: str | None, rest: str) -> str:
    """Return the path of an object or a list of Kueue's.

    Raises:
        NotServed: *version* is None, as the API server serves none of Kueue's that is understood.

    """
    if version is None:
        raise NotServed(KUEUE_GROUP)
    return f"/apis/{KUEUE_GROUP}/{version}/{rest}"


def our_path(rest: str) -> str:
    """Return the path of an object or a list of ours."""
    return f"/apis/{GROUP}/{VERSION}/{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many objects are read: those that come first in a list, which is ordered by name."""

    in_namespace: int
    in_cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    kind: str
    """The plural name; for ConfigMaps, Secrets and Kueue's Deployment, the object's own name."""
    path: str
    """URL path, with ``{kueue}`` in place of Kueue's served version."""
    read: Callable[[str, Mapping[str, Any]], Any]
    """Makes a ``ReadObject`` of kind and object."""
    field_selector: str = ""
    label_selector: str = ""
    required: bool = True
    """Without it the state is not synced, and the time without its updates is the state's age."""
    awaited: bool = False
    """The state is not synced before it was listed once, or was found to be forbidden."""
    limit: Limit | None = None
    """None: all are read."""
    unserved_seconds: float = 8.0
    """Between attempts while it is not served; by default below the age at which state is stale."""

    @property
    def params(self) -> dict[str, str]:
        given = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {name: text for name, text in given.items() if text}


CLUSTER_QUEUES = "clusterqueues"
LOCAL_QUEUES = "localqueues"
COHORTS = "cohorts"
FLAVORS = "resourceflavors"
TOPOLOGIES = "topologies"
WORKLOADS = "workloads"
CHECKS = "admissionchecks"
MULTIKUEUE_CONFIGS = "multikueueconfigs"
MULTIKUEUE_CLUSTERS = "multikueueclusters"
PRIORITY_CLASSES = "workloadpriorityclasses"
NAMESPACES = "namespaces"
NODES = "nodes"
LIMIT_RANGES = "limitranges"
RUNTIME_CLASSES = "runtimeclasses"
AUTOSCALERS = "horizontalpodautoscalers"
POD_PRIORITIES = "priorityclasses"
DEVICE_CLASSES = "deviceclasses"
TRAINING_RUNTIMES = ("clustertrainingruntimes", "trainingruntimes")
POLICIES = "fallbackpolicies"
TEAM_POLICIES = "teamfallbackpolicies"
ACCELERATOR_PROFILES = "acceleratorprofiles"
TARIFFS = "tariffs"
SERIES = "series "
"""Begins the kind of a ConfigMap with series of prices; its name follows."""
KUEUE_CONFIG = "kueue-manager-config"
KUEUE_DEPLOYMENT = "kueue-controller-manager"
OFF_SWITCH = "kueue-fallback-off"
CONGESTION = "kueue-fallback-prices"
"""The name of the ConfigMap with congestion prices."""
CONGESTION_VALUE = "prices"
"""Value of the label ``RUN_TIMES_LABEL`` on it."""
WEBHOOKS = "mutatingwebhookconfigurations"
SIGNING_KEYS = "kueue-fallback-signing-keys"
"""The name of a Secret."""
RUN_TIMES = "kueue-fallback-run-times"
RUN_TIMES_LABEL = "kueue-fallback.dev/records"
RUN_TIMES_VALUE = "run-times"
JOURNAL = "kueue-fallback-journal"
JOURNAL_VALUE = "journal"
"""Value of the same label."""
SAVINGS = "kueue-fallback-savings"
SAVINGS_VALUE = "savings"
"""Likewise."""


Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


class ReadObject(NamedTuple):
    """One object, read; with a value of None it counts as absent, and *problem* says why."""

    key: Key
    value: Any
    problem: str = ""


def key_of(source: Mapping[str, Any]) -> Key:
    metadata = fields.mapping(source, "metadata", "")
    namespace = fields.text(metadata, "namespace", "metadata")
    return intern(namespace), fields.text(metadata, "name", "metadata")


def full_name(key: Key) -> str:
    """Return ``NAMESPACE/NAME``, or the name alone of what is cluster-scoped."""
    return "/".join(filter(None, key))


def read_by(
    reader: Callable[[Mapping[str, Any]], Any], kind: str, source: Mapping[str, Any]
) -> ReadObject:
    """Read one object; if it cannot be read, the value is None and *problem* says why."""
    key, problem = attempted(lambda: key_of(source), FieldError)
    if key is None:
        return ReadObject(("", ""), None, f"{kind}: {problem}")
    value, problem = attempted(lambda: reader(source), FieldError, PolicyError)
    return ReadObject(key, value, problem and f"{kind} {full_name(key)}: {problem}")
