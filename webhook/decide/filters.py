"""Finds an option's queues and tells why they cannot take a Job: a small function for each reason.

The cheapest come first. They judge queues alone and must not know the adapted Job: what depends on
it is judged after them, in ``options``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from webhook.decide import match
from webhook.decide.applicant import Applicant
from webhook.jobs import BY_NAME
from webhook.kueue import multikueue
from webhook.learn.job_class import shares_with
from webhook.learn.run_records import FAILURES_THAT_TELL
from webhook.model.decision import Rejection
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import Accelerator, Option
from webhook.model.queues import MULTIKUEUE, ClusterQueue, LocalQueue, StopPolicy
from webhook.model.reasons import Reason
from webhook.model.words import nearest
from webhook.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCandidate:
    """One option of an applicant's policy, with the queues that it names."""

    applicant: Applicant
    option: Option
    local_queue: LocalQueue
    cluster_queue: ClusterQueue


Filter: TypeAlias = Callable[[OptionCandidate], "Rejection | None"]


def resolve(
    option: Option, job: Job, submitted: str, snapshot: Snapshot
) -> tuple[LocalQueue, ClusterQueue] | Rejection:
    """Return the queues that an option names in the Job's namespace, or why there are none.

    Of several LocalQueues that point to the option's ClusterQueue, the one that the Job is
    submitted to is meant; if it is none of them, the option is ambiguous.
    """
    if option.queue:
        local_queue = snapshot.setup.local_queues.get((job.namespace, option.queue))
        if local_queue is None:
            known = [name for place, name in snapshot.setup.local_queues if place == job.namespace]
            meant = nearest(option.queue, known)
            detail = f"LocalQueue {option.queue} not found in namespace {job.namespace}{meant}"
            return Rejection(reason=Reason.QUEUE_NOT_FOUND, detail=detail)
    else:
        pointing = _pointing_to(option.cluster_queue, job.namespace, snapshot)
        chosen = [queue for queue in pointing if queue.name == submitted] or pointing
        if len(chosen) != 1:
            return _none_or_several(option, job.namespace, chosen)
        local_queue = chosen[0]
    cluster_queue = snapshot.setup.cluster_queues.get(local_queue.cluster_queue)
    if cluster_queue is None:
        detail = f"ClusterQueue {local_queue.cluster_queue} not found"
        detail += nearest(local_queue.cluster_queue, snapshot.setup.cluster_queues)
        return Rejection(reason=Reason.CLUSTER_QUEUE_NOT_FOUND, detail=detail)
    return local_queue, cluster_queue


def refusal(candidate: OptionCandidate) -> Rejection | None:
    """Return the first reason why the option is refused; None: none applies."""
    for judge in FILTERS:
        rejection = judge(candidate)
        if rejection is not None:
            return rejection
    return None


def _not_allowed(candidate: OptionCandidate) -> Rejection | None:
    names = candidate.applicant.wishes.allowed
    if names is None or candidate.option.name in names:
        return None
    allowed = ", ".join(sorted(names))
    return Rejection(reason=Reason.NOT_ALLOWED, detail=f"the Job allows only {allowed}")


def _not_for_you(candidate: OptionCandidate) -> Rejection | None:
    only, applicant = candidate.option.only, candidate.applicant
    if only is None or candidate.option.name == applicant.stays_in:
        return None
    detail = match.not_for(only, applicant.moment.requester)
    detail = detail or match.of_another_priority(only, candidate.applicant.job)
    return Rejection(reason=Reason.NOT_FOR_YOU, detail=detail) if detail else None


def _stopped(candidate: OptionCandidate) -> Rejection | None:
    local_queue, cluster_queue = candidate.local_queue, candidate.cluster_queue
    # Hold and HoldAndDrain both keep Kueue from admitting anything new.
    for kind, queue in (("LocalQueue", local_queue), ("ClusterQueue", cluster_queue)):
        if queue.stop_policy is not StopPolicy.NONE:
            detail = f"{kind} {queue.name} has stopPolicy {queue.stop_policy}"
            return Rejection(reason=Reason.STOPPED, detail=detail)
    return None


def _inactive(candidate: OptionCandidate) -> Rejection | None:
    queue = candidate.cluster_queue
    # Kueue's own condition: a missing flavor or check makes a ClusterQueue inactive.
    if queue.active:
        return None
    because = f": {queue.inactive_because.rstrip('.')}" if queue.inactive_because else ""
    detail = f"ClusterQueue {queue.name} is inactive{because}"
    return Rejection(reason=Reason.INACTIVE, detail=detail)


def _no_active_cluster(candidate: OptionCandidate) -> Rejection | None:
    """Refuse a MultiKueue queue if none of its worker clusters is active, in their own words."""
    queue, snapshot = candidate.cluster_queue, candidate.applicant.snapshot
    if not queue.checks:
        return None
    names = multikueue.behind(queue, snapshot.setup)
    why = {name: multikueue.inactive(name, snapshot.setup) for name in names}
    # One active cluster is enough: MultiKueue sends a Workload to all, and the first one keeps it.
    if not all(why.values()) or not why:
        return None
    detail = "; ".join(f"{name} {because}" for name, because in why.items())
    detail = f"no cluster of ClusterQueue {queue.name} is active: {detail}"
    return Rejection(reason=Reason.NO_ACTIVE_CLUSTER, detail=detail)


def _namespace_not_selected(candidate: OptionCandidate) -> Rejection | None:
    namespace = candidate.applicant.job.namespace
    labels = candidate.applicant.snapshot.cluster.labels_of(namespace)
    if candidate.cluster_queue.namespaces.matches(labels):
        return None
    detail = f"ClusterQueue {candidate.cluster_queue.name} does not select namespace {namespace}"
    return Rejection(reason=Reason.NAMESPACE_NOT_SELECTED, detail=detail)


def _multikueue_boundary(candidate: OptionCandidate) -> Rejection | None:
    """Refuse a queue that contradicts the Job's ``spec.managedBy``, which is fixed at creation."""
    manager = candidate.applicant.job.managed_by
    # None on a new Job: Kueue sets the field itself, where the queue needs it.
    if manager is None or (manager == MULTIKUEUE) == _is_remote(candidate):
        return None
    name = candidate.cluster_queue.name
    what = "does not use" if manager == MULTIKUEUE else "uses"
    detail = f"ClusterQueue {name} {what} MultiKueue, and the Job's managedBy is {manager}"
    return Rejection(reason=Reason.MULTIKUEUE_BOUNDARY, detail=detail)


def _would_not_be_suspended(candidate: OptionCandidate) -> Rejection | None:
    """Refuse to add a queue to a Job that Kueue's webhook may have let pass without one."""
    # Kueue's webhook suspends Jobs that name a queue. If it runs before ours it sees none, and the
    # Job would start without quota.
    snapshot = candidate.applicant.snapshot
    if (
        candidate.applicant.submitted
        or snapshot.fallback.runs_before_kueue
        or snapshot.setup.kueue.manage_without_queue
    ):
        return None
    detail = "the Job names no queue, and this webhook is not proven to run before Kueue's"
    return Rejection(reason=Reason.WOULD_NOT_BE_SUSPENDED, detail=detail)


def _refused_with_queue(candidate: OptionCandidate) -> Rejection | None:
    """Refuse to add a queue to a Job that Kueue's validating webhook would refuse with one."""
    refused = candidate.applicant.job.refused_with_queue
    if candidate.applicant.submitted or not refused:
        return None
    detail = f"the Job names no queue, and Kueue would refuse it with one: {refused}"
    return Rejection(reason=Reason.WOULD_BE_INVALID, detail=detail)


def _class_missing(candidate: OptionCandidate) -> Rejection | None:
    """Refuse an option that would have pods name a RuntimeClass that does not exist here."""
    # The API server refuses such a pod: a Pod at its creation, and every pod of a Job.
    # https://kubernetes.io/docs/concepts/containers/runtime-class/
    name = candidate.option.adaptation.given_runtime_class
    if not name or name in candidate.applicant.snapshot.cluster.overheads or _is_remote(candidate):
        return None
    detail = f"RuntimeClass {name} does not exist"
    return Rejection(reason=Reason.WOULD_BE_INVALID, detail=detail)


def _guests_full(candidate: OptionCandidate) -> Rejection | None:
    guests = candidate.option.guests
    if guests is None:
        return None
    if not BY_NAME[candidate.applicant.job.kind].carries_marks:
        # Its Workload does not tell that it is a guest, so no number of them would be too many.
        detail = f"guests are not counted among Jobs of kind {candidate.applicant.job.kind}"
        return Rejection(reason=Reason.UNSUPPORTED, detail=detail)
    name = candidate.cluster_queue.name
    there = candidate.applicant.occupancy.held(name).guests
    # Pending guests count as well as those that hold quota: what waits here will run here.
    count = sum(
        jobs
        for (policy, option, namespace), jobs in there.items()
        if (policy, option) == (candidate.applicant.policy.name, candidate.option.name)
        and _counts_with(candidate, namespace)
    )
    if count < guests.max_jobs:
        return None
    detail = f"{count} Jobs of policy {candidate.applicant.policy.name} are in ClusterQueue {name}"
    return Rejection(
        reason=Reason.GUESTS_FULL, detail=f"{detail} as guests (at most {guests.max_jobs})"
    )


def _counts_with(candidate: OptionCandidate, namespace: str) -> bool:
    """Return whether the guests of *namespace* count against the same limit as the Job."""
    own, policy, snapshot = (
        candidate.applicant.job.namespace,
        candidate.applicant.policy,
        candidate.applicant.snapshot,
    )
    return namespace == own or (
        shares_with(policy, own, snapshot.cluster)
        and shares_with(policy, namespace, snapshot.cluster)
    )


def _keeps_failing(candidate: OptionCandidate) -> Rejection | None:
    """Refuse an option under which Jobs of this class fail while they succeed elsewhere.

    What replaces devices is refused also while they were never tried elsewhere.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    policy, option = candidate.applicant.policy, candidate.option.name
    failing = candidate.applicant.snapshot.learned.failing
    if not failing:
        return None
    job_class = candidate.applicant.job_class
    if (job_class.key, policy.name, option) not in failing:
        return None
    detail = f"Jobs of its class failed {FAILURES_THAT_TELL} times under option {option} and never"
    detail += " succeeded"
    replaces = candidate.option.adaptation.accelerator is Accelerator.REPLACE
    known = candidate.applicant.snapshot.learned.run_times
    if not replaces or any(key == job_class.key for key, _ in known):
        detail += "; they do elsewhere"
    return Rejection(reason=Reason.KEEPS_FAILING, detail=detail)


FILTERS: tuple[Filter, ...] = (
    _not_allowed,
    _not_for_you,
    _stopped,
    _no_active_cluster,
    _inactive,
    _namespace_not_selected,
    _multikueue_boundary,
    _would_not_be_suspended,
    _refused_with_queue,
    _class_missing,
    _guests_full,
    # Last, because a Job's class takes time to work out.
    _keeps_failing,
)


def _is_remote(candidate: OptionCandidate) -> bool:
    return multikueue.is_multikueue(candidate.cluster_queue, candidate.applicant.snapshot.setup)


def _pointing_to(cluster_queue: str, namespace: str, snapshot: Snapshot) -> list[LocalQueue]:
    return [
        queue
        for queue in snapshot.setup.local_queues.values()
        if queue.namespace == namespace and queue.cluster_queue == cluster_queue
    ]


def _none_or_several(option: Option, namespace: str, queues: list[LocalQueue]) -> Rejection:
    target = f"ClusterQueue {option.cluster_queue}"
    if queues:
        names = ", ".join(sorted(queue.name for queue in queues))
        detail = f"LocalQueues {names} of namespace {namespace} all point to {target}"
        return Rejection(reason=Reason.QUEUE_AMBIGUOUS, detail=detail)
    detail = f"no LocalQueue of namespace {namespace} points to {target}"
    return Rejection(reason=Reason.QUEUE_NOT_FOUND, detail=detail)
