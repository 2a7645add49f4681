"""From a kubeconfig, or what a pod has, to a Kubernetes client that is ready to ask.

``kubernetes.config`` knows plugins, proxies, several files, and when a token is to be read again.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, TypeAlias

import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from urllib3.util.ssl_ import create_urllib3_context

from webhook.api.kubernetes_api import ClusterAccess, Unreachable

KubeconfigSource: TypeAlias = "str | Mapping[str, Any] | ClusterAccess"
"""A file, the content of one, or what kubectl's flags say; an empty text is the default."""

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CONNECTIONS: Final = 32
"""In the pool; each watch occupies one."""
_LOADING: Final = Lock()
"""The client knows files by what is in them, and would name one that is about to be removed."""
_QUOTED: Final = re.compile(r"/?\{.*\}", re.DOTALL)
"""A part of a kubeconfig with all that it says, in an error of the Kubernetes client."""


def connection(source: KubeconfigSource) -> ApiClient:
    """Load a kubeconfig, or without one what a pod has, else the default kubeconfig.

    What is embedded in a kubeconfig, or comes from a plugin, is read from files that are gone then:
    the client's own are only removed by a process that ends in order, and hold keys.

    Raises:
        Unreachable: there is none, or it cannot be used.

    """
    place = "the kubeconfig" if isinstance(source, Mapping) else _file(source)
    try:
        with _LOADING, TemporaryDirectory(prefix="kueue-fallback-") as folder:
            client = ApiClient(_configured(source, folder))
            if any(Path(folder).iterdir()):
                _read_certificates(client)
    except config.ConfigException as error:
        raise Unreachable(f"{place}: {_QUOTED.sub('', str(error))}") from None
    except yaml.YAMLError as error:
        raise Unreachable(f"{place}: expected YAML: {error}") from None
    except ssl.SSLError:
        raise Unreachable(f"{place}: expected certificates and a key in PEM") from None
    except OSError as error:
        raise Unreachable(f"{place}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        # The error may quote a secret.
        raise Unreachable(f"{place}: expected a kubeconfig") from None
    return client


def authorization(client: ApiClient) -> dict[str, str]:
    """Return the header that says who asks; it may read or make a new token.

    Raises:
        Unreachable: there is none any longer, or a header cannot hold it.

    """
    try:
        token = client.configuration.get_api_key_with_prefix("BearerToken", "authorization")
    except (config.ConfigException, OSError) as error:
        raise Unreachable(_QUOTED.sub("", str(error))) from None
    if not token:
        return {}
    # As kubectl: a token's file may end with a line break.
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise Unreachable("expected a token of one line of ASCII")
    return {"authorization": token}


def default_namespace(access: ClusterAccess) -> str:
    """Return the namespace that applies where none is given, as for ``kubectl``."""
    if not (access.kubeconfig or access.context) and _OWN_NAMESPACE.exists():
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    try:
        content = KubeConfigMerger(_file(access)).config
        context = KubeConfigLoader(content, active_context=access.context or None).current_context
        return str(context["context"].get("namespace") or "default")
    except (config.ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError, KeyError):
        # Connecting reports what is wrong.
        return "default"


def _file(source: str | ClusterAccess) -> str:
    given = source.kubeconfig if isinstance(source, ClusterAccess) else source
    return given or os.environ.get("KUBECONFIG") or "~/.kube/config"


def _configured(source: KubeconfigSource, folder: str) -> Configuration:
    configuration = Configuration(retries=False, connection_pool_maxsize=_CONNECTIONS)
    to: dict[str, Any] = {"client_configuration": configuration, "temp_file_path": folder}
    if isinstance(source, Mapping):
        config.load_kube_config_from_dict(dict(source), **to)
        return configuration
    access = source if isinstance(source, ClusterAccess) else ClusterAccess(kubeconfig=source)
    if not (access.kubeconfig or access.context):
        try:
            config.load_incluster_config(configuration)
        except config.ConfigException:
            # This is no pod, or one that has no token.
            pass
        else:
            return configuration
    config.load_kube_config(_file(access), context=access.context or None, **to)
    return configuration


def _read_certificates(client: ApiClient) -> None:
    """Read the files that its pool would read at each connection, so that they can be removed."""
    keywords = client.rest_client.pool_manager.connection_pool_kw
    authorities, certificate, key = map(keywords.pop, ("ca_certs", "cert_file", "key_file"))
    context = create_urllib3_context(cert_reqs=keywords["cert_reqs"])
    if authorities:
        context.load_verify_locations(authorities)
    else:
        context.load_default_certs()
    if certificate:
        # Without a password, OpenSSL would ask the terminal or standard input for one.
        context.load_cert_chain(certificate, key, password="")
    keywords["ssl_context"] = context
