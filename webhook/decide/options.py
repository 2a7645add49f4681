"""A policy's options as they stand for one Job: adapted, judged, and counted."""

from __future__ import annotations

from webhook.decide import filters, validity
from webhook.decide.adapt import adapt
from webhook.decide.filters import Candidate
from webhook.decide.movable_env import with_movable_env
from webhook.decide.occupancy import Occupancy, assignment, starts_now
from webhook.decide.priorities import priority_of
from webhook.model.decision import Assessment, Rejection
from webhook.model.fields import EMPTY
from webhook.model.job import Job
from webhook.model.policy import FallbackPolicy, Option
from webhook.model.requests import needs


def assess(
    job: Job,
    policy: FallbackPolicy,
    occupancy: Occupancy,
    *,
    submitted: str,
    allowed: frozenset[str] | None = None,
) -> tuple[Assessment, ...]:
    """Judge each option on its own, in the policy's order.

    *submitted* is the LocalQueue that Kueue would take the Job to be submitted to, *allowed* what
    the Job allows (None: every option).

    Raises:
        FieldError: something in the Job cannot be read.

    """
    return tuple(
        _assess_one(job, policy, option, occupancy, submitted=submitted, allowed=allowed)
        for option in policy.spec.options
    )


def _assess_one(
    job: Job,
    policy: FallbackPolicy,
    option: Option,
    occupancy: Occupancy,
    *,
    submitted: str,
    allowed: frozenset[str] | None,
) -> Assessment:
    queues = filters.resolve(option, job, submitted, occupancy)
    if isinstance(queues, Rejection):
        return Assessment(option=option.name, queue=option.queue, rejection=queues)
    local_queue, cluster_queue = queues
    candidate = Candidate(
        job=job,
        policy=policy,
        option=option,
        occupancy=occupancy,
        submitted=submitted,
        allowed=allowed,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
    )
    refusal = filters.refusal(candidate)
    if refusal is None:
        return _judge(candidate)
    return _refused(candidate, refusal)


def _judge(candidate: Candidate) -> Assessment:
    """Adapt the Job and see how the ClusterQueue would take it."""
    occupancy, snapshot = candidate.occupancy, candidate.occupancy.snapshot
    local_queue, cluster_queue = candidate.local_queue, candidate.cluster_queue
    adapted = _adapted(candidate)
    limit_ranges = snapshot.limit_ranges.get(candidate.job.namespace, ())
    refusal = validity.refusal(candidate.job, adapted, limit_ranges)
    if refusal is not None:
        return _refused(candidate, refusal)
    asked = needs(adapted, snapshot)
    priority = priority_of(candidate.job, candidate.option, snapshot)
    found = assignment(occupancy, asked, cluster_queue, priority=priority)
    held = occupancy.held(cluster_queue.name)
    return Assessment(
        option=candidate.option.name,
        queue=local_queue.name,
        cluster_queue=cluster_queue.name,
        fit=found.fit,
        starts_now=starts_now(occupancy, found, local_queue, cluster_queue, priority=priority),
        pending=held.pending,
        reserving=held.reserving,
        rejection=found.rejection,
        detail=found.detail,
        job=adapted,
        needs=asked,
    )


def _adapted(candidate: Candidate) -> Job:
    """Adapt the Job, so that it can be moved later if its policy reconsiders."""
    job, option, spec = candidate.job, candidate.option, candidate.policy.spec
    if spec.reconsider is None:
        return adapt(job, option)
    # A variable that only some options have could not change (docs/decisions/0012-*.md).
    adapted = adapt(job, option, hiding=EMPTY)
    return with_movable_env(job, adapted, option, spec.options)


def _refused(candidate: Candidate, rejection: Rejection) -> Assessment:
    held = candidate.occupancy.held(candidate.cluster_queue.name)
    return Assessment(
        option=candidate.option.name,
        queue=candidate.local_queue.name,
        cluster_queue=candidate.cluster_queue.name,
        pending=held.pending,
        reserving=held.reserving,
        rejection=rejection,
    )
