"""``explain``: the decision on a manifest or an existing Job, by the very function of admission."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from webhook.api.kubernetes_api import ClusterAccess, Forbidden, NotServed, Refused
from webhook.commands import (
    deciding,
    decision_table,
    terminal,
)
from webhook.commands.decision_table import state_of, table
from webhook.commands.kubectl import (
    Scope,
    all_namespaces_option,
    connected,
    cron_job_named,
    cron_job_path,
    filename_option,
    listed,
    missing_job,
    named,
    namespace_option,
    output_option,
    recursive_option,
    references,
    scope_options,
    selector_option,
    similar,
    type_named,
)
from webhook.commands.queue import sentences, told_start
from webhook.commands.slice_waits import slice_waits
from webhook.commands.terminal import Line
from webhook.decide import decision_record
from webhook.decide.match import OPT_OUT, POLICY
from webhook.decide.wishes import DEADLINE, read_wishes
from webhook.jobs import JOB, kind_of
from webhook.model.fields import EMPTY, FieldError
from webhook.model.job import DECISION, PLAIN, reference_of
from webhook.model.words import harmless

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.commands.deciding import DecidingView
    from webhook.commands.manifest import ManifestObject
    from webhook.model.decision import CreateOutcome
    from webhook.model.job import Requester


_NOTHING = "It carries no decision: no policy matched, or the policy only observed."
_OPTED_OUT = f"It carries no decision: its annotation {POLICY} says {OPT_OUT}."
_UNREADABLE = "Its decision cannot be read."


_RESTRICTED = "you may not list what a decision needs, such as ClusterQueues"


Explanation: TypeAlias = list[Line] | Mapping[str, Any]
"""Lines for people, or values for programs."""


def explained(
    client: Client,
    namespace: str,
    name: str,
    *,
    policies: tuple[str, ...],
    output: str,
    requester: Requester | None = None,
) -> Explanation:
    """Return the explanation of one Job, as text or for programs.

    *requester* is who is taken to create it; None: who asks now.

    Raises:
        NotThereError: it does not exist.

    """
    kind, name = named(name)
    try:
        job = client.get(kind.path(namespace, name))
    except NotServed:
        raise NotThereError(missing_job(client, kind, namespace, name)) from None
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
        for hint in deciding.hints(job, view, job):
            terminal.say(hint, err=True)
    except Forbidden as error:
        now = f"{_RESTRICTED}; your admin can let you" if requester is None else str(error)
        if decision_table.state_of(job, kind) == "pending":
            waits = told_start(client, job, kind).sentences(time.time())
    except FieldError as error:
        now = f"it cannot be read: {error}"
    freed, figures = slice_waits(client, job, kind)
    if output in ("json", "yaml"):
        extra |= {"slices": figures} if figures else {}
        return {**_as_json(job, decision, now, mismatches), **extra}
    shown: list[Line] = [f"Not known: {now}."]
    if not isinstance(now, str):
        shown = table(now, terminal.columns(output), mismatches)
    return _as_text(job, decision, [*waits, *freed], shown, output)


class NotThereError(Exception):
    """Something that is named does not exist; the text says so."""


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
    now: Sequence[Line],
    output: str,
) -> list[Line]:
    metadata = job["metadata"]
    kind = kind_of(job).kind
    lines: list[Line] = [
        f"{kind} {metadata['namespace']}/{metadata['name']}: {state_of(job, kind_of(job))}.",
        *waits,
        "",
    ]
    if decision is None:
        has_one = DECISION in (metadata.get("annotations") or {})
        opted_out = (metadata.get("annotations") or {}).get(POLICY) == OPT_OUT
        nothing = decision_table.undone_on(job) or (_OPTED_OUT if opted_out else _NOTHING)
        lines.append(_UNREADABLE if has_one else nothing)
    else:
        lines.append(terminal.strong(f"Decided {decision_table.when(decision)}"))
        lines += decision_table.as_text(decision, terminal.width(output))
        lines += _diff("It changed:", deciding.as_submitted(job), job, output)
    lines += ["", terminal.strong("If you submitted it again now:")]
    return [*lines, *now]


def _diff(
    title: str, before: Mapping[str, Any], after: Mapping[str, Any], output: str
) -> list[Line]:
    """Return a part that shows what is changed, where it is wide by path; none if nothing is."""
    shown = decision_table.changed_lines if output == "wide" else decision_table.changes
    changes = shown(before, after)
    tones = {"-": "refused", "+": "accepted"}
    painted = [
        part
        for line in changes
        for part in terminal.fitted(
            terminal.tinted(harmless(line), like=tones.get(line[0], "")),
            terminal.columns(output),
            indent=2,
        )
    ]
    return ["", terminal.strong(title), *painted] if changes else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExplainOptions:
    words: tuple[str, ...]
    files: tuple[str, ...]
    recursive: bool
    selector: str
    policies: tuple[str, ...]
    snapshot: str | None
    output: str
    scope: Scope

    @property
    def requester(self) -> Requester | None:
        """Return the user who counts as the Job's creator; None: the user of this command."""
        from webhook.model.job import Requester

        access = self.scope.access
        return Requester(name=access.user, groups=frozenset(access.groups)) if access.user else None

    @property
    def own_access(self) -> ClusterAccess:
        """Return how the cluster is read: by one's own rights, whoever creates the Job."""
        return self.scope.access.as_oneself()

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            click.UsageError: it is not clear which Jobs are meant.

        """
        if not self.selector and bool(self.words) == bool(self.files):
            raise click.UsageError("Give the name of a Job, or a manifest with -f.")
        if self.selector and self.files:
            raise click.UsageError("-l goes without -f.")
        if self.scope.is_everywhere and not self.selector:
            raise click.UsageError("-A goes with -l; a name belongs to one namespace.")
        if self.snapshot is not None and not self.files:
            raise click.UsageError("--snapshot goes with -f; a JOB is read from the cluster.")


@click.command("explain")
@click.argument("words", metavar="[JOB]...", nargs=-1)
@filename_option("Manifests of Jobs and CronJobs")
@recursive_option
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Only these policies.")
@click.option("--snapshot", metavar="FILE", help="A saved state; default: the cluster's.")
@namespace_option
@all_namespaces_option
@selector_option
@output_option
@scope_options
def command(**given: Any) -> None:
    """Show why a Job goes where it goes: every option with its numbers. Nothing is changed.

    For a JOB of the cluster you see its recorded decision, and what would be decided if you
    submitted it again now. Of a pending one that asks for MIG slices, you also see whose end would
    free them. JOB is a name, or TYPE/NAME; with -l all Jobs with these labels are shown. With -f
    manifests are decided as admission would decide them. For a CronJob you see what would be
    decided for the next Job that it makes.

    If you may not list ClusterQueues, you see the Job's recorded decision; a manifest is sent to
    the webhook as a dry run. With --as a Job is decided as if that user created it. The queues are
    read with your own rights, so you need no right to impersonate.

    A snapshot is what this prints:

    \b
      kubectl get clusterqueues,localqueues,cohorts,resourceflavors,workloads,\\
        fallbackpolicies,namespaces -A -o json

    With MultiKueue also admissionchecks,multikueueconfigs,multikueueclusters.

    Exit codes: 0 done, 1 there is no such Job, the API server refuses it, or the cluster cannot be
    asked, 2 a file is wrong.

    \b
    Examples:
      kubectl fallback explain train -n team
      kubectl fallback explain rayjob/train cronjob/nightly -n team
      kubectl fallback explain jobs train sweep
      kubectl fallback explain -l team=ml -A
      kubectl fallback explain -f job.yaml
      kubectl fallback explain -f manifests/ -R
      kubectl fallback explain -f job.yaml --snapshot snapshot.json --policy policy.yaml
      kubectl fallback explain -f job.yaml --as alice --as-group ml-research
      kubectl get job train -o yaml | kubectl fallback explain -f - -o json
    """
    asked = _ExplainOptions(**given)
    asked.check()
    try:
        whole = True
        if asked.files:
            shown = _of_files(asked)
        else:
            shown, whole = _live(asked)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)
    _say(shown, asked.output)
    if not whole:
        sys.exit(1)


def _say(shown: Sequence[Explanation], output: str) -> None:
    """Print explanations; several for programs are items of one object."""
    if output in ("json", "yaml"):
        documents = [each for each in shown if isinstance(each, Mapping)]
        one = documents[0] if len(documents) == 1 else {"items": documents}
        if documents:
            terminal.say(terminal.dump(one, output))
        return
    for number, lines in enumerate(shown):
        if number:
            terminal.say("")
        terminal.tell(*lines, output=output)


def _live(asked: _ExplainOptions) -> tuple[Sequence[Explanation], bool]:
    """Return the explanations of the Jobs that are named, and whether all of them are there."""
    with connected(asked.own_access) as client:
        meant = [(asked.scope.here, name) for name in references(asked.words)]
        if asked.selector:
            meant = _selected(client, asked, asked.scope.listed)
        found: list[Explanation] = []
        missing = False
        for where, name in meant:
            try:
                if cron_job := cron_job_named(name):
                    found += _of_cron_job(client, asked, where, cron_job)
                else:
                    found.append(
                        explained(
                            client,
                            where,
                            name,
                            policies=asked.policies,
                            output=asked.output,
                            requester=asked.requester,
                        )
                    )
            except NotThereError as error:
                terminal.say(str(error), err=True)
                missing = True
        return found, not missing


def _selected(client: Client, asked: _ExplainOptions, namespace: str) -> list[tuple[str, str]]:
    """Return namespace and reference of the Jobs with these labels; end the program without any."""
    if len(asked.words) > 1 or any("/" in word for word in asked.words):
        raise click.UsageError("-l goes with a type at most: explain rayjobs -l team=ml.")
    kind = type_named(asked.words[0]) if asked.words else JOB
    path = kind.path(namespace) if namespace else kind.path()
    names = [job["metadata"] for job in listed(client, path, {"labelSelector": asked.selector})]
    if not names:
        terminal.say(f"There is no {kind.kind} with these labels.", err=True)
        sys.exit(1)
    return [(each["namespace"], reference_of(kind.kind, each["name"])) for each in names]


def _of_cron_job(
    client: Client, asked: _ExplainOptions, namespace: str, name: str
) -> Sequence[Explanation]:
    from webhook.commands.manifest import CRON_JOB, ManifestObject

    try:
        cron_job = client.get(cron_job_path(namespace, name))
    except NotServed:
        hint = similar(client, cron_job_path(namespace), name)
        raise NotThereError(f"There is no {CRON_JOB} {namespace}/{name}{hint}.") from None
    made = ManifestObject.made_by(cron_job, f"{CRON_JOB} {namespace}/{name}")
    return _of_manifests(client, asked, [made], is_titled=True)


def _of_files(asked: _ExplainOptions) -> Sequence[Explanation]:
    from webhook.commands.manifest import files_in, read_jobs

    files = files_in(asked.files, is_recursive=asked.recursive)
    if asked.snapshot is not None:
        jobs = read_jobs(files, asked.scope.namespace or "default")
        view = deciding.view_of_file(asked.snapshot, asked.policies)
        view = deciding.asked_by(view, asked.requester, None)
        return _considered(jobs, view, asked.output, is_titled=len(jobs) > 1)
    jobs = read_jobs(files, asked.scope.here)
    with connected(asked.own_access) as client:
        return _of_manifests(client, asked, jobs, is_titled=len(jobs) > 1)


def _of_manifests(
    client: Client, asked: _ExplainOptions, jobs: Sequence[ManifestObject], *, is_titled: bool
) -> Sequence[Explanation]:
    try:
        view = deciding.view_of_cluster(client, asked.policies)
        view = deciding.asked_by(view, asked.requester, client)
    except Forbidden as error:
        if asked.requester is not None:
            raise click.UsageError(f"--as: {error}") from error
        titled = [_titled(job) if is_titled else "" for job in jobs]
        answers = [_dry_run(client, job.value, asked.output) for job in jobs]
        text = f"{_RESTRICTED}: the webhook was asked by a server-side dry run instead"
        terminal.say(f"Y{text[1:]}", err=True)
        return [_under(*each) for each in zip(titled, answers, strict=True)]
    return _considered(jobs, view, asked.output, is_titled=is_titled)


def _considered(
    jobs: Sequence[ManifestObject], view: DecidingView, output: str, *, is_titled: bool
) -> Sequence[Explanation]:
    return [
        _under(
            _titled(job) if is_titled else "",
            _render(_consider(job, view), job.value, view, output),
        )
        for job in jobs
    ]


def _titled(job: ManifestObject) -> str:
    """Return a line that says which of several manifests is meant."""
    metadata = job.value["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    where = job.where
    return f"{kind_of(job.value).kind} {metadata['namespace']}/{name} ({where}):"


def _under(title: str, shown: Explanation) -> Explanation:
    if not title or isinstance(shown, Mapping):
        return shown
    return [terminal.strong(title), *shown]


def _consider(job: ManifestObject, view: DecidingView) -> CreateOutcome:
    try:
        outcome = deciding.consider_manifest(job.value, view)
    except FieldError as error:
        raise job.wrong(error.path, error.message) from error
    for hint in deciding.hints(job.value, view, job.cron_job or job.value):
        terminal.say(hint, err=True)
    return outcome


def _dry_run(client: Client, job: Mapping[str, Any], output: str) -> Explanation:
    """Have the API server ask the webhook, for users who may create Jobs but list nothing."""
    try:
        created = _create(client, job)
    except Refused as error:
        terminal.say(f"The API server refuses the Job: {error}", err=True)
        sys.exit(1)
    decision = decision_table.decision_on(created)
    if output in ("json", "yaml"):
        return decision or {"decision": None}
    if decision is None:
        return ["Left untouched: no decision came back."]
    return decision_table.as_text(decision, terminal.width(output))


def _create(client: Client, job: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _render(
    outcome: CreateOutcome, job: Mapping[str, Any], view: DecidingView, output: str
) -> Explanation:
    mismatches = deciding.mismatches(job, outcome, view)
    enforced = deciding.as_enforced(job, view)
    if output in ("text", "wide"):
        title = "It changes:" if outcome.edits else "If the policy were enforced, it would change:"
        shown = table(outcome, terminal.columns(output), mismatches)
        return [*shown, *_diff(title, job, enforced, output)]
    answer = {
        **_outcome_json(outcome, mismatches),
        "changes": decision_table.changed_lines(job, enforced),
    }
    if outcome.edits:
        answer["job"] = deciding.patched(job, outcome)
    return answer
