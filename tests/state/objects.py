"""Objects as the API server sends them; what is left out is small and unremarkable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from webhook.api import resources as kinds
from webhook.model.queues import Held
from webhook.state.snapshot import Snapshot
from webhook.state.state import State

NAMESPACE = "team"
CREATED = "2026-11-21T06:00:00Z"


def condition(name: str, status: str = "True", reason: str = "") -> dict[str, str]:
    return {"type": name, "status": status, "reason": reason}


PENDING = condition("QuotaReserved", "False", "Pending")
RESERVED = condition("QuotaReserved")


def workload(
    name: str = "job-train-1",
    *,
    queue: str = "gpu-lq",
    conditions: tuple[dict[str, str], ...] = (),
    job: str = "train",
    decision: str = "",
    guest: tuple[str, str] = ("", ""),
    cpu: str = "4",
    count: int = 1,
    admitted_to: str = "",
    assigned: int | None = None,
    usage: dict[str, str] | None = None,
    created: str = CREATED,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    priority: int = 0,
    **spec: Any,
) -> dict[str, Any]:
    marks = {}
    if decision:
        marks["kueue-fallback.dev/decision-id"] = decision
    if guest[0]:
        marks["kueue-fallback.dev/decided-by"] = guest[0]
    template_labels = {"kueue-fallback.dev/option": guest[1]} if guest[1] else {}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {"annotations": marks, "labels": template_labels},
        "spec": {"containers": [container]},
    }
    status: dict[str, Any] = {"conditions": list(conditions)}
    if admitted_to:
        used = usage or {"cpu": cpu}
        assignment = {"name": "main", "flavors": dict.fromkeys(used, "a100"), "resourceUsage": used}
        assignment |= {} if assigned is None else {"count": assigned}
        status["admission"] = {"clusterQueue": admitted_to, "podSetAssignments": [assignment]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
    return {
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "creationTimestamp": created,
            "ownerReferences": [owner] if job else [],
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": count, "template": template}],
            **spec,
        },
        "status": status,
    }


def reserving(
    name: str = "job-train-1", *, to: str = "gpu-cq", assigned: int | None = 1, **rest: Any
) -> dict[str, Any]:
    conditions = (RESERVED, *rest.pop("also", ()))
    return workload(name, conditions=conditions, admitted_to=to, assigned=assigned, **rest)


def local_queue(name: str = "gpu-lq", cluster_queue: str = "gpu-cq", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": cluster_queue, **spec},
    }


def cluster_queue(name: str = "gpu-cq", *, cpu: str = "8", **spec: Any) -> dict[str, Any]:
    flavor = {"name": "a100", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def named(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **rest}


def state_with(*workloads: dict[str, Any], **queue: Any) -> State:
    """One ClusterQueue ``gpu-cq`` with one LocalQueue ``gpu-lq``, and these Workloads."""
    state = State()
    state.replace(kinds.CLUSTER_QUEUES, [cluster_queue(**queue)])
    state.replace(kinds.LOCAL_QUEUES, [local_queue()])
    state.replace(kinds.WORKLOADS, workloads)
    return state


def counted(snapshot: Snapshot) -> dict[str, Held]:
    """Return what each ClusterQueue holds, with those that compete for quota as pending."""
    found = dict(snapshot.workloads.held)
    for arrival in snapshot.workloads.arrivals:
        queue = snapshot.setup.local_queues[arrival.namespace, arrival.local_queue].cluster_queue
        held, guest = found[queue], (arrival.policy, arrival.option, arrival.namespace)
        guests = {**held.guests, guest: held.guests.get(guest, 0) + arrival.count}
        found[queue] = replace(
            held,
            pending=held.pending + arrival.count,
            guests=guests if arrival.policy else held.guests,
        )
    return found
