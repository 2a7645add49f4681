"""Turns a policy's options into assessments for one Job: adapted, validated, fitted to quota.

It must not know forecasts, nor which option is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from webhook.adapt import validity
from webhook.adapt.adaptation import adapt, is_adapted, refused_replicas, with_topology
from webhook.adapt.movable_env import with_movable_env
from webhook.decide import filters, remote_options, slices
from webhook.decide.filters import Applicant, OptionCandidate
from webhook.jobs import BY_NAME
from webhook.kueue import multikueue
from webhook.kueue.assignment import Assignment
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.occupancy import Occupancy, assignment, passes_now, starts_now
from webhook.kueue.requests import needs, priority_of
from webhook.kueue.topology_placement import FlavorDomains, could_hold, domains_of, level_of
from webhook.kueue.topology_requests import Placing, requested
from webhook.model.decision import Assessment, InCluster, Rejection
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.policy.fallback_policy import (
    Adaptation,
    FallbackPolicy,
    Option,
    TopologyChanges,
    TopologyMode,
)
from webhook.model.queues import ClusterQueue, PodSetNeeds, Snapshot
from webhook.model.reasons import Reason


def assess(
    job: Job,
    policy: FallbackPolicy,
    occupancy: Occupancy,
    applicant: Applicant,
) -> tuple[Assessment, ...]:
    """Assess each option on its own, in the policy's order.

    Raises:
        FieldError: a field of the Job cannot be read.

    """
    return tuple(
        _assess_one(job, policy, option, occupancy, applicant) for option in policy.spec.options
    )


def adapted(job: Job, option: Option, policy: FallbackPolicy) -> Job:
    """Return the Job as adapted by *option*, in a form that a later undo or move can change."""
    after = adapt(job, option)
    if BY_NAME[job.kind].can_change_env:
        return after
    # A Job's environment is immutable, so variables are read from annotations (decision 0012).
    return with_movable_env(job, after, option, policy)


def _assess_one(
    job: Job,
    policy: FallbackPolicy,
    option: Option,
    occupancy: Occupancy,
    applicant: Applicant,
) -> Assessment:
    queues = filters.resolve(option, job, applicant.submitted, occupancy)
    if isinstance(queues, Rejection):
        return Assessment(option=option.name, queue=option.queue, rejection=queues)
    local_queue, cluster_queue = queues
    candidate = OptionCandidate(
        job=job,
        policy=policy,
        option=option,
        occupancy=occupancy,
        applicant=applicant,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
    )
    refusal = filters.refusal(candidate)
    if refusal is None:
        return _judge(candidate)
    return _refused(candidate, refusal)


def _judge(candidate: OptionCandidate) -> Assessment:
    """Adapt the Job and assess whether it is valid and how the ClusterQueue would admit it."""
    occupancy, snapshot = candidate.occupancy, candidate.occupancy.snapshot
    local_queue, cluster_queue = candidate.local_queue, candidate.cluster_queue
    if against := refused_replicas(candidate.job, candidate.option.adaptation):
        return _refused(candidate, against)
    job = adapted(candidate.job, candidate.option, candidate.policy)
    job = in_topologies(job, candidate.option.adaptation, cluster_queue, snapshot)
    if refusal := invalid(candidate.job, job, snapshot):
        return _refused(candidate, refusal)
    if refusal := slices.refusal(candidate, job):
        return _refused(candidate, refusal)
    asked = needs(job, snapshot)
    priority = priority_of(candidate.job, candidate.option, snapshot)
    # Quota is judged after recent placements are counted in, so a burst is decided one by one
    # (decision 0003).
    assigned = assignment(occupancy, asked, cluster_queue, priority=priority)
    held = occupancy.held(cluster_queue.name)
    here = Assessment(
        option=candidate.option.name,
        queue=local_queue.name,
        cluster_queue=cluster_queue.name,
        fit=assigned.fit,
        starts_now=starts_now(occupancy, assigned, local_queue, cluster_queue, priority=priority),
        preempts=assigned.preempts,
        is_placed=assigned.assignment.is_placed,
        level=_expected_level(assigned.assignment, asked, snapshot),
        pending=held.pending,
        reserving=held.reserving,
        rejection=assigned.rejection,
        detail=assigned.detail,
        job=job,
        needs=asked,
    )
    queues = local_queue, cluster_queue
    if not cluster_queue.checks or assigned.rejection is not None:
        return here
    # Any other AdmissionCheck may take its time after MultiKueue's has passed.
    passes = multikueue.only_multikueue(cluster_queue, snapshot) and passes_now(
        occupancy, assigned, local_queue, cluster_queue, priority=priority
    )
    there = remote_options.assess(occupancy, asked, queues, priority=priority)
    return _with_clusters(here, there, passes=passes)


def invalid(before: Job, job: Job, snapshot: Snapshot) -> Rejection | None:
    """Return why the API server would not take the *job* as adapted; None: it would."""
    # An adapted Job that the API server refused would fail the user's own create.
    refusal = validity.refusal(before, job, snapshot.limit_ranges.get(job.namespace, ()))
    if refusal is None and (what := BY_NAME[job.kind].unwritable(before, job)):
        detail = f"a {job.kind} has no field to change {what}"
        return Rejection(reason=Reason.UNSUPPORTED, detail=detail)
    return refusal


def _with_clusters(here: Assessment, there: tuple[InCluster, ...], *, passes: bool) -> Assessment:
    """Return the option as in its best worker cluster.

    *passes*: the manager would send the Job to its workers now.
    """
    if not there:
        return here
    best = remote_options.best(there)
    if best is None:
        rejection = remote_options.refusal(there, here.cluster_queue)
        return replace(here, clusters=there, rejection=rejection)
    # A worker that is not watched is taken to be no worse than its manager says.
    if best.fit is None or here.fit is None:
        return replace(here, clusters=there)
    # The Job needs quota at both, so the worse of the two decides.
    binding = best if best.fit < here.fit else here
    return replace(
        here,
        cluster=best.cluster,
        clusters=there,
        fit=min(here.fit, best.fit),
        starts_now=passes and best.starts_now,
        # Where it also needs quota at a worker, it does not start by preempting here alone.
        preempts=0,
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


def in_topologies(
    after: Job, adaptation: Adaptation, cluster_queue: ClusterQueue, snapshot: Snapshot
) -> Job:
    """Return an adapted Job with what it asks of the ClusterQueue's Topologies.

    Raises:
        FieldError: a quantity, toleration or affinity term of the Job cannot be read.

    """
    if adaptation.topology.mode is not TopologyMode.AUTO:
        return after
    required = _required_topology(adaptation)
    together = _asking_topology(
        after, adaptation, {pod_set.name: required for pod_set in after.pod_sets}
    )
    there = flavors_with_topology(cluster_queue, snapshot)
    flavors = [name for group in cluster_queue.groups for name in group.flavors if name in there]
    known = [domains for name in flavors if (domains := domains_of(name, snapshot)) is not None]
    wanted = {
        need.name: _topology_changes(need, adaptation, known) if flavors else _NO_TOPOLOGY
        for need in needs(together, snapshot)
    }
    return _asking_topology(after, adaptation, wanted)


_NO_TOPOLOGY = TopologyChanges(mode=TopologyMode.REMOVE)


def _required_topology(adaptation: Adaptation) -> TopologyChanges:
    return TopologyChanges(mode=TopologyMode.REQUIRED, level=adaptation.topology.level)


def _topology_changes(
    need: PodSetNeeds, adaptation: Adaptation, known: list[FlavorDomains]
) -> TopologyChanges:
    if need.count == 1 and known:
        lowest = known[0].tree.levels[-1]
        return TopologyChanges(mode=TopologyMode.PREFERRED, level=lowest)
    if need.count > 1 and any(could_hold(need, domains) for domains in known):
        return _required_topology(adaptation)
    return adaptation.topology


def _asking_topology(
    job: Job, adaptation: Adaptation, wanted: Mapping[str, TopologyChanges]
) -> Job:
    def asking(pod_set: PodSet) -> PodSet:
        if not is_adapted(pod_set, adaptation):
            return pod_set
        template = with_topology(pod_set.template, pod_set.count, wanted[pod_set.name])
        return replace(pod_set, template=template)

    pod_sets = PodSets(map(asking, job.pod_sets))
    return job if pod_sets == job.pod_sets else replace(job, pod_sets=pod_sets)


def _expected_level(assigned: Assignment, asked: Sequence[PodSetNeeds], snapshot: Snapshot) -> str:
    """Return the level of which one domain would have all pods; empty: that is not known."""
    if assigned.fits and assigned.placed:
        return level_of(assigned.placed, assigned.flavors, snapshot)
    largest = max(asked, key=lambda need: need.count, default=None)
    wanted = requested(largest.template) if largest is not None else None
    is_demanded = wanted is not None and wanted.placing is Placing.REQUIRED
    return wanted.level if wanted is not None and is_demanded else ""
