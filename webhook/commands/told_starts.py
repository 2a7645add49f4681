"""Who waits and when each is to start, for a user who may see Jobs and no ClusterQueues.

What was forecast stands on the Jobs. Where Kueue serves it, its visibility API has the positions.
https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/pending_workloads_on_demand/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook.api.kubernetes_api import ClusterError
from webhook.commands.connect import listed
from webhook.commands.decision_table import decision_on, state_of, unix_of
from webhook.jobs import JOB, JobKind
from webhook.model.expected_start import ExpectedStart, read_expected_start
from webhook.model.job import QUEUE_LABEL, reference_of
from webhook.model.words import span

if TYPE_CHECKING:
    from webhook.api.client import Client

HEADER: Final = ("NAMESPACE", "JOB", "LOCALQUEUE", "POSITION", "WAITS", "STARTS", "AS OF")
RESTRICTED: Final = (
    "You may not list ClusterQueues: starts are as they stand on the Jobs, not forecast anew. "
    "Ask your admin for the right to list ClusterQueues and Workloads, or for the address of the "
    "console."
)
_VISIBILITY: Final = "/apis/visibility.kueue.x-k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStart:
    """A pending Job with what its owner may know."""

    namespace: str
    job: str
    """Its reference, with the kind."""
    queue: str
    created: float
    start: ExpectedStart | None
    """None: nothing was forecast for it."""
    position: int
    """In its ClusterQueue, 1: the first; 0: not known."""

    def figures(self) -> dict[str, Any]:
        """Return what is known as JSON has it, with the keys of a fresh forecast."""
        start = self.start
        return {
            "namespace": self.namespace,
            "job": self.job,
            "localQueue": self.queue,
            "clusterQueue": start.cluster_queue if start else "",
            "created": self.created,
            "position": self.position or None,
            "startsAt": start.at if start else None,
            "asOf": start.as_of if start else None,
        }

    def row(self, unix: float) -> tuple[str, ...]:
        start = self.start
        return (
            self.namespace,
            self.job,
            self.queue,
            str(self.position) if self.position else "-",
            span(max(0.0, unix - self.created)),
            "not known" if start is None else _starts(start, unix),
            "-" if start is None else f"{span(max(0.0, unix - start.as_of))} ago",
        )

    def sentences(self, unix: float) -> list[str]:
        """Say of this Job where it waits and when it was expected to start."""
        since = f"pending for {span(max(0.0, unix - self.created))}"
        place = f"Position {self.position} in its ClusterQueue" if self.position else "It waits"
        lines = [f"{place}, in LocalQueue {self.queue or '-'}, {since}."]
        if self.start is None:
            return [*lines, "Nothing was forecast for it."]
        ago = f"as forecast {span(max(0.0, unix - self.start.as_of))} ago"
        return [*lines, f"Expected to start: {_starts(self.start, unix)}, {ago}."]


def _starts(start: ExpectedStart, unix: float) -> str:
    return "any moment" if start.at <= unix else f"in {span(start.at - unix)}"


def of_job(client: Client, job: Mapping[str, Any], kind: JobKind) -> ToldStart:
    """Return what stands on a pending Job, and its position if the user may ask Kueue for it."""
    (told,) = _with_positions(client, [_told(job, kind)])
    return told


def of_jobs(client: Client, namespace: str) -> Sequence[ToldStart]:
    """Return the pending batch Jobs of a namespace that name a queue, the oldest first.

    Raises:
        Forbidden: the user may not list them either.

    """
    waiting = [
        _told(job, JOB)
        for job in listed(client, JOB.path(namespace), {"labelSelector": QUEUE_LABEL})
        if state_of(job, JOB) == "pending"
    ]
    return sorted(_with_positions(client, waiting), key=lambda told: told.created)


def _told(job: Mapping[str, Any], kind: JobKind) -> ToldStart:
    metadata = job["metadata"]
    return ToldStart(
        namespace=metadata["namespace"],
        job=reference_of(kind.kind, metadata["name"]),
        queue=(metadata.get("labels") or {}).get(QUEUE_LABEL, ""),
        created=unix_of(str(metadata.get("creationTimestamp"))) or 0.0,
        start=read_expected_start(metadata.get("annotations") or {}) or _as_decided(job),
        position=0,
    )


def _as_decided(job: Mapping[str, Any]) -> ExpectedStart | None:
    """Return the start that was expected when the Job was decided, where it is now."""
    decision = decision_on(job) or {}
    decided = unix_of(str(decision.get("time")))
    queue = (job["metadata"].get("labels") or {}).get(QUEUE_LABEL)
    options = decision.get("options")
    for option in options if isinstance(options, list) else ():
        if not isinstance(option, dict) or option.get("queue") != queue or decided is None:
            continue
        wait, cluster_queue = option.get("startsIn"), option.get("clusterQueue")
        if isinstance(wait, int | float):
            return ExpectedStart(
                at=decided + wait, as_of=decided, cluster_queue=str(cluster_queue or "")
            )
    return None


def _with_positions(client: Client, waiting: Sequence[ToldStart]) -> Iterator[ToldStart]:
    positions: dict[tuple[str, str], int] = {}
    if waiting and (version := _served(client)):
        for namespace, queue in {(told.namespace, told.queue) for told in waiting if told.queue}:
            positions |= _positions(client, version, namespace, queue)
    for told in waiting:
        start = told.start
        known = start.position if start is not None else 0
        position = positions.get((told.namespace, told.job), known)
        yield replace(told, position=position)


def _served(client: Client) -> str:
    """Return the version of Kueue's visibility API; empty: this user cannot ask it."""
    try:
        group = client.get(_VISIBILITY)
    except ClusterError:
        return ""
    return str((group.get("preferredVersion") or {}).get("version") or "")


def _positions(
    client: Client, version: str, namespace: str, queue: str
) -> dict[tuple[str, str], int]:
    place = f"namespaces/{quote(namespace, safe='')}/localqueues/{quote(queue, safe='')}"
    try:
        summary = client.get(f"{_VISIBILITY}/{version}/{place}/pendingworkloads")
    except ClusterError:
        return {}
    found: dict[tuple[str, str], int] = {}
    for item in summary.get("items") or ():
        # Kueue counts from 0.
        position = 1 + item.get("positionInClusterQueue", 0)
        for owner in item["metadata"].get("ownerReferences") or ():
            found[namespace, reference_of(owner["kind"], owner["name"])] = position
    return found
