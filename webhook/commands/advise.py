"""``advise``: which running Jobs would cost less elsewhere, and how to bring them there.

It moves nothing. Only the owner of a Job knows when it has a checkpoint.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from webhook.api.kubernetes_api import NotServed
from webhook.commands import terminal
from webhook.commands.kubectl import (
    Scope,
    all_namespaces_option,
    connected,
    listed,
    missing_job,
    named,
    namespace_option,
    output_option,
    references,
    release_namespace_of,
    scope_options,
)
from webhook.commands.terminal import Line
from webhook.jobs import BY_NAME, JobKind
from webhook.model.fields import FieldError
from webhook.model.words import figure, harmless, span
from webhook.reconsider import advice

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.model.job import Pending
    from webhook.reconsider.advice import Advice
    from webhook.state.snapshot import Snapshot


_HEADER = ("JOB", "RUNS IN", "LEFT", "BETTER IN", "DONE", "SAVES", "OF")
_NOTHING = (
    "No running Job with the annotation kueue-fallback.dev/checkpoint would save enough elsewhere."
)
_BEFORE = "Once {} has written a checkpoint, line by line:"


def as_text(found: Sequence[Advice], *, limit: int | None) -> list[Line]:
    if not found:
        return [_NOTHING]
    lines: list[Line] = [*terminal.table(_HEADER, [_cells(each) for each in found], limit=limit)]
    for each in found:
        job = f"{each.job.job.kind} {each.job.job.namespace}/{each.job.job.name}"
        lines += ["", terminal.strong(_BEFORE.format(harmless(job)))]
        lines += [f"  {harmless(line)}" for line in each.recipe]
    return lines


def _cells(found: Advice) -> tuple[str, ...]:
    here, there = found.here.forecast, found.there.forecast
    cost = found.here.cost
    return (
        harmless(found.job.key),
        f"{found.here.queue} ({found.here.option})",
        span((here.finish if here else None) or 0.0),
        f"{found.there.queue} ({found.there.option})",
        f"in {span((there.finish if there else None) or 0.0)}",
        figure(found.saves),
        figure((cost.total if cost else None) or 0.0),
    )


def as_json(found: Sequence[Advice], currency: str) -> dict[str, Any]:
    """Return the advice for each Job, with amounts of money and durations in seconds."""
    return {"currency": currency, "jobs": [_job(each) for each in found]}


def _job(found: Advice) -> dict[str, Any]:
    job = found.job.job
    return {
        "namespace": job.namespace,
        "name": job.name,
        "kind": job.kind,
        "policy": found.job.policy,
        "workload": found.workload,
        "here": _place(found.here),
        "there": _place(found.there),
        "saves": found.saves,
        "obstacle": None if found.obstacle is None else str(found.obstacle),
        "recipe": list(found.recipe),
    }


def _place(assessment: Any) -> dict[str, Any]:
    forecast, cost = assessment.forecast, assessment.cost
    return {
        "option": assessment.option,
        "queue": assessment.queue,
        "startsIn": forecast.start.seconds if forecast else None,
        "finishesIn": forecast.finish if forecast else None,
        "cost": cost.total if cost else None,
    }


@click.command("advise")
@click.argument("names", nargs=-1, metavar="[JOB]...")
@namespace_option
@all_namespaces_option
@output_option
@scope_options
def command(*, names: tuple[str, ...], output: str, scope: Scope) -> None:
    """Show running Jobs that would cost less if they went on elsewhere from a checkpoint.

    A Job is considered if it has the annotation kueue-fallback.dev/checkpoint and its policy
    decides by cost. The rest of its run must cost less elsewhere by twice the policy's
    minimumSaving, with the wait and the start included.

    Nothing is moved. The commands that would move the Job are printed; run them once it has
    written a checkpoint. They need the right to patch the Job and its Workload.

    Without JOB all Jobs of -n are considered, or of all namespaces.

    Exit codes: 0 done, 1 there is no such Job, or the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback advise
      kubectl fallback advise train rayjob/sweep -n team
      kubectl fallback advise -o json
    """
    with connected(scope.access) as client:
        where = scope.here if names else scope.namespace
        snapshot, found = _advised(client, where, names)
    if output in ("json", "yaml"):
        terminal.say(terminal.dump(as_json(found, snapshot.costs.currency), output))
    else:
        terminal.tell(*as_text(found, limit=terminal.columns(output)), output=output)


def _advised(
    client: Client, namespace: str, names: Sequence[str]
) -> tuple[Snapshot, tuple[Advice, ...]]:
    from webhook.api.client import lets_resources_change
    from webhook.commands.deciding import view_of_state
    from webhook.reconsider.choose import by_job
    from webhook.reconsider.offers import ReconsiderInput
    from webhook.state.counted_arrivals import occupancy_of
    from webhook.state.snapshot_file import fetch_state

    ours = release_namespace_of(client, None)
    state = fetch_state(client, namespace=ours)
    view = view_of_state(state, time.time())
    world = ReconsiderInput(
        snapshot=view.snapshot,
        contents={},
        workloads=by_job(state.workloads()),
        now=view.snapshot.as_of,
        unix=view.unix,
        own_namespace=ours,
        changes_resources=lets_resources_change(client.get("/version")),
    )
    jobs = _named(client, namespace, names) if names else _all(client, namespace, view.snapshot)
    return view.snapshot, advice.advise(jobs, world, occupancy_of(view.snapshot, ()))


def _named(client: Client, namespace: str, names: Sequence[str]) -> Iterator[Pending]:
    """Yield the Jobs of these names; end the program if one is not there."""
    for given in references(names):
        kind, name = named(given)
        try:
            yield from _read(client.get(kind.path(namespace, name)), kind)
        except NotServed:
            terminal.say(missing_job(client, kind, namespace, name), err=True)
            sys.exit(1)


def _all(client: Client, namespace: str, snapshot: Snapshot) -> Iterator[Pending]:
    """Yield the Jobs of all kinds of which a policy may advise any."""
    policies = filter(advice.is_advised, snapshot.fallback.policies)
    kinds = dict.fromkeys(name for policy in policies for name in policy.spec.match.kinds)
    for kind in map(BY_NAME.__getitem__, kinds):
        path = kind.path(namespace) if namespace else kind.path()
        try:
            for source in listed(client, path):
                yield from _read(source, kind)
        except NotServed:
            continue


def _read(source: Mapping[str, Any], kind: JobKind) -> Iterator[Pending]:
    from webhook.reconsider.pending_jobs import read_unfinished

    if not advice.can_resume(source["metadata"].get("annotations") or {}):
        return
    try:
        found = read_unfinished(source, kind)
    except FieldError:
        # What cannot be read was never decided.
        return
    if found is not None:
        yield found
