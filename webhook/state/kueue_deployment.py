"""Kueue's own Deployment, to the version that it runs and the gates on its command line.

What cannot be read makes something unknown, with the reason; it is never an error, because a
Deployment is there for the kubelet, and Kueue may be installed in ways of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.api.resources import KUEUE_CONFIG, KUEUE_DEPLOYMENT
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.kueue_support import KueueManager, is_version

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
        gates = _gates(flags.get("feature-gates", ""))
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
    """Find Kueue's own among those that were injected."""
    found = fields.mappings(pod, "containers", _PATH)
    named = [each for each in found if each.get("name") == _CONTAINER]
    if len(named) == 1 or len(found) == 1:
        return (named or found)[0]
    raise FieldError(f"{_PATH}.containers", f"expected one with the name {_CONTAINER}")


def _version(container: Mapping[str, Any]) -> tuple[str, str]:
    """Read the version off the image's tag, also beside a digest; else say why it is unknown."""
    image = container.get("image")
    name = image.partition("@")[0] if isinstance(image, str) else ""
    tag = name.rpartition("/")[2].partition(":")[2]
    if not tag:
        return "", f"its image has no tag: {_quoted(image)}"
    if not is_version(tag):
        return "", f"the tag of its image is no version: {_quoted(tag)}"
    return tag, ""


def _words(container: Mapping[str, Any]) -> list[str]:
    """Join the command line, without the program."""
    command = _strings(container, "command")[1:]
    return [*command, *_strings(container, "args")]


def _strings(container: Mapping[str, Any], key: str) -> Sequence[str]:
    found = fields.sequence(container, key, "containers[manager]")
    if not all(isinstance(each, str) for each in found):
        raise FieldError(f"containers[manager].{key}", "expected strings")
    return found


def _flags(words: Sequence[str]) -> Mapping[str, str]:
    """Read flags as Go's ``flag`` does: one dash or two, ``=`` or the next word; the last wins."""
    found: dict[str, str] = {}
    rest: Iterator[str] = iter(words)
    pending = ""
    for word in rest:
        if pending and not word.startswith("-"):
            found[pending], pending = word, ""
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            break
        found[name] = value
        pending = "" if equals else name
    return found


def _gates(text: str) -> Mapping[str, bool] | None:
    """Read ``A=true,B=false`` as Kubernetes does; None: nothing is said.

    Raises:
        FieldError: Kueue would not take it either, or it depends on a variable.

    """
    found: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        if value not in _TRUE | _FALSE:
            raise FieldError("--feature-gates", f"expected NAME=true or =false: {_quoted(part)}")
        found[name] = value in _TRUE
    return found or None


def _elsewhere(pod: Mapping[str, Any]) -> str:
    """Say that its configuration is no ConfigMap that is read here; empty: it is."""
    volumes = fields.mappings(pod, "volumes", _PATH)
    config_maps = [fields.mapping(each, "configMap", f"{_PATH}.volumes") for each in volumes]
    if any(each.get("name") == KUEUE_CONFIG for each in config_maps):
        return ""
    return f"its Deployment mounts no ConfigMap {KUEUE_CONFIG}"


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
