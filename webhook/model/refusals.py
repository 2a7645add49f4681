"""Why an option is refused, a Job passed over, or left as it was submitted."""

from __future__ import annotations

from webhook.model.reasons import Explained


class Reason(Explained):
    """Why an option is refused."""

    QUEUE_NOT_FOUND = (
        "queueNotFound",
        "the Job's namespace has no such LocalQueue",
        "Create the LocalQueue there, or mend its name in the policy; a near name is suggested.",
    )
    QUEUE_AMBIGUOUS = (
        "queueAmbiguous",
        "several LocalQueues of the namespace point to the option's ClusterQueue",
        "Name one of them in the policy: `queue` instead of `clusterQueue`.",
    )
    CLUSTER_QUEUE_NOT_FOUND = (
        "clusterQueueNotFound",
        "the LocalQueue points to a ClusterQueue that does not exist",
        "Create the ClusterQueue, or mend the LocalQueue.",
    )
    STOPPED = (
        "stopped",
        "the LocalQueue or ClusterQueue has a stopPolicy",
        "Nothing, if somebody stopped it on purpose; else set its `stopPolicy` to `None`.",
    )
    INACTIVE = (
        "inactive",
        "the ClusterQueue is not active",
        "`kubectl describe clusterqueue` says why; mostly a ResourceFlavor is missing.",
    )
    NO_ACTIVE_CLUSTER = (
        "noActiveCluster",
        "none of the worker clusters behind the ClusterQueue's MultiKueue check is active",
        "`kubectl describe multikueuecluster` says why Kueue cannot use it.",
    )
    NO_CLUSTER_FITS = (
        "noClusterFits",
        "each worker cluster behind the ClusterQueue was silent for too long, or can never hold it",
        "The detail names each cluster and its reason: reach it again, or mend its queues.",
    )
    NAMESPACE_NOT_SELECTED = (
        "namespaceNotSelected",
        "the ClusterQueue's namespaceSelector does not select the Job's namespace",
        "Label the namespace, or widen the selector.",
    )
    NOT_COVERED = (
        "notCovered",
        "the ClusterQueue has no quota for something that the adapted Job asks for",
        "Cover the resource in the ClusterQueue, or take it off in the option's adaptation.",
    )
    EXCEEDS_MAXIMUM = (
        "exceedsMaximum",
        "the Job asks for more than the ClusterQueue could ever give, borrowing included",
        "Nothing, for a Job so large; else raise the quota, or ask for less in the adaptation.",
    )
    NO_FLAVOR = (
        "noFlavor",
        "no ResourceFlavor of the ClusterQueue fits the adapted Job's selectors and tolerations",
        "Let the adaptation set or remove the node selector or toleration that the detail names.",
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
    WOULD_BE_INVALID = (
        "wouldBeInvalid",
        "the API server, or a LimitRange, would refuse the adapted Job",
        "Mend the adaptation; the detail names the container and the amounts.",
    )
    STILL_PINNED = (
        "stillPinned",
        "the adapted Job would still ask for nodes with the accelerator that was removed",
        "Remove what the detail names: `nodeSelector.remove`, or `affinity: Remove`.",
    )
    GUESTS_FULL = (
        "guestsFull",
        "as many guests are in the ClusterQueue as the option allows",
        "Nothing: it frees itself; or raise `guests.maxJobs`.",
    )
    UNSUPPORTED = (
        "unsupported",
        "the Job uses something that cannot be adapted safely",
        "Leave it where it is, or take off what the detail names.",
    )
    WOULD_NOT_BE_SUSPENDED = (
        "wouldNotBeSuspended",
        "the Job names no queue, and Kueue's webhook may have let it pass already",
        "Give Jobs a queue; or see `withoutQueue` in the policy cookbook.",
    )
    TOO_LONG = (
        "tooLong",
        "the expected run exceeds activeDeadlineSeconds or Kueue's maximum execution time",
        "Raise that limit, or nothing: the Job would be ended before it is done.",
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
    KEEPS_FAILING = (
        "keepsFailing",
        "Jobs of its class failed three times there and never succeeded; refused for a day",
        "Look at the logs of those Jobs; a changed policy, or a day, lets it be tried again.",
    )


class Skip(Explained):
    """Why a Job is not ours to decide: it passes untouched, and only metric and log know."""

    NO_POLICY = (
        "noPolicy",
        "no policy matches this Job",
        "If one should: compare its labels, namespace, queue and size with `spec.match`.",
    )
    OPTED_OUT = (
        "optedOut",
        "the Job's annotation kueue-fallback.dev/policy says none",
        "Nothing: its owner wants it so.",
    )
    OFF = (
        "off",
        "switched off by the ConfigMap kueue-fallback-off",
        "`kueue-fallback on` switches decisions on again.",
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
    KIND_NOT_MANAGED = (
        "kindNotManaged",
        "Kueue's integration for this kind of Job is off",
        "Switch `batch/job` on in Kueue's `integrations.frameworks`.",
    )
    NO_QUEUE = (
        "noQueue",
        "it names no queue",
        "Give the Job a queue, or the policy `withoutQueue: true`.",
    )
    DECIDED_ALREADY = (
        "decidedAlready",
        "it was decided in this very admission",
        "Nothing: the API server asked twice, and the first answer stands.",
    )
    NOT_SYNCED = (
        "notSynced",
        "the state of the cluster is not known yet",
        "Wait for `/readyz`; if it stays so, the log of the observer names what it cannot list.",
    )


class LeftAlone(Explained):
    """Why a Job that a policy matches stays as it was submitted: said on the Job itself."""

    STALE = (
        "stale",
        "some watch has given no sign of life for 15 s, so the queues are not known well enough",
        "Look at `kueue_fallback_watch_age_seconds` and at how the API server is.",
    )
    UNREADABLE = (
        "unreadable",
        "one of the Job's own annotations, a label of ours, or an amount in it cannot be read",
        "Mend what the warning names.",
    )
    UNMODELLED = (
        "unmodelled",
        "what Kueue does with a topology, a device claim or fewer pods cannot be foreseen",
        "Nothing: Kueue serves it as it was submitted.",
    )
    TOO_LARGE = (
        "tooLarge",
        "with a decision on it the API server would refuse it, so none is written",
        "Make its annotations smaller, or the variables that an option changes.",
    )
    NO_OPTION = (
        "noOption",
        "every option that could be taken is refused",
        "Look at the reason of each option: `kueue-fallback explain`.",
    )
