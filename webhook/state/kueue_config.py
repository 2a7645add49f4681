"""Kueue's own configuration, as its ConfigMap holds it, to what changes a decision.

Defaults are those of Kueue's ``SetDefaults_Configuration``, of v1beta1 and of v1beta2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from webhook.model import fields
from webhook.model.fields import FieldError, as_mapping, child
from webhook.model.kueue_support import unmodelled_fields, unmodelled_gates
from webhook.model.queues import KueueConfig, Transformation
from webhook.model.selector import Expression, Operator, Selector, read_selector

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_LONG_REQUEUE_GATE = "SchedulerLongRequeueInterval"
_LONG_REQUEUE_SECONDS = 10.0
_ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"


def read_kueue_config(config_map: Mapping[str, Any]) -> KueueConfig:
    metadata = fields.mapping(config_map, "metadata", "")
    namespace = fields.text(metadata, "namespace", "metadata", "kueue-system")
    for name, content in fields.texts(config_map, "data", "").items():
        source = _parse(content, child("data", name))
        if source.get("kind") == "Configuration":
            return _read(source, namespace)
    return KueueConfig(managed_namespaces=_all_but_system(namespace), is_read=False)


def under_gates(config: KueueConfig, gates: Mapping[str, bool]) -> KueueConfig:
    """Take these gates in the place of those that stand in the configuration."""
    is_long = gates.get(_LONG_REQUEUE_GATE, False)
    return replace(
        config,
        requeue_seconds=_LONG_REQUEUE_SECONDS if is_long else KueueConfig().requeue_seconds,
        unmodelled_gates=unmodelled_gates(gates),
    )


def _parse(content: str, path: str) -> Mapping[str, Any]:
    try:
        found = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A date that there is not is a ValueError.
        raise FieldError(path, f"expected YAML: {error}") from error
    return as_mapping(found, path) if found is not None else fields.EMPTY


def _read(source: Mapping[str, Any], namespace: str) -> KueueConfig:
    resources = fields.mapping(source, "resources", "")
    integrations = fields.mapping(source, "integrations", "")
    selector = source.get("managedJobsNamespaceSelector")
    frameworks = fields.strings(integrations, "frameworks", "integrations")
    config = KueueConfig(
        excluded_prefixes=fields.strings(resources, "excludeResourcePrefixes", "resources"),
        transformations=_transformations(resources),
        ignore_undeclared=resources.get("quotaCheckStrategy") == "IgnoreUndeclared",
        manage_without_queue=fields.flag(source, "manageJobsWithoutQueueName", ""),
        managed_namespaces=_all_but_system(fields.text(source, "namespace", "") or namespace)
        if selector is None
        else read_selector(
            fields.mapping(source, "managedJobsNamespaceSelector", ""),
            "managedJobsNamespaceSelector",
        ),
        frameworks=frameworks or ("batch/job",),
        external_frameworks=fields.strings(integrations, "externalFrameworks", "integrations"),
        fair_sharing=_fair_sharing(source),
        block_admission=_blocks_admission(source),
        dispatches_at_once=fields.text(
            fields.mapping(source, "multiKueue", ""), "dispatcherName", "multiKueue"
        )
        in ("", _ALL_AT_ONCE),
        maps_devices=bool(fields.sequence(resources, "deviceClassMappings", "resources")),
        unmodelled_fields=unmodelled_fields(source),
    )
    return under_gates(config, _gates(source))


def _all_but_system(namespace: str) -> Selector:
    values = ("kube-system", namespace)
    expression = Expression(key=_NAMESPACE_NAME, operator=Operator.NOT_IN, values=values)
    return Selector(labels={}, expressions=(expression,))


def _transformations(resources: Mapping[str, Any]) -> tuple[Transformation, ...]:
    return tuple(
        Transformation(
            input=fields.text(item, "input", here),
            outputs={
                name: str(factor) for name, factor in fields.mapping(item, "outputs", here).items()
            },
            replace=item.get("strategy") == "Replace",
            multiply_by=fields.text(item, "multiplyBy", here),
        )
        for item, here in fields.objects(resources, "transformations", "resources")
    )


def _fair_sharing(source: Mapping[str, Any]) -> bool:
    """v1beta1 has a switch, in v1beta2 the block itself is the switch."""
    value = source.get("fairSharing")
    if value is None:
        return False
    return as_mapping(value, "fairSharing").get("enable") is not False


def _blocks_admission(source: Mapping[str, Any]) -> bool:
    """v1beta1 blocks unless told otherwise once ``enable`` is set; v1beta2 only when told to."""
    ready = fields.mapping(source, "waitForPodsReady", "")
    value = ready.get("blockAdmission")
    return (
        ready.get("enable") is not False if value else value is None and bool(ready.get("enable"))
    )


def _gates(source: Mapping[str, Any]) -> Mapping[str, bool]:
    found = fields.mapping(source, "featureGates", "")
    return {str(name): fields.flag(found, name, "featureGates") for name in found}
