"""``explain``: the decision on a manifest or an existing Job, by the very function of admission."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.commands import completion, deciding, decision_table, terminal
from webhook.commands.connect import (
    connected,
    missing_job,
    named,
    namespace_or_current,
    references,
)
from webhook.commands.decision_table import state_of, table
from webhook.commands.kubectl_flags import connection_options, namespace_option, output_option
from webhook.commands.queue import sentences
from webhook.decide import decision_record
from webhook.decide.wishes import DEADLINE, read_wishes
from webhook.jobs import BY_NAME, kind_of
from webhook.model.fields import EMPTY, FieldError
from webhook.model.job import DECISION, PLAIN, reference_of

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.commands.deciding import DecidingView
    from webhook.commands.manifest import ManifestObject
    from webhook.model.decision import CreateOutcome
    from webhook.model.requester import Requester


_NOTHING = "No decision stands on it: no policy matched, or its mode was Observe."
_UNREADABLE = "Its decision cannot be read."
_INDENT = "  "


def explained(
    client: Client,
    namespace: str,
    name: str,
    *,
    policies: tuple[str, ...],
    output: str,
    requester: Requester | None = None,
) -> str:
    """Return the explanation of one Job; end the program if it does not exist.

    *requester* is who is taken to create it; None: who asks now.
    """
    kind, name = named(name)
    try:
        job = client.get(kind.path(namespace, name))
    except NotServed:
        terminal.say(missing_job(client, kind, namespace, name), err=True)
        sys.exit(1)
    decision, undone = decision_table.decision_on(job), decision_table.undone_on(job)
    now: CreateOutcome | str
    waits: list[str] = []
    extra: dict[str, Any] = {"undone": undone} if undone else {}
    mismatches: Mapping[str, str] = EMPTY
    try:
        place = namespace, reference_of(kind.kind, job["metadata"]["name"])
        view = deciding.view_of_cluster(client, policies, without_job=place)
        view = deciding.asked_by(view, requester, client)
        waits = [text for each in view.waiting for text in sentences(each, view.unix)]
        extra |= {"waiting": [each.figures() for each in view.waiting]} if view.waiting else {}
        now = deciding.consider_manifest(as_if_created(job, view.unix), view)
        mismatches = deciding.mismatches(job, now, view)
        for hint in deciding.hints(job, view):
            terminal.say(hint, err=True)
    except Forbidden as error:
        now = str(error)
    except FieldError as error:
        now = f"it cannot be read: {error}"
    if output in ("json", "yaml"):
        answer = _as_json(job, decision, now, mismatches)
        return terminal.dump({**answer, **extra}, output)
    if isinstance(now, str):
        shown = f"Not known: {now}."
    else:
        shown = table(now, terminal.columns(output), mismatches)
    return "\n".join(_as_text(job, decision, waits, shown, output))


def as_if_created(job: Mapping[str, Any], unix: float) -> Mapping[str, Any]:
    """Return a Job as if created at *unix*: what is left of its deadline stays the same."""
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    if DEADLINE not in annotations:
        return job
    created = decision_table.unix_of(str(metadata.get("creationTimestamp"))) or unix
    try:
        seconds = read_wishes({DEADLINE: annotations[DEADLINE]}, created).deadline or 0.0
    except FieldError:
        # Deciding reports what is wrong with it.
        return job
    deadline = datetime.fromtimestamp(created + seconds, UTC).isoformat()
    return {**job, "metadata": {**metadata, "annotations": {**annotations, DEADLINE: deadline}}}


def _as_json(
    job: Mapping[str, Any],
    decision: Mapping[str, Any] | None,
    now: CreateOutcome | str,
    mismatches: Mapping[str, str],
) -> Mapping[str, Any]:
    metadata = job["metadata"]
    return {
        "job": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            **({} if kind_of(job).kind == PLAIN else {"kind": kind_of(job).kind}),
            "state": state_of(job, kind_of(job)),
        },
        "decided": decision,
        "now": {"unknown": now} if isinstance(now, str) else _outcome_json(now, mismatches),
    }


def _outcome_json(outcome: CreateOutcome, mismatches: Mapping[str, str]) -> dict[str, Any]:
    answer = decision_record.outcome_json(outcome)
    return {**answer, "mismatches": dict(mismatches)} if mismatches else answer


def _as_text(
    job: Mapping[str, Any],
    decision: Mapping[str, Any] | None,
    waits: Sequence[str],
    now: str,
    output: str,
) -> list[str]:
    metadata = job["metadata"]
    kind = kind_of(job).kind
    lines = [
        f"{kind} {metadata['namespace']}/{metadata['name']}: {state_of(job, kind_of(job))}.",
        *waits,
        "",
    ]
    if decision is None:
        has_one = DECISION in (metadata.get("annotations") or {})
        lines.append(_UNREADABLE if has_one else decision_table.undone_on(job) or _NOTHING)
    else:
        lines.append(terminal.strong(f"Decided {decision_table.when(decision)}"))
        lines += decision_table.as_text(decision, terminal.width(output))
        lines += _diff("It changed:", deciding.changed(job), output)
    lines += ["", terminal.strong("If you submitted it again now:")]
    return [*lines, now]


def _diff(title: str, changes: Sequence[str], output: str) -> list[str]:
    """Return a part that shows what is changed; none if nothing is."""
    tones = {"-": "refused", "+": "accepted"}
    width = terminal.columns(output) - len(_INDENT)
    painted = [
        _INDENT + terminal.tinted(part, like=tones[line[0]])
        for line in changes
        for part in textwrap.wrap(
            terminal.harmless(line), width, subsequent_indent="    ", break_on_hyphens=False
        )
    ]
    return ["", terminal.strong(title), *painted] if changes else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExplainOptions:
    names: tuple[str, ...]
    file: str | None
    policies: tuple[str, ...]
    snapshot: str | None
    namespace: str | None
    output: str
    access: ClusterAccess

    @property
    def requester(self) -> Requester | None:
        """Return who is taken to create the Job; None: who asks."""
        from webhook.model.requester import Requester

        if not self.access.user:
            return None
        return Requester(name=self.access.user, groups=frozenset(self.access.groups))

    @property
    def own_access(self) -> ClusterAccess:
        """Return how the cluster is read: by one's own rights, whoever creates the Job."""
        return self.access.as_oneself()


@click.command("explain", short_help="Say what was or would be decided for a Job, and why.")
@click.argument("names", metavar="[JOB]...", nargs=-1, shell_complete=completion.jobs)
@click.option("-f", "--filename", "file", metavar="FILE", help="A Job's manifest, or -: stdin.")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Only these policies.")
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@namespace_option
@output_option
@connection_options
def command(**given: Any) -> None:
    """Show why a Job goes where it goes: every option with its numbers. Nothing is changed.

    For a JOB of the cluster you see its recorded decision, and what would be decided if you
    submitted it again now. With -f a manifest is decided as admission would decide it. If you may
    not list ClusterQueues, you see the Job's recorded decision; a manifest is sent to the webhook
    as a dry run.

    With --as a Job is decided as if that user created it. The queues are read with your own
    rights, so you need no right to impersonate.

    A snapshot is what this prints:

    \b
      kubectl get clusterqueues,localqueues,cohorts,resourceflavors,workloads,\\
        fallbackpolicies,namespaces -A -o json

    With MultiKueue also admissionchecks,multikueueconfigs,multikueueclusters.

    \b
    Exit codes: 0 done, 1 there is no such Job or the API server refuses it, 2 a file is wrong,
    3 the cluster cannot be reached or forbids it.

    \b
    Examples:
      kubectl fallback explain train -n team
      kubectl fallback explain rayjob/train -n team
      kubectl fallback explain jobs train sweep
      kubectl fallback explain -f job.yaml
      kubectl fallback explain -f job.yaml --snapshot snapshot.json --policy policy.yaml
      kubectl fallback explain -f job.yaml --as alice --as-group ml-research
      kubectl get job train -o yaml | kubectl fallback explain -f - -o json
    """
    asked = _ExplainOptions(**given)
    if bool(asked.names) == (asked.file is not None):
        raise click.UsageError("Give the name of a Job, or a manifest with -f.")
    if asked.names and asked.snapshot is not None:
        raise click.UsageError("--snapshot goes with -f: a Job that is there is in the cluster.")
    try:
        if asked.names:
            shown = [_live(asked, name) for name in references(asked.names)]
        else:
            shown = [_of_file(asked)]
        for number, text in enumerate(shown):
            terminal.say(f"\n{text}" if number else text)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)


def _live(asked: _ExplainOptions, name: str) -> str:

    with connected(asked.own_access) as client:
        where = namespace_or_current(asked.namespace, asked.access)
        return explained(
            client,
            where,
            name,
            policies=asked.policies,
            output=asked.output,
            requester=asked.requester,
        )


def _of_file(asked: _ExplainOptions) -> str:
    from webhook.api.kubernetes_api import Forbidden
    from webhook.commands import deciding
    from webhook.commands.manifest import read_job

    file, output = asked.file or "", asked.output
    if asked.snapshot is not None:
        job, manifest = read_job(file, asked.namespace or "default", BY_NAME)
        view = deciding.view_of_file(asked.snapshot, asked.policies)
        view = deciding.asked_by(view, asked.requester, None)
        return _render(_consider(job, manifest, view), job, view, output)
    job, manifest = read_job(file, namespace_or_current(asked.namespace, asked.access), BY_NAME)
    with connected(asked.own_access) as client:
        try:
            view = deciding.view_of_cluster(client, asked.policies)
            view = deciding.asked_by(view, asked.requester, client)
        except Forbidden as error:
            if asked.requester is not None:
                raise click.UsageError(f"--as: {error}") from error
            terminal.say(f"{error}: asking the webhook by a server-side dry run instead", err=True)
            return _dry_run(client, job, output)
    return _render(_consider(job, manifest, view), job, view, output)


def _consider(
    job: Mapping[str, Any], manifest: ManifestObject, view: DecidingView
) -> CreateOutcome:
    from webhook.commands import deciding

    try:
        outcome = deciding.consider_manifest(job, view)
    except FieldError as error:
        raise manifest.wrong(error.path, error.message) from error
    for hint in deciding.hints(job, view):
        terminal.say(hint, err=True)
    return outcome


def _dry_run(client: Client, job: Mapping[str, Any], output: str) -> str:
    """Have the API server ask the webhook, for users who may create Jobs but list nothing."""
    from webhook.api.kubernetes_api import Refused
    from webhook.commands import decision_table

    try:
        created = _create(client, job)
    except Refused as error:
        terminal.say(f"The API server refuses the Job: {error}", err=True)
        sys.exit(1)
    decision = decision_table.decision_on(created)
    if decision is None:
        return "Left untouched: no decision came back."
    if output in ("json", "yaml"):
        return terminal.dump(decision, output)
    return "\n".join(decision_table.as_text(decision, terminal.width(output)))


def _create(client: Client, job: Mapping[str, Any]) -> Mapping[str, Any]:
    from webhook.api.kubernetes_api import Refused

    metadata = dict(job["metadata"])
    path, params = kind_of(job).path(metadata["namespace"]), {"dryRun": "All"}
    try:
        return client.post(path, dict(job), params)
    except Refused as error:
        if not error.is_conflict or "name" not in metadata:
            raise
    # The Job exists already; under another name it gets the same decision.
    metadata["generateName"] = f"{metadata.pop('name')}-"
    return client.post(path, {**job, "metadata": metadata}, params)


def _render(outcome: CreateOutcome, job: Mapping[str, Any], view: DecidingView, output: str) -> str:
    mismatches = deciding.mismatches(job, outcome, view)
    changes = deciding.changes(job, view)
    if output in ("text", "wide"):
        title = "It changes:" if outcome.edits else "If the policy were enforced, it would change:"
        shown = table(outcome, terminal.columns(output), mismatches)
        return "\n".join([shown, *_diff(title, changes, output)])
    answer = {**_outcome_json(outcome, mismatches), "changes": changes}
    if outcome.edits:
        answer["job"] = deciding.patched(job, outcome)
    return terminal.dump(answer, output)
