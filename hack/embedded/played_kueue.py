"""A Kueue that is played: batch Jobs become Workloads, which the simulator of forecasts admits.

It writes what Kueue 0.19 writes, as far as anybody here reads it: Workloads with their conditions
and admissions, suspended and started Jobs, and what queues count. It knows no AdmissionChecks, no
partial admission and no preemption; what a real Kueue does is tested beside a real one.
"""

import copy
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hack.embedded.admitting import AdmittedWorkload, admitted_now
from hack.embedded.control_loop import Object, Writer
from webhook.api import resources as kinds
from webhook.api.resources import Key, key_of
from webhook.model.job import QUEUE_LABEL
from webhook.model.quantity import CPU
from webhook.model.queues import KueueConfig
from webhook.state.state import State

API: Final = f"/apis/{kinds.KUEUE_GROUP}/v1beta2"
JOBS: Final = "jobs"
PATHS: Final[Mapping[str, str]] = {
    JOBS: "/apis/batch/v1/jobs",
    **{
        kind: f"{API}/{kind}"
        for kind in (
            kinds.WORKLOADS,
            kinds.CLUSTER_QUEUES,
            kinds.LOCAL_QUEUES,
            kinds.COHORTS,
            kinds.FLAVORS,
            kinds.PRIORITY_CLASSES,
        )
    },
    kinds.NAMESPACES: "/api/v1/namespaces",
    kinds.LIMIT_RANGES: "/api/v1/limitranges",
    kinds.POD_PRIORITIES: "/apis/scheduling.k8s.io/v1/priorityclasses",
}
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
OF_ONE_JOB: Final = ("batch.kubernetes.io/controller-uid", "controller-uid", "job-name")
"""Labels of a pod template that Kueue leaves out of its Workload."""
LONGEST_NAME: Final = 63
RELEASED_SECONDS: Final = KueueConfig().requeue_seconds
"""For so long quota that was given back lies idle, as Kueue requeues in batches."""


def submitted(job: Object) -> Object:
    """Return a Job as Kueue's webhook lets it in: one with a queue begins suspended."""
    if not _queue_of(job):
        return job
    return {**job, "spec": {**job["spec"], "suspend": True}}


class PlayedKueue:
    """Serves the queues of one API server."""

    paths = PATHS

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._state = State()
        self._changed: dict[Key, None] = {}
        """Jobs to look at, in order of coming."""
        self._of_job: dict[str, Key] = {}
        """UID of a Job to its Workload."""
        self._served: dict[tuple[str, Key], Any] = {}
        """What it depends on who starts, of all that is no Job and no Workload."""
        self._serve_at = 0.0
        """When the queues are served next, on the monotonic clock."""

    def note(self, kind: str, event: str, source: Object) -> None:
        key = key_of(source)
        if kind == JOBS:
            self._changed[key] = None
            return
        if kind in (kinds.FLAVORS, kinds.PRIORITY_CLASSES, kinds.POD_PRIORITIES):
            # Jobs that need it may have come before it: kinds are watched one by one.
            self._changed |= dict.fromkeys(self._writer.known[JOBS])
        self._state.apply(kind, event, source)
        if kind == kinds.WORKLOADS:
            self._note_workload(key, event, source)
            return
        # What else queues say is written here, and lets nobody start.
        served = None if event == "DELETED" else (source.get("spec"), _has(source, "Active"))
        if self._served.get((kind, key)) != served:
            self._served[kind, key] = served
            self._serve_at = 0.0

    def _note_workload(self, key: Key, event: str, source: Object) -> None:
        if (owner := _owner_of(source)) is None:
            return
        if event == "DELETED":
            self._of_job.pop(owner["uid"], None)
        else:
            self._of_job[owner["uid"]] = key
        self._changed[key[0], owner["name"]] = None
        if _is_waiting(source) and event != "DELETED":
            self._serve_at = 0.0
        elif event == "DELETED" or not _has(source, "QuotaReserved") or _has(source, "Finished"):
            # Time that is earlier is for others.
            self._serve_at = min(self._serve_at, time.monotonic() + RELEASED_SECONDS)

    def act(self) -> float:
        while self._changed:
            key = next(iter(self._changed))
            del self._changed[key]
            try:
                self._reconcile(key)
            except BaseException:
                self._changed[key] = None
                raise
        if time.monotonic() >= self._serve_at:
            self._serve_at = math.inf
            self._serve()
        self._write_counts()
        return 0.0 if self._changed else self._serve_at

    # Jobs and their Workloads.

    def _reconcile(self, key: Key) -> None:
        job = self._writer.known[JOBS].get(key)
        if job is None:
            self._delete_orphans(key)
        elif _queue_of(job):
            workload = self._workload_of(job)
            if workload is None:
                self._create_workload(job)
            elif not _has(workload, "Finished"):
                self._follow(job, workload)

    def _delete_orphans(self, key: Key) -> None:
        for uid, (namespace, name) in list(self._of_job.items()):
            workload = self._writer.known[kinds.WORKLOADS].get((namespace, name), {})
            owner = _owner_of(workload) if workload else None
            if owner and (namespace, owner["name"]) == key:
                self._of_job.pop(uid)
                self._writer.delete(_path(workload))

    def _workload_of(self, job: Object) -> Object | None:
        key = self._of_job.get(job["metadata"]["uid"])
        return None if key is None else self._writer.known[kinds.WORKLOADS].get(key)

    def _create_workload(self, job: Object) -> None:
        priority = self._priority_of(job)
        if not _end_of(job) and priority is not None:
            path = f"{API}/namespaces/{job['metadata']['namespace']}/{kinds.WORKLOADS}"
            self._writer.create(kinds.WORKLOADS, path, workload_of(job, priority))

    def _follow(self, job: Object, workload: Object) -> None:
        """Let a Workload follow its Job, and the Job its Workload, by one of Kueue's steps."""
        has_quota, stops = _has(workload, "QuotaReserved"), _stops(workload)
        if ended := _end_of(job):
            self._set(workload, _condition("Finished", "True", *ended))
        elif stops and not _has(workload, "Evicted"):
            self._set(workload, _condition("Evicted", "True", "Deactivated", _INACTIVE))
        elif not job["spec"].get("suspend"):
            if stops or not has_quota:
                self._stop(job, workload)
            elif _are_ready(job) and not _has(workload, "PodsReady"):
                self._set(workload, _condition("PodsReady", "True", "Started", _ALL_READY))
        elif has_quota and (stops or not _is_of(workload, job)):
            self._release(workload)
        elif has_quota:
            self._start(job, workload)
        elif _is_waiting(workload) and _is(workload, "Requeued", "False"):
            self._set(workload, _condition("Requeued", "True", "Reactivated", _ACTIVE))
        elif not _is_of(workload, job) and (priority := self._priority_of(job)) is not None:
            spec = {**workload_of(job, priority)["spec"]}
            spec.pop("active")
            self._patch(workload, {"spec": spec})

    def _priority_of(self, job: Object) -> Object | None:
        """Return what a Workload says of its priority; None: its class is not known yet."""
        name = job["metadata"].get("labels", {}).get(PRIORITY_LABEL, "")
        kind, group = kinds.PRIORITY_CLASSES, kinds.KUEUE_GROUP
        if not name:
            name = job["spec"]["template"]["spec"].get("priorityClassName", "")
            kind, group = kinds.POD_PRIORITIES, "scheduling.k8s.io"
        if not name:
            return {"priority": 0}
        found = self._writer.known[kind].get(("", name))
        if found is None:
            return None
        named = {"group": group, "kind": _KINDS[kind], "name": name}
        return {"priority": found["value"], "priorityClassRef": named}

    def _start(self, job: Object, workload: Object) -> None:
        """Let a Job run where its Workload was admitted."""
        (assigned,) = workload["status"]["admission"]["podSetAssignments"]
        flavors = self._writer.known[kinds.FLAVORS]
        names = {("", name) for name in assigned["flavors"].values()}
        if not names <= flavors.keys():
            # A flavor is gone, or not known yet; then its event is on the way.
            return
        given = [flavors[name].get("spec", {}) for name in names]
        pod = job["spec"]["template"]["spec"]
        selector = dict(pod.get("nodeSelector") or {})
        tolerations = list(pod.get("tolerations") or ())
        for flavor in given:
            selector |= flavor.get("nodeLabels") or {}
            tolerations += flavor.get("tolerations") or ()
        change: Object = {"metadata": {"labels": {POD_SET_LABEL: assigned["name"]}}, "spec": {}}
        change["spec"] |= {"nodeSelector": selector} if selector else {}
        change["spec"] |= {"tolerations": tolerations} if tolerations else {}
        self._patch(job, {"spec": {"suspend": False, "template": change}})

    def _stop(self, job: Object, workload: Object) -> None:
        """Suspend a Job, and give it its own pod template back."""
        if not self._patch(job, {"spec": {"suspend": True}}):
            return
        pod = job["spec"]["template"]["spec"]
        (pod_set,) = workload["spec"]["podSets"]
        before = pod_set["template"]["spec"]
        selector = dict.fromkeys(pod.get("nodeSelector") or {})
        selector |= before.get("nodeSelector") or {}
        restored: Object = {"nodeSelector": selector} if selector else {}
        if pod.get("tolerations"):
            restored["tolerations"] = before.get("tolerations")
        # As Kueue does: a pod template may change again when the Job has not begun.
        self._writer.patch(JOBS, f"{_path(job)}/status", {"status": {"startTime": None}})
        template = {"metadata": {"labels": {POD_SET_LABEL: None}}, "spec": restored}
        self._writer.patch(JOBS, _path(job), {"spec": {"template": template}})

    def _release(self, workload: Object) -> None:
        """Take the quota back of a Workload whose Job has stopped."""
        message = "The Job no longer runs"
        changed = [
            _condition("QuotaReserved", "False", "Pending", message),
            _condition("Admitted", "False", "NoReservation", message),
            _condition("PodsReady", "False", "WaitForStart", _NOT_READY),
        ]
        if _has(workload, "Evicted"):
            changed.append(_condition("Requeued", "False", "Deactivated", _INACTIVE))
        self._set(workload, *changed, admission=None)

    # Queues.

    def _serve(self) -> None:
        now, unix = time.monotonic(), time.time()
        snapshot = self._state.snapshot(now, unix)
        uids = {
            f"{namespace}/{name}": workload["metadata"]["uid"]
            for (namespace, name), workload in self._writer.known[kinds.WORKLOADS].items()
        }
        for admitted in tuple(admitted_now(self._state, snapshot, unix, uids)):
            self._admit(admitted)

    def _admit(self, admitted: AdmittedWorkload) -> None:
        namespace, _, name = admitted.key.partition("/")
        workload = self._writer.known[kinds.WORKLOADS].get((namespace, name))
        if workload is None:
            return
        (pod_set,) = workload["spec"]["podSets"]
        assigned = {
            "name": pod_set["name"],
            "count": pod_set["count"],
            "flavors": {resource: flavor for flavor, resource in admitted.usage},
            "resourceUsage": {
                resource: _quantity(amount, resource)
                for (_, resource), amount in admitted.usage.items()
            },
        }
        queue = admitted.cluster_queue
        evicted = [_condition("Evicted", "False", "QuotaReserved", f"{_RESERVED} {queue}")]
        self._set(
            workload,
            *(evicted if _has(workload, "Evicted") else ()),
            _condition("QuotaReserved", "True", "QuotaReserved", f"{_RESERVED} {queue}"),
            _condition("Admitted", "True", "Admitted", "The workload is admitted"),
            admission={"clusterQueue": queue, "podSetAssignments": [assigned]},
        )

    def _write_counts(self) -> None:
        """Write the statuses of queues, as far as they have changed."""
        known = self._writer.known
        of_local: dict[Key, list[Object]] = {key: [] for key in known[kinds.LOCAL_QUEUES]}
        of_cluster: dict[str, list[Object]] = {name: [] for _, name in known[kinds.CLUSTER_QUEUES]}
        for (namespace, _), workload in known[kinds.WORKLOADS].items():
            place = namespace, workload["spec"].get("queueName", "")
            if place in of_local and not _has(workload, "Finished"):
                of_local[place].append(workload)
                of_cluster.get(self._cluster_queue_of(place), []).append(workload)
        for key, workloads in of_local.items():
            is_active = self._why_closed(self._cluster_queue_of(key)) == ""
            self._write(kinds.LOCAL_QUEUES, key, is_active=is_active, workloads=workloads)
        for name, workloads in of_cluster.items():
            why = self._why_closed(name)
            self._write(kinds.CLUSTER_QUEUES, ("", name), is_active=not why, workloads=workloads)

    def _cluster_queue_of(self, key: Key) -> str:
        return str(self._writer.known[kinds.LOCAL_QUEUES][key]["spec"]["clusterQueue"])

    def _why_closed(self, name: str) -> str:
        """Return why a ClusterQueue admits nobody; empty: it does."""
        queue = self._writer.known[kinds.CLUSTER_QUEUES].get(("", name))
        if queue is None:
            return "ClusterQueueDoesNotExist"
        if queue["spec"].get("stopPolicy", "None") != "None":
            return "Stopped"
        groups = queue["spec"].get("resourceGroups") or ()
        named = {flavor["name"] for group in groups for flavor in group["flavors"]}
        missing = named - {flavor for _, flavor in self._writer.known[kinds.FLAVORS]}
        return "FlavorNotFound" if missing else ""

    def _write(self, kind: str, key: Key, *, is_active: bool, workloads: Sequence[Object]) -> None:
        reserving = [each for each in workloads if _has(each, "QuotaReserved")]
        reason, message = ("Ready", _TAKES[kind]) if is_active else ("NotReady", "It is not served")
        counts = {
            "pendingWorkloads": sum(map(_is_waiting, workloads)),
            "reservingWorkloads": len(reserving),
            "admittedWorkloads": sum(_has(each, "Admitted") for each in reserving),
        }
        item = self._writer.known[kind][key]
        active = _condition("Active", str(is_active), reason, message)
        self._set(item, active, kind=kind, **counts)

    # What is written.

    def _set(
        self, item: Object, *changed: Object, kind: str = kinds.WORKLOADS, **status: Any
    ) -> None:
        """Write conditions and other fields of a status, unless they are so already."""
        before = item.get("status") or {}
        conditions = _with(before.get("conditions") or (), changed)
        after = {**status, "conditions": conditions}
        if any(before.get(name) != value for name, value in after.items()):
            path = f"{_path(item, kind)}/status"
            self._writer.patch(kind, path, {"metadata": _seen(item), "status": after})

    def _patch(self, item: Object, change: Object) -> bool:
        kind = kinds.WORKLOADS if "podSets" in item["spec"] else JOBS
        return self._writer.patch(kind, _path(item, kind), {"metadata": _seen(item), **change})


_KINDS: Final = {
    kinds.PRIORITY_CLASSES: "WorkloadPriorityClass",
    kinds.POD_PRIORITIES: "PriorityClass",
}
_TAKES: Final = {
    kinds.CLUSTER_QUEUES: "Can admit new workloads",
    kinds.LOCAL_QUEUES: "Can submit new workloads to localQueue",
}
_RESERVED: Final = "Quota reserved in ClusterQueue"
_ALL_READY: Final = "All pods reached readiness and the workload is running"
_NOT_READY: Final = "Not all pods are ready or succeeded"
_INACTIVE: Final = "The workload is deactivated"
_ACTIVE: Final = "The workload was reactivated"


def workload_of(job: Object, priority: Object) -> Object:
    """Return the Workload that Kueue makes for a Job."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": f"{kinds.KUEUE_GROUP}/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(metadata["name"], metadata["uid"]),
            "namespace": metadata["namespace"],
            "labels": {JOB_UID: metadata["uid"]},
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "podSets": [_pod_set(job)],
            "queueName": _queue_of(job),
            **priority,
        },
    }


def workload_name(job: str, uid: str) -> str:
    # ``GetWorkloadNameForOwnerWithGVK`` in Kueue's pkg/controller/jobframework/workload_names.go.
    digest = hashlib.sha1(f"Job\nbatch\n{job}\n{uid}".encode(), usedforsecurity=False).hexdigest()
    return f"{f'job-{job}'[: LONGEST_NAME - 6]}-{digest[:5]}"


def _pod_set(job: Object) -> Object:
    spec = job["spec"]
    template = copy.deepcopy(spec["template"])
    labels = template.get("metadata", {}).get("labels", {})
    for label in (*OF_ONE_JOB, POD_SET_LABEL):
        labels.pop(label, None)
    parallelism = spec.get("parallelism", 1)
    return {
        "name": "main",
        "count": min(parallelism, spec.get("completions", parallelism)),
        "template": template,
    }


def _is_of(workload: Object, job: Object) -> bool:
    """Return whether a Workload asks for what its suspended Job does, in its queue."""
    spec = workload["spec"]
    return bool(spec.get("queueName") == _queue_of(job) and spec["podSets"] == [_pod_set(job)])


def _queue_of(job: Object) -> str:
    return str(job["metadata"].get("labels", {}).get(QUEUE_LABEL, ""))


def _owner_of(workload: Object) -> Object | None:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner["kind"] == "Job"), None)


def _end_of(job: Object) -> tuple[str, str] | None:
    """Return reason and message with which the Workload of a Job that has ended is finished."""
    for name, reason in (("Complete", "Succeeded"), ("Failed", "Failed")):
        for condition in _conditions(job):
            if condition["type"] == name and condition["status"] == "True":
                return reason, condition.get("message", "")
    return None


def _are_ready(job: Object) -> bool:
    status = job.get("status") or {}
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= _pod_set(job)["count"])


def _is_waiting(workload: Object) -> bool:
    is_active = workload["spec"].get("active", True)
    is_over = _has(workload, "QuotaReserved") or _has(workload, "Finished")
    return is_active and not is_over


def _stops(workload: Object) -> bool:
    """Return whether a Workload is to give back the quota that it has."""
    is_active = workload["spec"].get("active", True)
    return _has(workload, "QuotaReserved") and not is_active and not _has(workload, "Finished")


def _has(item: Object, condition: str) -> bool:
    return _is(item, condition, "True")


def _is(item: Object, condition: str, status: str) -> bool:
    return any(each["type"] == condition and each["status"] == status for each in _conditions(item))


def _conditions(item: Object) -> Sequence[Object]:
    return (item.get("status") or {}).get("conditions") or ()


def _condition(name: str, status: str, reason: str, message: str) -> Object:
    return {"type": name, "status": status, "reason": reason, "message": message}


def _with(conditions: Sequence[Object], changed: Sequence[Object]) -> list[Object]:
    """Return conditions after these changes; what stays so keeps the time since when it is so."""
    after = {condition["type"]: dict(condition) for condition in conditions}
    for condition in changed:
        before = after.get(condition["type"], {})
        if any(before.get(name) != value for name, value in condition.items()):
            is_same = before.get("status") == condition["status"]
            since = before["lastTransitionTime"] if is_same else written_now()
            after[condition["type"]] = {**condition, "lastTransitionTime": since}
    return list(after.values())


def written_now() -> str:
    """Return this second as Kubernetes writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seen(item: Object) -> Object:
    """Return what a change says of the state that it is made for: another one is a conflict."""
    return {"resourceVersion": item["metadata"]["resourceVersion"]}


def _path(item: Object, kind: str = "") -> str:
    namespace, name = key_of(item)
    kind = kind or (kinds.WORKLOADS if "podSets" in item["spec"] else JOBS)
    base = "/apis/batch/v1" if kind == JOBS else API
    return f"{base}/{f'namespaces/{namespace}/' if namespace else ''}{kind}/{name}"


def _quantity(amount: int, resource: str) -> str:
    """Write an amount as Kueue does: in the largest unit in which it is whole."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if resource == "memory" and amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{unit}"
    return str(amount)
