"""``list``: the Jobs that carry a decision, where each went, and what became of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.api.watch import list_pages
from webhook.commands import terminal
from webhook.commands.connect import connected, namespace_or_current
from webhook.commands.decision_table import decision_on, state_of
from webhook.commands.kubectl_flags import (
    all_namespaces_option,
    connection_options,
    namespace_option,
    output_option,
    selector_option,
)
from webhook.jobs import JOB, KINDS, JobKind
from webhook.model.job import OPTION_LABEL, QUEUE_LABEL, reference_of

if TYPE_CHECKING:
    from webhook.api.client import Client

_KINDS: Final = (JOB, *(kind for kind in KINDS.values() if kind is not JOB))
_HEADER: Final = ("NAMESPACE", "NAME", "POLICY", "OPTION", "QUEUE", "STATE", "DECIDED", "REASON")


@click.command("list", short_help="List Jobs that carry a decision.")
@namespace_option
@all_namespaces_option
@selector_option
@output_option
@connection_options
def command(
    *,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    output: str,
    access: ClusterAccess,
) -> None:
    """List the Jobs that carry a decision: policy, option, queue, state, time and reason.

    Jobs of all kinds are listed, the latest decision first. You need the right to list Jobs;
    other kinds that you may not list are left out.

    \b
    Exit codes: 0 done, also if there is none; 3 the cluster cannot be reached or forbids it.

    \b
    Examples:
      kubectl fallback list
      kubectl fallback list -A -l team=ml
      kubectl fallback list -o json | jq -r '.jobs[] | select(.state == "pending") | .name'
    """
    with connected(access) as client:
        where = "" if all_namespaces else namespace_or_current(namespace, access)
        wanted = ",".join(part for part in (OPTION_LABEL, selector) if part)
        found = [job for kind in _KINDS for job in _jobs(client, kind, where, wanted)]
    found.sort(key=lambda job: job["decided"], reverse=True)
    if output in ("json", "yaml"):
        terminal.say(terminal.dump({"jobs": found}, output))
        return
    if not found:
        place = f"in namespace {where}" if where else "in any namespace"
        terminal.say(f"No Job {place} carries a decision.", err=True)
        sys.exit(0)
    header = _HEADER if all_namespaces else _HEADER[1:]
    rows = [_row(job, is_everywhere=all_namespaces) for job in found]
    for line in terminal.table(header, rows, limit=terminal.width(output)):
        terminal.say(line)


def _jobs(
    client: Client, kind: JobKind, namespace: str, selector: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the decided Jobs of a kind; of one that is not there, or not for the user, none."""
    path = kind.path(namespace) if namespace else kind.path()
    try:
        for page in list_pages(client, path, {"labelSelector": selector}):
            for job in page.get("items") or ():
                yield _shown(job, kind)
    except (Forbidden, NotServed):
        if kind is JOB:
            raise


def _shown(job: Mapping[str, Any], kind: JobKind) -> Mapping[str, Any]:
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


def _row(job: Mapping[str, Any], *, is_everywhere: bool) -> Sequence[str]:
    names = ("name", "policy", "option", "queue", "state", "decided", "reason")
    return [job[name] for name in (("namespace", *names) if is_everywhere else names)]
