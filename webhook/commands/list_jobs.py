"""``list``: the Jobs that carry a decision, where each went, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.commands import terminal
from webhook.commands.connect import Scope, connected, listed, with_type
from webhook.commands.decision_table import decision_on, state_of
from webhook.commands.kubectl_flags import (
    FOR_PROGRAMS,
    all_namespaces_option,
    namespace_option,
    output_of_jobs_option,
    scope_options,
    selector_option,
)
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL, reference_of

if TYPE_CHECKING:
    from webhook.api.client import Client

_KINDS: Final = (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
_HEADER: Final = ("NAMESPACE", "NAME", "POLICY", "OPTION", "QUEUE", "STATE", "DECIDED", "REASON")


@click.command("list")
@namespace_option
@all_namespaces_option
@selector_option
@output_of_jobs_option
@scope_options
def command(*, selector: str, output: str, scope: Scope) -> None:
    """List the Jobs that carry a decision, with policy, option, queue, state, time and reason.

    The latest decision comes first. You need the right to list Jobs. Jobs of other kinds are
    listed if you may list them.

    Exit codes: 0 done, also if there is none, 1 the cluster cannot be asked.

    \b
    Examples:
      kubectl fallback list
      kubectl fallback list -A -l team=ml
      kubectl fallback list -l team=ml -o name | xargs -n1 kubectl fallback undo
      kubectl fallback list -o json | jq -r '.jobs[] | select(.state == "pending") | .name'
    """
    with connected(scope.access) as client:
        where = scope.listed
        found = decided_jobs(client, where, selector)
    if output in FOR_PROGRAMS:
        say_for_programs(found, output)
        return
    if not found:
        place = f"in namespace {where}" if where else "in any namespace"
        terminal.say(f"No Job {place} carries a decision.", err=True)
        return
    header = _HEADER if scope.is_everywhere else _HEADER[1:]
    rows = [_row(job, is_everywhere=scope.is_everywhere) for job in found]
    terminal.say(*terminal.table(header, rows, limit=terminal.width(output)))


def decided_jobs(client: Client, namespace: str, selector: str) -> Sequence[Mapping[str, str]]:
    """Return the Jobs of all kinds that carry a decision, the latest first.

    Of kinds that are not there, or not for the user, there are none.

    Raises:
        Forbidden: the user may not even list batch Jobs.

    """
    wanted = ",".join(part for part in (OPTION_LABEL, selector) if part)
    found = [job for kind in _KINDS for job in _jobs(client, kind, namespace, wanted)]
    return sorted(found, key=lambda job: job["decided"], reverse=True)


def say_for_programs(jobs: Sequence[Mapping[str, str]], output: str) -> None:
    """Print Jobs as JSON or YAML, or type and name of each as kubectl does."""
    if output != "name":
        terminal.say(terminal.dump({"jobs": list(jobs)}, output))
        return
    for job in jobs:
        terminal.say(with_type(job["name"]))


def _jobs(
    client: Client, kind: JobKind, namespace: str, selector: str
) -> Iterator[Mapping[str, str]]:
    """Yield the decided Jobs of a kind; of one that is not there, or not for the user, none."""
    try:
        for job in listed(client, kind.path(namespace), {"labelSelector": selector}):
            # The pods of a decided Job have its label, from its template, and no decision.
            if DECISION in (job["metadata"].get("annotations") or {}):
                yield _shown(job, kind)
    except (Forbidden, NotServed):
        if kind is JOB:
            raise


def _shown(job: Mapping[str, Any], kind: JobKind) -> Mapping[str, str]:
    metadata, decision = job["metadata"], decision_on(job) or {}
    labels = metadata["labels"]
    return {
        "namespace": metadata["namespace"],
        "name": reference_of(kind.kind, metadata["name"]),
        "policy": str(decision.get("policy", "")),
        "option": labels[OPTION_LABEL],
        "queue": labels.get(QUEUE_LABEL, ""),
        "state": state_of(job, kind),
        "decided": str(decision.get("time", "")),
        "reason": str(decision.get("reason", "")),
    }


def _row(job: Mapping[str, str], *, is_everywhere: bool) -> Sequence[str]:
    names = ("name", "policy", "option", "queue", "state", "decided", "reason")
    return [job[name] for name in (("namespace", *names) if is_everywhere else names)]
