"""Builds fields of a Snapshot from the tables of read objects; ``BUILDERS`` says which from which.

It must not know what depends on Workloads, on runs or on the time, nor what a field was before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

from webhook.api import resources as kinds
from webhook.api.resources import Key
from webhook.cost.flavor_devices import tells_device
from webhook.model.costs.accelerator_profile import AcceleratorProfile
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices
from webhook.model.fields import EMPTY
from webhook.model.kueue_support import KueueManager, release_of
from webhook.model.pods import Selector
from webhook.model.policy import fallback_policy
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Cohort, ConsumedResources, KueueConfig, LimitRangeItem, LocalQueue
from webhook.model.topologies import Topology
from webhook.state.kueue_config import are_devices_counted, read_kueue_config, under_gates

_Table: TypeAlias = Mapping[Key, Any]
_Tables: TypeAlias = Mapping[str, _Table]
_Builder: TypeAlias = Callable[[_Tables], Any]
STATED_VERSION = "kueue_version"
"""The setting of that name has a table, too."""
COMPARED = frozenset({"local_queues", "topologies", "reviewed_namespaces", "omitted_namespaces"})
"""Fields built from objects that change again and again in what is not in the snapshot."""


def _by_name(kind: str) -> _Builder:
    return lambda tables: {name: value for (_, name), value in tables[kind].items()}


def _local_queues(tables: _Tables) -> Mapping[Key, LocalQueue]:
    return {key: entry.queue for key, entry in tables[kinds.LOCAL_QUEUES].items()}


def _consumed(tables: _Tables) -> Mapping[Key, ConsumedResources]:
    """Return what LocalQueues have used, of those of which Kueue says it."""
    entries = tables[kinds.LOCAL_QUEUES].items()
    return {key: entry.consumed for key, entry in entries if entry.consumed is not None}


def _cohorts(tables: _Tables) -> Mapping[str, Cohort]:
    """Return all Cohorts with those that are only named: Kueue creates them implicitly, too."""
    cohorts: dict[str, Cohort] = {name: c for (_, name), c in tables[kinds.COHORTS].items()}
    named = [queue.cohort for queue in tables[kinds.CLUSTER_QUEUES].values()]
    named += [cohort.parent for cohort in cohorts.values()]
    for name in named:
        if name and name not in cohorts:
            cohorts[name] = Cohort(name=name)
    return cohorts


def _limit_ranges(tables: _Tables) -> Mapping[str, tuple[LimitRangeItem, ...]]:
    limit_ranges: defaultdict[str, tuple[LimitRangeItem, ...]] = defaultdict(tuple)
    for (namespace, _), limits in sorted(tables[kinds.LIMIT_RANGES].items(), key=lambda kv: kv[0]):
        limit_ranges[namespace] += limits
    return dict(limit_ranges)


def _training_runtimes(tables: _Tables) -> Mapping[Key, Mapping[str, Any]]:
    return {key: value for kind in kinds.TRAINING_RUNTIMES for key, value in tables[kind].items()}


def _policies(tables: _Tables) -> tuple[FallbackPolicy, ...]:
    of_all = (tables[kind].values() for kind in (kinds.POLICIES, kinds.TEAM_POLICIES))
    return fallback_policy.in_order(chain.from_iterable(of_all))


def _accelerator_profiles(tables: _Tables) -> tuple[AcceleratorProfile, ...]:
    return tuple(profile for _, profile in sorted(tables[kinds.ACCELERATOR_PROFILES].items()))


def _pod_priorities(tables: _Tables) -> Mapping[str, int]:
    return {name: priority.value for (_, name), priority in tables[kinds.POD_PRIORITIES].items()}


def _default_priority(tables: _Tables) -> int:
    """Return the lowest of several defaults, as Kueue's ``getDefaultPriorityClass`` does."""
    priorities = tables[kinds.POD_PRIORITIES].values()
    return min((priority.value for priority in priorities if priority.is_default), default=0)


def _kueue(tables: _Tables) -> KueueConfig:
    """Merge Kueue's configuration: gates of its command line win over the ConfigMap's."""
    manager = _first(tables, kinds.KUEUE_DEPLOYMENT) or KueueManager()
    config: KueueConfig | None = _first(tables, kinds.KUEUE_CONFIG)
    if not manager.has_configuration:
        config = replace(read_kueue_config(EMPTY), is_read=True)
    config = config or read_kueue_config(EMPTY)
    release = release_of(_first(tables, STATED_VERSION) or manager.version)
    gates = config.gates if manager.gates is None else manager.gates
    heeded = under_gates(config, gates, release)
    if not are_devices_counted(gates, release):
        return heeded
    return replace(heeded, devices=_devices(tables, heeded.device_mappings))


def _devices(tables: _Tables, mappings: Mapping[str, str]) -> Mapping[str, str]:
    """Map extended resources that DeviceClasses stand for to the names by which Kueue counts."""
    # Of several classes that stand for one resource the newest counts: ``selectedDeviceClass``.
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/extended_resources.go
    classes = sorted(tables[kinds.DEVICE_CLASSES].values(), key=lambda c: (-c.created, c.name))
    newest = {c.extended_resource: c.name for c in reversed(classes) if c.extended_resource}
    named = {resource: mappings.get(name, resource) for resource, name in newest.items()}
    # Kueue never admits a Workload that asks so for what is counted in parts; it is left alone.
    return {resource: name for resource, name in named.items() if name}


def _node_labels(tables: _Tables) -> tuple[Mapping[str, str], ...]:
    """Return what labels of Nodes tell ResourceFlavors and devices apart, each set once."""
    chosen = {key for flavor in tables[kinds.FLAVORS].values() for key in flavor.node_labels}
    different = {
        tuple(sorted((k, v) for k, v in node.labels.items() if k in chosen or tells_device(k)))
        for node in tables[kinds.NODES].values()
    }
    return tuple(dict(labels) for labels in sorted(different) if labels)


def _topologies(tables: _Tables) -> Mapping[str, Topology]:
    """Return each Topology with the Nodes that have all of its levels."""
    nodes = [node.offered for node in tables[kinds.NODES].values() if node.offered is not None]
    return {
        topology.name: replace(
            topology,
            nodes=tuple(node for node in nodes if node.labels.keys() >= set(topology.levels)),
        )
        for topology in tables[kinds.TOPOLOGIES].values()
    }


def _kueue_manager(tables: _Tables) -> KueueManager:
    return _first(tables, kinds.KUEUE_DEPLOYMENT) or KueueManager(unknown_version=_NO_DEPLOYMENT)


_NO_DEPLOYMENT = f"its Deployment {kinds.KUEUE_DEPLOYMENT} is not there, or may not be read"


def _first(tables: _Tables, kind: str) -> Any:
    """Return the only object there can be; None: there is none."""
    return next(iter(tables[kind].values()), None)


def _off(tables: _Tables) -> Any:
    return _first(tables, kinds.OFF_SWITCH)


def _scarcity(tables: _Tables) -> CongestionPrices:
    return _first(tables, kinds.CONGESTION) or NO_CONGESTION


def _signing(tables: _Tables) -> Any:
    return _first(tables, kinds.SIGNING_KEYS)


def _runs_before_kueue(tables: _Tables) -> bool:
    """Return whether our webhooks run before Kueue's.

    Webhooks run in the order of their configurations' names; each of ours must come first.
    """
    configurations = tables[kinds.WEBHOOKS].items()
    ours = [name for (_, name), configuration in configurations if configuration.ours]
    kueues = [name for (_, name), configuration in configurations if configuration.kueues]
    return bool(ours and kueues) and max(ours) < min(kueues)


def _reviewed_namespaces(tables: _Tables) -> tuple[Selector, ...]:
    return tuple(
        configuration.namespaces
        for configuration in tables[kinds.WEBHOOKS].values()
        if configuration.ours
    )


def _omitted_namespaces(tables: _Tables) -> frozenset[str]:
    """Return what all of our configurations leave out: what one sends is sent."""
    left_out = [
        configuration.omitted
        for configuration in tables[kinds.WEBHOOKS].values()
        if configuration.ours
    ]
    return frozenset.intersection(*left_out) if left_out else frozenset()


BUILDERS: Mapping[str, tuple[tuple[str, _Builder], ...]] = {
    kinds.CLUSTER_QUEUES: (("cluster_queues", _by_name(kinds.CLUSTER_QUEUES)),),
    kinds.LOCAL_QUEUES: (("local_queues", _local_queues), ("consumed", _consumed)),
    kinds.COHORTS: (("cohorts", _cohorts),),
    kinds.FLAVORS: (("flavors", _by_name(kinds.FLAVORS)), ("node_labels", _node_labels)),
    kinds.NODES: (("node_labels", _node_labels), ("topologies", _topologies)),
    kinds.TOPOLOGIES: (("topologies", _topologies),),
    kinds.CHECKS: (("checks", _by_name(kinds.CHECKS)),),
    kinds.MULTIKUEUE_CONFIGS: (("multikueue_configs", _by_name(kinds.MULTIKUEUE_CONFIGS)),),
    kinds.MULTIKUEUE_CLUSTERS: (("worker_clusters", _by_name(kinds.MULTIKUEUE_CLUSTERS)),),
    kinds.PRIORITY_CLASSES: (("priority_classes", _by_name(kinds.PRIORITY_CLASSES)),),
    kinds.POD_PRIORITIES: (
        ("pod_priorities", _pod_priorities),
        ("default_priority", _default_priority),
    ),
    kinds.NAMESPACES: (("namespaces", _by_name(kinds.NAMESPACES)),),
    kinds.LIMIT_RANGES: (("limit_ranges", _limit_ranges),),
    kinds.RUNTIME_CLASSES: (("overheads", _by_name(kinds.RUNTIME_CLASSES)),),
    **dict.fromkeys(kinds.TRAINING_RUNTIMES, (("training_runtimes", _training_runtimes),)),
    kinds.POLICIES: (("policies", _policies),),
    kinds.TEAM_POLICIES: (("policies", _policies),),
    kinds.ACCELERATOR_PROFILES: (("accelerator_profiles", _accelerator_profiles),),
    # From Tariffs prices are compiled, with the time (``price_compiler``).
    kinds.TARIFFS: (),
    kinds.DEVICE_CLASSES: (("kueue", _kueue),),
    kinds.KUEUE_CONFIG: (("kueue", _kueue),),
    kinds.KUEUE_DEPLOYMENT: (("kueue", _kueue), ("kueue_manager", _kueue_manager)),
    kinds.OFF_SWITCH: (("off", _off),),
    kinds.CONGESTION: (("scarcity", _scarcity),),
    kinds.SIGNING_KEYS: (("signing", _signing),),
    kinds.WEBHOOKS: (
        ("runs_before_kueue", _runs_before_kueue),
        ("reviewed_namespaces", _reviewed_namespaces),
        ("omitted_namespaces", _omitted_namespaces),
    ),
}
"""Kind to the fields of Snapshot that depend on it."""
