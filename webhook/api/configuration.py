"""Finds the API server and who we are to it: a kubeconfig, or the pod's ServiceAccount.

The only module that imports the Kubernetes client.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import config
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject

from webhook.api.errors import Unreachable

if TYPE_CHECKING:
    import urllib3

__all__ = ["Configuration", "connection", "default_namespace"]

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def connection(
    kubeconfig: str | Mapping[str, Any], *, connections: int
) -> tuple[Configuration, urllib3.PoolManager]:
    """Read *kubeconfig*, a file or what stands in one, none given: what is found; make a pool.

    Raises:
        Unreachable: there is none, or it cannot be used.

    """
    configuration = _load(kubeconfig)
    configuration.connection_pool_maxsize = connections
    return configuration, RESTClientObject(configuration).pool_manager


def default_namespace(kubeconfig: str = "") -> str:
    """Name the namespace that is meant where none is given, as ``kubectl`` has it."""
    if not kubeconfig and _OWN_NAMESPACE.exists():
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    contexts: Any = config.list_kube_config_contexts
    try:
        _, current = contexts(kubeconfig or None)
    except (config.ConfigException, OSError, yaml.YAMLError):
        # Whoever connects says what is wrong.
        return "default"
    return str((current.get("context") or {}).get("namespace") or "default")


def _load(kubeconfig: str | Mapping[str, Any]) -> Configuration:
    # The client's own annotations are partial.
    from_file: Any = config.load_kube_config
    from_pod: Any = config.load_incluster_config
    configuration = Configuration()
    try:
        if isinstance(kubeconfig, Mapping):
            return _loaded_from(kubeconfig, configuration)
        if kubeconfig:
            from_file(kubeconfig, client_configuration=configuration)
            return configuration
        try:
            from_pod(client_configuration=configuration)
        except config.ConfigException:
            from_file(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise Unreachable(str(error)) from error
    except yaml.YAMLError as error:
        raise Unreachable(f"{kubeconfig or 'kubeconfig'} is not YAML: {error}") from error
    return configuration


def _loaded_from(kubeconfig: Mapping[str, Any], configuration: Configuration) -> Configuration:
    from_mapping: Any = config.load_kube_config_from_dict
    try:
        from_mapping(copy.deepcopy(dict(kubeconfig)), client_configuration=configuration)
    except (ValueError, TypeError, KeyError, AttributeError):
        # What is wrong may quote what is secret.
        raise Unreachable("the kubeconfig cannot be used") from None
    return configuration
