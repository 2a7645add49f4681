"""A state to decide on, from a file or a cluster, and admission's own function, for commands."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webhook.admission import patch
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import ClusterError
from webhook.api.resources import ReadObject
from webhook.commands.kubectl import release_namespace_of
from webhook.commands.manifest import CRON_JOB, read_policies
from webhook.decide import match
from webhook.flow import create
from webhook.flow.decided_job import read_decided_job
from webhook.jobs import kind_of
from webhook.model.decision import Skipped
from webhook.model.fields import FieldError
from webhook.model.job import PLAIN, QUEUE_LABEL, Requester, read_requester
from webhook.model.kueue_support import doubts
from webhook.model.policy.fallback_policy import sort_key
from webhook.model.policy.spec import Mode
from webhook.model.reasons import Skip
from webhook.model.words import nearest
from webhook.state.forecast_input import with_forecasts
from webhook.state.snapshot_file import fetch_state, read_state
from webhook.state.waiting_line import waiting_of

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.model.decision import CreateOutcome
    from webhook.state.snapshot import Snapshot
    from webhook.state.state import State
    from webhook.state.waiting_line import WaitingWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingView:
    """The state that a decision is made on, and its time in seconds since 1970."""

    snapshot: Snapshot
    unix: float
    own_namespace: str = ""
    requester: Requester | None = None
    """The user who counts as the Job's creator; None: unknown."""
    waiting: tuple[WaitingWorkload, ...] = ()
    """Those of the Job that is there and that the state is without."""


def view_of_file(path: str, policies: tuple[str, ...]) -> DecidingView:
    """Read a saved state; its time is that of the last event in it.

    Raises:
        FieldError: a file cannot be read.

    """
    state = read_state(path)
    return view_of_state(state, float(state.newest()) or time.time(), policies)


def view_of_cluster(
    client: Client, policies: tuple[str, ...] = (), *, without_job: tuple[str, str] | None = None
) -> DecidingView:
    """List the cluster's state; *without_job* (namespace, name): as if that Job did not exist.

    Raises:
        Forbidden: the user may not list something that decisions need.
        FieldError: a file with policies cannot be read.

    """
    ours = release_namespace_of(client, None)
    state, unix = fetch_state(client, namespace=ours), time.time()
    waiting: tuple[WaitingWorkload, ...] = ()
    if without_job is not None:
        waiting = waiting_of(state, state.snapshot(0.0, unix), unix, "/".join(without_job))
        for workload in list(state.workloads()):
            if (workload.namespace, workload.job) == without_job:
                gone = ReadObject((workload.namespace, workload.name), None)
                state.apply_read(kinds.WORKLOADS, "DELETED", gone)
    view = view_of_state(state, unix, policies)
    return dataclasses.replace(view, own_namespace=ours, waiting=waiting)


def view_of_state(state: State, unix: float, policies: tuple[str, ...] = ()) -> DecidingView:
    """Return a state with forecasts; *policies* are files that take the place of its own."""
    snapshot = match.queueing_all(state.snapshot(0.0, unix))
    if policies:
        given = sorted(
            (policy for path in policies for policy in read_policies(path)), key=sort_key
        )
        snapshot = snapshot.with_policies(tuple(given))
    return DecidingView(snapshot=with_forecasts(state, snapshot, unix), unix=unix)


def asked_by(
    view: DecidingView, requester: Requester | None, client: Client | None
) -> DecidingView:
    """Return the view with who creates the Job: *requester*, else the user of *client*.

    The API server is asked for that user only where a policy may depend on it.
    """
    if requester is None and client is not None and _asks_who(view.snapshot):
        requester = _own_user(client)
    return dataclasses.replace(view, requester=requester)


def _asks_who(snapshot: Snapshot) -> bool:
    """Return whether a decision may depend on who creates a Job."""
    wanted = (
        each
        for policy in snapshot.fallback.policies
        for each in (policy.spec.match, *(option.only for option in policy.spec.options))
    )
    return any(each and (each.users is not None or each.groups is not None) for each in wanted)


def _own_user(client: Client) -> Requester | None:
    """Return the user that the API server takes us for; None: it does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    except ClusterError:
        return None
    return read_requester(answer["status"]["userInfo"], "status.userInfo")


def assumed(job: Mapping[str, Any], view: DecidingView) -> str:
    """Return a sentence that Kueue is assumed to queue the Job's kind; empty: that is known."""
    if view.snapshot.setup.kueue.is_read or kind_of(job).kind == PLAIN:
        return ""
    framework = kind_of(job).framework
    return f"Kueue's configuration is not known: {framework} is assumed to be switched on there."


def consider_manifest(job: Mapping[str, Any], view: DecidingView) -> CreateOutcome:
    """Decide a Job as if it were created now; a decision that it carries is undone first.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    return create.dry_run(
        job,
        view.snapshot,
        unix=view.unix,
        requester=view.requester,
        own_namespace=view.own_namespace,
    )


def mismatches(
    job: Mapping[str, Any], outcome: CreateOutcome, view: DecidingView
) -> Mapping[str, str]:
    """Return each policy with the reason why it does not match a Job that none matches."""
    if not isinstance(outcome, Skipped) or outcome.skip is not Skip.NO_POLICY:
        return {}
    submitted = outcome.job or kind_of(job).read(job)
    return match.mismatches(
        submitted,
        view.snapshot,
        own_namespace=view.own_namespace,
        requester=view.requester,
    )


def hints(job: Mapping[str, Any], view: DecidingView, written: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences of what may differ from what was meant, or from the cluster's decision.

    *written* is the Job's manifest, or that of the CronJob that makes it.
    """
    sentences = (
        missing_queue(job, view),
        misplaced_queue(job, written),
        assumed(job, view),
        untested(view),
    )
    yield from filter(None, sentences)


def untested(view: DecidingView) -> str:
    """Return a sentence that the webhook may only observe here; empty: no reason is known.

    Its settings are not known here, and may state a version that cannot be read.
    """
    judged = doubts(view.snapshot.setup.kueue, view.snapshot.setup.kueue_manager)
    certain = [doubt for doubt in judged if doubt.is_certain]
    if not certain:
        return ""
    because = "; ".join(doubt.message for doubt in certain)
    return f"{because}: policies only observe there, unless the webhook's settings say otherwise."


def missing_queue(job: Mapping[str, Any], view: DecidingView) -> str:
    """Return a sentence that the Job's LocalQueue does not exist; empty: it exists."""
    metadata = job["metadata"]
    name, namespace = (metadata.get("labels") or {}).get(QUEUE_LABEL), metadata["namespace"]
    known = [queue for where, queue in view.snapshot.setup.local_queues if where == namespace]
    if not name or name in known:
        return ""
    return f"There is no LocalQueue {name} in namespace {namespace}{nearest(name, known)}."


def misplaced_queue(job: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """Return a sentence of where the queue's label is, if it is where Kueue does not read it."""
    if (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
        return ""
    found = next(_queue_labels(written, ""), "")
    wanted = "spec.jobTemplate.metadata" if written.get("kind") == CRON_JOB else "metadata"
    if not found:
        return ""
    return f"The label {QUEUE_LABEL} is in {found}.labels; Kueue reads it in {wanted}.labels only."


def _queue_labels(value: Any, path: str) -> Iterator[str]:
    """Yield the path of each metadata that has the label of a queue, the outermost first."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _queue_labels(each, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    labels = value.get("labels")
    if path.endswith("metadata") and isinstance(labels, dict) and QUEUE_LABEL in labels:
        yield path
    for key, each in value.items():
        yield from _queue_labels(each, f"{path}.{key}" if path else key)


def enforced(view: DecidingView) -> DecidingView:
    """Return the view as if every policy enforced: to show what one that observes would change."""
    policies = tuple(
        policy.model_copy(update={"spec": policy.spec.model_copy(update={"mode": Mode.ENFORCE})})
        for policy in view.snapshot.fallback.policies
    )
    return dataclasses.replace(view, snapshot=view.snapshot.with_policies(policies))


def as_enforced(job: Mapping[str, Any], view: DecidingView) -> Mapping[str, Any]:
    """Return a manifest as it would be created if policies were enforced."""
    outcome = consider_manifest(job, enforced(view))
    return patched(job, outcome) if outcome.edits else job


def as_submitted(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Job as it was before the decision that it carries; where none can be read, as is."""
    try:
        case = read_decided_job(job, kind_of(job))
        return job if case.recorded is None else case.recovered().submitted_source
    except FieldError:
        # What cannot be read is said elsewhere.
        return job


def patched(job: Mapping[str, Any], outcome: CreateOutcome) -> Mapping[str, Any]:
    """Return the Job with admission's patch."""
    return patch.patched(job, outcome.edits, kind_of(job).allowed)
