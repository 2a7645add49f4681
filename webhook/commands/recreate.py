"""``undo --recreate``: deletes a pending Job and creates it again as it was submitted.

The Job is never lost: its manifest is tried by a dry run before anything is deleted, and is kept in
a file until the new Job exists.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.api.kubernetes_api import ClusterError, Forbidden, NotServed, Refused
from webhook.commands import terminal
from webhook.commands.check_sample import nameless, without_run
from webhook.commands.deciding import kind_of
from webhook.commands.target import NotUndoneError, Target, missing, without_decision
from webhook.decide import decision_record
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import decided_job
from webhook.jobs import JOB
from webhook.model.fields import FieldError
from webhook.model.job import QUEUE_LABEL, REASON, UNDONE
from webhook.model.queues import MULTIKUEUE
from webhook.model.reasons import Obstacle

if TYPE_CHECKING:
    from webhook.api.client import Client


GONE_SECONDS = 30.0
"""How long the old Job may take to disappear."""
_POLL_SECONDS = 0.5
_SENTENCE = f"undone: deleted and created anew as submitted; decided no more ({POLICY}: {OPT_OUT})"
_COSTS = """\
{job} will be deleted, and created anew as it was submitted{where}.
It gets another UID and goes to the end of its queue."""
_AT_ONCE = "It names no queue, so it starts as soon as it is created."
_LEFT = """\
{job} is not there any more, or that is not known; its manifest is in {file}.
To create it:
  kubectl create -f {file}"""


def recreate(client: Client, target: Target, *, is_sure: bool) -> Mapping[str, Any]:
    """Delete and create the Job; return the new one.

    Raises:
        NotUndoneError: nothing was changed, or the text says what was.

    """
    job = _read(client, target)
    manifest = manifest_of(target, job)
    try:
        created = client.post(JOB.path(target.namespace), nameless(manifest), {"dryRun": "All"})
    except (Refused, Forbidden) as error:
        why = f"the API server would not create it: {error}"
        raise NotUndoneError(f"{target} is as it was: {why}") from error
    if target.is_dry_run:
        terminal.say(terminal.dump(manifest, "yaml"))
        return created
    _ask(target, manifest, is_sure=is_sure)
    with _kept(target, manifest):
        _delete(client, target, job)
        return _create(client, target, manifest, old=job["metadata"]["uid"])


def manifest_of(target: Target, job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pending Job as it was submitted, and opted out.

    Raises:
        NotUndoneError: it is not pending, or its decision cannot be read.

    """
    try:
        kind = kind_of(job)
        case = decided_job.read(job, kind)
        if case.believed is None:
            unread = case.doubt or Obstacle.UNREADABLE
            raise NotUndoneError(f"{target} is not undone: {unread.meaning}.")
        clean = case.recovered().submitted_source
        if obstacle := JOB.held_back(_without_managed_by(job)):
            raise NotUndoneError(f"{target} is not undone: {obstacle.meaning}.")
    except FieldError as error:
        raise NotUndoneError(f"{target} cannot be read: {error}") from error
    if finalizers := ", ".join(job["metadata"].get("finalizers") or ()):
        raise NotUndoneError(f"{target} is not undone: its deletion would wait for {finalizers}.")
    manifest = without_run(_without_managed_by(clean))
    if not (manifest["metadata"].get("labels") or {}).get(QUEUE_LABEL):
        # Kueue has suspended it for the queue that it was given.
        manifest["spec"].pop("suspend", None)
    manifest["metadata"].setdefault("annotations", {}).update(
        {POLICY: OPT_OUT, UNDONE: case.believed.policy, REASON: decision_record.said(_SENTENCE)}
    )
    return manifest


def can_be_recreated(target: Target, job: Mapping[str, Any]) -> bool:
    try:
        manifest_of(target, job)
    except NotUndoneError:
        return False
    return True


def _read(client: Client, target: Target) -> Mapping[str, Any]:
    try:
        job = client.get(target.path)
    except NotServed:
        raise NotUndoneError(missing(client, target)) from None
    if refusal := without_decision(target, job):
        raise NotUndoneError(refusal)
    return job


def _without_managed_by(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove what Kueue sets for a queue of other clusters, and will set again."""
    spec = dict(job.get("spec") or {})
    if spec.get("managedBy") == MULTIKUEUE:
        del spec["managedBy"]
    return {**job, "spec": spec}


def _ask(target: Target, manifest: Mapping[str, Any], *, is_sure: bool) -> None:
    if is_sure:
        return
    queue = (manifest["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    where = f", in LocalQueue {queue}" if queue else ""
    terminal.say(_COSTS.format(job=target, where=where), err=True)
    if not queue:
        terminal.say(_AT_ONCE, err=True)
    if not click.confirm("Delete and create it?", err=True):
        raise NotUndoneError(f"{target} is as it was.")


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
        raise NotUndoneError(f"{terminal.harmless(str(error))}\n{left}") from error
    except BaseException:
        terminal.say(_LEFT.format(job=target, file=name), err=True)
        raise
    Path(name).unlink()


def _delete(client: Client, target: Target, job: Mapping[str, Any]) -> None:
    """Delete the Job by its UID and resourceVersion; one that has changed since is kept.

    Raises:
        NotUndoneError: it was not deleted.

    """
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
        changed = error.is_conflict
        why = "it has changed meanwhile. Try again." if changed else str(error)
        raise NotUndoneError(f"{target} is not undone: {why}") from error


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
            return client.post(JOB.path(target.namespace), manifest)
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
