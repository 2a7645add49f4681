"""Reads what decisions depend on of Kueue's configuration: its ConfigMap and its Deployment.

Defaults are those of Kueue's ``SetDefaults_Configuration``, of v1beta1 and of v1beta2. Version and
feature gates come from the Deployment's image and command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from webhook.api.resources import KUEUE_CONFIG, KUEUE_DEPLOYMENT
from webhook.model import fields
from webhook.model.fields import FieldError, as_mapping, child
from webhook.model.kueue_support import (
    KueueManager,
    is_version,
    unmodelled_fields,
    unmodelled_gates,
)
from webhook.model.pods import Expression, Operator, Selector, read_selector
from webhook.model.queues import KueueConfig, Transformation

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
    """Replace the configuration's feature gates by these."""
    is_long = gates.get(_LONG_REQUEUE_GATE, False)
    return replace(
        config,
        requeue_seconds=_LONG_REQUEUE_SECONDS if is_long else KueueConfig().requeue_seconds,
        unmodelled_gates=unmodelled_gates(gates),
    )


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


def _fair_sharing(source: Mapping[str, Any]) -> bool:
    """Return whether fair sharing is on.

    v1beta1 has a switch; in v1beta2 the block itself is the switch.
    """
    value = source.get("fairSharing")
    if value is None:
        return False
    return as_mapping(value, "fairSharing").get("enable") is not False


def _blocks_admission(source: Mapping[str, Any]) -> bool:
    """Return whether admission is blocked until pods are ready.

    v1beta1 blocks by default once ``enable`` is set, v1beta2 only if ``blockAdmission`` is.
    """
    ready = fields.mapping(source, "waitForPodsReady", "")
    value = ready.get("blockAdmission")
    return (
        ready.get("enable") is not False if value else value is None and bool(ready.get("enable"))
    )


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
