"""A Job as a frozen value, whatever its kind: where it was submitted, who owns it, its pod sets.

Also a pending Job, with what a move of it depends on, and the user who asks for a Job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from webhook.model import fields
from webhook.model.edits import Absent, Path
from webhook.model.fields import FieldError, Json, seconds_since_1970
from webhook.model.pods import Container, PodTemplate
from webhook.model.reasons import Obstacle

T = TypeVar("T")

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
ELASTIC = "kueue.x-k8s.io/elastic-job"
MULTIKUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""Label of what MultiKueue copied to a worker cluster."""

OURS = "kueue-fallback.dev/"
OPTION_LABEL = OURS + "option"
"""On the Job and its pod template: the option's name."""
DECISION = OURS + "decision"
REASON = OURS + "reason"
DECISION_ID = OURS + "decision-id"
"""On the pod template; Kueue copies it into the Workload, where the ledger finds it again."""
DECIDED_BY = OURS + "decided-by"
"""On the pod template: the policy's name, by which guests are counted."""
JOB_CLASS = OURS + "class"
"""On the pod template: the class of the Job as it was submitted (see ``learn.job_class``)."""
MOVE_TO = OURS + "move-to"
"""The option that a pending Job is to be moved to; the answer removes it."""
UNDO = "none"
"""The value of ``MOVE_TO`` that asks for an undo. No option may have this name."""
UNDONE = OURS + "undone"
"""On a Job that was in another queue before its decision was undone, or that was deleted and
created anew as submitted: the policy that decided."""
UNDONE_FROM = OURS + "undone-from"
"""Beside it: when that was, and the ClusterQueues of the other options (``pending.Left``)."""
PODS_QUEUE = OURS + "pods-queue"
"""On a Deployment that was moved: the queue of its pods, signed. Kueue keeps that of its own label
while a pod is ready, and would write it over that of the pods."""
ALL_OURS = (OURS, "forecast." + OURS)
"""How our labels and annotations begin."""
EXPECTED_START = ALL_OURS[1] + "expected-start"
"""On a pending Job: when the controller last expected it to start (``forecasts``).

Older versions neither move nor undo a Job with an annotation of ours that they do not know.
"""
MOVE_REASON = OURS + "move-reason"
"""Why, in words for people; consumed with ``MOVE_TO``."""
PROBE = OURS + "probe"
"""On a dry run that asks whether the webhook is called at all: a nonce."""
PLAIN: Final = "Job"
"""The kind of Jobs whose names stand for themselves."""
JOB_CONTROLLER = "kubernetes.io/job-controller"
ENV_PREFIX = OURS + "env."
"""On the pod template: values that environment variables are read from, so that they can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controlling owner reference."""

    api_version: str
    kind: str


MOST_REPLICAS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many times a group of pods is there, where that number stands in the object."""

    path: Path
    number: int
    given: int | None
    """What the object says; None: nothing, so that the number is its controller's default."""
    pods_each: int = 1
    """How many pods a replica has."""
    least: int = 1
    most: int = MOST_REPLICAS
    are_workloads: bool = False
    """Whether each replica is a Workload of its own, so that none has more pods for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """How far a rolling update may leave the number of replicas, as the object says it."""

    path: Path
    surge: Json | Absent
    unavailable: Json | Absent

    @property
    def without_gap(self) -> Rolling:
        """The same, but new pods are ready before old ones end."""
        surge = 1 if self.surge in (0, "0", "0%") else self.surge
        return replace(self, surge=surge, unavailable=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one shape: ``count`` runs at once, as Kueue counts them."""

    name: str
    count: int
    template: PodTemplate
    min_count: int | None = None
    """The fewest pods with which Kueue may admit it (partial admission); None: all or none."""
    path: Path | None = ("spec", "template")
    """The template's place in the object, a Pod's is the object itself; None: it is not there, as
    its controller makes it."""
    replicas: Replicas | None = None
    """What an option may change its count by; None: it may not."""
    group: str = ""
    """Of a Workload: pod sets with the same ``podSetGroupName`` get the same flavors."""
    added: tuple[Container, ...] = ()
    """Containers that its controller adds to each pod, which Kueue counts as well."""

    @property
    def counted(self) -> PodTemplate:
        """The template with all containers that Kueue counts."""
        if not self.added:
            return self.template
        return replace(self.template, containers=(*self.template.containers, *self.added))


class PodSets(tuple[PodSet, ...]):  # noqa: SLOT001 - a tuple with slots could remember nothing
    """A Job's pod sets, and what has been worked out of them.

    Most Jobs come from a few templates, and most of a decision depends on the template alone. Who
    reads Jobs gives equal ones the same PodSets, and what is worked out lives as long as they do.
    """

    _known: dict[tuple[int, ...], tuple[tuple[object, ...], object]]
    _KEPT = 64

    def recall(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """Return the result of *work*, which is done once for the same objects in *key*.

        The objects are compared by identity, because comparing their values would cost as much as
        the work, and must never change. Besides them, *work* may use only what is equal whenever
        these pod sets are the same.
        """
        known = self.__dict__.setdefault("_known", {})
        cached = known.get(ids := tuple(map(id, key)))
        if cached is None:
            if len(known) >= self._KEPT:
                known.clear()
            # The objects stay with their ids, so that no other one can get one of these. Not these
            # pod sets: they would keep themselves until the next garbage collection.
            cached = known[ids] = tuple(part for part in key if part is not self), work()
        worked_out: T = cached[1]
        return worked_out


def of_pod_sets(function: Callable[..., T], pod_sets: Sequence[PodSet], *others: Any) -> T:
    """Call ``function(pod_sets, *others)``, or recall what it returned for the same objects."""
    if isinstance(pod_sets, PodSets):
        return pod_sets.recall((function, *others), lambda: function(pod_sets, *others))
    return function(pod_sets, *others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    namespace: str
    name: str
    generate_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    managed_by: str | None = None
    active_deadline_seconds: int | None = None
    pod_sets: tuple[PodSet, ...] = ()
    kind: str = PLAIN
    priority_class: str = ""
    """The PriorityClass that a field of its kind names; empty: its pods name it, if any."""
    unmodelled: str = ""
    """What its kind says of it that is not modelled, in words; empty: nothing."""
    refused_with_queue: str = ""
    """What Kueue's validating webhook would refuse in it if it named a queue, in words; empty:
    nothing."""
    workloads: int = 1
    """How many Workloads Kueue makes of it, each of these pod sets."""
    group: str = ""
    """The group of a Pod, all pods of which are one Workload; empty: it is queued by itself."""
    is_endless: bool = False
    """Whether it never ends by itself, though others of its kind do."""
    rolling: Rolling | None = None
    own_queue: str | None = None
    """What its own label says where the queue that counts is that of its pod template; None: its
    label counts."""

    def with_pod_sets(self, pod_sets: tuple[PodSet, ...]) -> Job:
        """Return the Job with other pod sets, and as many Workloads as these have replicas."""
        workloads = self.workloads
        for pod_set in pod_sets:
            if pod_set.replicas is not None and pod_set.replicas.are_workloads:
                workloads = pod_set.replicas.number
        return replace(self, pod_sets=pod_sets, workloads=workloads)

    @property
    def reference(self) -> str:
        """Its name within its namespace, such as ``rayjob/train``; a batch Job's is its name."""
        return reference_of(self.kind, self.name)

    @property
    def pod_priority_class(self) -> str:
        """The PriorityClass by which Kueue ranks it without a WorkloadPriorityClass; or empty."""
        if self.priority_class:
            return self.priority_class
        for pod_set in self.pod_sets:
            if named := pod_set.template.priority_class:
                return named
        return ""

    @property
    def named_priority(self) -> str:
        """The WorkloadPriorityClass of its label, else ``pod_priority_class``; or empty."""
        return self.labels.get(PRIORITY_LABEL, "") or self.pod_priority_class

    @property
    def queue(self) -> str:
        """The LocalQueue of its pods; empty: none, as Kueue reads it."""
        return self.labels.get(QUEUE_LABEL, "")

    @property
    def as_created(self) -> Job:
        """The Job with ``spec.managedBy`` filled in, which cannot change once the Job exists.

        https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/apis/batch/types.go, JobSpec
        """
        return replace(self, managed_by=self.managed_by or JOB_CONTROLLER)


LONGEST_KIND: Final = 63
"""Characters of a kind's name, as Kubernetes allows them."""


def reference_of(kind: str, name: str) -> str:
    """Return the name by which a Job of any kind is told from all others in its namespace."""
    written = kind.lower()
    return name if written == PLAIN.lower() else f"{written}/{name}"


LONGEST_LEFT: Final = 4096
"""Most characters: a time and the names of as many ClusterQueues as a policy has options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A move or an undo, with what a repair needs if the Job's Workload then has quota."""

    unix: float
    """When it was, in seconds since 1970."""
    cluster_queues: frozenset[str]
    """Those of the Job's other options, as they were then; the Job belongs in none of them."""


def left_written(time: str, cluster_queues: Iterable[str]) -> str:
    """Return the text of the annotation ``UNDONE_FROM``."""
    return f"{time} {','.join(sorted(cluster_queues))}"


def read_left(text: str) -> Left | None:
    """Read what ``left_written`` wrote; None: it is something else."""
    # A third word is a signature that nobody could verify.
    time, names, *_ = *text[:LONGEST_LEFT].split(" "), ""
    try:
        unix = seconds_since_1970(time, "")
    except FieldError:
        return None
    return Left(unix=unix, cluster_queues=frozenset(names.split(",")))


PUT_BACK: Final = "put back, as new pods were not ready in "
"""How the reason of a move begins that takes back one of a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How far a service is that was moved, and what came of its moves."""

    is_done: bool
    """Whether all of its pods are new ones and were ready once."""
    left: str = ""
    """The option that its last move left; empty: there is none, or that move put it back."""
    moved: tuple[float, ...] = ()
    """When it was moved, in seconds since 1970, as far as that is kept."""
    failed: Mapping[str, float] = field(default_factory=dict)
    """Each option whose new pods were not ready in time, and when it was put back from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    uid: str
    version: str
    """Its resourceVersion."""
    created: float
    """Seconds since 1970."""
    job: Job
    """As it was submitted: without any decision."""
    queue: str
    """The LocalQueue that it names now."""
    policy: str = ""
    """The policy that decided it; empty: it carries no decision."""
    option: str = ""
    """The option that it was sent to; empty: it was left as submitted."""
    moves: int = 0
    undone: str = ""
    """The policy whose decision was undone, if it was in another queue before; empty: none was."""
    changed: float = 0.0
    """When it was decided, or moved last, in seconds since 1970."""
    obstacle: Obstacle | None = None
    """What of the Job itself keeps it from being moved."""
    left: Left | None = None
    """Its last move, or its undo; None: no signed record says that it left a queue."""
    has_ready_pods: bool = False
    started: float = 0.0
    """Since when it has not been suspended, in seconds since 1970; 0: it is."""
    rollout: Rollout | None = None
    """None: it is no service that rolls."""

    @property
    def has_left(self) -> bool:
        """Whether it was sent from one queue to another while it waited."""
        return self.left is not None

    @property
    def key(self) -> str:
        return f"{self.job.namespace}/{self.job.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The user of a review, which is who creates a Job or asks for a move of it.

    A label may say anything; this is what an option can safely be kept for.
    """

    name: str = ""
    """Such as ``alice`` or ``system:serviceaccount:ci:runner``."""
    groups: frozenset[str] = frozenset()


def read_requester(source: Mapping[str, Any], path: str) -> Requester:
    """Read a ``userInfo`` of Kubernetes' authentication API.

    Raises:
        FieldError: it cannot be read; the path begins with *path*.

    """
    groups = fields.strings(source, "groups", path)
    return Requester(name=fields.text(source, "username", path), groups=frozenset(groups))
