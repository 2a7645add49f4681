"""A Job as a frozen value, whatever its kind: where it was submitted, who owns it, its pod sets.

And one that waits for quota, as far as moving it is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from webhook.model.fields import FieldError, seconds_since_1970
from webhook.model.pods import PodTemplate
from webhook.model.reasons import Obstacle

T = TypeVar("T")

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

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
"""The option that a pending Job shall be moved to; taken off by whoever answers it."""
UNDO = "none"
"""As what ``MOVE_TO`` says: take the decision back. No option may be named so."""
UNDONE = OURS + "undone"
"""On a Job that was in another queue before its decision was undone, or that was deleted and
created anew as submitted: the policy that decided."""
UNDONE_FROM = OURS + "undone-from"
"""Beside it: when that was, and the ClusterQueues of the other options (``pending.Left``)."""
MOVE_REASON = OURS + "move-reason"
"""Why, in words for people; consumed with ``MOVE_TO``."""
PROBE = OURS + "probe"
"""On a dry run that asks whether the webhook is called at all: a nonce."""
JOB_CONTROLLER = "kubernetes.io/job-controller"
ENV_PREFIX = OURS + "env."
"""On the pod template: values that environment variables are read from, so that they can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controlling owner reference."""

    api_version: str
    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one shape: ``count`` runs at once, as Kueue counts them."""

    name: str
    count: int
    template: PodTemplate
    min_count: int | None = None
    """With so many Kueue may admit it where there is no room for all; None: with all or none."""


class PodSets(tuple[PodSet, ...]):  # noqa: SLOT001 - a tuple with slots could remember nothing
    """A Job's pod sets, and what has been worked out of them.

    Most Jobs come from a few templates, and most of a decision depends on the template alone. Who
    reads Jobs gives equal ones the same PodSets, and what is worked out lives as long as they do.
    """

    _known: dict[tuple[int, ...], tuple[tuple[object, ...], object]]
    _KEPT = 64

    def recall(self, key: tuple[object, ...], work: Callable[[], T]) -> T:
        """Do *work* once for the very same objects in *key*, which nobody changes.

        They are told apart by which objects they are: comparing them would cost as much as the
        work. It may use besides only what is equal whenever these pod sets are the same.
        """
        known = self.__dict__.setdefault("_known", {})
        found = known.get(ids := tuple(map(id, key)))
        if found is None:
            if len(known) >= self._KEPT:
                known.clear()
            # The objects stay with their ids, so that no other one can get one of these. Not these
            # pod sets: they would keep themselves until the next garbage collection.
            found = known[ids] = tuple(part for part in key if part is not self), work()
        result: T = found[1]
        return result


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
    submitted: str = ""
    """When the API server last took fields of it from somebody (RFC 3339), and its name then.

    The name tells it from a copy that is made within the same second.
    """

    @property
    def queue(self) -> str:
        """The LocalQueue's name it was submitted to; empty: none, as Kueue reads it."""
        return self.labels.get(QUEUE_LABEL, "")

    @property
    def as_created(self) -> Job:
        """Say of a Job that exists who runs it: that is fixed, also where its manifest was silent.

        https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/batch/types.go, JobSpec
        """
        return replace(self, managed_by=self.managed_by or JOB_CONTROLLER)


LONGEST_LEFT: Final = 4096
"""Characters: a time and the names of as many ClusterQueues as a policy has options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A move or an undo, as far as it matters to who finds the Job's Workload with quota."""

    unix: float
    """When it was, in seconds since 1970."""
    cluster_queues: frozenset[str]
    """Those of the Job's other options, as they were then: in none of them does it belong."""


def left_written(time: str, cluster_queues: Iterable[str]) -> str:
    """Write one as it stands on a Job."""
    return f"{time} {','.join(sorted(cluster_queues))}"


def read_left(text: str) -> Left | None:
    """Read it back; None: nobody of ours wrote it."""
    # A third word is a signature that nobody could verify.
    time, names, *_ = *text[:LONGEST_LEFT].split(" "), ""
    try:
        unix = seconds_since_1970(time, "")
    except FieldError:
        return None
    return Left(unix=unix, cluster_queues=frozenset(names.split(",")))


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
    """By which it was decided; empty: no decision stands on it."""
    option: str = ""
    """Where it was sent; empty: it was left as submitted."""
    moves: int = 0
    undone: str = ""
    """The policy whose decision was undone, if it was in another queue before; empty: none was."""
    changed: float = 0.0
    """When it was decided, or moved last, in seconds since 1970."""
    obstacle: Obstacle | None = None
    """What of the Job itself keeps it from being moved."""
    left: Left | None = None
    """Its last move, or its undo; None: it has left no queue, as far as is proven."""
    has_ready_pods: bool = False
    started: float = 0.0
    """Since when it has not been suspended, in seconds since 1970; 0: it is."""

    @property
    def has_left(self) -> bool:
        """Whether it was sent from one queue to another while it waited."""
        return self.left is not None

    @property
    def key(self) -> str:
        return f"{self.job.namespace}/{self.job.name}"
