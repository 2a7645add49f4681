"""Why a pending Job is not moved to another option: a closed set, each with words for people."""

from __future__ import annotations

from webhook.model.reasons import Explained


class Obstacle(Explained):
    """What stands in the way of a move; its meaning is said after ``not moved to cpu:``."""

    NOT_SUSPENDED = (
        "notSuspended",
        "it is no longer suspended",
        "Nothing: what has started stays where it is.",
    )
    STOPPING = (
        "stopping",
        "Kueue is stopping it",
        "Nothing: it can be moved when it is suspended.",
    )
    PODS_ACTIVE = (
        "podsActive",
        "it still has pods",
        "Nothing: it can be moved when they are gone.",
    )
    STARTED = (
        "started",
        "it has been started, and Kubernetes has not taken note of its suspension",
        "Nothing: it can be moved when its condition Suspended is True.",
    )
    BEING_DELETED = (
        "beingDeleted",
        "it is being deleted",
        "Nothing.",
    )
    FINISHED = (
        "finished",
        "it is finished",
        "Nothing.",
    )
    FOREIGN_DECISION = (
        "foreignDecision",
        "its decision was not made by this installation, or was changed since",
        "Nothing: it stays as it is; delete the Job and submit it again.",
    )
    MANAGED_BY = (
        "managedBy",
        "another controller or cluster runs it (managedBy, MultiKueue)",
        "Nothing: whoever runs it decides.",
    )
    IMMUTABLE_IMAGE = (
        "immutableImage",
        "the image would change, which Kubernetes allows at creation only",
        "Give the options one image that runs on both, or leave `image` out.",
    )
    IMMUTABLE_ENV = (
        "immutableEnv",
        "an environment variable would change, which Kubernetes allows at creation only",
        "Set the variable in the Job too, to one value in all containers; `undo --recreate` helps.",
    )
    IMMUTABLE_RUNTIME_CLASS = (
        "immutableRuntimeClass",
        "the runtime class would change, which Kubernetes allows at creation only",
        "Give the options the same runtime class.",
    )
    IMMUTABLE_AFFINITY = (
        "immutableAffinity",
        "pod affinity or anti-affinity would change, which Kubernetes allows at creation only",
        "Leave pod affinity out of the adaptation.",
    )
    IMMUTABLE_PRIORITY = (
        "immutablePriority",
        "its label kueue.x-k8s.io/priority-class would go, which Kueue does not take",
        "Give every option a priority class, or none.",
    )
    KUEUE_WOULD_NOT_NOTICE = (
        "kueueWouldNotNotice",
        "Kueue would not notice, as no container's resources would change",
        "Let the options differ in a container's resources as well.",
    )
    UNCOUNTED_GUEST = (
        "uncountedGuest",
        "the option limits its guests, and it could not be counted among them",
        "Let the options differ in a container's resources as well, or leave `guests` out.",
    )
    OLDER_KUBERNETES = (
        "olderKubernetes",
        "its resources would change, which Kubernetes allows from 1.36 on only",
        "Upgrade Kubernetes; until then, let options differ in the queue alone.",
    )
    NO_WORKLOAD = (
        "noWorkload",
        "it has no Workload yet",
        "Nothing: Kueue makes it in a moment.",
    )
    SEVERAL_WORKLOADS = (
        "severalWorkloads",
        "it has several Workloads",
        "Nothing: Kueue removes those that are too many.",
    )
    MISMATCH = (
        "mismatch",
        "its Workload does not match it yet",
        "Nothing: Kueue brings it up to date.",
    )
    DEACTIVATED = (
        "deactivated",
        "its Workload is deactivated",
        "Set `spec.active` of its Workload to true, if it shall run.",
    )
    QUOTA_RESERVED = (
        "quotaReserved",
        "it has quota reserved",
        "Nothing: it starts soon.",
    )
    ON_HOLD = (
        "onHold",
        "its Workload is on hold",
        "Nothing: it can be moved when the hold is taken off.",
    )
    BACKOFF = (
        "backoff",
        "its Workload waits to be queued again",
        "Nothing: it can be moved when it is queued again.",
    )
    GATED = (
        "gated",
        "an admission gate holds its Workload",
        "Nothing: it can be moved when the gate is removed.",
    )
    VARIANT = (
        "variant",
        "its Workload is one of several variants (ConcurrentAdmission)",
        "Nothing: Kueue tries the variants itself.",
    )
    SLICE = (
        "slice",
        "its Workload is a slice (elastic-job)",
        "Nothing: such Jobs are not moved.",
    )
    EVICTED = (
        "evicted",
        "its Workload was evicted, and Kueue does not take up its queue before it has quota again",
        "Nothing; options that differ in a container's resources are not affected.",
    )
    TOO_SOON = (
        "tooSoon",
        "it has not waited as long as its policy says",
        "Nothing: `reconsider.after` has not passed yet.",
    )
    MAX_MOVES = (
        "maxMoves",
        "it was moved as often as its policy allows",
        "Nothing, or raise `reconsider.maxMoves`.",
    )
    OFF = (
        "off",
        "switched off by the ConfigMap kueue-fallback-off",
        "`kueue-fallback on` lets Jobs be moved again.",
    )
    OPTED_OUT = (
        "optedOut",
        "its annotation kueue-fallback.dev/policy says none",
        "Nothing: its owner wants it so.",
    )
    NOT_OURS = (
        "notOurs",
        "it is not ours to move",
        "Nothing.",
    )
    STALE = (
        "stale",
        "the state of the queues is not known, or too old",
        "As for `stale` above.",
    )
    UNREADABLE = (
        "unreadable",
        "something in it cannot be read",
        "Mend what the warning names.",
    )
    TOO_LARGE = (
        "tooLarge",
        "with the move on record it would be too large for the API server",
        "Make its annotations smaller.",
    )
    DECISION_CHANGED = (
        "decisionChanged",
        "its decision is changed in the same request",
        "Ask for the move alone; leave the annotation `decision` as it is.",
    )
    NEWER_DECISION = (
        "newerDecision",
        "its decision is of a newer version",
        "Upgrade kueue-fallback to the version that decided it.",
    )
    NO_POLICY = (
        "noPolicy",
        "its policy is not there",
        "Create the policy again, or leave the Job where it is.",
    )
    NOT_ENFORCED = (
        "notEnforced",
        "its policy's mode is not Enforce",
        "Set the policy's `mode` to `Enforce`.",
    )
    UNTESTED_KUEUE = (
        "untestedKueue",
        "policies only observe, because Kueue is another one than is tested",
        "The policy's condition KueueTested says why; or set `untested_kueue: enforce`.",
    )
    NO_SUCH_OPTION = (
        "noSuchOption",
        "its policy has no such option",
        "Name one of the policy's options.",
    )
    ALREADY_THERE = (
        "alreadyThere",
        "it is there already",
        "Nothing.",
    )
    START_UNKNOWN = (
        "startUnknown",
        "when it would start, here or there, is not known well enough to move it",
        "Nothing: once enough runs were seen in the queue it is looked at again.",
    )
    OPTION_REFUSED = (
        "optionRefused",
        "the option is refused",
        "The warning gives the option's reason; see the options' reasons above.",
    )
    NO_QUEUE = (
        "noQueue",
        "it named no queue when it was submitted, and would wait in none",
        "`kubectl annotate` it with `kueue-fallback.dev/policy=none` to have it left alone.",
    )


OUTCOMES = ("moved", "conflict", "refused", "lost", "repaired", "failed")
"""What becomes of a move that the controller writes."""
