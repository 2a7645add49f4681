"""``unfinished``: the Jobs that still carry a decision, to read before an uninstall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from webhook.commands import terminal
from webhook.commands.connect import Scope
from webhook.commands.kubectl_flags import (
    FOR_PROGRAMS,
    all_namespaces_option,
    namespace_option,
    output_of_jobs_option,
    scope_options,
    selector_option,
)
from webhook.commands.list_jobs import decided_jobs, say_for_programs

if TYPE_CHECKING:
    from webhook.api.client import Client

_STATES: Final = {"pending": "pending", "started": "running"}
_HEADER = ("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE")
_AFTER = """\
They go on as decided, because the decision is in the Jobs themselves. Without the webhook, applying
a manifest again takes a pending Job back to what the manifest says. On a running Job the API server
refuses that change."""


@click.command("unfinished")
@click.option("--release", is_flag=True, help="Start Jobs that are held for a better hour.")
@namespace_option
@all_namespaces_option
@selector_option
@output_of_jobs_option
@scope_options
def command(*, release: bool, selector: str, output: str, scope: Scope) -> None:
    """List unfinished Jobs that carry a decision, in all namespaces or in that of -n.

    The chart runs this before an uninstall, so it never fails. It says what it could not do.

    Exit codes: 0, also if the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback unfinished
      kubectl fallback unfinished -n team -o name
    """
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    try:
        client = Client(scope.access)
        if release:
            _release(client, scope.namespace)
        jobs = decided_jobs(client, scope.namespace, selector)
    except ClusterError as error:
        terminal.say(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    unfinished = [
        {**job, "state": _STATES[job["state"]]} for job in jobs if job["state"] in _STATES
    ]
    if output in FOR_PROGRAMS:
        say_for_programs(unfinished, output)
        return
    _show(unfinished, output)


def _show(unfinished: Sequence[Mapping[str, str]], output: str) -> None:
    if not unfinished:
        terminal.say("No unfinished Job carries a decision.")
        return
    rows = [[job[name.lower()] for name in _HEADER] for job in unfinished]
    terminal.say(*terminal.table(_HEADER, rows, limit=terminal.width(output)))
    terminal.say(f"Unfinished Jobs with a decision: {len(unfinished)}.")
    terminal.tell(_AFTER, output=output)


def _release(client: Client, namespace: str) -> None:
    """Start held Jobs first of all: nobody else will, once the controller is gone."""
    from webhook.commands.release import held_jobs, released

    count = sum(released(client, job) for job in held_jobs(client, namespace))
    if count:
        terminal.say(f"Held Jobs released: {count}.")
