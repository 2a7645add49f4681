"""Reads what decisions depend on of Kueue's configuration: its ConfigMap and its Deployment.

Defaults are those of Kueue's ``SetDefaults_Configuration``, of v1beta1 and of v1beta2. Version and
feature gates come from the Deployment's image and command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from webhook.api.resources import KUEUE_CONFIG, KUEUE_DEPLOYMENT
from webhook.model import fields
from webhook.model.fields import FieldError, as_mapping, child
from webhook.model.kueue_support import (
    DISPATCHERS,
    INCREMENTAL,
    OWN_DISPATCHER,
    KueueManager,
    is_on,
    is_version,
    unmodelled_fields,
)
from webhook.model.pods import Expression, Operator, Selector, read_selector
from webhook.model.policy import patterns
from webhook.model.policy.fallback_policy import seconds
from webhook.model.queues import AdmissionFairSharing, KueueConfig, KueueRelease, Transformation

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_LONG_REQUEUE_SECONDS = 10.0
_NEWEST = KueueRelease()
_LONGEST_DURATION = 32
_OLDER = "config.kueue.x-k8s.io/v1beta1"
_ENABLE = "enable"
_PODS_READY = "waitForPodsReady"
_STEP = 3


def read_kueue_config(config_map: Mapping[str, Any]) -> KueueConfig:
    metadata = fields.mapping(config_map, "metadata", "")
    namespace = fields.text(metadata, "namespace", "metadata", "kueue-system")
    for name, content in fields.texts(config_map, "data", "").items():
        source = _parse(content, child("data", name))
        if source.get("kind") == "Configuration":
            return _read(source, namespace)
    return KueueConfig(managed_namespaces=_all_but_system(namespace), is_read=False)


def under_gates(
    config: KueueConfig, gates: Mapping[str, bool], release: KueueRelease = _NEWEST
) -> KueueConfig:
    """Return the configuration as a release heeds it when these gates are set.

    What its own gate had turned off stays off.
    """
    by_usage = is_on("AdmissionFairSharing", gates, release)
    is_long = is_on("SchedulerLongRequeueInterval", gates, release)
    return replace(
        config,
        release=release,
        gates=gates,
        ignore_undeclared=config.ignore_undeclared and is_on("QuotaCheckStrategy", gates, release),
        device_mappings=config.device_mappings if are_devices_counted(gates, release) else {},
        admission_fair_sharing=config.admission_fair_sharing if by_usage else None,
        requeue_seconds=_LONG_REQUEUE_SECONDS if is_long else KueueConfig().requeue_seconds,
    )


def are_devices_counted(gates: Mapping[str, bool], release: KueueRelease) -> bool:
    """Return whether Kueue counts extended resources as the devices that stand for them."""
    return is_on("KueueDRAIntegrationExtendedResource", gates, release)


def _parse(content: str, path: str) -> Mapping[str, Any]:
    try:
        document = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A date that there is not is a ValueError.
        raise FieldError(path, f"expected YAML: {error}") from error
    return as_mapping(document, path) if document is not None else fields.EMPTY


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
        **_fair_sharing(source),
        admission_fair_sharing=_admission_fair_sharing(source),
        block_admission=_blocks_admission(source),
        requeues_by_eviction=_requeues_by_eviction(source),
        **_dispatcher(source),
        device_mappings=_device_mappings(resources),
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
            input=fields.text(transformation, "input", here),
            outputs={
                name: str(factor)
                for name, factor in fields.mapping(transformation, "outputs", here).items()
            },
            replace=transformation.get("strategy") == "Replace",
            multiply_by=fields.text(transformation, "multiplyBy", here),
        )
        for transformation, here in fields.objects(resources, "transformations", "resources")
    )


def _device_mappings(resources: Mapping[str, Any]) -> Mapping[str, str]:
    mappings = fields.objects(resources, "deviceClassMappings", "resources")
    return {
        device_class: "" if mapping.get("sources") else fields.text(mapping, "name", here)
        for mapping, here in mappings
        for device_class in fields.strings(mapping, "deviceClassNames", here)
    }


def _switched_on(source: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return a block of settings that is on; None: it is off.

    v1beta1 has a switch, off by default; in v1beta2 the block itself is the switch.
    """
    if source.get(key) is None:
        return None
    block = fields.mapping(source, key, "")
    has_switch = _ENABLE in block or source.get("apiVersion") == _OLDER
    return block if fields.flag(block, _ENABLE, key) or not has_switch else None


def _fair_sharing(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return whether fair sharing is on, and its strategies where it names any."""
    block = _switched_on(source, "fairSharing")
    if block is None:
        return {}
    # Kueue 0.19 does not start without any in v1beta2, or with others than it knows; a newer one
    # may. Without any, its scheduler would take both:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L363
    strategies = fields.strings(block, "preemptionStrategies", "fairSharing")
    is_on = {"fair_sharing": True}
    return is_on | {"preemption_strategies": strategies} if strategies else is_on


def _admission_fair_sharing(source: Mapping[str, Any]) -> AdmissionFairSharing | None:
    path = "admissionFairSharing"
    block = fields.mapping(source, path, "")
    if source.get(path) is None:
        return None
    weights = fields.mapping(block, "resourceWeights", path)
    here = child(path, "resourceWeights")
    default = AdmissionFairSharing(half_life_seconds=0.0).sampling_seconds
    return AdmissionFairSharing(
        half_life_seconds=_duration(block, "usageHalfLifeTime", path),
        sampling_seconds=_duration(block, "usageSamplingInterval", path) or default,
        resource_weights={name: _weight(weights, name, here) for name in weights},
    )


def _weight(weights: Mapping[str, Any], name: str, path: str) -> float:
    weight = weights[name]
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight >= 0:
        raise FieldError(child(path, name), "expected a number of at least 0")
    return float(weight)


def _duration(source: Mapping[str, Any], key: str, path: str) -> float:
    """Read a duration as Go writes it, in seconds; 0: there is none."""
    written = fields.text(source, key, path)
    if written in ("", "0"):
        return 0.0
    if len(written) > _LONGEST_DURATION or not re.fullmatch(patterns.DURATION, written):
        raise FieldError(child(path, key), f"expected {patterns.FORMS[patterns.DURATION]}")
    return seconds(written)


def _blocks_admission(source: Mapping[str, Any]) -> bool:
    """Return whether admission is blocked until pods are ready.

    v1beta1 blocks by default once ``enable`` is set, v1beta2 only if ``blockAdmission`` is.
    """
    ready = _switched_on(source, _PODS_READY)
    if ready is None:
        return False
    if ready.get("blockAdmission") is None:
        return _ENABLE in ready
    return fields.flag(ready, "blockAdmission", _PODS_READY)


def _dispatcher(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return which clusters MultiKueue asks when."""
    multikueue = fields.mapping(source, "multiKueue", "")
    name = fields.text(multikueue, "dispatcherName", "multiKueue")
    if name != INCREMENTAL:
        is_own = name == OWN_DISPATCHER
        is_external = bool(name) and name not in DISPATCHERS and not is_own
        return {"external_dispatcher": is_external, "own_dispatcher": is_own}
    path = "incrementalDispatcherConfig"
    incremental = fields.mapping(multikueue, path, "multiKueue")
    step = fields.integer(incremental, "stepSize", f"multiKueue.{path}")
    return {"clusters_per_round": _STEP if step is None else max(1, step)}


def _requeues_by_eviction(source: Mapping[str, Any]) -> bool:
    ready = _switched_on(source, _PODS_READY) or {}
    strategy = fields.mapping(ready, "requeuingStrategy", _PODS_READY)
    return strategy.get("timestamp") != "Creation"


def _gates(source: Mapping[str, Any]) -> Mapping[str, bool]:
    gates = fields.mapping(source, "featureGates", "")
    return {str(name): fields.flag(gates, name, "featureGates") for name in gates}


_CONTAINER = "manager"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_PATH = "spec.template.spec"
_SHOWN = 60


def read_kueue_manager(source: Mapping[str, Any]) -> KueueManager:
    try:
        pod = _pod(source)
        container = _container(pod)
    except FieldError as error:
        unknown = f"Deployment {KUEUE_DEPLOYMENT}: {error}"
        return KueueManager(unknown_version=unknown, unreadable=unknown)
    version, unknown_version = _version(container)
    try:
        flags = _flags(_words(container))
        gates = _gates_of_arguments(flags.get("feature-gates", ""))
        has_configuration = bool(flags.get("config"))
        unreadable = _elsewhere(pod) if has_configuration else ""
    except FieldError as error:
        gates, has_configuration, unreadable = None, True, str(error)
    return KueueManager(
        version=version,
        unknown_version=unknown_version,
        gates=gates,
        has_configuration=has_configuration,
        unreadable=unreadable,
    )


def _pod(source: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = fields.mapping(source, "spec", "")
    template = fields.mapping(spec, "template", "spec")
    return fields.mapping(template, "spec", "spec.template")


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Kueue's own container among those that were injected."""
    containers = fields.mappings(pod, "containers", _PATH)
    named = [container for container in containers if container.get("name") == _CONTAINER]
    if len(named) == 1 or len(containers) == 1:
        return (named or containers)[0]
    raise FieldError(f"{_PATH}.containers", f"expected one with the name {_CONTAINER}")


def _version(container: Mapping[str, Any]) -> tuple[str, str]:
    """Return the version in the image's tag, and, if it is unknown, why."""
    image = container.get("image")
    name = image.partition("@")[0] if isinstance(image, str) else ""
    tag = name.rpartition("/")[2].partition(":")[2]
    if not tag:
        return "", f"its image has no tag: {_quoted(image)}"
    if not is_version(tag):
        return "", f"the tag of its image is no version: {_quoted(tag)}"
    return tag, ""


def _words(container: Mapping[str, Any]) -> list[str]:
    """Return the arguments on the command line, without the program."""
    command = _strings(container, "command")[1:]
    return [*command, *_strings(container, "args")]


def _strings(container: Mapping[str, Any], key: str) -> Sequence[str]:
    texts = fields.sequence(container, key, "containers[manager]")
    if not all(isinstance(text, str) for text in texts):
        raise FieldError(f"containers[manager].{key}", "expected strings")
    return texts


def _flags(words: Sequence[str]) -> Mapping[str, str]:
    """Parse flags as Go's ``flag`` does: one dash or two, ``=`` or the next word; the last wins."""
    flags: dict[str, str] = {}
    rest: Iterator[str] = iter(words)
    pending = ""
    for word in rest:
        if pending and not word.startswith("-"):
            flags[pending], pending = word, ""
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            break
        flags[name] = value
        pending = "" if equals else name
    return flags


def _gates_of_arguments(text: str) -> Mapping[str, bool] | None:
    """Parse ``A=true,B=false`` as Kubernetes does; None: no gates are given.

    Raises:
        FieldError: Kueue would reject it, too, or it depends on a variable.

    """
    gates: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if value not in _TRUE | _FALSE:
            raise FieldError("--feature-gates", f"expected NAME=true or =false: {_quoted(part)}")
        gates[name] = value in _TRUE
    return gates or None


def _elsewhere(pod: Mapping[str, Any]) -> str:
    """Return why its configuration is not the ConfigMap that is read here; empty: it is."""
    volumes = fields.mappings(pod, "volumes", _PATH)
    config_maps = [fields.mapping(volume, "configMap", f"{_PATH}.volumes") for volume in volumes]
    if any(config_map.get("name") == KUEUE_CONFIG for config_map in config_maps):
        return ""
    return f"its Deployment mounts no ConfigMap {KUEUE_CONFIG}"


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
