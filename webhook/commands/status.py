"""``status``: what runs, how fresh it is, what queues hold, and what needs attention."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from webhook.commands import completion, terminal
from webhook.commands.connect import connected, kubeconfig_option, namespace_or_current

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.commands.status_parts import StatusPart

_PROXY_SECONDS = 5.0
"""Longest wait for a server that the API server cannot reach."""


@click.command("status", short_help="Show policies, queues, and what needs a look.")
@click.option(
    "-n",
    "--namespace",
    shell_complete=completion.namespaces,
    help="Whose LocalQueues are shown to who may not see ClusterQueues.",
)
@click.option("--release-namespace", help="Ours; default: where the API server sends reviews to.")
@click.option("--kueue-namespace", default="kueue-system", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "wide", "json", "yaml"]), default="text")
@kubeconfig_option
def command(
    *,
    namespace: str | None,
    release_namespace: str | None,
    kueue_namespace: str,
    output: str,
    kubeconfig: str | None,
) -> None:
    """Show what runs and how fresh it is, the policies, and what ClusterQueues hold.

    NEXT FREE is when a new Job would get one unit there (a core, a GiB, a device), after all who
    wait. What you may not see is said to be forbidden, and the rest is shown.

    \b
    Exit codes: 0 all is well, 1 something needs attention: a server's state is stale, nobody
    leads, a certificate is expired, a policy is not ready, Kueue is another one than is tested, or
    a worker cluster is not active; 3 the cluster cannot be reached.

    \b
    Examples:
      kubectl fallback status
      kubectl fallback status -o wide
      kubectl fallback status -o json | jq .attention
    """
    from webhook.api.client import Client
    from webhook.commands import status_text

    with connected(kubeconfig) as client:
        parts = _parts(
            client,
            Client(kubeconfig or "", answer_seconds=_PROXY_SECONDS),
            namespace=namespace_or_current(namespace, kubeconfig),
            release_namespace=release_namespace,
            kueue_namespace=kueue_namespace,
        )
    if output in ("json", "yaml"):
        found = {name: part.as_json() for name, part in parts.items()}
        trouble = [each for part in parts.values() for each in part.trouble]
        terminal.say(terminal.dump({"attention": trouble, **found}, output))
    else:
        terminal.say(status_text.as_text(parts, limit=terminal.width(output)))
    sys.exit(int(any(part.trouble for part in parts.values())))


def _parts(
    client: Client,
    proxied: Client,
    *,
    namespace: str,
    release_namespace: str | None,
    kueue_namespace: str,
) -> Mapping[str, StatusPart]:
    from webhook.api.errors import Forbidden
    from webhook.commands import connect, status_parts
    from webhook.commands.status_parts import StatusPart, part_of, replicas

    kubernetes = _kubernetes(client)
    unix = time.time()
    ours = release_namespace or connect.RELEASE_NAMESPACE
    try:
        found = connect.configurations(client)
        ours = release_namespace or connect.namespace_of(found) or ours
        certificates = status_parts.certificates(found, unix)
    except Forbidden as error:
        certificates = StatusPart(forbidden=str(error))
    parts = {
        "switch": part_of(lambda: status_parts.switch(client, ours)),
        "kueue": part_of(lambda: status_parts.kueue(client, kueue_namespace, kubernetes)),
        "leader": part_of(lambda: status_parts.leader(client, ours, unix)),
        "certificates": certificates,
        "replicas": part_of(lambda: replicas(proxied, ours, unix)),
        "clusters": part_of(lambda: status_parts.clusters(client)),
        "policies": part_of(lambda: status_parts.policies(client)),
        "clusterQueues": part_of(
            lambda: status_parts.cluster_queues(client, ours, kueue_namespace)
        ),
    }
    parts["kueue"] = status_parts.untested(parts["kueue"], parts["policies"], parts["replicas"])
    if parts["clusterQueues"].forbidden:
        parts["localQueues"] = part_of(lambda: status_parts.local_queues(client, namespace))
    return parts


def _kubernetes(client: Client) -> str:
    """Return Kubernetes' version, which all may read: it shows whether the cluster answers."""
    from webhook.api.errors import Forbidden

    try:
        return str(client.get("/version").get("gitVersion", "of an unknown version"))
    except Forbidden:
        return "of an unknown version"
