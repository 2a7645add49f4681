"""``off`` and ``on``: the ConfigMap that stops every new decision within a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from webhook.commands.connect import connected

if TYPE_CHECKING:
    from webhook.cluster.client import Client

NAME = "kueue-fallback-off"


@click.command("off", short_help="Stop all new decisions within a second.")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Only there; repeatable.")
@click.option("--release-namespace", default="kueue-fallback", show_default=True)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def off(namespaces: tuple[str, ...], release_namespace: str, kubeconfig: str | None) -> None:
    """Leave every new Job as it is submitted, whatever the policies say.

    Jobs decided before keep their decision. `kueue-fallback on` takes it back.
    """
    with connected(kubeconfig) as client:
        _put(client, release_namespace, namespaces)
    where = f" in {', '.join(namespaces)}" if namespaces else ""
    click.echo(f"off{where}: new Jobs are left as they are submitted; on again: kueue-fallback on")


@click.command("on", short_help="Decide again.")
@click.option("--release-namespace", default="kueue-fallback", show_default=True)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def on(release_namespace: str, kubeconfig: str | None) -> None:
    """Take `off` back: new Jobs that a policy matches are decided."""
    with connected(kubeconfig) as client:
        was_off = _take_away(client, release_namespace)
    click.echo("on: new Jobs are decided" if was_off else "it was not off")


def _put(client: Client, release_namespace: str, namespaces: tuple[str, ...]) -> None:
    _take_away(client, release_namespace)
    data = {"namespaces": ",".join(namespaces)} if namespaces else {}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}
    client.post(_path(release_namespace), body)


def _take_away(client: Client, release_namespace: str) -> bool:
    from webhook.cluster.errors import NotServed

    try:
        client.delete(f"{_path(release_namespace)}/{NAME}")
    except NotServed:
        return False
    return True


def _path(release_namespace: str) -> str:
    return f"/api/v1/namespaces/{release_namespace}/configmaps"
