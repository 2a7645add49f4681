"""``release``: starts held Jobs now, with the user's own rights.

The webhook's uninstall calls it for all of them, so it must need nothing of what is being removed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from webhook.api.kubernetes_api import ClusterError, NotServed, Refused
from webhook.commands import terminal
from webhook.commands.connect import (
    Scope,
    connected,
    listed,
    missing_job,
    named,
    references,
)
from webhook.commands.kubectl_flags import namespace_option, scope_options
from webhook.jobs import JOB
from webhook.model.holds import is_gated, release_patch, without_ours

if TYPE_CHECKING:
    from webhook.api.client import Client

_OVERDUE_SECONDS = 120.0
_TRIES = 3


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
                job for job in held_jobs(client, scope.namespace) if everything or _is_overdue(job)
            ]
            failed = 0
        failed += sum(not released(client, job) for job in jobs)
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
    job = _found(client, namespace, name)
    if job is None:
        terminal.say(missing_job(client, kind, namespace, name), err=True)
        return None
    if is_gated(_annotations(job)):
        return job
    terminal.say(f"Job {namespace}/{name} is not held by kueue-fallback.", err=True)
    return None


def _found(client: Client, namespace: str, name: str) -> Mapping[str, Any] | None:
    """Return a Job, by the right to list Jobs; None: it is not there."""
    params = {"fieldSelector": f"metadata.name={name}"}
    items = client.get(_path(namespace), params).get("items") or ()
    return next((job for job in items if job["metadata"]["name"] == name), None)


def held_jobs(client: Client, namespace: str) -> Iterator[Mapping[str, Any]]:
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


def released(client: Client, job: Mapping[str, Any]) -> bool:
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
            again = _found(client, metadata["namespace"], metadata["name"])
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
