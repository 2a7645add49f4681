"""``version``: which versions of this program, the servers, the policies' API and Kueue run."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed
from webhook.commands import terminal
from webhook.commands.connect import FAULT, release_namespace_of
from webhook.commands.kubectl_flags import connection_options, output_option

if TYPE_CHECKING:
    from webhook.api.client import Client

_GROUP: Final = "/apis/kueue-fallback.dev"
_PODS: Final = {"labelSelector": "app.kubernetes.io/name=kueue-fallback"}
_VERSION: Final = "app.kubernetes.io/version"
_TITLES: Final = {
    "client": "Client",
    "servers": "Servers",
    "policies": "Policies",
    "kueue": "Kueue API",
    "kubernetes": "Kubernetes",
}


@click.command("version")
@click.option("--client", "client_only", is_flag=True, help="Only the version of this program.")
@output_option
@connection_options
def command(*, client_only: bool, output: str, access: ClusterAccess) -> None:
    """Print the version of this program, and what runs on the cluster.

    Exit codes: 0 done, 1 the cluster cannot be asked; the client's version is printed first.

    \b
    Examples:
      kubectl fallback version
      kubectl fallback version --client
    """
    from webhook.api.client import Client

    versions: dict[str, Any] = {"client": importlib.metadata.version("kueue-fallback")}
    problem = ""
    try:
        if not client_only:
            versions |= _of_cluster(Client(access))
    except ClusterError as error:
        problem = str(error)
    if output in ("json", "yaml"):
        terminal.say(terminal.dump(versions, output))
    else:
        for name, version in versions.items():
            text = ", ".join(version) if isinstance(version, list) else version
            terminal.say(f"{_TITLES[name]}: {text or 'none'}")
    if problem:
        terminal.say(problem, err=True)
        sys.exit(FAULT)


def _of_cluster(client: Client) -> Mapping[str, Any]:
    return {
        "kubernetes": str(client.get("/version").get("gitVersion", "")),
        "kueue": client.kueue_version() or "",
        "policies": list(_served(client)),
        "servers": list(_servers(client)),
    }


def _served(client: Client) -> Iterator[str]:
    """Yield the versions in which the API server has our kinds."""
    try:
        group = client.get(_GROUP)
    except NotServed:
        return
    yield from (str(version.get("version")) for version in group.get("versions") or ())


def _servers(client: Client) -> Sequence[str]:
    """Return the versions that our pods say they run."""
    try:
        path = f"/api/v1/namespaces/{release_namespace_of(client, None)}/pods"
        pods = client.get(path, _PODS).get("items") or ()
    except Forbidden:
        return ("not for you to see",)
    labels = (pod["metadata"].get("labels") or {} for pod in pods)
    return sorted({str(label[_VERSION]) for label in labels if _VERSION in label})
