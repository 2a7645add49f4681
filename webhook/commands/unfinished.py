"""``unfinished``: the Jobs that still carry a decision, to read before an uninstall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.api.watch import list_pages
from webhook.commands import terminal
from webhook.commands.connect import kubeconfig_option
from webhook.jobs import JOB
from webhook.model.job import OPTION_LABEL, QUEUE_LABEL

if TYPE_CHECKING:
    from webhook.api.client import Client

_HEADER = ("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE")
_AFTER = """\
They go on as they are: what was decided stands in the Jobs themselves. Without the webhook,
applying a manifest again takes a pending Job back to what the manifest says, and on a running Job
the API server refuses the change."""


@click.command("unfinished", short_help="List decided Jobs still to do.")
@kubeconfig_option
def command(kubeconfig: str | None) -> None:
    """List the unfinished Jobs that carry a decision, in all namespaces.

    It informs before an uninstall, so it never fails: what it cannot list it says.

    \b
    Example:
      kubectl fallback unfinished
    """
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    try:
        unfinished = list(_unfinished(Client(kubeconfig or "")))
    except ClusterError as error:
        terminal.say(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    if not unfinished:
        terminal.say("No unfinished Job carries a decision.")
        return
    for line in terminal.table(_HEADER, [_row(job) for job in unfinished], limit=terminal.width()):
        terminal.say(line)
    terminal.say(f"Unfinished Jobs with a decision: {len(unfinished)}.\n{_AFTER}")


def _unfinished(client: Client) -> Iterator[Mapping[str, Any]]:
    for page in list_pages(client, JOB.path(), {"labelSelector": OPTION_LABEL}):
        yield from (job for job in page.get("items") or () if not _is_finished(job))


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
