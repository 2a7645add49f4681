"""``release`` starts held Jobs now; ``unfinished`` lists Jobs with a decision before an uninstall.

Both are called by the chart's uninstall, so they must need nothing of what is being removed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed, Refused
from webhook.api.watch import get_by_list
from webhook.commands import terminal
from webhook.commands.decision_table import decision_on, state_of
from webhook.commands.kubectl import (
    FOR_PROGRAMS,
    Scope,
    all_namespaces_option,
    connected,
    listed,
    missing_job,
    named,
    namespace_option,
    output_of_jobs_option,
    references,
    scope_options,
    selector_option,
    with_type,
)
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.holds import is_gated, release_patch, without_ours
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL, reference_of

if TYPE_CHECKING:
    from webhook.api.client import Client

_OVERDUE_SECONDS = 120.0
_TRIES = 3
_KINDS: Final = (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
_STATES: Final = {"pending": "pending", "started": "running"}
_HEADER = ("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE")
_AFTER = """\
They go on as decided, because the decision is in the Jobs themselves. Without the webhook, applying
a manifest again takes a pending Job back to what the manifest says. On a running Job the API server
refuses that change."""


@click.command("release")
@click.argument("names", nargs=-1, metavar="[JOB]...")
@namespace_option
@click.option(
    "--all", "everything", is_flag=True, help="All held Jobs, of -n or of all namespaces."
)
@click.option("--overdue", is_flag=True, help="Held Jobs whose latest start has passed.")
@scope_options
def command(*, names: tuple[str, ...], everything: bool, overdue: bool, scope: Scope) -> None:
    """Start held Jobs: take their gate off, so that Kueue admits them once there is quota.

    \b
    The same with kubectl alone:
      kubectl annotate job -A -l kueue-fallback.dev/held=true kueue.x-k8s.io/admission-gated-by-

    You need the right to list and patch Jobs there.

    Exit codes: 0 all are released, 1 some could not be, or the cluster cannot be asked, 2 nothing
    was named.

    \b
    Examples:
      kubectl fallback release train -n team
      kubectl fallback release --overdue
      kubectl fallback release --all
    """
    if bool(names) == (everything or overdue):
        raise click.UsageError("Name Jobs, or give --all or --overdue.")
    with connected(scope.access) as client:
        if names:
            where = scope.here
            found = [_named(client, where, name) for name in references(names)]
            jobs = [job for job in found if job is not None]
            failed = len(found) - len(jobs)
        else:
            jobs = [
                job for job in _held_jobs(client, scope.namespace) if everything or _is_overdue(job)
            ]
            failed = 0
        failed += sum(not _released(client, job) for job in jobs)
    if not names:
        terminal.say(f"Held Jobs released: {len(jobs) - failed}.")
    sys.exit(1 if failed else 0)


def _path(namespace: str, name: str = "") -> str:
    path = JOB.path(namespace) if namespace else JOB.path()
    return f"{path}/{name}" if name else path


def _named(client: Client, namespace: str, reference: str) -> Mapping[str, Any] | None:
    """Return a held Job; None, and say why: it is not there, or not held."""
    kind, name = named(reference)
    if kind is not JOB:
        terminal.say(f"{reference}: only batch Jobs are ever held.", err=True)
        return None
    job = get_by_list(client, _path(namespace), name)
    if job is None:
        terminal.say(missing_job(client, kind, namespace, name), err=True)
        return None
    if is_gated(_annotations(job)):
        return job
    terminal.say(f"Job {namespace}/{name} is not held by kueue-fallback.", err=True)
    return None


def _held_jobs(client: Client, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield the Jobs that our gate holds, with and without our label."""
    for job in listed(client, _path(namespace)):
        if is_gated(_annotations(job)):
            yield job


def _annotations(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return job["metadata"].get("annotations") or {}


def _is_overdue(job: Mapping[str, Any]) -> bool:
    """Tell whether a Job should have been released; one that does not say when should have."""
    from webhook.flow import decided_job
    from webhook.model.faults import attempted

    read, _ = attempted(lambda: decided_job.read_decided_job({"metadata": job["metadata"]}, JOB))
    hold = read.recorded.hold if read is not None and read.recorded is not None else None
    return hold is None or time.time() > hold.latest + _OVERDUE_SECONDS


def _released(client: Client, job: Mapping[str, Any]) -> bool:
    """Release one Job, say so, and return whether it is.

    A Job that has changed meanwhile is read again.
    """
    metadata = job["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    path = _path(metadata["namespace"], metadata["name"])
    problem = ""
    for _ in range(_TRIES):
        version = str(job["metadata"].get("resourceVersion") or "")
        try:
            client.patch(path, release_patch(version, without_ours(_annotations(job))))
        except NotServed:
            return True
        except Refused as error:
            problem = str(error)
            if not error.is_conflict:
                break
            again = get_by_list(client, _path(metadata["namespace"]), metadata["name"])
            if again is None:
                return True
            job = again
        except ClusterError as error:
            problem = str(error)
            break
        else:
            terminal.say(f"Job {name}: released")
            return True
    terminal.say(f"Job {name}: not released: {problem}", err=True)
    return False


@click.command("unfinished")
@click.option("--release", is_flag=True, help="Start Jobs that are held for a better hour.")
@namespace_option
@all_namespaces_option
@selector_option
@output_of_jobs_option
@scope_options
def unfinished(*, release: bool, selector: str, output: str, scope: Scope) -> None:
    """List unfinished Jobs that carry a decision, in all namespaces or in that of -n.

    The chart runs this before an uninstall, so it never fails. It says what it could not do.

    Exit codes: 0, also if the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback unfinished
      kubectl fallback unfinished -n team -o name
    """
    from webhook.api.client import Client

    try:
        client = Client(scope.access)
        if release:
            _release(client, scope.namespace)
        found = _unfinished(client, scope.namespace, selector)
    except ClusterError as error:
        terminal.say(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    if output == "name":
        for job in found:
            terminal.say(with_type(job["name"]))
    elif output in FOR_PROGRAMS:
        terminal.say(terminal.dump({"jobs": list(found)}, output))
    else:
        _show(found, output)


def _unfinished(client: Client, namespace: str, selector: str) -> Sequence[Mapping[str, str]]:
    """Return the unfinished Jobs of all kinds that carry a decision, the latest first.

    Raises:
        Forbidden: the user may not even list batch Jobs.

    """
    wanted = ",".join(part for part in (OPTION_LABEL, selector) if part)
    found = [job for kind in _KINDS for job in _jobs(client, kind, namespace, wanted)]
    return sorted(found, key=lambda job: job["decided"], reverse=True)


def _jobs(
    client: Client, kind: JobKind, namespace: str, selector: str
) -> Iterator[Mapping[str, str]]:
    """Yield those of a kind; of one that is not there, or not for the user, none."""
    try:
        for job in listed(client, kind.path(namespace), {"labelSelector": selector}):
            state = state_of(job, kind)
            # The pods of a decided Job have its label, from its template, and no decision.
            if state in _STATES and DECISION in (job["metadata"].get("annotations") or {}):
                yield _shown(job, kind, _STATES[state])
    except (Forbidden, NotServed):
        if kind is JOB:
            raise


def _shown(job: Mapping[str, Any], kind: JobKind, state: str) -> Mapping[str, str]:
    metadata, decision = job["metadata"], decision_on(job) or {}
    labels = metadata["labels"]
    return {
        "namespace": metadata["namespace"],
        "name": reference_of(kind.kind, metadata["name"]),
        "policy": str(decision.get("policy", "")),
        "option": labels[OPTION_LABEL],
        "queue": labels.get(QUEUE_LABEL, ""),
        "state": state,
        "decided": str(decision.get("time", "")),
        "reason": str(decision.get("reason", "")),
    }


def _show(found: Sequence[Mapping[str, str]], output: str) -> None:
    if not found:
        terminal.say("No unfinished Job carries a decision.")
        return
    rows = [[job[name.lower()] for name in _HEADER] for job in found]
    terminal.say(*terminal.table(_HEADER, rows, limit=terminal.width(output)))
    terminal.say(f"Unfinished Jobs with a decision: {len(found)}.")
    terminal.tell(_AFTER, output=output)


def _release(client: Client, namespace: str) -> None:
    """Start held Jobs first of all: nobody else will, once the controller is gone."""
    count = sum(_released(client, job) for job in _held_jobs(client, namespace))
    if count:
        terminal.say(f"Held Jobs released: {count}.")
