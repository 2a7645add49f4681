"""Reasons that carry their own words, so that none is without them; docs/reasons.md lists all.

Every closed set of reasons that people see is an ``Explained``: here those that no decision needs,
the others where they are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """A reason's identifier, with what it means and what to do about it, for people."""

    _value_: str
    meaning: str
    """One clause, to stand in a sentence: ``it is being deleted``."""
    advice: str
    """One sentence or more; begins with ``Nothing`` where there is nothing to do."""

    def __new__(cls, value: str, meaning: str, advice: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.advice = advice
        return member

    @property
    def anchor(self) -> str:
        """Return the name of its row in docs/reasons.md, which no other reason has."""
        return f"{type(self).__name__}.{self}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusProblem:
    """What of a policy, profile or Tariff cannot be used, and where in it."""

    reason: Explained
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Ready(Explained):
    """Why a FallbackPolicy's condition Ready is as it is: True with the first, else False."""

    RESOLVED = (
        "Resolved",
        "all queues and classes that the options name exist",
        "Nothing.",
    )
    INVALID = (
        "Invalid",
        "it breaks a rule that the API server does not keep, or did not then, and is passed over",
        "Correct what the message names.",
    )
    NO_NAMESPACE = (
        "NoNamespace",
        "no namespace is selected",
        "Label a namespace, or correct `match.namespaceSelector`.",
    )
    TOO_MANY = (
        "TooMany",
        "its namespace has more policies of its own than count",
        "Merge or delete some; those whose names come first count.",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "no selected namespace has the LocalQueue of an option",
        "Create it, or correct its name.",
    )
    CLUSTER_QUEUE_NOT_FOUND = (
        "ClusterQueueNotFound",
        "the ClusterQueue of an option does not exist",
        "Create it, or correct its name.",
    )
    KIND_NOT_SERVED = (
        "KindNotServed",
        "the cluster does not serve a kind that the policy names",
        "Install it, or take it out of `match.kinds`.",
    )
    KIND_NOT_SWITCHED_ON = (
        "KindNotSwitchedOn",
        "the chart's `kinds` lack a kind that the policy names, so its Jobs are not reviewed",
        "Add it to the chart's `kinds`.",
    )
    KIND_NOT_MANAGED = (
        "KindNotManaged",
        "Kueue's integration for a kind that the policy names is off",
        "Switch it on in Kueue's `integrations.frameworks`.",
    )
    PRIORITY_CLASS_NOT_FOUND = (
        "PriorityClassNotFound",
        "the WorkloadPriorityClass that an option gives does not exist",
        "Create it, or correct its name.",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "the RuntimeClass that an option sets does not exist",
        "Create it, or correct its name.",
    )


class ProfileReady(Explained):
    """Why an AcceleratorProfile's condition Ready is as it is: True with the first, else False."""

    RESOLVED = (
        "Resolved",
        "some ResourceFlavor has this device",
        "Nothing.",
    )
    INVALID = (
        "Invalid",
        "the profile breaks a rule; it was stored before that rule was there, and is passed over",
        "Correct what the message names.",
    )
    UNKNOWN_MODEL = (
        "UnknownModel",
        "the built-in table does not have the product that `like` names",
        "Give the figures in the profile.",
    )
    NO_FLAVOR = (
        "NoFlavor",
        "no ResourceFlavor is among its `flavors` or has its `nodeLabels`",
        "Create it, or correct the name or the labels.",
    )
    AMBIGUOUS = (
        "Ambiguous",
        "another profile, the first by name, claims the same ResourceFlavor",
        "Take the flavor out of one of them.",
    )


class TariffReady(Explained):
    """Why a Tariff's condition Ready is as it is: True with the first, else False."""

    RESOLVED = (
        "Resolved",
        "every entry and series can be used",
        "Nothing.",
    )
    INVALID = (
        "Invalid",
        "the tariff breaks a rule; it was stored before that rule was there, and is passed over",
        "Correct what the message names.",
    )
    BAD_TIME_ZONE = (
        "BadTimeZone",
        "there is no such time zone",
        "Until then only entries count that always apply.",
    )
    UNKNOWN_CLUSTER = (
        "UnknownCluster",
        "there is no MultiKueueCluster of a name in `clusters`",
        "Create it, or correct the name.",
    )
    NO_FLAVOR = (
        "NoFlavor",
        "a ResourceFlavor that `rates` names does not exist",
        "Create it, or correct the name.",
    )
    AMBIGUOUS = (
        "Ambiguous",
        "another tariff, the first by name, says the same of the same cluster",
        "Take it out of one of them.",
    )
    CURRENCY_DIFFERS = (
        "CurrencyDiffers",
        "its money is in another currency than the installation's",
        "Use the chart's `currency`. Until then only its carbon counts.",
    )
    BAD_SERIES = (
        "BadSeries",
        "the points of a series cannot be read",
        "Until then the entries count.",
    )
    SERIES_ENDED = (
        "SeriesEnded",
        "the last point of a series is past",
        "Until it is written again the entries count.",
    )


class EventReason(Explained):
    """What an Event tells of."""

    DECIDED = (
        "Decided",
        "on a Job: at its creation it was changed; the message says what and why",
        "Nothing, or `kubectl fallback undo`.",
    )
    MOVED = (
        "Moved",
        "on a Job: it waited, and was sent to another option; the message says why",
        "Nothing, or `kubectl fallback undo`.",
    )
    CLUSTER_ASKED = (
        "ClusterAsked",
        "on a Job: it waits for a worker cluster, and another is asked, too; the message says why",
        "Nothing: the first with quota runs it.",
    )
    UNDONE = (
        "Undone",
        "on a Job: it is as it was submitted again, and pinned there",
        "Nothing: somebody asked for it.",
    )
    MOVE_LOST = (
        "MoveLost",
        "on a Job: Kueue gave it quota just when it was sent away; the message says where it runs",
        "Nothing: it runs.",
    )
    ADVISED = (
        "Advised",
        "on a Job: it runs, and the rest of it would cost much less elsewhere, from a checkpoint",
        "Nothing, or `kubectl fallback advise`.",
    )
    NOT_AUTOSCALED = (
        "NotAutoscaled",
        "on a service: no HorizontalPodAutoscaler is made for it or followed; the message says why",
        "What the message says, or take `autoscale` out of the policy.",
    )
    AT_QUOTA = (
        "AtQuota",
        "on a service: its HorizontalPodAutoscaler asks for more replicas than quota can hold",
        "More quota for the ClusterQueue, or a second service in another queue.",
    )
    KEEPS_FAILING = (
        "KeepsFailing",
        "on a FallbackPolicy: an option is refused to a class of Jobs for a day",
        "`kubectl fallback report --run-times` lists such classes.",
    )


class Obstacle(Explained):
    """What stands in the way of a move; its meaning is said after ``not moved to cpu:``."""

    NOT_SUSPENDED = (
        "notSuspended",
        "it is no longer suspended",
        "Nothing: what has started stays where it is.",
    )
    CREATION_ONLY = (
        "creationOnly",
        "a Job of its kind is decided at its creation only",
        "Nothing in place: submit it with policy=none.",
    )
    PAUSED = (
        "paused",
        "its rollout is paused",
        "Resume it by `kubectl rollout resume`.",
    )
    RECREATES = (
        "recreates",
        "its strategy is Recreate, so that old pods end before new ones are ready",
        "Give it the strategy RollingUpdate.",
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
        "it has started once, and Kubernetes has not recorded its suspension yet",
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
        "Give the options one image.",
    )
    IMMUTABLE_ENV = (
        "immutableEnv",
        "an environment variable would change, which Kubernetes allows at creation only",
        "Set the variable in the Job, to one value in all containers.",
    )
    IMMUTABLE_RESOURCES = (
        "immutableResources",
        "its resources would change, which its kind allows at creation only",
        "Nothing in place: let options differ in nodes and tolerations.",
    )
    IMMUTABLE_REPLICAS = (
        "immutableReplicas",
        "the replicas of a pod set would change, which its kind allows at creation only",
        "Nothing in place: give options equal `adaptation.replicas`.",
    )
    IMMUTABLE_RUNTIME_CLASS = (
        "immutableRuntimeClass",
        "the runtime class would change, which Kubernetes allows at creation only",
        "Give the options one runtime class.",
    )
    IMMUTABLE_AFFINITY = (
        "immutableAffinity",
        "pod affinity or anti-affinity would change, which Kubernetes allows at creation only",
        "Leave pod affinity out of the adaptation.",
    )
    IMMUTABLE_TEMPLATE = (
        "immutableTemplate",
        "its pods would change, which its kind allows at creation only",
        "Nothing in place: let options differ in their queues alone.",
    )
    IMMUTABLE_PRIORITY = (
        "immutablePriority",
        "its label kueue.x-k8s.io/priority-class would be removed, which Kueue refuses",
        "Give every option a priority class, or none.",
    )
    KUEUE_WOULD_NOT_NOTICE = (
        "kueueWouldNotNotice",
        "Kueue would not notice, as no container's resources would change",
        "Let options differ in a container's resources.",
    )
    UNCOUNTED_GUEST = (
        "uncountedGuest",
        "the option limits its guests, and this Job could not be counted as one",
        "Let the options differ in a container's resources, or leave `guests` out.",
    )
    OLDER_KUBERNETES = (
        "olderKubernetes",
        "its resources would change, which Kubernetes allows from 1.36 on only",
        "Upgrade Kubernetes, or let options differ in the queue alone.",
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
        "Set its Workload's `spec.active` to true; `move-to` moves it before.",
    )
    QUOTA_RESERVED = (
        "quotaReserved",
        "it has quota reserved",
        "Nothing: it starts soon. Behind MultiKueue, `clusters.dispatcher` asks other clusters.",
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
    HELD = (
        "held",
        "it is held from admission until a better hour",
        "Nothing: it is released in time; `kubectl fallback release` starts it now.",
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
        "its Workload was evicted, and Kueue ignores a new queue until it has quota again",
        "Nothing; this spares options that differ in a container's resources.",
    )
    TOO_SOON = (
        "tooSoon",
        "it has not waited as long as its policy says",
        "Nothing: `reconsider.after` has not passed yet.",
    )
    ROLLING = (
        "rolling",
        "its pods are being replaced",
        "Nothing: it is looked at again when all are new and ready.",
    )
    COST_UNKNOWN = (
        "costUnknown",
        "what an hour of it costs where it is, is not known",
        "`kubectl fallback explain` says why; give prices, or `serving`.",
    )
    MAX_MOVES = (
        "maxMoves",
        "it was moved as often as its policy allows",
        "Nothing, or raise `reconsider.maxMoves`.",
    )
    OFF = (
        "off",
        "switched off by the ConfigMap kueue-fallback-off",
        "`kubectl fallback on` ends that.",
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
        "As above.",
    )
    UNREADABLE = (
        "unreadable",
        "something in it cannot be read",
        "Correct what the warning names.",
    )
    TOO_LARGE = (
        "tooLarge",
        "it has too much text to be moved, or would have with the move on record",
        "Make annotations, variables or arguments smaller.",
    )
    DECISION_CHANGED = (
        "decisionChanged",
        "its decision is changed in the same request",
        "Leave the annotation `decision` as it is.",
    )
    NEWER_DECISION = (
        "newerDecision",
        "its decision is of a newer version",
        "Upgrade kueue-fallback.",
    )
    NO_POLICY = (
        "noPolicy",
        "its policy is not there",
        "Create it again.",
    )
    NOT_ENFORCED = (
        "notEnforced",
        "its policy's mode is not Enforce",
        "Set its `mode`.",
    )
    UNTESTED_KUEUE = (
        "untestedKueue",
        "policies only observe, because Kueue is another one than is tested",
        "The condition KueueTested says why; or set `untested_kueue: enforce`.",
    )
    NO_SUCH_OPTION = (
        "noSuchOption",
        "its policy has no such option",
        "`kubectl fallback explain` lists them.",
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
    UNMODELLED = (
        "unmodelled",
        "something about it is not modelled, such as the runtime of a TrainJob",
        "Nothing: such Jobs are moved only when the annotation `move-to` asks for it.",
    )
    OPTION_REFUSED = (
        "optionRefused",
        "the option is refused",
        "The warning gives the option's reason.",
    )
    NO_QUEUE = (
        "noQueue",
        "it named no queue when it was submitted, and would wait in none",
        "Annotate it with `kueue-fallback.dev/policy=none`.",
    )


OUTCOMES = ("moved", "conflict", "refused", "lost", "repaired", "putBack", "failed")
"""What becomes of a move that the controller writes."""


class Reason(Explained):
    """Why an option is refused."""

    QUEUE_NOT_FOUND = (
        "queueNotFound",
        "the Job's namespace has no such LocalQueue",
        "Create it, or correct its name in the policy.",
    )
    QUEUE_AMBIGUOUS = (
        "queueAmbiguous",
        "several LocalQueues of the namespace point to the option's ClusterQueue",
        "Give the option `queue` instead of `clusterQueue`.",
    )
    CLUSTER_QUEUE_NOT_FOUND = (
        "clusterQueueNotFound",
        "the LocalQueue points to a ClusterQueue that does not exist",
        "Create it, or correct the LocalQueue.",
    )
    STOPPED = (
        "stopped",
        "the LocalQueue or ClusterQueue has a stopPolicy",
        "Nothing, if somebody stopped it on purpose; else set its `stopPolicy` to `None`.",
    )
    INACTIVE = (
        "inactive",
        "the ClusterQueue is not active",
        "`kubectl describe clusterqueue` says why.",
    )
    NO_ACTIVE_CLUSTER = (
        "noActiveCluster",
        "none of the worker clusters behind the ClusterQueue's MultiKueue check is active",
        "`kubectl describe multikueuecluster` says why.",
    )
    NO_CLUSTER_FITS = (
        "noClusterFits",
        "each worker cluster behind the ClusterQueue was silent for too long, or can never hold it",
        "The detail names each cluster and its reason.",
    )
    NAMESPACE_NOT_SELECTED = (
        "namespaceNotSelected",
        "the ClusterQueue's namespaceSelector does not select the Job's namespace",
        "Label the namespace, or widen the selector.",
    )
    NOT_COVERED = (
        "notCovered",
        "the ClusterQueue has no quota for something that the adapted Job asks for",
        "Cover the resource there, or remove it in the adaptation.",
    )
    REPLICAS_NOT_ALLOWED = (
        "replicasNotAllowed",
        "the Job has no pod set whose replicas the option sets, or may not have so many of it",
        "Name a pod set of the Job, and a number within its own bounds.",
    )
    SERVING_UNKNOWN = (
        "servingUnknown",
        "it is not known what one replica of the service does on the option's device",
        "Give the option `serving`, or the devices an AcceleratorProfile.",
    )
    LATENCY_NOT_MET = (
        "latencyNotMet",
        "the service's replicas would not hold its `target-latency` on the option's device",
        "Nothing, for a device so slow; else more replicas, or `adaptation.replicas: Auto`.",
    )
    TOO_MANY_REPLICAS = (
        "tooManyReplicas",
        "holding the `target-latency` takes more replicas than the service may have",
        "Nothing, if its owner means it; else raise `max-replicas`, or its autoscaler's bound.",
    )
    REPLICAS_WOULD_WAIT = (
        "replicasWouldWait",
        "the ClusterQueue has no quota free for all replicas that hold the `target-latency`",
        "Nothing; it is decided by the quota of the moment.",
    )
    EXCEEDS_MAXIMUM = (
        "exceedsMaximum",
        "the Job asks for more than the ClusterQueue could ever give, borrowing included",
        "Nothing, for a Job so large; else raise the quota, or ask for less in the adaptation.",
    )
    NO_FLAVOR = (
        "noFlavor",
        "no ResourceFlavor of the ClusterQueue fits the adapted Job's selectors and tolerations",
        "Set or remove in the adaptation what the detail names.",
    )
    TOPOLOGY_LEVEL_MISSING = (
        "topologyLevelMissing",
        "the Job asks for a topology, and the ClusterQueue's flavors have none, or not that level",
        "Name one in `adaptation.topology`, or Remove.",
    )
    TOPOLOGY_NEEDED = (
        "topologyNeeded",
        "beside flavors without a topology, this one serves only Jobs that ask for one",
        "Give the option `adaptation.topology: {mode: Auto, level: …}`.",
    )
    EXCEEDS_DOMAIN = (
        "exceedsDomain",
        "all pods of a pod set are to be in one domain, and none could ever hold them",
        "Use a higher level, or the mode Auto or Preferred.",
    )
    MULTIKUEUE_BOUNDARY = (
        "multiKueueBoundary",
        "the Job would cross between MultiKueue and this cluster, which its managedBy forbids",
        "Nothing: `spec.managedBy` is fixed when a Job is created.",
    )
    NOT_ALLOWED = (
        "notAllowed",
        "the Job's annotation `allow` does not name the option",
        "Nothing, if its owner means it; else change or remove the annotation.",
    )
    NOT_FOR_YOU = (
        "notForYou",
        "the option is for other users, groups or priority classes",
        "Nothing, if that is meant; else correct the option's `only`.",
    )
    WOULD_BE_INVALID = (
        "wouldBeInvalid",
        "the API server, or a LimitRange, would refuse the adapted Job",
        "Correct the adaptation where the detail says.",
    )
    STILL_PINNED = (
        "stillPinned",
        "the adapted Job would still ask for nodes with the accelerator that was removed",
        "Remove what the detail names: `nodeSelector.remove`, or `affinity: Remove`.",
    )
    TOO_MANY_DEVICES = (
        "tooManyDevices",
        "a pod uses several devices, or several pods use some, and slices cannot replace that",
        "Nothing; for several pods see `slices.pods`.",
    )
    NOT_ISOLATED = (
        "notIsolated",
        "Jobs that share a device there are isolated less than `slices.isolation` asks for",
        "Nothing, if that is meant; else lower `slices.isolation`, to None for time-slicing.",
    )
    MEMORY_UNKNOWN = (
        "memoryUnknown",
        "it is not known how much device memory the Job needs, or gets there",
        "Annotate it with `gpu-memory`, write an AcceleratorProfile, or see `slices.unknown`.",
    )
    MEMORY_TOO_SMALL = (
        "memoryTooSmall",
        "the Job needs more device memory than 95 % of what it would get there",
        "Nothing: a larger slice or a whole device is taken; or correct the Job's `gpu-memory`.",
    )
    DEVICE_TOO_SLOW = (
        "deviceTooSlow",
        "a device there has less bandwidth or computes less than the Job asks for",
        "Nothing: another option is taken; or correct `gpu-bandwidth` or `gpu-compute`.",
    )
    GUESTS_FULL = (
        "guestsFull",
        "the ClusterQueue has as many guests as the option allows",
        "Nothing: it frees itself; or raise `guests.maxJobs`.",
    )
    UNSUPPORTED = (
        "unsupported",
        "the Job uses something that cannot be adapted safely",
        "Remove what the detail names.",
    )
    WOULD_NOT_BE_SUSPENDED = (
        "wouldNotBeSuspended",
        "the Job names no queue, and Kueue's webhook may have let it pass already",
        "Give Jobs a queue, or see `withoutQueue`.",
    )
    STARTS_TOO_LATE = (
        "startsTooLate",
        "the expected start is later than the option's `maxWait` allows",
        "Nothing, if that is meant: another option is taken; else raise the option's `maxWait`.",
    )
    TOO_LONG = (
        "tooLong",
        "the expected run exceeds activeDeadlineSeconds or Kueue's maximum execution time",
        "Raise that limit.",
    )
    TOO_SLOW = (
        "tooSlow",
        "the expected run exceeds what the Job's annotation `max-slowdown` allows",
        "Nothing, if its owner means it; else raise `max-slowdown`.",
    )
    MISSES_DEADLINE = (
        "missesDeadline",
        "it would be done after the Job's deadline, and another option before",
        "Nothing: the option that is in time is taken.",
    )
    OVER_BUDGET = (
        "overBudget",
        "it is expected to cost more than the Job's annotation `budget`, and another option less",
        "Nothing: an option within the budget is taken.",
    )
    OVER_CARBON = (
        "overCarbon",
        "it is expected to emit more than the Job's annotation `max-carbon`, and another less",
        "Nothing: an option within it is taken.",
    )
    WOULD_BE_INTERRUPTED = (
        "wouldBeInterrupted",
        "with as many interruptions as are expected there, the run would take twice as long",
        "Annotate it with `checkpoint`, if it can.",
    )
    ON_TRIAL = (
        "onTrial",
        "how long it runs there is a guess by the devices' speed, and others are being tried",
        "Nothing: once one of its class has ended there, runs are known; or raise `cost.trial`.",
    )
    KEEPS_FAILING = (
        "keepsFailing",
        "Jobs of its class failed three times there and never succeeded; refused for a day",
        "Look at those Jobs' logs. It is tried again after a day, or when the policy changes.",
    )


class Skip(Explained):
    """Why a Job is not ours to decide: it passes untouched, and only metric and log know."""

    NO_POLICY = (
        "noPolicy",
        "no policy matches this Job",
        "`kubectl fallback explain` says what of each `spec.match` it fails.",
    )
    OPTED_OUT = (
        "optedOut",
        "the Job's annotation kueue-fallback.dev/policy says none",
        "Nothing: its owner wants it so.",
    )
    OFF = (
        "off",
        "switched off by the ConfigMap kueue-fallback-off",
        "`kubectl fallback on` ends that.",
    )
    OWNER_MANAGED = (
        "ownerManaged",
        "its owner is queued by Kueue, not the Job itself",
        "Nothing: the owner (a JobSet, a RayJob, …) is what waits.",
    )
    MULTIKUEUE_ORIGIN = (
        "multiKueueOrigin",
        "MultiKueue brought it here from another cluster",
        "Nothing: it is decided where it was submitted.",
    )
    PREBUILT_WORKLOAD = (
        "prebuiltWorkload",
        "it names a Workload that exists already",
        "Nothing: that Workload says where it runs.",
    )
    ELASTIC_JOB = (
        "elasticJob",
        "Kueue resizes it while it runs (elastic-job)",
        "Nothing: such Jobs are not adapted.",
    )
    MANAGED_BY = (
        "managedBy",
        "spec.managedBy names another controller",
        "Nothing: whoever runs it decides.",
    )
    NAMESPACE_NOT_MANAGED = (
        "namespaceNotManaged",
        "Kueue leaves this namespace alone (managedJobsNamespaceSelector)",
        "Nothing, or let Kueue's selector take the namespace in.",
    )
    POD_GROUP = (
        "podGroup",
        "it is a pod of a group, and pods of groups stay as they were submitted",
        "Nothing, or submit a Job or a JobSet instead.",
    )
    NO_POD_SETS = (
        "noPodSets",
        "it has no pods of its own, so Kueue does not queue it",
        "Nothing: it uses pods that run already, as a RayJob with `clusterSelector` does.",
    )
    KIND_NOT_MANAGED = (
        "kindNotManaged",
        "Kueue's integration for this kind of Job is off",
        "Switch it on in Kueue's `integrations.frameworks`.",
    )
    NO_QUEUE = (
        "noQueue",
        "it names no queue",
        "Give the Job a queue, or the policy `withoutQueue: true`.",
    )
    DECIDED_ALREADY = (
        "decidedAlready",
        "it was decided earlier in this same admission",
        "Nothing: the API server asked twice, and the first answer stands.",
    )
    NOT_SYNCED = (
        "notSynced",
        "the state of the cluster is not known yet",
        "If it stays so, the observer's log names what it cannot list.",
    )


class LeftAlone(Explained):
    """Why a Job that a policy matches stays as it was submitted: said on the Job itself."""

    STALE = (
        "stale",
        "a watch of the cluster has been silent for 15 s, so the state of the queues may be old",
        "Look at `kueue_fallback_watch_age_seconds` and at the API server.",
    )
    UNREADABLE = (
        "unreadable",
        "one of the Job's own annotations, a label of ours, or an amount in it cannot be read",
        "Correct what the warning names.",
    )
    UNMODELLED = (
        "unmodelled",
        "it uses a topology, a device claim or partial admission, which forecasts do not cover",
        "Nothing: Kueue serves it as it was submitted.",
    )
    TOO_LARGE = (
        "tooLarge",
        "a decision would make it too large for the API server, so none is written",
        "Make its annotations or variables smaller.",
    )
    CHANGED_SINCE = (
        "changedSince",
        "other admission changed it after the decision, which cannot be carried out on that",
        "Find the webhook that puts back what the option changes.",
    )
    NO_OPTION = (
        "noOption",
        "every option that could be taken is refused",
        "`kubectl fallback explain` shows each option's reason.",
    )


class Stayed(Explained):
    """Besides the reasons of a decision; these say why it was no other option."""

    BEST = (
        "best",
        "the strategy takes the option where it was submitted",
        "Nothing.",
    )
    UNSURE_GAIN = (
        "unsureGain",
        "another option is expected to be sooner, but not likely enough",
        "Nothing: each run that is seen narrows the ranges; or lower `min_gain_probability`.",
    )
    SMALL_GAIN = (
        "smallGain",
        "another option gains less than the policy's minimum",
        "Nothing, if that is meant; else lower the policy's `minimumGain` or `minimumSaving`.",
    )
    NEAR_TIE = (
        "nearTie",
        "another option gains hardly more than the policy's minimum, and chance decided",
        "Nothing: of equal Jobs some go and some stay, so that not all go to one queue at once.",
    )
    ONLY = (
        "onlyOption",
        "its policy has no other option",
        "Nothing, or add an option to the policy.",
    )
    UNDECIDED = (
        "noDecision",
        "a policy matches it, but it carries no decision",
        "Nothing, if all was off or the policy is newer; else see `kubectl fallback status`.",
    )


def why_stayed(taken: str, left_alone: str, options: Iterable[tuple[str, str, str]]) -> str:
    """Say it of a decision; *options*: name, why it was refused, and why passed over, or nothing.

    Where every other option was refused, the first one's reason says more than that this is best.
    """
    if left_alone:
        return left_alone
    others = [(refused, passed) for name, refused, passed in options if name != taken]
    if not others:
        return str(Stayed.ONLY)
    if all(refused for refused, _ in others):
        return others[0][0]
    return next((passed for _, passed in others if passed), str(Stayed.BEST))
