"""A policy's options as they stand for one Job: adapted, judged, and counted."""

from __future__ import annotations

from dataclasses import replace

from webhook.adapt import validity
from webhook.adapt.adaptation import adapt
from webhook.adapt.movable_env import with_movable_env
from webhook.decide import filters, remote_options
from webhook.decide.filters import OptionCandidate
from webhook.kueue import multikueue
from webhook.kueue.occupancy import Occupancy, assignment, passes_now, starts_now
from webhook.kueue.priorities import priority_of
from webhook.kueue.requests import needs
from webhook.model.decision import Assessment, InCluster, Rejection
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Option


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


def adapted(job: Job, option: Option, policy: FallbackPolicy) -> Job:
    """Adapt the Job, so that it can be undone later, and moved if its policy reconsiders."""
    return with_movable_env(job, adapt(job, option), option, policy)


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
    candidate = OptionCandidate(
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


def _judge(candidate: OptionCandidate) -> Assessment:
    """Adapt the Job and see how the ClusterQueue would take it."""
    occupancy, snapshot = candidate.occupancy, candidate.occupancy.snapshot
    local_queue, cluster_queue = candidate.local_queue, candidate.cluster_queue
    job = adapted(candidate.job, candidate.option, candidate.policy)
    limit_ranges = snapshot.limit_ranges.get(candidate.job.namespace, ())
    refusal = validity.refusal(candidate.job, job, limit_ranges)
    if refusal is not None:
        return _refused(candidate, refusal)
    asked = needs(job, snapshot)
    priority = priority_of(candidate.job, candidate.option, snapshot)
    found = assignment(occupancy, asked, cluster_queue, priority=priority)
    held = occupancy.held(cluster_queue.name)
    here = Assessment(
        option=candidate.option.name,
        queue=local_queue.name,
        cluster_queue=cluster_queue.name,
        fit=found.fit,
        starts_now=starts_now(occupancy, found, local_queue, cluster_queue, priority=priority),
        pending=held.pending,
        reserving=held.reserving,
        rejection=found.rejection,
        detail=found.detail,
        job=job,
        needs=asked,
    )
    queues = local_queue, cluster_queue
    if not cluster_queue.checks or found.rejection is not None:
        return here
    passes = multikueue.only_multikueue(cluster_queue, snapshot) and passes_now(
        occupancy, found, local_queue, cluster_queue, priority=priority
    )
    there = remote_options.assess(occupancy, asked, queues, priority=priority)
    return _with_clusters(here, there, passes=passes)


def _with_clusters(here: Assessment, there: tuple[InCluster, ...], *, passes: bool) -> Assessment:
    """Count on the cluster that would take it soonest; *passes*: the manager would send it now."""
    if not there:
        return here
    best = remote_options.best(there)
    if best is None:
        rejection = remote_options.refusal(there, here.cluster_queue)
        return replace(here, clusters=there, rejection=rejection)
    if best.fit is None or here.fit is None:
        return replace(here, clusters=there)
    binding = best if best.fit < here.fit else here
    return replace(
        here,
        cluster=best.cluster,
        clusters=there,
        fit=min(here.fit, best.fit),
        starts_now=passes and best.starts_now,
        # Those that wait at the manager have not come to the worker yet.
        pending=(here.pending or 0) + best.pending,
        reserving=best.reserving,
        detail=binding.detail,
    )


def _refused(candidate: OptionCandidate, rejection: Rejection) -> Assessment:
    held = candidate.occupancy.held(candidate.cluster_queue.name)
    return Assessment(
        option=candidate.option.name,
        queue=candidate.local_queue.name,
        cluster_queue=candidate.cluster_queue.name,
        pending=held.pending,
        reserving=held.reserving,
        rejection=rejection,
    )
