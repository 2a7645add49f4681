"""From tables of objects to the fields of a snapshot that depend on nothing else. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from webhook.api import resources as kinds
from webhook.api.resources import Key
from webhook.model.fields import EMPTY
from webhook.model.kueue_support import KueueManager
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.values import sort_key
from webhook.model.queues import Cohort, KueueConfig, LimitRangeItem
from webhook.model.selector import Selector
from webhook.state.kueue_config import read_kueue_config, under_gates

_Table: TypeAlias = Mapping[Key, Any]
_Tables: TypeAlias = Mapping[str, _Table]
_Builder: TypeAlias = Callable[[_Tables], Any]


def _by_name(kind: str) -> _Builder:
    return lambda tables: {name: value for (_, name), value in tables[kind].items()}


def _by_key(kind: str) -> _Builder:
    return lambda tables: dict(tables[kind])


def _cohorts(tables: _Tables) -> Mapping[str, Cohort]:
    """Add those that are only named: Kueue makes them up too."""
    found: dict[str, Cohort] = {name: c for (_, name), c in tables[kinds.COHORTS].items()}
    named = [queue.cohort for queue in tables[kinds.CLUSTER_QUEUES].values()]
    named += [cohort.parent for cohort in found.values()]
    for name in named:
        if name and name not in found:
            found[name] = Cohort(name=name)
    return found


def _limit_ranges(tables: _Tables) -> Mapping[str, tuple[LimitRangeItem, ...]]:
    found: defaultdict[str, tuple[LimitRangeItem, ...]] = defaultdict(tuple)
    for (namespace, _), items in sorted(tables[kinds.LIMIT_RANGES].items(), key=lambda kv: kv[0]):
        found[namespace] += items
    return dict(found)


def _policies(tables: _Tables) -> tuple[FallbackPolicy, ...]:
    return tuple(sorted(tables[kinds.POLICIES].values(), key=sort_key))


def _pod_priorities(tables: _Tables) -> Mapping[str, int]:
    return {name: found.value for (_, name), found in tables[kinds.POD_PRIORITIES].items()}


def _default_priority(tables: _Tables) -> int:
    """Take the lowest of several, as Kueue's ``getDefaultPriorityClass`` does."""
    found = tables[kinds.POD_PRIORITIES].values()
    return min((each.value for each in found if each.is_default), default=0)


def _kueue(tables: _Tables) -> KueueConfig:
    """Join what Kueue is configured with: gates of its command line win over the ConfigMap's."""
    manager = _first(tables, kinds.KUEUE_DEPLOYMENT)
    config: KueueConfig | None = _first(tables, kinds.KUEUE_CONFIG)
    if manager is not None and not manager.has_configuration:
        config = replace(read_kueue_config(EMPTY), is_read=True)
    config = config or read_kueue_config(EMPTY)
    if manager is None or manager.gates is None:
        return config
    return under_gates(config, manager.gates)


def _kueue_manager(tables: _Tables) -> KueueManager:
    return _first(tables, kinds.KUEUE_DEPLOYMENT) or KueueManager(unknown_version=_NO_DEPLOYMENT)


_NO_DEPLOYMENT = f"its Deployment {kinds.KUEUE_DEPLOYMENT} is not there, or may not be read"


def _first(tables: _Tables, kind: str) -> Any:
    """Take the only one there can be; None: there is none."""
    return next(iter(tables[kind].values()), None)


def _off(tables: _Tables) -> Any:
    return _first(tables, kinds.OFF_SWITCH)


def _signing(tables: _Tables) -> Any:
    return _first(tables, kinds.SIGNING_KEYS)


def _runs_before_kueue(tables: _Tables) -> bool:
    """Webhooks run in the order of their configurations' names; each of ours must come first."""
    configurations = tables[kinds.WEBHOOKS].items()
    ours = [name for (_, name), found in configurations if found.ours]
    kueues = [name for (_, name), found in configurations if found.kueues]
    return bool(ours and kueues) and max(ours) < min(kueues)


def _reviewed_namespaces(tables: _Tables) -> tuple[Selector, ...]:
    return tuple(found.namespaces for found in tables[kinds.WEBHOOKS].values() if found.ours)


BUILDERS: Mapping[str, tuple[tuple[str, _Builder], ...]] = {
    kinds.CLUSTER_QUEUES: (("cluster_queues", _by_name(kinds.CLUSTER_QUEUES)),),
    kinds.LOCAL_QUEUES: (("local_queues", _by_key(kinds.LOCAL_QUEUES)),),
    kinds.COHORTS: (("cohorts", _cohorts),),
    kinds.FLAVORS: (("flavors", _by_name(kinds.FLAVORS)),),
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
    kinds.POLICIES: (("policies", _policies),),
    kinds.KUEUE_CONFIG: (("kueue", _kueue),),
    kinds.KUEUE_DEPLOYMENT: (("kueue", _kueue), ("kueue_manager", _kueue_manager)),
    kinds.OFF_SWITCH: (("off", _off),),
    kinds.SIGNING_KEYS: (("signing", _signing),),
    kinds.WEBHOOKS: (
        ("runs_before_kueue", _runs_before_kueue),
        ("reviewed_namespaces", _reviewed_namespaces),
    ),
}
"""Kind to the fields of Snapshot that depend on it."""
