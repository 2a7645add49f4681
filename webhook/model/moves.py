"""Why a pending Job is not moved to another option: a closed set, each with words for people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Obstacle(StrEnum):
    """What stands in the way of a move."""

    NOT_SUSPENDED = "notSuspended"
    STOPPING = "stopping"
    PODS_ACTIVE = "podsActive"
    STARTED = "started"
    BEING_DELETED = "beingDeleted"
    FINISHED = "finished"
    MANAGED_BY = "managedBy"

    IMMUTABLE_IMAGE = "immutableImage"
    IMMUTABLE_ENV = "immutableEnv"
    IMMUTABLE_RUNTIME_CLASS = "immutableRuntimeClass"
    IMMUTABLE_AFFINITY = "immutableAffinity"
    IMMUTABLE_PRIORITY = "immutablePriority"
    KUEUE_WOULD_NOT_NOTICE = "kueueWouldNotNotice"
    OLDER_KUBERNETES = "olderKubernetes"

    NO_WORKLOAD = "noWorkload"
    SEVERAL_WORKLOADS = "severalWorkloads"
    MISMATCH = "mismatch"
    DEACTIVATED = "deactivated"
    QUOTA_RESERVED = "quotaReserved"
    ON_HOLD = "onHold"
    BACKOFF = "backoff"
    GATED = "gated"
    VARIANT = "variant"
    SLICE = "slice"
    EVICTED = "evicted"

    TOO_SOON = "tooSoon"
    MAX_MOVES = "maxMoves"

    OFF = "off"
    OPTED_OUT = "optedOut"
    NOT_OURS = "notOurs"
    STALE = "stale"
    UNREADABLE = "unreadable"
    DECISION_CHANGED = "decisionChanged"
    NEWER_DECISION = "newerDecision"
    NO_POLICY = "noPolicy"
    NOT_ENFORCED = "notEnforced"
    NO_SUCH_OPTION = "noSuchOption"
    ALREADY_THERE = "alreadyThere"
    OPTION_REFUSED = "optionRefused"

    NO_QUEUE = "noQueue"


WORDS: Mapping[Obstacle, str] = {
    Obstacle.NOT_SUSPENDED: "it is no longer suspended",
    Obstacle.STOPPING: "Kueue is stopping it",
    Obstacle.PODS_ACTIVE: "it still has pods",
    Obstacle.STARTED: "it has been started, and Kubernetes has not taken note of its suspension",
    Obstacle.BEING_DELETED: "it is being deleted",
    Obstacle.FINISHED: "it is finished",
    Obstacle.MANAGED_BY: "another controller or cluster runs it (managedBy, MultiKueue)",
    Obstacle.IMMUTABLE_IMAGE: "the image would change, which Kubernetes allows at creation only",
    Obstacle.IMMUTABLE_ENV: (
        "an environment variable would change, which Kubernetes allows at creation only"
    ),
    Obstacle.IMMUTABLE_RUNTIME_CLASS: (
        "the runtime class would change, which Kubernetes allows at creation only"
    ),
    Obstacle.IMMUTABLE_AFFINITY: (
        "pod affinity or anti-affinity would change, which Kubernetes allows at creation only"
    ),
    Obstacle.IMMUTABLE_PRIORITY: (
        "its label kueue.x-k8s.io/priority-class would go, which Kueue does not take"
    ),
    Obstacle.KUEUE_WOULD_NOT_NOTICE: (
        "Kueue would not notice, as no container's resources would change"
    ),
    Obstacle.OLDER_KUBERNETES: (
        "its resources would change, which Kubernetes allows from 1.36 on only"
    ),
    Obstacle.NO_WORKLOAD: "it has no Workload yet",
    Obstacle.SEVERAL_WORKLOADS: "it has several Workloads",
    Obstacle.MISMATCH: "its Workload does not match it yet",
    Obstacle.DEACTIVATED: "its Workload is deactivated",
    Obstacle.QUOTA_RESERVED: "it has quota reserved",
    Obstacle.ON_HOLD: "its Workload is on hold",
    Obstacle.BACKOFF: "its Workload waits to be queued again",
    Obstacle.GATED: "an admission gate holds its Workload",
    Obstacle.VARIANT: "its Workload is one of several variants (ConcurrentAdmission)",
    Obstacle.SLICE: "its Workload is a slice (elastic-job)",
    Obstacle.EVICTED: "its Workload is being evicted",
    Obstacle.TOO_SOON: "it has not waited as long as its policy says",
    Obstacle.MAX_MOVES: "it was moved as often as its policy allows",
    Obstacle.OFF: "switched off by the ConfigMap kueue-fallback-off",
    Obstacle.OPTED_OUT: "its annotation kueue-fallback.dev/policy says none",
    Obstacle.NOT_OURS: "it is not ours to move",
    Obstacle.STALE: "the state of the queues is not known, or too old",
    Obstacle.UNREADABLE: "something in it cannot be read",
    Obstacle.DECISION_CHANGED: "its decision is changed in the same request",
    Obstacle.NEWER_DECISION: "its decision is of a newer version",
    Obstacle.NO_POLICY: "its policy is not there",
    Obstacle.NOT_ENFORCED: "its policy's mode is not Enforce",
    Obstacle.NO_SUCH_OPTION: "its policy has no such option",
    Obstacle.ALREADY_THERE: "it is there already",
    Obstacle.OPTION_REFUSED: "the option is refused",
    Obstacle.NO_QUEUE: "it named no queue when it was submitted, and would wait in none",
}
"""After ``not moved to cpu:`` or ``not undone:``."""

OUTCOMES = ("moved", "conflict", "refused", "lost", "repaired", "failed")
"""What becomes of a move that the controller writes."""
