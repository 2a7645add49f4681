"""``move``: asks the webhook to move a pending Job to another option, and reports the result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.api.kubernetes_api import NotServed, Refused
from webhook.commands import terminal
from webhook.commands.connect import FAULT, Scope, connected, named
from webhook.commands.kubectl_flags import namespace_option, scope_options
from webhook.commands.undo import (
    TRIES,
    Target,
    job_argument,
    missing,
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
        problem = _moved(client, target, option)
    if problem:
        terminal.say(problem, err=True)
        sys.exit(FAULT)


def _moved(client: Client, target: Target, option: str) -> str:
    """Move the Job; return what is wrong; empty: nothing."""
    for _ in range(TRIES):
        try:
            job = client.get(target.path)
            if without_decision(target, job):
                return f"{target} carries no decision: there is no option to move it to."
            wish = {
                "resourceVersion": job["metadata"]["resourceVersion"],
                "annotations": {MOVE_TO: option},
            }
            answer = client.ask("PATCH", target.path, {"metadata": wish}, target.params)
            return _told(client, target, option, *answer)
        except NotServed:
            return missing(client, target)
        except Refused as error:
            if not error.is_conflict:
                return f"{target} is unchanged: {error}"
    return f"{target} keeps changing, so it was left unchanged. Try again."


def _told(
    client: Client,
    target: Target,
    option: str,
    after: Mapping[str, Any],
    warnings: tuple[str, ...],
) -> str:
    for warning in warnings:
        terminal.say(f"Warning: {warning}", err=True)
    labels = after["metadata"].get("labels") or {}
    if MOVE_TO in (after["metadata"].get("annotations") or {}):
        take_off(client, target, after)
        return f"The webhook did not answer, so {target} is unchanged."
    if labels.get(OPTION_LABEL) != option:
        return f"{target} is unchanged."
    verb = "would be" if target.is_dry_run else "is"
    terminal.say(f"{target} {verb} in LocalQueue {labels.get(QUEUE_LABEL)} ({option}).")
    return ""
