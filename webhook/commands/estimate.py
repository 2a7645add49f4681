"""``estimate``: what a policy would have gained, by Jobs that have ended, before any install."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import terminal
from webhook.commands.kubectl import (
    Duration,
    Scope,
    namespace_option,
    output_option,
    scope_options,
)
from webhook.model.fields import FieldError

if TYPE_CHECKING:
    from webhook.commands.history import ClusterHistory
    from webhook.model.policy.fallback_policy import FallbackPolicy


@click.command("estimate")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="The policy; default: a suggested one.",
)
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@click.option("--since", type=Duration(), default="30d", help="How far back: 90m, 24h, 7d.  [30d]")
@namespace_option
@output_option
@scope_options
def command(
    *, policies: tuple[str, ...], snapshot: str | None, since: float, output: str, scope: Scope
) -> None:
    """Estimate what a policy would have gained, from Workloads and Jobs that have ended.

    Nothing is changed, and nothing has to be installed. Jobs that still exist are replayed twice:
    as they went, and as the policy would have decided. The first replay shows how far the second
    can be trusted. Jobs that a policy has decided already are compared with how they went, too.
    Without --policy one is suggested from the cluster's queues, with what it
    assumes.

    \b
    A snapshot is what this prints:
      kubectl get jobs,workloads,clusterqueues,localqueues,cohorts,resourceflavors,\\
        namespaces -A -o json

    Exit codes: 0 done, 1 no Job that has ended can be replayed, no policy can be suggested, or the
    cluster cannot be asked, 2 a file is wrong.

    \b
    Examples:
      kubectl fallback estimate
      kubectl fallback estimate --policy policy.yaml --since 7d
      kubectl fallback estimate --snapshot week.json -o json
    """
    from webhook.commands import history

    try:
        past = history.past_of(scope, snapshot, since=time.time() - since)
        until = past.until if snapshot is not None else time.time()
        _show(past, policies, since=until - since, until=until, output=output)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)


def _show(
    past: ClusterHistory, files: Sequence[str], *, since: float, until: float, output: str
) -> None:
    from webhook.hindsight import estimated_gains, look_back
    from webhook.model.policy.fallback_policy import read_policy

    ended = [entry for entry in past.entries if entry.finished >= since]
    world = past.world(until) if ended else None
    if world is None:
        _fail([*past.unread, "There is no finished Job."])
        return
    policies = _read(files)
    suggestion = None if policies else estimated_gains.suggest(ended, world.snapshot)
    if suggestion is not None:
        policies = [read_policy(suggestion[0])]
    if not policies:
        _fail(["No policy can be suggested: no Job with accelerators, or no other queue for it."])
        return
    unended = [entry for entry in past.entries if not entry.outcome]
    world = world.ruled_by(policies)
    hindsight = look_back.look_back([*ended, *unended], world, as_observed=True)
    found = estimated_gains.estimate(hindsight, left_out=past.left_out + len(past.unread))
    if output in ("text", "wide"):
        terminal.tell(estimated_gains.as_text(found), output=output)
        if suggestion is not None:
            terminal.say("\n" + _suggested(*suggestion))
    else:
        shown = estimated_gains.as_json(found)
        if suggestion is not None:
            manifest, assumed = suggestion
            shown["suggestion"] = {"policy": manifest, "assumed": list(assumed)}
        terminal.say(terminal.dump(shown, output))
    if not found.gain.jobs:
        sys.exit(1)


def _fail(lines: Sequence[str]) -> None:
    for line in lines:
        terminal.say(line, err=True)
    sys.exit(1)


def _read(files: Sequence[str]) -> list[FallbackPolicy]:
    from webhook.commands.manifest import read_policies

    return [policy for file in files for policy in read_policies(file)]


def _suggested(manifest: Mapping[str, Any], assumed: Sequence[str]) -> str:
    lines = ["The suggested policy assumes:", *(f"  - {text}" for text in assumed)]
    lines += ["Correct it, and give it with --policy:", ""]
    return "\n".join([*lines, terminal.dump(manifest, "yaml")])
