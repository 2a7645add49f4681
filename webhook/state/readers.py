"""One reader for each kind: an object's JSON, as the API server sends it, to a value of the model.

An object that cannot be read becomes a problem instead, whatever its reader raises, so that one bad
object harms only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from webhook.api import resources as kinds
from webhook.api.resources import ReadObject, read_by
from webhook.learn.run_records import read_shard
from webhook.model import fields
from webhook.model.policy.fallback_policy import read_policy
from webhook.model.queues import LimitRangeItem, OffSwitch
from webhook.model.selector import EVERYTHING, Selector, read_selector
from webhook.model.signatures import SigningKeys
from webhook.state.kueue_config import read_kueue_config, read_kueue_manager
from webhook.state.quotas import (
    read_check,
    read_cluster_queue,
    read_cohort,
    read_flavor,
    read_local_queue,
    read_multikueue_config,
    read_pod_priority,
    read_priority,
    read_worker_cluster,
)
from webhook.state.signing_keys import read_keys
from webhook.state.workload import read_workload

KUEUES_WEBHOOK = "mjob.kb.io"
OUR_WEBHOOK = "create.kueue-fallback.dev"


class Webhooks(NamedTuple):
    """Whether a webhook configuration holds our webhook and Kueue's."""

    ours: bool
    kueues: bool
    namespaces: Selector = EVERYTHING
    """Namespaces whose new Jobs our webhook reviews."""


def read(kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None) -> ReadObject:
    """Read an object.

    A Workload's marks are believed if signed with *keys*, or all without keys.
    """
    if kind == kinds.WORKLOADS:
        return read_by(lambda found: read_workload(found, keys), kind, source)
    return read_by(READERS[kind], kind, source)


def _read_namespace(source: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(fields.texts(fields.mapping(source, "metadata", ""), "labels", "metadata"))


def _read_limit_range(source: Mapping[str, Any]) -> tuple[LimitRangeItem, ...]:
    spec = fields.mapping(source, "spec", "")
    return tuple(
        LimitRangeItem(
            type=fields.text(item, "type", here),
            default=_quantities(item, "default", here),
            default_request=_quantities(item, "defaultRequest", here),
            min=_quantities(item, "min", here),
            max=_quantities(item, "max", here),
            max_ratio=_quantities(item, "maxLimitRequestRatio", here),
        )
        for item, here in fields.objects(spec, "limits", "spec")
    )


def _read_overhead(source: Mapping[str, Any]) -> Mapping[str, str]:
    overhead = fields.mapping(source, "overhead", "")
    return _quantities(overhead, "podFixed", "overhead")


def _quantities(source: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    return {name: str(value) for name, value in fields.mapping(source, key, path).items()}


def _read_off_switch(source: Mapping[str, Any]) -> OffSwitch:
    """Read ``data.namespaces``, separated by commas or white space; without it: everywhere."""
    named = fields.texts(source, "data", "").get("namespaces", "")
    return OffSwitch(namespaces=frozenset(named.replace(",", " ").split()))


def _read_webhooks(source: Mapping[str, Any]) -> Webhooks:
    selectors = {
        fields.text(webhook, "name", here): read_selector(
            fields.mapping(webhook, "namespaceSelector", here), f"{here}.namespaceSelector"
        )
        for webhook, here in fields.objects(source, "webhooks", "")
    }
    return Webhooks(
        ours=OUR_WEBHOOK in selectors,
        kueues=KUEUES_WEBHOOK in selectors,
        namespaces=selectors.get(OUR_WEBHOOK, EVERYTHING),
    )


READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    kinds.CLUSTER_QUEUES: read_cluster_queue,
    kinds.LOCAL_QUEUES: read_local_queue,
    kinds.COHORTS: read_cohort,
    kinds.FLAVORS: read_flavor,
    kinds.WORKLOADS: read_workload,
    kinds.CHECKS: read_check,
    kinds.MULTIKUEUE_CONFIGS: read_multikueue_config,
    kinds.MULTIKUEUE_CLUSTERS: read_worker_cluster,
    kinds.PRIORITY_CLASSES: read_priority,
    kinds.POD_PRIORITIES: read_pod_priority,
    kinds.NAMESPACES: _read_namespace,
    kinds.LIMIT_RANGES: _read_limit_range,
    kinds.RUNTIME_CLASSES: _read_overhead,
    kinds.POLICIES: read_policy,
    kinds.KUEUE_CONFIG: read_kueue_config,
    kinds.KUEUE_DEPLOYMENT: read_kueue_manager,
    kinds.OFF_SWITCH: _read_off_switch,
    kinds.SIGNING_KEYS: read_keys,
    kinds.WEBHOOKS: _read_webhooks,
    kinds.RUN_TIMES: read_shard,
}
