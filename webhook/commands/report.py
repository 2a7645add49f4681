"""``report``: what was learned, from the cluster or from a saved state."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from webhook.model.fields import FieldError

if TYPE_CHECKING:
    from webhook.cluster.learned import Learned


@click.command("report", short_help="Show the run times that were learned.")
@click.option("--run-times", is_flag=True, required=True, help="Run times, and what keeps failing.")
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@click.option("-n", "--namespace", default="kueue-fallback", help="Our own.  [kueue-fallback]")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def command(
    *,
    run_times: bool,  # noqa: ARG001 - the one report there is
    snapshot: str | None,
    namespace: str,
    output: str,
    kubeconfig: str | None,
) -> None:
    """Show how long each class of Jobs runs on which flavors, and which options it is refused.

    A class is what runs alike: image, command and what is asked for, or a label that the policy
    names. Of ten runs about eight lie in the range.

    \b
    A snapshot is what `explain` takes; with the ConfigMaps of our namespace in it, runs
    count whose Workloads are gone.

    \b
    Examples:
      kueue-fallback report --run-times
      kueue-fallback report --run-times --snapshot snapshot.json -o json
    """
    from webhook.commands import run_times_table

    try:
        found = _learned(snapshot, namespace, kubeconfig)
    except FieldError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    if output == "text":
        click.echo(run_times_table.as_text(found))
    elif output == "json":
        click.echo(json.dumps(run_times_table.as_json(found), indent=2))
    else:
        import yaml

        click.echo(yaml.safe_dump(run_times_table.as_json(found), sort_keys=False).rstrip())


def _learned(path: str | None, namespace: str, kubeconfig: str | None) -> Learned:
    from webhook.cluster.snapshot_file import fetch_learned, read_learned
    from webhook.commands.connect import connected

    if path is not None:
        return read_learned(path)
    with connected(kubeconfig) as client:
        found, unread = fetch_learned(client, namespace=namespace, unix=time.time())
    for why in unread:
        click.echo(f"{why}: only Workloads that are still there count", err=True)
    return found
