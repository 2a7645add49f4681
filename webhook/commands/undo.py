"""``undo``: asks the webhook to restore a pending Job as submitted, and reports the result."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import completion, terminal
from webhook.commands.connect import (
    UNREACHED,
    connected,
    name_of,
    namespace_or_current,
)
from webhook.commands.target import NotUndoneError, Target, missing, without_decision
from webhook.model.job import DECISION, MOVE_TO, OPTION_LABEL, QUEUE_LABEL, UNDO

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import Refused

TRIES = 3
_INVALID = 422
_UNPIN = """\
It is pinned: left alone from now on. To unpin it, for policies that adopt such Jobs:
  kubectl annotate job {name} -n {namespace} kueue-fallback.dev/policy-"""
_UNANSWERED = """\
The webhook did not answer, so {job} is as it was.
`kueue-fallback probe` says whether the API server calls it."""
_RECREATE = """
It can be deleted and created as it was submitted, at the end of its queue:
  kubectl fallback undo {name} -n {namespace} --recreate"""
_LEFT_BEHIND = "Its annotation {annotation} could not be taken off again: {error}"


@click.command("undo", short_help="Put a pending Job back as it was submitted.")
@click.argument("job", metavar="JOB", shell_complete=completion.decided_jobs)
@click.option(
    "-n",
    "--namespace",
    shell_complete=completion.namespaces,
    help="The Job's; default: the kubeconfig's current one.",
)
@click.option("--dry-run", is_flag=True, help="Ask the API server, but change nothing.")
@click.option(
    "--recreate",
    "recreates",
    is_flag=True,
    help="Delete the Job and create it as it was submitted, for what cannot change in place.",
)
@click.option("-y", "--yes", "is_sure", is_flag=True, help="With --recreate: do not ask first.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), envvar="KUBECONFIG")
def command(
    job: str,
    namespace: str | None,
    *,
    dry_run: bool,
    recreates: bool,
    is_sure: bool,
    kubeconfig: str | None,
) -> None:
    """Take back what was decided for a Job that still waits, and have it left alone.

    It goes back to its queue with what it asked for, and keeps its age, unless Kueue gives it quota
    at that very moment: then it joins the line anew. What has started, has quota or is being
    stopped is not undone. It works whatever the policies say, and while decisions are switched off.

    What Kubernetes lets nobody change later, as an image, keeps a decision from being undone so;
    then --recreate deletes the Job and creates it as it was submitted, with another UID and at the
    end of its queue. It asks before; with --dry-run it prints the manifest.

    \b
    You need the rights to get and patch Jobs in their namespace; with --recreate to get, create
    and delete them.

    \b
    Exit codes: 0 it is undone, 1 it is not, for the reason given, 3 the cluster cannot be reached
    or the webhook did not answer; then the Job is as it was.

    \b
    Examples:
      kueue-fallback undo train
      kubectl fallback undo train -n team --dry-run
      kubectl fallback undo train --recreate
    """
    with connected(kubeconfig) as client:
        where = namespace_or_current(namespace, kubeconfig)
        target = Target(namespace=where, name=name_of(job), is_dry_run=dry_run)
        try:
            if recreates:
                from webhook.commands.recreate import recreate

                after = recreate(client, target, is_sure=is_sure)
            else:
                after = _in_place(client, target)
        except NotUndoneError as error:
            terminal.say(error.text, err=True)
            sys.exit(error.code)
    _tell(target, after, err=recreates and dry_run)


def _in_place(client: Client, target: Target) -> Mapping[str, Any]:
    after, warnings = _ask(client, target)
    for warning in warnings:
        terminal.say(f"Warning: {warning}", err=True)
    _check(client, target, after)
    return after


def _ask(client: Client, target: Target) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Ask the webhook by an update of the Job; return the updated Job and warnings."""
    from webhook.api.kubernetes_api import NotServed, Refused

    for _ in range(TRIES):
        try:
            job = client.get(target.path)
            if refusal := _refusal(target, job):
                raise NotUndoneError(refusal)
            return client.patch_with_warnings(target.path, _wish(job), target.params)
        except NotServed:
            raise NotUndoneError(missing(client, target)) from None
        except Refused as error:
            if not error.is_conflict:
                text = f"{target} is as it was: {_because(error)}"
                raise NotUndoneError(text + _way_out(target, job)) from error
    raise NotUndoneError(f"{target} changes all the time; it is as it was. Try again.")


def _because(error: Refused) -> str:
    from webhook.model.reasons import Obstacle

    if error.keeps_template:
        return f"{Obstacle.OLDER_KUBERNETES.meaning}: {error}"
    return str(error)


def _refusal(target: Target, job: Mapping[str, Any]) -> str:
    """Return why an undo cannot be asked for; empty: it can."""
    from webhook.jobs import JOB
    from webhook.model.fields import FieldError
    from webhook.model.reasons import Obstacle

    if without := without_decision(target, job):
        return without
    try:
        obstacle = JOB.held_back(job)
    except FieldError as error:
        return f"{target} cannot be read: {error}"
    if obstacle is None:
        return ""
    has_run = obstacle in (Obstacle.NOT_SUSPENDED, Obstacle.FINISHED)
    because = "; what has started cannot be undone" if has_run else ""
    return f"{target} is not undone: {obstacle.meaning}{because}.{_way_out(target, job)}"


def _way_out(target: Target, job: Mapping[str, Any]) -> str:
    """Return what can be done if the Job cannot change in place; empty: nothing."""
    from webhook.commands.recreate import can_be_recreated

    if not can_be_recreated(target, job):
        return ""
    return _RECREATE.format(name=target.name, namespace=target.namespace)


def _wish(job: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {
        "resourceVersion": job["metadata"]["resourceVersion"],
        "annotations": {MOVE_TO: UNDO},
    }
    if OPTION_LABEL not in (job["metadata"].get("labels") or {}):
        # This label makes the API server call the webhook, which removes it.
        metadata["labels"] = {OPTION_LABEL: UNDO}
    return {"metadata": metadata}


def _check(client: Client, target: Target, after: Mapping[str, Any]) -> None:
    annotations = after["metadata"].get("annotations") or {}
    if MOVE_TO in annotations:
        _take_off(client, target, after)
        raise NotUndoneError(_UNANSWERED.format(job=target), UNREACHED)
    if DECISION in annotations:
        raise NotUndoneError(f"{target} is as it was.{_way_out(target, after)}")


def _take_off(client: Client, target: Target, after: Mapping[str, Any]) -> None:
    """Remove the annotation that asked for the undo, and the label if it was added with it."""
    from webhook.api.kubernetes_api import ClusterError

    if target.is_dry_run:
        return
    metadata: dict[str, Any] = {"annotations": {MOVE_TO: None}}
    if after["metadata"].get("labels", {}).get(OPTION_LABEL) == UNDO:
        metadata["labels"] = {OPTION_LABEL: None}
    try:
        client.patch(target.path, {"metadata": metadata})
    except ClusterError as error:
        terminal.say(_LEFT_BEHIND.format(annotation=MOVE_TO, error=error), err=True)


def _tell(target: Target, after: Mapping[str, Any], *, err: bool) -> None:
    queue = (after["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    where = f", in LocalQueue {queue}" if queue else ""
    if target.is_dry_run:
        terminal.say(f"{target} would be as it was submitted{where}.", err=err)
        return
    terminal.say(f"{target} is as it was submitted{where}.")
    terminal.say(_UNPIN.format(name=target.name, namespace=target.namespace))
