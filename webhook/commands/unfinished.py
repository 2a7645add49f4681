"""``unfinished``: the Jobs that still carry a decision, to read before an uninstall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed
from webhook.commands import terminal
from webhook.commands.connect import Scope, listed, with_type
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
_STATES: Final = {"pending": "pending", "started": "running"}
_HEADER = ("NAMESPACE", "NAME", "OPTION", "QUEUE", "STATE")
_AFTER = """\
They go on as decided, because the decision is in the Jobs themselves. Without the webhook, applying
a manifest again takes a pending Job back to what the manifest says. On a running Job the API server
refuses that change."""


@click.command("unfinished")
@click.option("--release", is_flag=True, help="Start Jobs that are held for a better hour.")
@namespace_option
@all_namespaces_option
@selector_option
@output_of_jobs_option
@scope_options
def command(*, release: bool, selector: str, output: str, scope: Scope) -> None:
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
        unfinished = _unfinished(client, scope.namespace, selector)
    except ClusterError as error:
        terminal.say(f"The unfinished Jobs with a decision could not be listed: {error}", err=True)
        return
    if output == "name":
        for job in unfinished:
            terminal.say(with_type(job["name"]))
    elif output in FOR_PROGRAMS:
        terminal.say(terminal.dump({"jobs": list(unfinished)}, output))
    else:
        _show(unfinished, output)


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


def _show(unfinished: Sequence[Mapping[str, str]], output: str) -> None:
    if not unfinished:
        terminal.say("No unfinished Job carries a decision.")
        return
    rows = [[job[name.lower()] for name in _HEADER] for job in unfinished]
    terminal.say(*terminal.table(_HEADER, rows, limit=terminal.width(output)))
    terminal.say(f"Unfinished Jobs with a decision: {len(unfinished)}.")
    terminal.tell(_AFTER, output=output)


def _release(client: Client, namespace: str) -> None:
    """Start held Jobs first of all: nobody else will, once the controller is gone."""
    from webhook.commands.release import held_jobs, released

    count = sum(released(client, job) for job in held_jobs(client, namespace))
    if count:
        terminal.say(f"Held Jobs released: {count}.")
