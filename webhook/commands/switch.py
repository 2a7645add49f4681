"""``off`` and ``on``: the ConfigMap that stops every new decision within a second."""

from __future__ import annotations

import click

from webhook.commands.connect import connected

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
        data = {"namespaces": ",".join(namespaces)} if namespaces else {}
        client.put_config_map(release_namespace, NAME, data)
    where = f" in {', '.join(namespaces)}" if namespaces else ""
    click.echo(f"off{where}: new Jobs are left as they are submitted; on again: kueue-fallback on")


@click.command("on", short_help="Decide again.")
@click.option("--release-namespace", default="kueue-fallback", show_default=True)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def on(release_namespace: str, kubeconfig: str | None) -> None:
    """Take `off` back: new Jobs that a policy matches are decided."""
    with connected(kubeconfig) as client:
        was_off = client.delete_config_map(release_namespace, NAME)
    click.echo("on: new Jobs are decided" if was_off else "it was not off")
