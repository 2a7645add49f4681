"""``unfinished``: the Jobs that still carry a decision, to read before an uninstall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.api.watch import list_pages
from webhook.commands import terminal
from webhook.commands.decision_table import state_of
from webhook.commands.kubectl_flags import connection_options
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.job import OPTION_LABEL, QUEUE_LABEL, reference_of

if TYPE_CHECKING:
    from webhook.api.client import Client

_KINDS: Final = (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
_STATES: Final = {"pending": "pending", "started": "running"}
_HEADER = ("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE")
_AFTER = """\
They go on as they are: what was decided stands in the Jobs themselves. Without the webhook,
applying a manifest again takes a pending Job back to what the manifest says, and on a running Job
the API server refuses the change."""


@click.command("unfinished", short_help="List decided Jobs still to do.")
@click.option("--release", is_flag=True, help="Start those that are held for a better hour.")
@connection_options
def command(*, release: bool, access: ClusterAccess) -> None:
    """List the unfinished Jobs that carry a decision, in all namespaces.

    It informs before an uninstall, so it never fails: what it cannot list or release it says.

    \b
    Example:
      kubectl fallback unfinished
    """
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    try:
        client = Client(access)
        if release:
            _release(client)
        unfinished = [row for kind in _KINDS for row in _rows(client, kind)]
    except ClusterError as error:
        terminal.say(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    if not unfinished:
        terminal.say("No unfinished Job carries a decision.")
        return
    for line in terminal.table(_HEADER, unfinished, limit=terminal.width()):
        terminal.say(line)
    terminal.say(f"Unfinished Jobs with a decision: {len(unfinished)}.\n{_AFTER}")


def _release(client: Client) -> None:
    """Start held Jobs first of all: nobody else will, once the controller is gone."""
    from webhook.commands.release import held_jobs, released

    count = sum(released(client, job) for job in held_jobs(client, ""))
    if count:
        terminal.say(f"Held Jobs released: {count}.")


def _rows(client: Client, kind: JobKind) -> Iterator[tuple[str, ...]]:
    """Yield the unfinished Jobs of a kind; of one that is not there, or not for the user, none."""
    try:
        for page in list_pages(client, kind.path(), {"labelSelector": OPTION_LABEL}):
            for job in page.get("items") or ():
                state = state_of(job, kind)
                if state in _STATES:
                    yield _row(job, kind, _STATES[state])
    except (Forbidden, NotServed):
        if kind is JOB:
            raise


def _row(job: Mapping[str, Any], kind: JobKind, state: str) -> tuple[str, ...]:
    metadata = job["metadata"]
    labels = metadata["labels"]
    name = reference_of(kind.kind, metadata["name"])
    return metadata["namespace"], name, labels[OPTION_LABEL], labels.get(QUEUE_LABEL, ""), state
