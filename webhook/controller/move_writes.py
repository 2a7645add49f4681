"""The writes and reads of a move: the patch that asks for it, and of Workloads for repairs.

Which Job is moved, and when, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.resources import kueue_path
from webhook.jobs import JOB
from webhook.model.job import MOVE_REASON, MOVE_TO, OPTION_LABEL, Pending
from webhook.model.queues import Snapshot, Stage
from webhook.model.words import spoken
from webhook.reconsider.plan import Move
from webhook.state.workload import Workload


def ask(transport: KubernetesApi, job: Pending, move: Move) -> Mapping[str, Any]:
    """Ask the webhook for a move by one annotation; return the Job as patched.

    Raises:
        Refused: the Job has changed since, or the patch was rejected.
        ClusterError: the write failed otherwise.

    """
    return transport.patch(JOB.path(job.job.namespace, job.job.name), _patch(job, move))


def to_workload(transport: KubernetesApi, workload: Workload, wanted: Mapping[str, Any]) -> None:
    transport.patch(f"{_workloads(transport, workload)}/{workload.name}", wanted)


def read_anew(transport: KubernetesApi, workload: Workload) -> Mapping[str, Any] | None:
    """Return a Workload as it is now, read by the right to list them; None: it was deleted."""
    named = {"fieldSelector": f"metadata.name={workload.name}"}
    found = transport.get(_workloads(transport, workload), named)
    items: Sequence[Mapping[str, Any]] = found.get("items") or ()
    return items[0] if items else None


def _workloads(transport: KubernetesApi, workload: Workload) -> str:
    place = f"namespaces/{workload.namespace}/workloads"
    return kueue_path(transport.kueue_version(), place)


def _patch(job: Pending, move: Move) -> Mapping[str, Any]:
    metadata: dict[str, Any] = {
        "resourceVersion": job.version,
        "annotations": {MOVE_TO: move.way.option, MOVE_REASON: _because(move)},
    }
    if not job.option:
        # This label makes the API server call the webhook, which corrects its value.
        metadata["labels"] = {OPTION_LABEL: move.candidate.option}
    return {"metadata": metadata}


def _because(move: Move) -> str:
    before = "never" if move.before == inf else f"in {spoken(move.before)}"
    return (
        f"done in {spoken(move.after)}, not {before}; "
        f"all who wait are done {spoken(move.gain)} sooner together"
    )


def sentence(move: Move) -> str:
    return f"moved from {move.candidate.option} to {move.way.option}: {_because(move)}"


def has_arrived(key: str, queue: str, found: Sequence[Workload], snapshot: Snapshot) -> bool:
    """Return whether a Workload is in the Job's new queue, and holds no quota elsewhere."""
    local_queue = snapshot.local_queues.get((key.split("/", maxsplit=1)[0], queue))
    return any(
        workload.queue == queue
        and (
            workload.stage is not Stage.RESERVING
            or (local_queue is not None and workload.cluster_queue == local_queue.cluster_queue)
        )
        for workload in found
    )
