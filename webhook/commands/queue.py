"""``queue``: who waits in which ClusterQueue, at which position, and when each is to start.

A user who may see Jobs and no ClusterQueues is told what was forecast, which stands on the Jobs.
Where Kueue serves it, its visibility API has the positions.
https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/pending_workloads_on_demand/
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed
from webhook.commands import terminal
from webhook.commands.decision_table import decision_on, state_of, unix_of
from webhook.commands.kubectl import (
    FOR_PROGRAMS,
    Scope,
    all_namespaces_option,
    connected,
    listed,
    missing_job,
    named,
    namespace_option,
    one_reference,
    output_of_jobs_option,
    release_namespace_of,
    scope_options,
    with_type,
)
from webhook.jobs import JOB, JobKind
from webhook.model.fields import FieldError
from webhook.model.forecasts import ExpectedStart, read_expected_start
from webhook.model.job import QUEUE_LABEL, reference_of
from webhook.model.words import span

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.state.state import State
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
_TOLD_HEADER: Final = ("NAMESPACE", "JOB", "LOCALQUEUE", "POSITION", "WAITS", "STARTS", "AS OF")
RESTRICTED: Final = (
    "You may not list ClusterQueues: starts are as they stand on the Jobs, not forecast anew. "
    "Ask your admin for the right to list ClusterQueues and Workloads, or for the address of the "
    "console."
)
_VISIBILITY: Final = "/apis/visibility.kueue.x-k8s.io"


@click.command("queue")
@click.argument("job", metavar="[JOB]", nargs=-1, callback=one_reference)
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

    state = read_state(snapshot)
    # A saved state is as old as the last event in it; by the clock, all would have waited on.
    unix = float(state.newest()) or time.time()
    namespace = scope.namespace or "default"
    if scope.is_everywhere and not job:
        namespace = ""

    def why_not(kind: JobKind, name: str) -> str:
        return f"{kind.kind} {namespace}/{name} does not wait there."

    _show(state, unix, job, namespace, output=output, why_not=why_not)


def _live(job: str, scope: Scope, output: str) -> None:
    """Show a Job of the cluster, or all that wait in it."""
    from webhook.state.snapshot_file import fetch_state

    with connected(scope.access) as client:
        namespace = scope.here if job else scope.listed
        try:
            state = fetch_state(client, namespace=release_namespace_of(client, None))
        except Forbidden:
            _as_told(client, job, scope, output)
            return

        def why_not(kind: JobKind, name: str) -> str:
            return _why_not(client, kind, namespace, name)

        _show(state, time.time(), job, namespace, output=output, why_not=why_not)


def _show(
    state: State,
    unix: float,
    job: str,
    namespace: str,
    *,
    output: str,
    why_not: Callable[[JobKind, str], str],
) -> None:
    """Show a Job, or all that wait in *namespace*; *unix* is now, in seconds since 1970."""
    from webhook.state.waiting_line import all_waiting

    waiting = all_waiting(state, state.snapshot(0.0, unix), unix)
    if not job:
        _say_all(namespace, waiting, unix, output)
        return
    kind, name = named(job)
    key = f"{namespace}/{reference_of(kind.kind, name)}"
    found = [each for each in waiting if each.key == key]
    if not found:
        terminal.say(why_not(kind, name), err=True)
        sys.exit(1)
    _say_one(found, unix, output)


def _as_told(client: Client, job: str, scope: Scope, output: str) -> None:
    """Show what stands on the Jobs, to a user who may not see ClusterQueues."""
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
        found: Sequence[ToldStart] = [told_start(client, stored, kind)]
    else:
        found = told_starts(client, scope.listed)
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
        terminal.say(*terminal.table(_TOLD_HEADER, rows, limit=limit))
    else:
        terminal.say("No pending Jobs there.")
    terminal.tell(RESTRICTED, output=output, err=True)


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


def _say_all(namespace: str, waiting: Sequence[WaitingWorkload], unix: float, output: str) -> None:
    chosen = [each for each in waiting if namespace in ("", each.workload.namespace)]
    if output in FOR_PROGRAMS:
        terminal.say(_dumped(chosen, output))
        return
    if not chosen:
        terminal.say(_nobody(namespace, len(waiting)))
        return
    rows = [_row(each, unix) for each in chosen]
    terminal.say(*terminal.table(_HEADER, rows, limit=terminal.width(output), spare=_SPARE))
    if not all(each.start.is_known for each in chosen):
        terminal.say("\nWhat a guess rests on: kubectl fallback queue JOB")


def _say_one(found: Sequence[WaitingWorkload], unix: float, output: str) -> None:
    if output in FOR_PROGRAMS:
        terminal.say(_dumped(found, output))
        return
    for each in found:
        workload = each.workload
        name = workload.name if len(found) > 1 else workload.job or workload.name
        terminal.say(terminal.strong(f"{workload.namespace}/{name}"))
        terminal.tell(*sentences(each, unix), output=output)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStart:
    """A pending Job with what its owner may know."""

    namespace: str
    job: str
    """Its reference, with the kind."""
    queue: str
    created: float
    start: ExpectedStart | None
    """None: nothing was forecast for it."""
    position: int
    """In its ClusterQueue, 1: the first; 0: not known."""

    def figures(self) -> dict[str, Any]:
        """Return what is known as JSON has it, with the keys of a fresh forecast."""
        start = self.start
        return {
            "namespace": self.namespace,
            "job": self.job,
            "localQueue": self.queue,
            "clusterQueue": start.cluster_queue if start else "",
            "created": self.created,
            "position": self.position or None,
            "startsAt": start.at if start else None,
            "asOf": start.as_of if start else None,
        }

    def row(self, unix: float) -> tuple[str, ...]:
        start = self.start
        return (
            self.namespace,
            self.job,
            self.queue,
            str(self.position) if self.position else "-",
            span(max(0.0, unix - self.created)),
            "not known" if start is None else _starts(start, unix),
            "-" if start is None else f"{span(max(0.0, unix - start.as_of))} ago",
        )

    def sentences(self, unix: float) -> list[str]:
        """Say of this Job where it waits and when it was expected to start."""
        since = f"pending for {span(max(0.0, unix - self.created))}"
        place = f"Position {self.position} in its ClusterQueue" if self.position else "It waits"
        lines = [f"{place}, in LocalQueue {self.queue or '-'}, {since}."]
        if self.start is None:
            return [*lines, "Nothing was forecast for it."]
        ago = f"as forecast {span(max(0.0, unix - self.start.as_of))} ago"
        return [*lines, f"Expected to start: {_starts(self.start, unix)}, {ago}."]


def _starts(start: ExpectedStart, unix: float) -> str:
    return "any moment" if start.at <= unix else f"in {span(start.at - unix)}"


def told_start(client: Client, job: Mapping[str, Any], kind: JobKind) -> ToldStart:
    """Return what stands on a pending Job, and its position if the user may ask Kueue for it."""
    (told,) = _with_positions(client, [_told(job, kind)])
    return told


def told_starts(client: Client, namespace: str) -> Sequence[ToldStart]:
    """Return the pending batch Jobs of a namespace that name a queue, the oldest first.

    Raises:
        Forbidden: the user may not list them either.

    """
    waiting = [
        _told(job, JOB)
        for job in listed(client, JOB.path(namespace), {"labelSelector": QUEUE_LABEL})
        if state_of(job, JOB) == "pending"
    ]
    return sorted(_with_positions(client, waiting), key=lambda told: told.created)


def _told(job: Mapping[str, Any], kind: JobKind) -> ToldStart:
    metadata = job["metadata"]
    return ToldStart(
        namespace=metadata["namespace"],
        job=reference_of(kind.kind, metadata["name"]),
        queue=(metadata.get("labels") or {}).get(QUEUE_LABEL, ""),
        created=unix_of(str(metadata.get("creationTimestamp"))) or 0.0,
        start=read_expected_start(metadata.get("annotations") or {}) or _as_decided(job),
        position=0,
    )


def _as_decided(job: Mapping[str, Any]) -> ExpectedStart | None:
    """Return the start that was expected when the Job was decided, where it is now."""
    decision = decision_on(job) or {}
    decided = unix_of(str(decision.get("time")))
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    options = decision.get("options")
    for option in options if isinstance(options, list) else ():
        if not isinstance(option, dict) or option.get("queue") != queue or decided is None:
            continue
        wait, cluster_queue = option.get("startsIn"), option.get("clusterQueue")
        if isinstance(wait, int | float):
            return ExpectedStart(
                at=decided + wait, as_of=decided, cluster_queue=str(cluster_queue or "")
            )
    return None


def _with_positions(client: Client, waiting: Sequence[ToldStart]) -> Iterator[ToldStart]:
    positions: dict[tuple[str, str], int] = {}
    if waiting and (version := _served(client)):
        for namespace, queue in {(told.namespace, told.queue) for told in waiting if told.queue}:
            positions |= _positions(client, version, namespace, queue)
    for told in waiting:
        start = told.start
        known = start.position if start is not None else 0
        position = positions.get((told.namespace, told.job), known)
        yield replace(told, position=position)


def _served(client: Client) -> str:
    """Return the version of Kueue's visibility API; empty: this user cannot ask it."""
    try:
        group = client.get(_VISIBILITY)
    except ClusterError:
        return ""
    return str((group.get("preferredVersion") or {}).get("version") or "")


def _positions(
    client: Client, version: str, namespace: str, queue: str
) -> dict[tuple[str, str], int]:
    place = f"namespaces/{quote(namespace, safe='')}/localqueues/{quote(queue, safe='')}"
    try:
        summary = client.get(f"{_VISIBILITY}/{version}/{place}/pendingworkloads")
    except ClusterError:
        return {}
    found: dict[tuple[str, str], int] = {}
    for item in summary.get("items") or ():
        # Kueue counts from 0.
        position = 1 + item.get("positionInClusterQueue", 0)
        for owner in item["metadata"].get("ownerReferences") or ():
            found[namespace, reference_of(owner["kind"], owner["name"])] = position
    return found
