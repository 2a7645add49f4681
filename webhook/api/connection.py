"""From a kubeconfig, or what a pod has, to an address, credentials and a pool of connections.

A pod's ServiceAccount and a kubeconfig with nothing but a server, certificates and a token are read
here. All else, such as plugins, proxies, several files and whatever is wrong, is left to the
Kubernetes client: it takes 10 MB, so it is imported only then.
"""

from __future__ import annotations

import copy
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.request import getproxies

import urllib3
import yaml
from urllib3.util import ssl_

from webhook.api import kubeconfig
from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubeconfig import KubeconfigContext
from webhook.api.kubernetes_api import Unreachable
from webhook.model.words import nearest

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

_OWN_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_SECONDS: Final = 60.0
"""Until a pod's token is read again: Kubernetes replaces it within the hour."""
_INSECURE: Final = "insecure-skip-tls-verify"
_CLUSTER: Final = frozenset({"server", "certificate-authority", "tls-server-name"})
_USER: Final = frozenset({"token", "client-certificate", "client-key"})
_TEMPORARY: Final = "kueue-fallback-"
_URLLIB3_NAMES: Final = ("ca_certs", "cert_file", "key_file")
"""What urllib3 calls the ``kubeconfig.FILES``, in their order."""

KubeconfigSource: TypeAlias = "str | Mapping[str, Any] | ClusterAccess"
"""A file, the content of one, or what kubectl's flags say; an empty text is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """How one API server is reached."""

    host: str
    """Scheme, name and port."""
    pool: urllib3.PoolManager
    credentials: Callable[[], dict[str, str]]
    """Returns the headers that say who asks; it may read or make a new token."""


def connection(source: KubeconfigSource, *, connections: int) -> ApiServer:
    """Load a kubeconfig (a file, its content, or empty for the default one) and make a pool.

    Raises:
        Unreachable: there is none, or it cannot be used.

    """
    return read_plainly(source, connections) or read_by_client(source, connections)


def default_namespace(access: ClusterAccess) -> str:
    """Return the namespace that applies where none is given, as for ``kubectl``."""
    own = _OWN_FOLDER / "namespace"
    if not (access.kubeconfig or access.context) and own.exists():
        return own.read_text(encoding="utf-8").strip()
    if (plain := kubeconfig.read_context(access.kubeconfig, access.context)) is not None:
        return plain.namespace or "default"
    from kubernetes import config  # noqa: PLC0415 - see above

    contexts: Any = config.list_kube_config_contexts
    try:
        known, current = contexts(access.kubeconfig or None)
    except (config.ConfigException, OSError, yaml.YAMLError):
        # Connecting reports what is wrong.
        return "default"
    if access.context:
        current = next((each for each in known if each["name"] == access.context), {})
    return str((current.get("context") or {}).get("namespace") or "default")


def read_plainly(source: KubeconfigSource, connections: int) -> ApiServer | None:
    """Return the connection of a pod or of a kubeconfig of the plainest form; None: it is neither.

    What is accepted here, the Kubernetes client reads to the same effect, except that of a file
    and embedded data the data are taken, as by kubectl.
    """
    name = ""
    if isinstance(source, ClusterAccess):
        name, source = source.context, source.kubeconfig
    if getproxies():
        return None
    if source == "" and not name and (pod := _of_pod(connections)) is not None:
        return pod
    if isinstance(source, str):
        context = kubeconfig.read_context(source, name)
    else:
        context = kubeconfig.context_in(copy.deepcopy(dict(source)), name)
    try:
        return None if context is None else _of_plain(context, connections)
    except (OSError, ValueError, TypeError):
        return None


def _of_pod(connections: int) -> ApiServer | None:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    authority = _OWN_FOLDER / "ca.crt"
    try:
        credentials = _TokenFile(_OWN_FOLDER / "token")
        if not (host and port and authority.read_text(encoding="utf-8")):
            return None
    except (OSError, ValueError):
        return None
    return ApiServer(
        host=f"https://[{host}]:{port}" if {":", "%"} & set(host) else f"https://{host}:{port}",
        pool=_pool(connections, ca_certs=str(authority)),
        credentials=credentials,
    )


class _TokenFile:
    """The header with a pod's token, which is read again each minute."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read()

    def __call__(self) -> dict[str, str]:
        if time.monotonic() >= self._until:
            self._read()
        return {"authorization": f"bearer {self._token}"}

    def _read(self) -> None:
        token = self._path.read_text(encoding="utf-8")
        if not token:
            raise OSError(f"{self._path} is empty")
        self._token, self._until = token, time.monotonic() + _TOKEN_SECONDS


def _of_plain(context: KubeconfigContext, connections: int) -> ApiServer | None:
    """Return the connection of a context; what is embedded in it is in files only meanwhile."""
    if not context.embeds:
        return _of_files(context, connections)
    with TemporaryDirectory(prefix=_TEMPORARY) as folder:
        kubeconfig.write_embedded(context, Path(folder))
        server = _of_files(context, connections)
        if server is not None:
            _read_certificates(server.pool)
        return server


def _of_files(context: KubeconfigContext, connections: int) -> ApiServer | None:
    """Return the connection of a context in which nothing is embedded."""
    cluster, user = dict(context.cluster), context.user
    insecure = cluster.pop(_INSECURE, False)
    if not (isinstance(insecure, bool) and _is_plain(cluster, _CLUSTER) and _is_plain(user, _USER)):
        return None
    host = cluster.get("server", "").rstrip("/")
    named = {**cluster, **user} if host.startswith("https") else {}
    files = {
        name: os.path.normpath(context.folder / named[key])
        for key, name in zip(kubeconfig.FILES, _URLLIB3_NAMES, strict=True)
        if key in named
    }
    if not host or not all(map(os.path.isfile, files.values())):
        return None
    if "tls-server-name" in cluster:
        files["server_hostname"] = cluster["tls-server-name"]
    headers = {"authorization": f"Bearer {user['token']}"} if "token" in user else {}
    pool = _pool(connections, verifies=not insecure, **files)
    return ApiServer(host=host, pool=pool, credentials=headers.copy)


def _is_plain(source: Mapping[str, Any], known: frozenset[str]) -> bool:
    return source.keys() <= known and all(isinstance(v, str) and v for v in source.values())


def _pool(connections: int, *, verifies: bool = True, **files: str) -> urllib3.PoolManager:
    """Return a pool as the Kubernetes client makes it."""
    certificates: dict[str, Any] = {"ca_certs": None, "cert_file": None, "key_file": None, **files}
    return urllib3.PoolManager(
        cert_reqs=ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE,
        ca_cert_data=None,
        maxsize=connections,
        **certificates,
    )


def read_by_client(source: KubeconfigSource, connections: int) -> ApiServer:
    """Return what the Kubernetes client makes of a kubeconfig; raises as ``connection`` does."""
    if isinstance(source, Mapping):
        return _read_content(source, connections)
    return _of_client(_load(source), connections)


def _of_client(configuration: Configuration, connections: int) -> ApiServer:
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415

    configuration.connection_pool_maxsize = connections

    def credentials() -> dict[str, str]:
        settings: Any = configuration.auth_settings().values()
        return {setting["key"]: setting["value"] for setting in settings if setting["value"]}

    return ApiServer(
        host=configuration.host,
        pool=RESTClientObject(configuration).pool_manager,
        credentials=credentials,
    )


def _load(source: str | ClusterAccess) -> Configuration:
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client.configuration import Configuration  # noqa: PLC0415

    # The client's own annotations are partial.
    from_file: Any = config.load_kube_config
    from_pod: Any = config.load_incluster_config
    configuration = Configuration()
    try:
        if isinstance(source, ClusterAccess):
            if source.context:
                return _of_context(source, configuration)
            source = source.kubeconfig
        if source:
            from_file(source, client_configuration=configuration)
            return configuration
        try:
            from_pod(client_configuration=configuration)
        except config.ConfigException:
            from_file(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise Unreachable(str(error)) from error
    except yaml.YAMLError as error:
        raise Unreachable(f"{source or 'kubeconfig'} is not YAML: {error}") from error
    return configuration


def _of_context(access: ClusterAccess, configuration: Configuration) -> Configuration:
    from kubernetes import config  # noqa: PLC0415

    from_file: Any = config.load_kube_config
    contexts: Any = config.list_kube_config_contexts
    known, _ = contexts(access.kubeconfig or None)
    names = [each["name"] for each in known]
    if access.context not in names:
        hint = nearest(access.context, names)
        raise Unreachable(f'context "{access.context}" does not exist{hint}')
    from_file(access.kubeconfig or None, context=access.context, client_configuration=configuration)
    return configuration


def _read_content(source: Mapping[str, Any], connections: int) -> ApiServer:
    """Return what the Kubernetes client makes of a kubeconfig's content, and leave no file of it.

    The client would write files for embedded data that stay when its process is killed.
    """
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client.configuration import Configuration  # noqa: PLC0415

    from_mapping: Any = config.load_kube_config_from_dict
    configuration = Configuration()
    try:
        with TemporaryDirectory(prefix=_TEMPORARY) as folder:
            content = copy.deepcopy(dict(source))
            if (context := kubeconfig.context_in(content)) is not None:
                kubeconfig.write_embedded(context, Path(folder))
            from_mapping(content, client_configuration=configuration)
            server = _of_client(configuration, connections)
            _read_certificates(server.pool)
    except (ssl.SSLError, ValueError, TypeError, KeyError, AttributeError):
        # The error may quote a secret.
        raise Unreachable("the kubeconfig cannot be used") from None
    except (config.ConfigException, OSError) as error:
        raise Unreachable(str(error)) from error
    return server


def _read_certificates(pool: urllib3.PoolManager) -> None:
    """Read the files that *pool* would read at each connection, so that they can be removed."""
    keywords = pool.connection_pool_kw
    context = ssl_.create_urllib3_context(cert_reqs=keywords["cert_reqs"])
    authorities, certificate, key = map(keywords.pop, _URLLIB3_NAMES)
    if authorities:
        context.load_verify_locations(authorities)
    else:
        context.load_default_certs()
    if certificate:
        # Without a password, OpenSSL would ask the terminal or standard input for one.
        context.load_cert_chain(certificate, key, password="")
    keywords["ssl_context"] = context
