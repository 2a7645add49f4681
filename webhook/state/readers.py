"""One reader for each kind: it turns an object's JSON from the API server into the model's value.

An object that cannot be read becomes a problem instead, whatever its reader raises, so that one bad
object harms only itself.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, NamedTuple, TypeVar

from webhook.api import resources as kinds
from webhook.api.resources import ReadObject, read_by
from webhook.learn.run_records import read_shard
from webhook.learn.workload_runs import seconds_of
from webhook.model import fields, quantity, topologies
from webhook.model.costs.accelerator_profile import read_accelerator_profile
from webhook.model.costs.service import Autoscaler
from webhook.model.costs.tariff import read_tariff
from webhook.model.fields import FieldError, child
from webhook.model.job import OURS, reference_of
from webhook.model.pods import (
    NOTHING,
    Selector,
    read_selector,
    read_taint,
    read_toleration,
)
from webhook.model.policy.fallback_policy import read_policy, read_team_policy
from webhook.model.quantity import FlavorResource
from webhook.model.queues import (
    BORROWING_OVER_PREEMPTION,
    NEVER,
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    ConsumedResources,
    LimitRangeItem,
    LocalQueue,
    Preemption,
    Queueing,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    WorkerCluster,
)
from webhook.model.signatures import SigningKeys
from webhook.model.snapshot_parts import OffSwitch
from webhook.model.topologies import TopologyNode
from webhook.state.kueue_config import read_kueue_config, read_kueue_manager
from webhook.state.published_congestion import read_congestion
from webhook.state.signing_keys import read_keys
from webhook.state.workload import read_workload


class ReadNode(NamedTuple):
    labels: Mapping[str, str]
    offered: TopologyNode | None
    """None: it is not ready, or takes no pods."""


class PodPriority(NamedTuple):
    """A PriorityClass."""

    value: int
    is_default: bool


class DeviceClass(NamedTuple):
    """A DeviceClass of dynamic resource allocation."""

    name: str
    extended_resource: str
    """That it stands for; empty: for none."""
    created: int
    """Seconds since 1970."""


class ReadLocalQueue(NamedTuple):
    """A LocalQueue, and apart from it what changes while nobody changes it."""

    queue: LocalQueue
    consumed: ConsumedResources | None = None


class ReadAutoscaler(NamedTuple):
    """A HorizontalPodAutoscaler."""

    target: str
    """The reference of the service that it scales."""
    bounds: Autoscaler


_Choice = TypeVar("_Choice", StopPolicy, Queueing)
_FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
"""Values of v1beta1 to those of v1beta2."""


def read_cluster_queue(source: Mapping[str, Any]) -> ClusterQueue:
    spec = fields.mapping(source, "spec", "")
    active, because = _active(source)
    selector = spec.get("namespaceSelector")
    fungibility = fields.mapping(spec, "flavorFungibility", "spec")
    fair = fields.mapping(spec, "fairSharing", "spec")
    return ClusterQueue(
        name=_name(source),
        cohort=fields.text(spec, "cohortName", "spec") or fields.text(spec, "cohort", "spec"),
        groups=_groups(spec),
        queueing=_choice(spec, "queueingStrategy", Queueing.BEST_EFFORT),
        namespaces=NOTHING
        if selector is None
        else read_selector(fields.mapping(spec, "namespaceSelector", "spec"), _SELECTOR),
        stop_policy=_choice(spec, "stopPolicy", StopPolicy.NONE),
        active=active,
        inactive_because=because,
        preemption=_preemption(fields.mapping(spec, "preemption", "spec")),
        when_can_borrow=_fungible(fungibility, "whenCanBorrow", "MayStopSearch"),
        when_can_preempt=_fungible(fungibility, "whenCanPreempt", "TryNextFlavor"),
        preference=fields.text(fungibility, "preference", "spec.flavorFungibility")
        or BORROWING_OVER_PREEMPTION,
        checks=_checks(spec),
        checks_by_flavor=_checks_by_flavor(spec),
        fair_sharing=bool(fair),
        fair_weight=_fair_weight(fair),
        usage_based=_usage_based(spec),
    )


_SELECTOR = "spec.namespaceSelector"


def read_local_queue(source: Mapping[str, Any]) -> ReadLocalQueue:
    spec = fields.mapping(source, "spec", "")
    metadata = fields.mapping(source, "metadata", "")
    queue = LocalQueue(
        namespace=fields.text(metadata, "namespace", "metadata"),
        name=_name(source),
        cluster_queue=fields.text(spec, "clusterQueue", "spec"),
        stop_policy=_choice(spec, "stopPolicy", StopPolicy.NONE),
        fair_weight=_fair_weight(fields.mapping(spec, "fairSharing", "spec")),
    )
    return ReadLocalQueue(queue, _consumed(source))


def _consumed(source: Mapping[str, Any]) -> ConsumedResources | None:
    """Read what Kueue says that a LocalQueue has used; None: it says nothing."""
    status = fields.mapping(source, "status", "")
    sharing = fields.mapping(status, "fairSharing", "status")
    path = "status.fairSharing.admissionFairSharingStatus"
    usage = fields.mapping(sharing, "admissionFairSharingStatus", "status.fairSharing")
    if not usage:
        return None
    amounts = fields.mapping(usage, "consumedResources", path)
    here = child(path, "consumedResources")
    return ConsumedResources(
        amounts={name: _decimal(amounts, name, here) for name in amounts},
        updated=seconds_of(usage, "lastUpdate", path),
    )


def _fair_weight(sharing: Mapping[str, Any]) -> float:
    """Read the weight of a queue or a Cohort (``parseFairWeight`` in Kueue)."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/fair_sharing.go#L204
    path = "spec.fairSharing"
    return 1.0 if sharing.get("weight") is None else _decimal(sharing, "weight", path)


def read_cohort(source: Mapping[str, Any]) -> Cohort:
    spec = fields.mapping(source, "spec", "")
    # The alpha API called it ``parent``.
    parent = fields.text(spec, "parentName", "spec") or fields.text(spec, "parent", "spec")
    sharing = fields.mapping(spec, "fairSharing", "spec")
    return Cohort(
        name=_name(source), parent=parent, groups=_groups(spec), fair_weight=_fair_weight(sharing)
    )


def read_flavor(source: Mapping[str, Any]) -> ResourceFlavor:
    spec = fields.mapping(source, "spec", "")
    return ResourceFlavor(
        name=_name(source),
        node_labels=dict(fields.texts(spec, "nodeLabels", "spec")),
        taints=tuple(
            read_taint(taint, here) for taint, here in fields.objects(spec, "nodeTaints", "spec")
        ),
        tolerations=tuple(
            read_toleration(toleration, here)
            for toleration, here in fields.objects(spec, "tolerations", "spec")
        ),
        topology=fields.text(spec, "topologyName", "spec"),
    )


def read_check(source: Mapping[str, Any]) -> AdmissionCheck:
    spec = fields.mapping(source, "spec", "")
    parameters = fields.mapping(spec, "parameters", "spec")
    return AdmissionCheck(
        controller=fields.text(spec, "controllerName", "spec"),
        parameters=fields.text(parameters, "name", "spec.parameters"),
    )


def read_multikueue_config(source: Mapping[str, Any]) -> tuple[str, ...]:
    return fields.strings(fields.mapping(source, "spec", ""), "clusters", "spec")


def read_worker_cluster(source: Mapping[str, Any]) -> WorkerCluster:
    active, because = _active(source)
    return WorkerCluster(active=active, inactive_because=because)


def read_priority(source: Mapping[str, Any]) -> int:
    return fields.integer(source, "value", "") or 0


def read_pod_priority(source: Mapping[str, Any]) -> PodPriority:
    return PodPriority(read_priority(source), fields.flag(source, "globalDefault", ""))


def read_device_class(source: Mapping[str, Any]) -> DeviceClass:
    spec = fields.mapping(source, "spec", "")
    return DeviceClass(
        name=_name(source),
        extended_resource=fields.text(spec, "extendedResourceName", "spec"),
        created=seconds_of(fields.mapping(source, "metadata", ""), "creationTimestamp", "metadata"),
    )


def _name(source: Mapping[str, Any]) -> str:
    return fields.text(fields.mapping(source, "metadata", ""), "name", "metadata")


def _active(source: Mapping[str, Any]) -> tuple[bool, str]:
    """Return the Active condition and its message; one not written yet counts as active."""
    status = fields.mapping(source, "status", "")
    for condition, here in fields.objects(status, "conditions", "status"):
        if condition.get("type") == "Active":
            active = condition.get("status") == "True"
            return active, "" if active else fields.text(condition, "message", here)
    return True, ""


def _choice(spec: Mapping[str, Any], key: str, default: _Choice) -> _Choice:
    value = fields.text(spec, key, "spec") or default.value
    try:
        return type(default)(value)
    except ValueError:
        expected = ", ".join(type(default))
        raise FieldError(f"spec.{key}", f"expected one of {expected}, got {value!r}") from None


def _preemption(spec: Mapping[str, Any]) -> Preemption:
    path = "spec.preemption"
    borrow = fields.mapping(spec, "borrowWithinCohort", path)
    return Preemption(
        within_cluster_queue=fields.text(spec, "withinClusterQueue", path) or NEVER,
        reclaim_within_cohort=fields.text(spec, "reclaimWithinCohort", path) or NEVER,
        borrow_within_cohort=fields.text(borrow, "policy", f"{path}.borrowWithinCohort") or NEVER,
        max_priority_threshold=fields.integer(
            borrow, "maxPriorityThreshold", f"{path}.borrowWithinCohort"
        ),
    )


def _usage_based(spec: Mapping[str, Any]) -> bool:
    scope = fields.mapping(spec, "admissionScope", "spec")
    mode = fields.text(scope, "admissionMode", "spec.admissionScope")
    return mode == "UsageBasedAdmissionFairSharing"


def _fungible(spec: Mapping[str, Any], key: str, default: str) -> str:
    value = fields.text(spec, key, "spec.flavorFungibility") or default
    return _FUNGIBILITY.get(value, value)


def _checks(spec: Mapping[str, Any]) -> tuple[str, ...]:
    strategy = fields.mapping(spec, "admissionChecksStrategy", "spec")
    rules = fields.objects(strategy, "admissionChecks", "spec.admissionChecksStrategy")
    named = tuple(fields.text(rule, "name", here) for rule, here in rules)
    return named or fields.strings(spec, "admissionChecks", "spec")


def _checks_by_flavor(spec: Mapping[str, Any]) -> Mapping[str, frozenset[str]]:
    strategy = fields.mapping(spec, "admissionChecksStrategy", "spec")
    rules = fields.objects(strategy, "admissionChecks", "spec.admissionChecksStrategy")
    flavors = {
        fields.text(rule, "name", here): frozenset(fields.strings(rule, "onFlavors", here))
        for rule, here in rules
    }
    return {name: some for name, some in flavors.items() if some}


def _groups(spec: Mapping[str, Any]) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            resources=fields.strings(group, "coveredResources", here),
            flavors=tuple(
                fields.text(flavor, "name", place)
                for flavor, place in fields.objects(group, "flavors", here)
            ),
            quotas=_quotas(group, here),
        )
        for group, here in fields.objects(spec, "resourceGroups", "spec")
    )


def _quotas(group: Mapping[str, Any], path: str) -> dict[FlavorResource, Quota]:
    return {
        (fields.text(flavor, "name", here), fields.text(cell, "name", place)): _quota(cell, place)
        for flavor, here in fields.objects(group, "flavors", path)
        for cell, place in fields.objects(flavor, "resources", here)
    }


def _quota(cell: Mapping[str, Any], path: str) -> Quota:
    return Quota(
        nominal=_amount(cell, "nominalQuota", path) or 0,
        borrowing_limit=_amount(cell, "borrowingLimit", path),
        lending_limit=_amount(cell, "lendingLimit", path),
    )


def _amount(cell: Mapping[str, Any], key: str, path: str) -> int | None:
    if cell.get(key) is None:
        return None
    name = fields.text(cell, "name", path)
    return quantity.parse(_written(cell, key, path), resource=name, path=child(path, key))


def _decimal(source: Mapping[str, Any], key: str, path: str) -> float:
    """Read a quantity in its own unit, such as a weight."""
    return float(quantity.exact(_written(source, key, path), child(path, key)))


def _written(source: Mapping[str, Any], key: str, path: str) -> str:
    """Return a quantity as it is written; in YAML it may be a number."""
    value = source.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        here = child(path, key)
        raise FieldError(here, f"expected a quantity, got {fields.kind_of(value)}")
    return value if isinstance(value, str) else repr(value)


KUEUES_WEBHOOK = "mjob.kb.io"
OUR_WEBHOOK = "create.kueue-fallback.dev"


class Webhooks(NamedTuple):
    """Whether a webhook configuration holds our webhook and Kueue's."""

    reviewed: Selector | None
    """Namespaces whose new Jobs our webhook reviews; None: it is not ours."""
    kueues: bool


def read_by_kind(
    kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None
) -> ReadObject:
    """Read an object; if it cannot be read, return its problem in place of a value.

    A Workload's marks count only if they are signed with one of the *keys*; None: all count.
    """
    if kind == kinds.WORKLOADS:
        return read_by(lambda workload: read_workload(workload, keys), kind, source)
    return read_by(_read_texts if kind.startswith(kinds.SERIES) else READERS[kind], kind, source)


def _read_texts(source: Mapping[str, Any]) -> Mapping[str, str]:
    """Read all texts of a ConfigMap: its ``data``, and what of its ``binaryData`` is text."""
    texts = dict(fields.texts(source, "data", ""))
    for key, encoded in fields.texts(source, "binaryData", "").items():
        try:
            texts.setdefault(key, base64.b64decode(encoded, validate=True).decode())
        except ValueError:
            raise FieldError(child("binaryData", key), "expected text in base64") from None
    return texts


def _read_namespace(source: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(fields.texts(fields.mapping(source, "metadata", ""), "labels", "metadata"))


def _read_limit_range(source: Mapping[str, Any]) -> tuple[LimitRangeItem, ...]:
    spec = fields.mapping(source, "spec", "")
    return tuple(
        LimitRangeItem(
            type=fields.text(limit, "type", here),
            default=_quantities(limit, "default", here),
            default_request=_quantities(limit, "defaultRequest", here),
            min=_quantities(limit, "min", here),
            max=_quantities(limit, "max", here),
            max_ratio=_quantities(limit, "maxLimitRequestRatio", here),
        )
        for limit, here in fields.objects(spec, "limits", "spec")
    )


def _read_overhead(source: Mapping[str, Any]) -> Mapping[str, str]:
    overhead = fields.mapping(source, "overhead", "")
    return _quantities(overhead, "podFixed", "overhead")


def _read_training_runtime(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep the spec as it is: what it means, ``webhook.jobs`` knows."""
    return {"spec": fields.mapping(source, "spec", "")}


def _read_autoscaler(source: Mapping[str, Any]) -> ReadAutoscaler | None:
    """Read whom a HorizontalPodAutoscaler scales, within which bounds; None: it is our own."""
    metadata, spec = (fields.mapping(source, key, "") for key in ("metadata", "spec"))
    if any(key.startswith(OURS) for key in fields.texts(metadata, "annotations", "metadata")):
        return None
    target = fields.mapping(spec, "scaleTargetRef", "spec")
    kind, name = (fields.text(target, key, "spec.scaleTargetRef") for key in ("kind", "name"))
    least, most = (fields.integer(spec, key, "spec") for key in ("minReplicas", "maxReplicas"))
    # The API server defaults the first, and demands the other.
    bounds = Autoscaler(name=_name(source), least=1 if least is None else least, most=most or 1)
    return ReadAutoscaler(reference_of(kind, name), bounds)


def _quantities(source: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    return {name: str(value) for name, value in fields.mapping(source, key, path).items()}


def _read_off_switch(source: Mapping[str, Any]) -> OffSwitch:
    """Read ``data.namespaces``, separated by commas or white space; without it: everywhere."""
    named = fields.texts(source, "data", "").get("namespaces", "")
    return OffSwitch(namespaces=frozenset(named.replace(",", " ").split()))


def _read_node(source: Mapping[str, Any]) -> ReadNode:
    """Return a Node's labels, of which many have the same, and what it offers."""
    metadata = fields.mapping(source, "metadata", "")
    every = fields.texts(metadata, "labels", "metadata")
    labels = {intern(key): intern(value) for key, value in every.items()}
    return ReadNode(labels, topologies.read_node(source, labels))


def _read_webhooks(source: Mapping[str, Any]) -> Webhooks:
    selectors = {
        fields.text(webhook, "name", here): read_selector(
            fields.mapping(webhook, "namespaceSelector", here), f"{here}.namespaceSelector"
        )
        for webhook, here in fields.objects(source, "webhooks", "")
    }
    return Webhooks(
        reviewed=selectors.get(OUR_WEBHOOK),
        kueues=KUEUES_WEBHOOK in selectors,
    )


READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    kinds.CLUSTER_QUEUES: read_cluster_queue,
    kinds.LOCAL_QUEUES: read_local_queue,
    kinds.COHORTS: read_cohort,
    kinds.FLAVORS: read_flavor,
    kinds.TOPOLOGIES: topologies.read_topology,
    kinds.WORKLOADS: read_workload,
    kinds.CHECKS: read_check,
    kinds.MULTIKUEUE_CONFIGS: read_multikueue_config,
    kinds.MULTIKUEUE_CLUSTERS: read_worker_cluster,
    kinds.PRIORITY_CLASSES: read_priority,
    kinds.POD_PRIORITIES: read_pod_priority,
    kinds.DEVICE_CLASSES: read_device_class,
    kinds.NAMESPACES: _read_namespace,
    kinds.NODES: _read_node,
    kinds.LIMIT_RANGES: _read_limit_range,
    kinds.RUNTIME_CLASSES: _read_overhead,
    kinds.AUTOSCALERS: _read_autoscaler,
    **dict.fromkeys(kinds.TRAINING_RUNTIMES, _read_training_runtime),
    kinds.POLICIES: read_policy,
    kinds.TEAM_POLICIES: read_team_policy,
    kinds.ACCELERATOR_PROFILES: read_accelerator_profile,
    kinds.TARIFFS: read_tariff,
    kinds.KUEUE_CONFIG: read_kueue_config,
    kinds.KUEUE_DEPLOYMENT: read_kueue_manager,
    kinds.OFF_SWITCH: _read_off_switch,
    kinds.CONGESTION: read_congestion,
    kinds.SIGNING_KEYS: read_keys,
    kinds.WEBHOOKS: _read_webhooks,
    kinds.RUN_TIMES: read_shard,
}
