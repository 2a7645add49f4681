"""``queue``: who waits in which ClusterQueue, at which position, and when each is to start."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from webhook.commands import completion, terminal
from webhook.commands.connect import (
    Scope,
    connected,
    missing_job,
    named,
    one_reference,
    release_namespace_of,
    with_type,
)
from webhook.commands.kubectl_flags import (
    FOR_PROGRAMS,
    all_namespaces_option,
    namespace_option,
    output_of_jobs_option,
    scope_options,
)
from webhook.model.fields import FieldError
from webhook.model.job import reference_of
from webhook.model.words import span

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.commands.told_starts import ToldStart
    from webhook.jobs import JobKind
    from webhook.state.waiting_line import WaitingWorkload

_HEADER: Final = (
    "NAMESPACE",
    "JOB",
    "CLUSTERQUEUE",
    "POSITION",
    "WAITS",
    "STARTS",
    "WITHIN",
    "SURE",
)

_SPARE: Final = ("SURE", "WITHIN", "WAITS", "CLUSTERQUEUE")
"""Left out where a terminal is too narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """The pending Workloads, and the present time in seconds since 1970."""

    waiting: Sequence[WaitingWorkload]
    unix: float

    def of(self, namespace: str, reference: str) -> Sequence[WaitingWorkload]:
        """Return the Workloads of a Job that wait; most Jobs have one."""
        return [each for each in self.waiting if each.key == f"{namespace}/{reference}"]


@click.command("queue")
@click.argument(
    "job", metavar="[JOB]", nargs=-1, callback=one_reference, shell_complete=completion.jobs
)
@namespace_option
@all_namespaces_option
@click.option("--snapshot", metavar="FILE", help="A saved state, as `explain` takes it.")
@output_of_jobs_option
@scope_options
def command(*, job: str, snapshot: str | None, output: str, scope: Scope) -> None:
    """Show pending Jobs in Kueue's order, and when each is expected to start.

    With JOB, a name or a type and a name, you see one Job, and what its time is based on. Nothing
    is changed. Times come from the forecasts that decisions use. About 80 % of Jobs start in the
    range of WITHIN.

    You need the right to list ClusterQueues and Workloads. Without it you see of the Jobs of your
    namespace what stands on them: when they were last expected to start, and as of when. Kueue's
    visibility API adds their positions, if it is served and you may ask it. The console forecasts
    anew also for you: docs/quota-api.md.

    Exit codes: 0 done, 1 there is no such Job, it does not wait, or the cluster cannot be asked,
    2 a file is wrong.

    \b
    Examples:
      kubectl fallback queue
      kubectl fallback queue train -n team
      kubectl fallback queue rayjob train
      kubectl fallback queue -A -o json
      kubectl fallback queue -A --snapshot snapshot.json
    """
    try:
        if snapshot is not None:
            _of_file(snapshot, job, scope, output)
        else:
            _live(job, scope, output)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)


def _of_file(snapshot: str, job: str, scope: Scope, output: str) -> None:
    """Show a Job of a saved state, or all that wait in it."""
    from webhook.state.snapshot_file import read_state
    from webhook.state.waiting_line import all_waiting

    state = read_state(snapshot)
    unix = float(state.newest()) or time.time()
    view = LineView(waiting=all_waiting(state, state.snapshot(0.0, unix), unix), unix=unix)
    namespace = scope.namespace or "default"
    if not job:
        _say_all("" if scope.is_everywhere else namespace, view, output)
        return
    kind, name = named(job)
    found = view.of(namespace, reference_of(kind.kind, name))
    if not found:
        terminal.say(f"{kind.kind} {namespace}/{name} does not wait there.", err=True)
        sys.exit(1)
    _say_one(found, view, output)


def _live(job: str, scope: Scope, output: str) -> None:
    """Show a Job of the cluster, or all that wait in it."""
    from webhook.api.kubernetes_api import Forbidden

    with connected(scope.access) as client:
        namespace = scope.here
        try:
            view = line_of_cluster(client)
        except Forbidden:
            _as_told(client, job, scope, output)
            return
        if not job:
            _say_all(scope.listed, view, output)
            return
        kind, name = named(job)
        found = view.of(namespace, reference_of(kind.kind, name))
        if not found:
            terminal.say(_why_not(client, kind, namespace, name), err=True)
            sys.exit(1)
        _say_one(found, view, output)


def _as_told(client: Client, job: str, scope: Scope, output: str) -> None:
    """Show what stands on the Jobs, to a user who may not see ClusterQueues."""
    from webhook.api.kubernetes_api import NotServed
    from webhook.commands import told_starts
    from webhook.commands.decision_table import state_of

    namespace, unix = scope.here, time.time()
    if job:
        kind, name = named(job)
        try:
            stored = client.get(kind.path(namespace, name))
        except NotServed:
            stored = {}
        if not stored or state_of(stored, kind) != "pending":
            terminal.say(_why_not(client, kind, namespace, name), err=True)
            sys.exit(1)
        found: Sequence[ToldStart] = [told_starts.of_job(client, stored, kind)]
    else:
        found = told_starts.of_jobs(client, scope.listed)
    if output == "name":
        terminal.say("\n".join(with_type(told.job) for told in found))
        return
    if output in FOR_PROGRAMS:
        terminal.say(terminal.dump({"workloads": [told.figures() for told in found]}, output))
        return
    if job:
        terminal.say(terminal.strong(f"{namespace}/{found[0].job}"))
        terminal.tell(*found[0].sentences(unix), output=output)
    elif found:
        rows = [told.row(unix) for told in found]
        limit = terminal.width(output)
        terminal.say(*terminal.table(told_starts.HEADER, rows, limit=limit))
    else:
        terminal.say("No pending Jobs there.")
    terminal.tell(told_starts.RESTRICTED, output=output, err=True)


def line_of_cluster(client: Client) -> LineView:
    """List the cluster's state, and return who waits in it.

    Raises:
        Forbidden: the user may not list something that forecasts need.

    """
    from webhook.state.snapshot_file import fetch_state
    from webhook.state.waiting_line import all_waiting

    state = fetch_state(client, namespace=release_namespace_of(client, None))
    unix = time.time()
    return LineView(waiting=all_waiting(state, state.snapshot(0.0, unix), unix), unix=unix)


def sentences(waiting: WaitingWorkload, unix: float) -> list[str]:
    """Say of one Workload where it stands, when it starts, and what that rests on.

    *unix*: the time that it is, in seconds since 1970.
    """
    start = waiting.start
    place = f"Position {waiting.position} of {waiting.pending} in {waiting.cluster_queue}"
    since = f"pending for {span(max(0.0, unix - waiting.workload.created))}"
    within = start.range_words
    lines = [f"{place}, priority {waiting.workload.priority}, {since}."]
    if waiting.until > unix:
        lines.append(f"It was evicted, and is tried again in {span(waiting.until - unix)}.")
    range_text = f", within {within} in 80 % of cases" if within else ""
    lines.append(f"Expected to start: {start.words}{range_text}.")
    rests = start.doubts
    if rests:
        lines += ["It rests on this:", *(f"  - {reason}" for reason in rests)]
    return lines


def _why_not(client: Client, kind: JobKind, namespace: str, name: str) -> str:
    """Say why a Job is in no line: it is not there, or Kueue does not queue it."""
    from webhook.api.kubernetes_api import NotServed
    from webhook.commands.decision_table import state_of

    try:
        job = client.get(kind.path(namespace, name))
    except NotServed:
        return missing_job(client, kind, namespace, name)
    state = state_of(job, kind)
    if state != "pending":
        return f"{kind.kind} {namespace}/{name} does not wait: it is {state}."
    return (
        f"{kind.kind} {namespace}/{name} is suspended, but none of its Workloads waits in a "
        "ClusterQueue: its LocalQueue is missing or stopped, or the Workload is not active."
    )


def _nobody(namespace: str, elsewhere: int) -> str:
    if not namespace:
        return "No pending Jobs."
    others = f"; {elsewhere} in others: -A" if elsewhere else ""
    return f"No pending Jobs in namespace {namespace}{others}."


def _say_all(namespace: str, view: LineView, output: str) -> None:
    chosen = [each for each in view.waiting if namespace in ("", each.workload.namespace)]
    if output in FOR_PROGRAMS:
        terminal.say(_dumped(chosen, output))
        return
    if not chosen:
        terminal.say(_nobody(namespace, len(view.waiting)))
        return
    rows = [_row(each, view.unix) for each in chosen]
    terminal.say(*terminal.table(_HEADER, rows, limit=terminal.width(output), spare=_SPARE))
    if not all(each.start.is_known for each in chosen):
        terminal.say("\nWhat a guess rests on: kubectl fallback queue JOB")


def _say_one(found: Sequence[WaitingWorkload], view: LineView, output: str) -> None:
    if output in FOR_PROGRAMS:
        terminal.say(_dumped(found, output))
        return
    for each in found:
        workload = each.workload
        name = workload.name if len(found) > 1 else workload.job or workload.name
        terminal.say(terminal.strong(f"{workload.namespace}/{name}"))
        terminal.tell(*sentences(each, view.unix), output=output)


def _dumped(waiting: Sequence[WaitingWorkload], output: str) -> str:
    if output == "name":
        return "\n".join(with_type(each.workload.job or each.workload.name) for each in waiting)
    return terminal.dump({"workloads": [each.figures() for each in waiting]}, output)


def _row(waiting: WaitingWorkload, unix: float) -> tuple[str, ...]:
    workload, start = waiting.workload, waiting.start
    return (
        workload.namespace,
        workload.job or workload.name,
        waiting.cluster_queue,
        f"{waiting.position} of {waiting.pending}",
        span(max(0.0, unix - workload.created)),
        start.words,
        start.range_words,
        "yes" if start.is_known else "a guess",
    )
