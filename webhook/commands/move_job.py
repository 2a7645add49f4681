"""``move``: asks the webhook to move a pending Job to another option, and reports the result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import terminal
from webhook.commands.connect import FAULT, Scope, connected, named
from webhook.commands.kubectl_flags import namespace_option, scope_options
from webhook.commands.undo import (
    NotUndoneError,
    Target,
    ask,
    job_argument,
    take_off,
    without_decision,
)
from webhook.model.job import MOVE_TO, OPTION_LABEL, QUEUE_LABEL

if TYPE_CHECKING:
    from webhook.api.client import Client


@click.command("move")
@job_argument
@click.option("--to", "option", required=True, metavar="OPTION", help="The option's name.")
@click.option("--dry-run", is_flag=True, help="Ask the API server, but change nothing.")
@namespace_option
@scope_options
def command(*, job: str, option: str, dry_run: bool, scope: Scope) -> None:
    """Move a pending Job to another option of its policy.

    `kubectl fallback explain JOB` lists the options. `kubectl fallback undo JOB` puts the Job back
    as it was submitted.

    JOB is a name, or a type and a name. You need the rights to get and patch Jobs in
    their namespace.

    Exit codes: 0 it is there, 1 it was not moved, for the reason given, and the Job is unchanged.

    \b
    Examples:
      kubectl fallback move train --to cpu
      kubectl fallback move rayjob/train --to gpu -n team --dry-run
      kubectl fallback move rayjob train --to gpu
    """
    with connected(scope.access) as client:
        kind, name = named(job)
        target = Target(kind=kind, namespace=scope.here, name=name, is_dry_run=dry_run)
        try:
            after = ask(client, target, option, refusal=_refusal)
            _check(client, target, after, option)
        except NotUndoneError as error:
            terminal.say(error.text, err=True)
            sys.exit(FAULT)
    verb = "would be" if dry_run else "is"
    queue = after["metadata"]["labels"].get(QUEUE_LABEL)
    terminal.say(f"{target} {verb} in LocalQueue {queue} ({option}).")


def _refusal(target: Target, job: Mapping[str, Any]) -> str:
    if not without_decision(target, job):
        return ""
    return f"{target} carries no decision: there is no option to move it to."


def _check(client: Client, target: Target, after: Mapping[str, Any], option: str) -> None:
    """Raise NotUndoneError unless the Job is in the option."""
    if MOVE_TO in (after["metadata"].get("annotations") or {}):
        take_off(client, target, after)
        raise NotUndoneError(f"The webhook did not answer, so {target} is unchanged.")
    if (after["metadata"].get("labels") or {}).get(OPTION_LABEL) != option:
        raise NotUndoneError(f"{target} is unchanged.")
