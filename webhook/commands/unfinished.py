"""``unfinished``: the Jobs that still carry a decision, for whoever takes the webhook away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.model.job import OPTION_LABEL, QUEUE_LABEL

if TYPE_CHECKING:
    from webhook.cluster.client import Client

PAGE = "200"
_AFTER = """\
They go on as they are: what was decided stands in the Jobs themselves. Without the webhook,
applying a manifest again takes a pending Job back to what the manifest says, and on a running Job
the API server refuses the change."""


@click.command("unfinished", short_help="List decided Jobs still to do.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def command(kubeconfig: str | None) -> None:
    """List the unfinished Jobs that carry a decision, in all namespaces.

    It informs before an uninstall, so it never fails: what it cannot list it says.
    """
    from webhook.cluster.client import Client
    from webhook.cluster.errors import ClusterError

    try:
        found = list(_unfinished(Client(kubeconfig or "")))
    except ClusterError as error:
        click.echo(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    if not found:
        click.echo("No unfinished Job carries a decision.")
        return
    rows = [("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE"), *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
    click.echo(f"Unfinished Jobs with a decision: {len(found)}.\n{_AFTER}")


def _unfinished(client: Client) -> Iterator[Mapping[str, Any]]:
    params = {"labelSelector": OPTION_LABEL, "limit": PAGE}
    while True:
        page = client.get("/apis/batch/v1/jobs", params)
        yield from (job for job in page.get("items") or () if not _is_finished(job))
        token = page["metadata"].get("continue")
        if not token:
            return
        params = {**params, "continue": token}


def _is_finished(job: Mapping[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in conditions
    )


def _row(job: Mapping[str, Any]) -> tuple[str, ...]:
    metadata = job["metadata"]
    labels = metadata["labels"]
    state = "pending" if job["spec"].get("suspend") else "running"
    queue = labels.get(QUEUE_LABEL, "")
    return metadata["namespace"], metadata["name"], labels[OPTION_LABEL], queue, state
