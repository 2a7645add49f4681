"""Reads Workloads that have quota at the manager and for which MultiKueue has no cluster yet.

Which of their AdmissionChecks is MultiKueue's depends on other objects, and is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from webhook.api.managed_fields import applied_by
from webhook.api.resources import KUEUE_GROUP, WORKLOADS, ReadObject, Resource, read_by
from webhook.learn.workload_runs import read_pod_sets, seconds_of
from webhook.model import fields
from webhook.model.queues import Stage
from webhook.model.signatures import SigningKeys
from webhook.state.workload import Workload, read_workload
from webhook.state.workload_pods import read_shape

KUEUES_MANAGER: Final = "kueue-admission"
"""The field manager by which Kueue writes, and takes away, what belongs to an admission:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/patching/patching.go#L281"""
NOMINATED: Final = "nominatedClusterNames"
_READY, _PENDING = "Ready", "Pending"


class AwaitingCluster(NamedTuple):
    """A Workload that waits for a worker cluster to take it."""

    workload: Workload
    """With its pod sets."""
    check: str
    """Its only AdmissionCheck that is not ready."""
    nominated: tuple[str, ...]
    nominated_at: int
    """When this was written, in seconds since 1970; 0: it is not known."""
    patient_until: float | None = None
    """Until when the nominated clusters should have taken it, in seconds since 1970; None: that is
    still to be worked out."""


def read_awaiting(
    kind: str, source: Mapping[str, Any], keys: SigningKeys | None = None
) -> ReadObject:
    """Read a Workload, for a ``Follower``; a value of None: it waits for no cluster.

    *keys* as for ``read_workload``.
    """
    return read_by(lambda workload: awaiting(workload, keys), kind, source)


AWAITING: Final = Resource(
    kind="nominations",
    path=f"/apis/{KUEUE_GROUP}/{{kueue}}/{WORKLOADS}",
    required=False,
    read=read_awaiting,
)


def awaiting(source: Mapping[str, Any], keys: SigningKeys | None = None) -> AwaitingCluster | None:
    """Return the Workload if Kueue would send it to the clusters that are nominated; else None.

    Raises:
        FieldError: it cannot be read.

    """
    # As ``ShouldSkipClusterNomination`` and ``allNonMKAdmissionChecksReady`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go#L1571
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    if status.get("clusterName") or metadata.get("deletionTimestamp"):
        return None
    states = {
        fields.text(check, "name", here): fields.text(check, "state", here)
        for check, here in fields.objects(status, "admissionChecks", "status")
    }
    pending = [name for name, state in states.items() if state != _READY]
    if len(pending) != 1 or states[pending[0]] != _PENDING:
        return None
    workload = read_workload(source, keys)
    if workload.stage is not Stage.RESERVING or workload.is_evicted:
        return None
    shape = read_shape(read_pod_sets(fields.mapping(source, "spec", "")), status)
    nominated = fields.strings(status, NOMINATED, "status")
    return AwaitingCluster(
        workload=workload._replace(pod_sets=shape),
        check=pending[0],
        nominated=tuple(dict.fromkeys(nominated)),
        nominated_at=_nominated_at(source) if nominated else 0,
    )


def _nominated_at(source: Mapping[str, Any]) -> int:
    applied = applied_by(KUEUES_MANAGER, source, "status")
    if applied is None:
        return 0
    return seconds_of({"time": applied.time}, "time", "metadata.managedFields")
