"""One Workload, read and reduced to what is counted: 50,000 of them must fit in 150 MB.

What counts as pending or reserving is Kueue's: ``IsAdmissible`` and ``HasActiveQuotaReservation``
in its ``pkg/workload``. What keeps a Job from being moved is read here, too, and whether a Workload
with quota waits for MultiKueue to choose a cluster. It must not know in which ClusterQueue a
Workload is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.api.managed_fields import applied_by
from webhook.api.resources import KUEUE_GROUP, WORKLOADS, ReadObject, Resource, read_by
from webhook.learn.job_class import Mark
from webhook.learn.run_records import WorkloadRun
from webhook.learn.workload_runs import (
    NOT_SAID,
    REPLACES,
    Conditions,
    WorkloadPodSet,
    admitted_at,
    is_true,
    own_marks,
    read_conditions,
    read_flavors,
    read_mark,
    read_pod_sets,
    read_run,
    seconds_of,
    since,
)
from webhook.model import fields, marks
from webhook.model.fields import EMPTY
from webhook.model.forecasts import JobClass
from webhook.model.holds import GATE, is_gated
from webhook.model.job import (
    DECIDED_BY,
    DECISION_ID,
    ELASTIC,
    JOB_CLASS,
    LONGEST_KIND,
    MULTIKUEUE_ORIGIN,
    OPTION_LABEL,
    OURS,
    PodSet,
    reference_of,
)
from webhook.model.pods import Memo
from webhook.model.queues import Stage
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys
from webhook.model.topologies import PlacedPods
from webhook.state.workload_pods import (
    Charge,
    KueueCounts,
    likeness,
    read_charge,
    read_counted,
    read_held,
    read_placed,
    read_shape,
    recall_shape,
)

KUEUES_MANAGER: Final = "kueue-admission"
"""The field manager by which Kueue writes, and takes away, what belongs to an admission:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/patching/patching.go#L281"""
NOMINATED: Final = "nominatedClusterNames"
_READY, _PENDING = "Ready", "Pending"
_KUEUE = "kueue.x-k8s.io/"
_NOT_READY_IN_TIME = "PodsReadyTimeout"
_BY_CHECK = "AdmissionCheck"
_LONGEST_KEY = 253 + 1 + 253
"""Characters of ``namespace/name``."""
_LONGEST_UID = 64
_UNTIL_GIVEN_BACK = 1
_ALLOWED_FLAVORS = _KUEUE + "workload-allowed-resource-flavors"
_PARENT = _KUEUE + "concurrent-admission-parent"
_OF_GROUP = "kueue.x-k8s.io/is-group-workload"
_NOT_CONTROLLING = frozenset({"LeaderWorkerSet", "StatefulSet"})
"""Kinds that own their Workloads without being marked as their controllers."""
_HASH = len("-a0cfe")
OF_A_JOB = "job:"
"""Begins the key of a placement that names its Job, as it has no decision's id."""
REPAIR = OURS + "repair"
"""Annotation of a Workload that was deactivated because it held quota in a queue that it had left:
the ClusterQueue's name."""


class Workload(NamedTuple):
    """One Workload. Equal texts and shapes are shared between Workloads."""

    namespace: str
    name: str
    queue: str
    stage: Stage
    competes: bool
    """Pending, and not backing off after an eviction: it is given quota as soon as it fits."""
    priority: int
    created: int
    """Seconds since 1970."""
    decision_id: str
    policy: str
    option: str
    job: str
    """``Job.reference`` of the Job that owns it; empty: nothing does, as far as is known."""
    replaces: str
    """``namespace/name`` of the slice that it takes over from."""
    pod_sets: tuple[PodSet, ...]
    """Empty unless it is pending."""
    cluster_queue: str = ""
    """The one in which its quota is reserved."""
    charge: Charge = ()
    """Of one with quota; of one whose run has ended, with all its pods."""
    job_class: JobClass | None = None
    """None: what it asks for cannot be read."""
    said: int = 0
    """As in ``Mark``."""
    flavors: str = ""
    """Names of its reservation's flavors, sorted, unique, joined by commas."""
    admitted: int = 0
    """Seconds since 1970 of its last admission; 0: it is not admitted."""
    run: WorkloadRun | None = None
    """How its run has begun so far, or ended if it succeeded or failed after an admission; None:
    nothing to learn from."""
    requeue_at: int = 0
    """End of the backoff after an eviction, in seconds since 1970."""
    obstacle: Obstacle | None = None
    """What keeps its Job from being moved."""
    is_repaired: bool = False
    """Deactivated by us, to be activated again."""
    limit_seconds: int = 0
    """Kueue or Kubernetes ends it after so long a run; 0: no limit."""
    is_variant: bool = False
    """One of several of which Kueue admits the first that fits (ConcurrentAdmission)."""
    parent: str = ""
    """The Workload in whose place the variants are; empty: it is no variant."""
    evicted_at: int = 0
    """When it was evicted, in seconds since 1970, if that is the time by which it is queued again;
    0: it is queued by its creation."""
    was_unready: bool = False
    """It was evicted because its pods were not ready in time."""
    reserved_at: int = 0
    """When it got its quota, in seconds since 1970; 0: it has none."""
    is_evicted: bool = False
    """One with quota is to give it back."""
    uid: str = ""
    """Of one with quota."""
    has_ready_pods: bool = False
    held: tuple[Charge, ...] = ()
    """Of an elastic one with quota, for each pod set what it holds; of a pending one that is
    counted by its difference from the one that it replaces, what that one holds."""
    placed: tuple[PlacedPods, ...] = ()
    """Of one with quota, its pods in the domains of Topologies."""
    counted: KueueCounts = ()
    """What Kueue counted when it last tried to admit it; empty: it has not, as it is now."""

    @property
    def queued_at(self) -> int:
        """Return the time by which its queue orders it, in seconds since 1970."""
        return self.evicted_at or self.created


def read_workload(source: Mapping[str, Any], keys: SigningKeys | None = None) -> Workload:
    """Read a Workload; marks not signed with one of the *keys* are ignored (see ``own_marks``).

    Raises:
        FieldError: it cannot be read.

    """
    metadata = fields.mapping(source, "metadata", "")
    spec, status = fields.mapping(source, "spec", ""), fields.mapping(source, "status", "")
    conditions = read_conditions(status)
    texts = _texts(metadata)
    stage = _stage(texts, spec, status, conditions)
    pod_sets = read_pod_sets(spec)
    annotations, labels = own_marks(metadata, pod_sets, keys)
    namespace = intern(fields.text(metadata, "namespace", "metadata"))
    owner = read_owner(metadata)
    alike = likeness(pod_sets)
    mark = _marks_of_likenesses.recall(
        (alike, marks.mark_of(annotations, JOB_CLASS), namespace, owner.kind),
        len(alike),
        lambda: read_mark(pod_sets, annotations, namespace, owner.kind),
    )
    workload = Workload(
        namespace=namespace,
        name=fields.text(metadata, "name", "metadata"),
        queue=intern(fields.text(spec, "queueName", "spec")),
        stage=stage,
        competes=stage is Stage.PENDING and conditions.get("Requeued", NOT_SAID)[0] != "False",
        priority=fields.integer(spec, "priority", "spec") or 0,
        created=seconds_of(metadata, "creationTimestamp", "metadata"),
        decision_id=marks.mark_of(annotations, DECISION_ID),
        policy=intern(marks.mark_of(annotations, DECIDED_BY)),
        option=intern(marks.mark_of(labels, OPTION_LABEL)),
        job=owner.reference,
        replaces=_replaced(texts),
        pod_sets=recall_shape(pod_sets, status, alike) if stage is Stage.PENDING else (),
        counted=read_counted(metadata, pod_sets, status) if stage is Stage.PENDING else (),
        job_class=mark.job_class if mark else None,
        said=mark.said if mark else 0,
        requeue_at=_requeue_at(status),
        obstacle=_obstacle(texts, spec, conditions),
        is_repaired=REPAIR in texts.annotations,
        limit_seconds=_limit_seconds(spec, pod_sets, conditions),
        is_variant=_ALLOWED_FLAVORS in texts.annotations,
        parent=_parent(metadata),
    )
    # Of one that only waits there is no more, and there may be tens of thousands.
    if not (status.get("admission") or any(said == "True" for said, _, _ in conditions.values())):
        return workload
    return _with_progress(workload, source, conditions, mark, pod_sets)


_marks_of_likenesses: Memo[Mark | None] = Memo(most=4096, most_bytes=2 << 20, longest=4096)
"""Most Workloads are like one before. What differs in its shape alone still shares its class by the
memo of ``read_mark``."""


def _with_progress(
    workload: Workload,
    source: Mapping[str, Any],
    conditions: Conditions,
    mark: Mark | None,
    pod_sets: Sequence[WorkloadPodSet],
) -> Workload:
    """Return the Workload with what its admission and its True conditions say."""
    metadata = fields.mapping(source, "metadata", "")
    spec, status = fields.mapping(source, "spec", ""), fields.mapping(source, "status", "")
    texts = _texts(metadata)
    admission = fields.mapping(status, "admission", "status")
    flavors = read_flavors(admission) if admission else ""
    cluster_queue = intern(fields.text(admission, "clusterQueue", "status.admission"))
    placed = read_placed(spec, admission) if admission else ()
    requeued = _requeued(conditions)
    run = read_run(source, conditions, mark)
    if run is not None and run.has_ended:
        run = run._replace(policy=workload.policy, option=workload.option, placed=placed)
    holds = workload.stage is Stage.RESERVING
    return workload._replace(
        cluster_queue=cluster_queue,
        # Pods that have succeeded give quota back, but tell nothing of what it came with.
        charge=read_charge(pod_sets, status if holds else EMPTY, admission)
        if holds or (run is not None and run.has_ended)
        else (),
        flavors=flavors,
        admitted=admitted_at(conditions),
        run=run,
        evicted_at=since(conditions, "Evicted") if requeued else 0,
        was_unready=requeued == _NOT_READY_IN_TIME,
        reserved_at=since(conditions, "QuotaReserved"),
        is_evicted=is_true(conditions, "Evicted"),
        uid=fields.text(metadata, "uid", "metadata")[:_LONGEST_UID] if holds else "",
        has_ready_pods=is_true(conditions, "PodsReady"),
        # Only slices of elastic Jobs are replaced.
        held=read_held(pod_sets, status, admission)
        if holds and texts.annotations.get(ELASTIC) == "true"
        else (),
        placed=placed if holds else (),
    )


def _requeued(conditions: Conditions) -> str:
    """Return why it was evicted, if its queue then orders it by that time; empty: it does not."""
    # ``GetQueueOrderTimestamp`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go#L1146
    status, reason, _ = conditions.get("Evicted", NOT_SAID)
    return reason if status == "True" and reason in (_NOT_READY_IN_TIME, _BY_CHECK) else ""


def _limit_seconds(
    spec: Mapping[str, Any], pod_sets: Sequence[WorkloadPodSet], conditions: Conditions
) -> int:
    """Return how long it may run; limits that only its Job has are not known.

    One that is evicted gives its quota back within seconds, however long it has run.
    """
    if is_true(conditions, "Evicted") and is_true(conditions, "QuotaReserved"):
        return _UNTIL_GIVEN_BACK
    limits = [fields.integer(spec, "maximumExecutionTimeSeconds", "spec")]
    for pod_set in pod_sets:
        if "activeDeadlineSeconds" in pod_set.pod_spec:
            path = f"{pod_set.path}.template.spec"
            limits.append(fields.integer(pod_set.pod_spec, "activeDeadlineSeconds", path))
    return min(filter(None, limits), default=0)


def _requeue_at(status: Mapping[str, Any]) -> int:
    state = fields.mapping(status, "requeueState", "status")
    return seconds_of(state, "requeueAt", "status.requeueState")


class _Texts(NamedTuple):
    """Labels and annotations of a Workload."""

    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]


def _texts(metadata: Mapping[str, Any]) -> _Texts:
    return _Texts(
        fields.mapping(metadata, "labels", "metadata"),
        fields.mapping(metadata, "annotations", "metadata"),
    )


def _stage(
    texts: _Texts,
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    conditions: Conditions,
) -> Stage:
    if is_true(conditions, "Finished") or spec.get("active") is False:
        return Stage.NEITHER
    if is_true(conditions, "QuotaReserved"):
        # Also while Evicted: the quota is free only when the reservation is released.
        return Stage.RESERVING if status.get("admission") else Stage.NEITHER
    on_hold = conditions.get("QuotaReserved", NOT_SAID)[:2] == ("False", "OnHold")
    if on_hold or is_true(conditions, "WaitingForReplacementPods"):
        return Stage.NEITHER
    parent = texts.labels.get(_PARENT) == "true"
    return Stage.NEITHER if parent or texts.annotations.get(GATE) else Stage.PENDING


def _obstacle(texts: _Texts, spec: Mapping[str, Any], conditions: Conditions) -> Obstacle | None:
    """Return what keeps its Job from being moved; None: nothing.

    Of several the first in this order; an eviction in progress comes before its quota.
    """
    true = {name for name, (status, _, _) in conditions.items() if status == "True"}
    is_inactive = spec.get("active") is False
    if "Finished" in true:
        return Obstacle.FINISHED
    if "QuotaReserved" in true:
        stops = is_inactive or "Evicted" in true
        return Obstacle.STOPPING if stops else Obstacle.QUOTA_RESERVED
    on_hold = conditions.get("QuotaReserved", NOT_SAID)[:2] == ("False", "OnHold")
    if on_hold or "WaitingForReplacementPods" in true:
        return Obstacle.ON_HOLD
    if (named := _named_obstacle(texts)) is not None:
        return named
    if is_inactive:
        return Obstacle.DEACTIVATED
    if conditions.get("Requeued", NOT_SAID)[0] == "False":
        return Obstacle.BACKOFF
    return Obstacle.EVICTED if "Evicted" in true else None


def _named_obstacle(texts: _Texts) -> Obstacle | None:
    """Return the obstacle that its labels or annotations name."""
    if _PARENT in texts.labels:
        return Obstacle.VARIANT
    if is_gated(texts.annotations):
        return Obstacle.HELD
    if texts.annotations.get(GATE):
        return Obstacle.GATED
    return Obstacle.SLICE if texts.annotations.get(REPLACES) else None


def _replaced(texts: _Texts) -> str:
    key = fields.text(texts.annotations, REPLACES, "metadata.annotations")
    return key if len(key) <= _LONGEST_KEY else ""


def _parent(metadata: Mapping[str, Any]) -> str:
    """Return the Workload that a variant belongs to (``GetParentWorkloadName``); empty: none."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/concurrentadmission/concurrentadmission.go#L61
    for owner, here in fields.objects(metadata, "ownerReferences", "metadata"):
        group = fields.text(owner, "apiVersion", here).partition("/")[0]
        if owner.get("kind") == "Workload" and group == KUEUE_GROUP:
            return fields.text(owner, "name", here)[:_LONGEST_KEY]
    return ""


class WorkloadOwner(NamedTuple):
    """The Job that a Workload belongs to; all texts are empty where none is known."""

    kind: str = ""
    """In small letters where only the Workload's name tells it."""
    name: str = ""
    uid: str = ""

    @property
    def reference(self) -> str:
        return reference_of(self.kind, self.name) if self.name else ""


NO_OWNER: Final = WorkloadOwner()


def read_owner(metadata: Mapping[str, Any]) -> WorkloadOwner:
    if fields.mapping(metadata, "annotations", "metadata").get(_OF_GROUP) == "true":
        # Each of its pods owns it; it goes by the group's name, as a Pod would.
        return WorkloadOwner("Pod", fields.text(metadata, "name", "metadata"))
    for owner, here in fields.objects(metadata, "ownerReferences", "metadata"):
        kind = owner.get("kind")
        if not isinstance(kind, str) or len(kind) > LONGEST_KIND:
            continue
        # The Workload of a variant is owned by another Workload.
        if kind in _NOT_CONTROLLING or (kind != "Workload" and owner.get("controller") is True):
            name, uid = (fields.text(owner, key, here) for key in ("name", "uid"))
            return WorkloadOwner(intern(kind), name, uid)
    if MULTIKUEUE_ORIGIN in fields.mapping(metadata, "labels", "metadata"):
        return _owner_by_name(fields.text(metadata, "name", "metadata"))
    return NO_OWNER


def _owner_by_name(name: str) -> WorkloadOwner:
    """Return the Job of a Workload that MultiKueue created, before the Job itself exists here.

    Kueue names a Workload ``<kind>-<name>-<hash>``; a long name is cut, and its Job is not found.
    """
    kind, _, rest = name.partition("-")
    return WorkloadOwner(intern(kind), rest[:-_HASH]) if len(rest) > _HASH else NO_OWNER


class SeenWorkload(NamedTuple):
    """A Workload that was observed, with what identifies its Job even without decision or name."""

    key: str
    """The decision's id, or ``job:<namespace>/<name>``."""
    namespace: str = ""
    job_name: str = ""
    local_queue: str = ""


def as_seen(workload: Workload) -> SeenWorkload | None:
    """Return the Workload as one that was observed; None: neither decision nor Job is known."""
    key = key_of_placement(workload)
    if not key:
        return None
    return SeenWorkload(key, workload.namespace, workload.job, workload.queue)


def key_of_placement(workload: Workload) -> str:
    """Return the key of its placement: the decision's id, else its Job; empty: it has neither."""
    if workload.decision_id:
        return workload.decision_id
    return f"{OF_A_JOB}{workload.namespace}/{workload.job}" if workload.job else ""


class AwaitingCluster(NamedTuple):
    """A Workload that waits for a worker cluster to take it."""

    workload: Workload
    """With its pod sets."""
    check: str
    """Its only AdmissionCheck that is not ready."""
    nominated: tuple[str, ...]
    nominated_at: int
    """When this was written, in seconds since 1970; 0: it is not known."""
    owner_uid: str = ""
    """Of its Job; empty: it is not known."""
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
        owner_uid=read_owner(metadata).uid,
    )


def _nominated_at(source: Mapping[str, Any]) -> int:
    applied = applied_by(KUEUES_MANAGER, source, "status")
    if applied is None:
        return 0
    return seconds_of({"time": applied.time}, "time", "metadata.managedFields")
