"""``undo`` and ``move``: ask the webhook to restore or move a pending Job, and report the result.

``--recreate`` deletes the Job and creates it again as it was submitted. It is never lost: its
manifest is tried by a dry run before anything is deleted, and is kept in a file until the new Job
exists.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed, Refused
from webhook.api.resources import kueue_path
from webhook.commands import terminal
from webhook.commands.check_sample import nameless, without_run
from webhook.commands.decision_table import unix_of
from webhook.commands.kubectl import (
    FAULT,
    Scope,
    connected,
    listed,
    missing_job,
    named,
    namespace_option,
    one_reference,
    scope_options,
)
from webhook.decide.decision_record import reason_annotation
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow.decided_job import read_decided_job
from webhook.jobs import JOB, JobKind
from webhook.model.fields import FieldError
from webhook.model.job import (
    DECISION,
    MOVE_TO,
    OPTION_LABEL,
    QUEUE_LABEL,
    REASON,
    UNDO,
    UNDONE,
    reference_of,
)
from webhook.model.job_manifest import KUEUES
from webhook.model.queues import MULTIKUEUE
from webhook.model.reasons import Obstacle
from webhook.model.words import harmless, span

if TYPE_CHECKING:
    from webhook.api.client import Client

TRIES = 3
JOB_UID = "kueue.x-k8s.io/job-uid"
"""Kueue's label on a Workload, with the UID of its Job:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/constants/constants.go
"""
_UNPIN = """\
It is left alone from now on. To let policies decide it again, if they adopt pending Jobs:
  kubectl annotate {kind} {name} -n {namespace} kueue-fallback.dev/policy-"""
_UNANSWERED = """\
The webhook did not answer, so {job} is unchanged.
`kubectl fallback probe` says whether the API server calls it."""
_RECREATE = """
It can be deleted and created as it was submitted, at the end of its queue{lost}:
  kubectl fallback undo {job} -n {namespace} --recreate"""
_SUBMIT = """
It can only be deleted, and submitted again with the annotation kueue-fallback.dev/policy: none."""
_LEFT_BEHIND = "Its annotation {annotation} could not be removed again: {error}"


_job_argument = click.argument(
    "job", metavar="JOB", nargs=-1, required=True, callback=one_reference
)
"""The one Job that a command is for, as ``job``."""


@click.command("undo")
@_job_argument
@namespace_option
@click.option("--dry-run", is_flag=True, help="Ask the API server, but change nothing.")
@click.option(
    "--recreate",
    "recreates",
    is_flag=True,
    help="Delete the Job and create it as it was submitted.",
)
@click.option(
    "-y", "--yes", "is_sure", is_flag=True, help="With --recreate: do not ask for confirmation."
)
@scope_options
def command(job: str, *, dry_run: bool, recreates: bool, is_sure: bool, scope: Scope) -> None:
    """Put a pending Job back as it was submitted, and leave it alone from then on.

    The Job returns to its queue with what it asked for, and keeps its age. If Kueue gives it quota
    at that very moment, it queues anew. A Job that has started, has quota or is being stopped is
    not undone in place. Undo works whatever the policies say, and while decisions are switched off.

    Some fields cannot change on an existing Job, such as an image. With --recreate the Job is
    deleted and created as it was submitted, with another UID and at the end of its queue. You are
    asked first. With --dry-run the manifest is printed. A batch Job that runs is recreated, too:
    what it has done until then is lost, and you are told how long it has run.

    JOB is a name, or a type and a name. You need the rights to get and patch Jobs in their
    namespace; with --recreate to get, create and delete them, and of one that runs to list its
    Workload.

    Exit codes: 0 it is undone, 1 it is not, for the reason given, and the Job is unchanged.

    \b
    Examples:
      kubectl fallback undo train
      kubectl fallback undo rayjob/train
      kubectl fallback undo rayjob train
      kubectl fallback undo train -n team --dry-run
      kubectl fallback undo train --recreate
    """
    with connected(scope.access) as client:
        kind, name = named(job)
        target = Target(kind=kind, namespace=scope.here, name=name, is_dry_run=dry_run)
        try:
            if recreates:
                after = recreate(client, target, is_sure=is_sure)
            else:
                after = _in_place(client, target)
        except NotUndoneError as error:
            terminal.say(error.text, err=True)
            sys.exit(FAULT)
    _tell(target, after, err=recreates and dry_run)


@click.command("move")
@_job_argument
@click.option("--to", "option", required=True, metavar="OPTION", help="The option's name.")
@click.option("--dry-run", is_flag=True, help="Ask the API server, but change nothing.")
@namespace_option
@scope_options
def move(*, job: str, option: str, dry_run: bool, scope: Scope) -> None:
    """Move a pending Job to another option of its policy.

    `kubectl fallback explain JOB` lists the options. `kubectl fallback undo JOB` puts the Job back
    as it was submitted.

    JOB is a name, or a type and a name. You need the rights to get and patch Jobs in
    their namespace.

    Exit codes: 0 it is there, 1 it was not moved, for the reason given, and the Job is unchanged.

    \b
    Examples:
      kubectl fallback move train --to cpu
      kubectl fallback move rayjob/train --to gpu -n team --dry-run
      kubectl fallback move rayjob train --to gpu
    """
    with connected(scope.access) as client:
        kind, name = named(job)
        target = Target(kind=kind, namespace=scope.here, name=name, is_dry_run=dry_run)
        try:
            after = _ask(client, target, option, refusal=_unmovable)
            _check_moved(client, target, after, option)
        except NotUndoneError as error:
            terminal.say(error.text, err=True)
            sys.exit(FAULT)
    verb = "would be" if dry_run else "is"
    queue = kind.read(after).queue
    terminal.say(f"{target} {verb} in LocalQueue {queue} ({option}).")


def _unmovable(target: Target, job: Mapping[str, Any]) -> str:
    if not _without_decision(target, job):
        return ""
    return f"{target} carries no decision: there is no option to move it to."


def _check_moved(client: Client, target: Target, after: Mapping[str, Any], option: str) -> None:
    """Raise NotUndoneError unless the Job is in the option."""
    if MOVE_TO in (after["metadata"].get("annotations") or {}):
        _take_off(client, target, after)
        raise NotUndoneError(f"The webhook did not answer, so {target} is unchanged.")
    if (after["metadata"].get("labels") or {}).get(OPTION_LABEL) != option:
        raise NotUndoneError(f"{target} is unchanged.")


def _in_place(client: Client, target: Target) -> Mapping[str, Any]:
    after = _ask(client, target, UNDO, refusal=_refusal, way_out=_way_out)
    _check(client, target, after)
    return after


def _ask(
    client: Client,
    target: Target,
    wish: str,
    *,
    refusal: Callable[[Target, Mapping[str, Any]], str],
    way_out: Callable[[Target, Mapping[str, Any]], str] = lambda _target, _job: "",
) -> Mapping[str, Any]:
    """Ask the webhook by an update of the Job for a *wish*; say its warnings, return the Job.

    *refusal* says of a Job why that is not asked for; empty: it is. *way_out* says what can be done
    where the API server refuses it.

    Raises:
        NotUndoneError: it is not asked for, or refused.

    """
    for _ in range(TRIES):
        try:
            job = client.get(target.path)
            if refused := refusal(target, job):
                raise NotUndoneError(refused)
            after, warnings = client.ask("PATCH", target.path, _wish(job, wish), target.params)
        except NotServed:
            raise NotUndoneError(_missing(client, target)) from None
        except Refused as error:
            if not error.is_conflict:
                text = f"{target} is unchanged: {_because(error)}"
                raise NotUndoneError(text + way_out(target, job)) from error
        else:
            for warning in warnings:
                terminal.say(f"Warning: {warning}", err=True)
            return after
    raise NotUndoneError(f"{target} keeps changing, so it was left unchanged. Try again.")


def _because(error: Refused) -> str:
    if error.keeps_template:
        return f"{Obstacle.OLDER_KUBERNETES.meaning}: {error}"
    return str(error)


def _refusal(target: Target, job: Mapping[str, Any]) -> str:
    """Return why an undo cannot be asked for; empty: it can."""
    if without := _without_decision(target, job):
        return without
    try:
        obstacle = target.kind.held_back(job)
    except FieldError as error:
        return f"{target} cannot be read: {error}"
    if obstacle is None:
        return ""
    has_run = obstacle in (Obstacle.NOT_SUSPENDED, Obstacle.FINISHED)
    because = "; what has started cannot be undone in place" if has_run else ""
    return f"{target} is not undone: {obstacle.meaning}{because}.{_way_out(target, job)}"


def _way_out(target: Target, job: Mapping[str, Any]) -> str:
    """Return what can be done if the Job cannot change in place; empty: nothing."""
    try:
        # Whether its Workload can be read is known when it is asked for.
        runs = runs_since(target, job) is not None
        manifest_of(target, suspended(job, job["spec"]["template"]) if runs else job)
    except NotUndoneError:
        is_running = target.kind.held_back(job) is Obstacle.NOT_SUSPENDED
        return _SUBMIT if is_running else ""
    lost = ", whereby what it has done is lost" if runs else ""
    return _RECREATE.format(job=target.reference, namespace=target.namespace, lost=lost)


def _wish(job: Mapping[str, Any], wish: str) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {
        "resourceVersion": job["metadata"]["resourceVersion"],
        "annotations": {MOVE_TO: wish},
    }
    if wish == UNDO and OPTION_LABEL not in (job["metadata"].get("labels") or {}):
        # This label makes the API server call the webhook, which removes it.
        metadata["labels"] = {OPTION_LABEL: UNDO}
    return {"metadata": metadata}


def _check(client: Client, target: Target, after: Mapping[str, Any]) -> None:
    annotations = after["metadata"].get("annotations") or {}
    if MOVE_TO in annotations:
        _take_off(client, target, after)
        raise NotUndoneError(_UNANSWERED.format(job=target))
    if DECISION in annotations:
        raise NotUndoneError(f"{target} is unchanged.{_way_out(target, after)}")


def _take_off(client: Client, target: Target, after: Mapping[str, Any]) -> None:
    """Remove the annotation that asked for a move or an undo, and the label added with it."""
    if target.is_dry_run:
        return
    metadata: dict[str, Any] = {"annotations": {MOVE_TO: None}}
    if after["metadata"].get("labels", {}).get(OPTION_LABEL) == UNDO:
        metadata["labels"] = {OPTION_LABEL: None}
    try:
        client.patch(target.path, {"metadata": metadata})
    except ClusterError as error:
        terminal.say(_LEFT_BEHIND.format(annotation=MOVE_TO, error=error), err=True)


def _tell(target: Target, after: Mapping[str, Any], *, err: bool) -> None:
    queue = target.kind.read(after).queue
    where = f", in LocalQueue {queue}" if queue else ""
    if target.is_dry_run:
        terminal.say(f"{target} would be as it was submitted{where}.", err=err)
        return
    terminal.say(f"{target} is as it was submitted{where}.")
    terminal.say(_UNPIN.format(**target.words))


GONE_SECONDS = 30.0
"""How long the old Job may take to disappear."""
_POLL_SECONDS = 0.5
_SENTENCE = f"undone: deleted and created anew as submitted; decided no more ({POLICY}: {OPT_OUT})"
_COSTS = """\
{job} will be deleted, and created anew as it was submitted{where}.
It gets another UID, and goes to the end of its queue."""
_LOST = "It has run for {span}: what it has done until now is lost."
_UNTOLD = (
    """\
{job} is not undone: what Kueue has added to it at its start is told by its Workload alone, and that
cannot be read: {why}."""
    + _SUBMIT
)
_AT_ONCE = "It names no queue, so it starts as soon as it is created."
_LEFT = """\
{job} may not exist any more. Its manifest is in {file}.
To create it:
  kubectl create -f {file}"""


def recreate(client: Client, target: Target, *, is_sure: bool) -> Mapping[str, Any]:
    """Delete and create the Job; return the new one.

    Raises:
        NotUndoneError: nothing was changed, or the text says what was.

    """
    job = _read(client, target)
    began = runs_since(target, job)
    manifest = _anew(client, target, job)
    try:
        created = client.post(
            target.kind.path(target.namespace), nameless(manifest), {"dryRun": "All"}
        )
    except (Refused, Forbidden) as error:
        why = f"the API server would not create it: {error}"
        raise NotUndoneError(f"{target} is unchanged: {why}") from error
    if target.is_dry_run:
        terminal.say(terminal.dump(manifest, "yaml"))
        return created
    if began is not None:
        terminal.say(_LOST.format(span=span(max(0.0, time.time() - began))), err=True)
    _confirm(target, manifest, is_sure=is_sure)
    with _kept(target, manifest):
        _delete(client, target, job, manifest)
        return _create(client, target, manifest, old=job["metadata"]["uid"])


def _anew(client: Client, target: Target, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Job that waits or runs as it was submitted, and opted out.

    Raises:
        NotUndoneError: it cannot be created anew, or not as it was.

    """
    runs = runs_since(target, job) is not None
    return manifest_of(target, _as_queued(client, target, job) if runs else job)


def manifest_of(target: Target, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pending Job as it was submitted, and opted out.

    Raises:
        NotUndoneError: it is not pending, or its decision cannot be read.

    """
    try:
        kind = target.kind
        case = read_decided_job(job, kind)
        if case.believed is None:
            unread = case.doubt or Obstacle.UNREADABLE
            raise NotUndoneError(f"{target} is not undone: {unread.meaning}.")
        clean = kind.without_kueues(case.recovered().submitted_source)
        if obstacle := kind.kept_from_anew(_without_managed_by(job, kind)):
            raise NotUndoneError(f"{target} is not undone: {obstacle.meaning}.")
    except FieldError as error:
        raise NotUndoneError(f"{target} cannot be read: {error}") from error
    held = job["metadata"].get("finalizers") or ()
    # Kueue lets go of what it holds as soon as that is deleted.
    if finalizers := ", ".join(name for name in held if not name.startswith(KUEUES)):
        raise NotUndoneError(f"{target} is not undone: its deletion would wait for {finalizers}.")
    manifest = without_run(_without_managed_by(clean, kind))
    manifest["metadata"].pop("finalizers", None)
    if not (manifest["metadata"].get("labels") or {}).get(QUEUE_LABEL):
        # Kueue has suspended it for the queue that it was given.
        _parent_of(manifest, kind).pop(kind.suspend[-1], None)
    manifest["metadata"].setdefault("annotations", {}).update(
        {
            POLICY: OPT_OUT,
            UNDONE: case.believed.policy,
            REASON: reason_annotation(_SENTENCE),
        }
    )
    return manifest


def runs_since(target: Target, job: Mapping[str, Any]) -> float | None:
    """Return since when a batch Job runs, in seconds since 1970; None: it is another, or does not.

    Kinds with objects of their own below them may lose more than the time.
    """
    try:
        obstacle = target.kind.held_back(job)
    except FieldError:
        return None
    if target.kind is not JOB or obstacle is not Obstacle.NOT_SUSPENDED:
        return None
    return unix_of(str((job.get("status") or {}).get("startTime"))) or time.time()


def suspended(job: Mapping[str, Any], pods: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a running Job as it was before its start, when it had the template *pods*."""
    queued = {key: value for key, value in job.items() if key != "status"}
    return {**queued, "spec": {**job["spec"], "suspend": True, "template": pods}}


def _as_queued(client: Client, target: Target, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a running Job as Kueue found it: without the node selectors of its flavors.

    Raises:
        NotUndoneError: its Workload, which has the template as it was, cannot be read.

    """
    uid = job["metadata"]["uid"]
    try:
        path = kueue_path(client.kueue_version(), f"namespaces/{target.namespace}/workloads")
        workloads = listed(client, path, {"labelSelector": f"{JOB_UID}={uid}"})
        for workload in workloads:
            (pod_set,) = workload["spec"]["podSets"]
            return suspended(job, pod_set["template"])
    except (NotServed, Forbidden) as error:
        raise NotUndoneError(_UNTOLD.format(job=target, why=error)) from error
    raise NotUndoneError(_UNTOLD.format(job=target, why="it has none"))


def _read(client: Client, target: Target) -> Mapping[str, Any]:
    try:
        job = client.get(target.path)
    except NotServed:
        raise NotUndoneError(_missing(client, target)) from None
    if refusal := _without_decision(target, job):
        raise NotUndoneError(refusal)
    return job


def _without_managed_by(job: Mapping[str, Any], kind: JobKind) -> Mapping[str, Any]:
    """Return a copy without what Kueue sets for a queue of other clusters, and will set again."""
    clean = copy.deepcopy(dict(job))
    parent = _parent_of(clean, kind)
    if parent.get("managedBy") == MULTIKUEUE:
        del parent["managedBy"]
    return clean


def _parent_of(job: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    """Return the object that says whether a Job is suspended, and who manages it."""
    node = job
    for part in kind.suspend[:-1]:
        node = node.setdefault(part, {})
    return node


def _confirm(target: Target, manifest: Mapping[str, Any], *, is_sure: bool) -> None:
    if is_sure:
        return
    queue = (manifest["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    where = f", in LocalQueue {queue}" if queue else ""
    terminal.say(_COSTS.format(job=target, where=where), err=True)
    if not queue:
        terminal.say(_AT_ONCE, err=True)
    if not click.confirm("Delete and create it?", err=True):
        raise NotUndoneError(f"{target} is unchanged.")


@contextlib.contextmanager
def _kept(target: Target, manifest: Mapping[str, Any]) -> Iterator[None]:
    """Keep the manifest in a file while the Job may not exist."""
    handle, name = tempfile.mkstemp(prefix=f"{target.name}-", suffix=".yaml")
    os.close(handle)
    Path(name).write_text(terminal.dump(manifest, "yaml") + "\n", encoding="utf-8")
    try:
        yield
    except NotUndoneError:
        # It was not deleted.
        Path(name).unlink()
        raise
    except ClusterError as error:
        left = _LEFT.format(job=target, file=name)
        raise NotUndoneError(f"{harmless(str(error))}\n{left}") from error
    except BaseException:
        terminal.say(_LEFT.format(job=target, file=name), err=True)
        raise
    Path(name).unlink()


def _delete(
    client: Client, target: Target, job: Mapping[str, Any], manifest: Mapping[str, Any]
) -> None:
    """Delete the Job by its UID and resourceVersion, as long as it would be created by *manifest*.

    Of one that has just started the status changes several times a second.

    Raises:
        NotUndoneError: it was not deleted.

    """
    while True:
        metadata = job["metadata"]
        conditions = {name: metadata[name] for name in ("uid", "resourceVersion")}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": conditions,
        }
        try:
            client.delete(target.path, options)
        except (Refused, Forbidden, NotServed) as error:
            again = _read(client, target) if error.is_conflict else job
            if again["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
                raise NotUndoneError(f"{target} is not undone: {error}") from error
            is_same = again["metadata"]["uid"] == metadata["uid"]
            has_started = runs_since(target, job) is None and runs_since(target, again) is not None
            if not is_same or has_started or _anew(client, target, again) != manifest:
                why = "it has changed meanwhile. Try again."
                raise NotUndoneError(f"{target} is not undone: {why}") from error
            job = again
        else:
            return


def _create(
    client: Client, target: Target, manifest: Mapping[str, Any], *, old: str
) -> Mapping[str, Any]:
    """Create it as soon as the *old* one is gone.

    Raises:
        ClusterError: it is not created.

    """
    until = time.monotonic() + GONE_SECONDS
    while True:
        try:
            return client.post(target.kind.path(target.namespace), manifest)
        except Refused as error:
            if not error.is_conflict or time.monotonic() > until:
                raise
            if not _is_still_there(client, target, old):
                raise
        time.sleep(_POLL_SECONDS)


def _is_still_there(client: Client, target: Target, old: str) -> bool:
    """Return whether the Job is the old one, or missing, and not a new one of the same name."""
    try:
        return bool(client.get(target.path)["metadata"]["uid"] == old)
    except NotServed:
        return True


_ALONE = """\
To have it left alone anyway:
  kubectl annotate {kind} {name} -n {namespace} kueue-fallback.dev/policy=none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Job to undo."""

    kind: JobKind
    namespace: str
    name: str
    is_dry_run: bool

    @property
    def reference(self) -> str:
        return reference_of(self.kind.kind, self.name)

    @property
    def words(self) -> Mapping[str, str]:
        """The values for the commands that messages suggest."""
        return {"kind": self.kind.kind.lower(), "name": self.name, "namespace": self.namespace}

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)

    @property
    def params(self) -> Mapping[str, str]:
        return {"dryRun": "All"} if self.is_dry_run else {}

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


class NotUndoneError(Exception):
    """The Job was not undone: why not, or what has become of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _missing(client: Client, target: Target) -> str:
    """Return a sentence that the Job does not exist."""
    return missing_job(client, target.kind, target.namespace, target.name)


def _without_decision(target: Target, job: Mapping[str, Any]) -> str:
    """Return a sentence that the Job carries no decision; empty: it carries one."""
    if DECISION in (job["metadata"].get("annotations") or {}):
        return ""
    alone = _ALONE.format(**target.words)
    return f"{target} carries no decision: there is nothing to undo.\n{alone}"
