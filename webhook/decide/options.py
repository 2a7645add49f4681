"""Turns a policy's options into assessments for one Job: filtered, adapted, fitted, forecast.

It must not know which option is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from webhook.adapt import validity
from webhook.adapt.adaptation import adapt, is_adapted, refused_replicas, with_topology
from webhook.adapt.movable_env import with_movable_env
from webhook.decide import expectations, filters, remote_options, slices
from webhook.decide.applicant import Applicant
from webhook.decide.filters import OptionCandidate
from webhook.jobs import BY_NAME
from webhook.kueue import multikueue
from webhook.kueue.assignment import Assignment
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.requests import MIN_PARALLELISM, needs, priority_of
from webhook.kueue.topology_placement import FlavorDomains, could_hold, domains_of, level_of
from webhook.kueue.topology_requests import Placing, requested
from webhook.model.decision import Assessment, Rejection
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.policy.fallback_policy import (
    Adaptation,
    FallbackPolicy,
    Option,
    TopologyChanges,
    TopologyMode,
)
from webhook.model.queues import ClusterQueue, PodSetNeeds
from webhook.model.reasons import Reason
from webhook.state.occupancy import assignment, passes_now
from webhook.state.snapshot import Snapshot

_count = attrgetter("count")


def assess(applicant: Applicant) -> tuple[Assessment, ...]:
    """Assess each option, in the policy's order; with forecasts if its strategy needs them.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    assessments = fitted(applicant)
    if applicant.policy.spec.strategy.forecasts:
        expectations.expect(applicant, assessments)
    return assessments


def fitted(applicant: Applicant) -> tuple[Assessment, ...]:
    """Assess each option on its own, by the counts of now alone; errors as for ``assess``."""
    return tuple([_assess_one(applicant, option) for option in applicant.policy.spec.options])


def adapted(job: Job, option: Option, policy: FallbackPolicy) -> Job:
    """Return the Job as adapted by *option*, in a form that a later undo or move can change."""
    after = adapt(job, option)
    if BY_NAME[job.kind].can_change_env:
        return after
    # A Job's environment is immutable, so variables are read from annotations (decision 0020).
    return with_movable_env(job, after, option, policy)


def _assess_one(applicant: Applicant, option: Option) -> Assessment:
    queues = filters.resolve(option, applicant.job, applicant.submitted, applicant.snapshot)
    if isinstance(queues, Rejection):
        return Assessment(option=option.name, queue=option.queue, rejection=queues)
    local_queue, cluster_queue = queues
    candidate = OptionCandidate(
        applicant=applicant, option=option, local_queue=local_queue, cluster_queue=cluster_queue
    )
    held = applicant.occupancy.held(cluster_queue.name)
    assessment = Assessment(
        option=option.name,
        queue=local_queue.name,
        cluster_queue=cluster_queue.name,
        pending=held.pending,
        reserving=held.reserving,
    )
    assessment.rejection = filters.refusal(candidate)
    if assessment.rejection is None:
        _fit(candidate, assessment)
    return assessment


def _fit(candidate: OptionCandidate, assessment: Assessment) -> None:
    """Adapt the Job, and find out whether it is valid and how the ClusterQueue would admit it."""
    applicant, cluster_queue = candidate.applicant, candidate.cluster_queue
    snapshot = applicant.snapshot
    pod_sets = _adapted_for(candidate)
    if isinstance(pod_sets, Rejection):
        assessment.rejection = pod_sets
        return
    job = applicant.job
    if pod_sets is not job.pod_sets:
        job = replace(job, pod_sets=pod_sets)
    if refusal := slices.refusal(candidate, job):
        assessment.rejection = refusal
        return
    asked = needs(job, snapshot.cluster, snapshot.setup.kueue)
    priority = priority_of(applicant.job, candidate.option, snapshot.cluster)
    # Quota is judged after recent placements are counted in, so a burst is decided one by one
    # (decision 0001).
    found = assignment(applicant.occupancy, asked, cluster_queue, priority=priority)
    assessment.job, assessment.needs = job, asked
    assessment.fit, assessment.rejection = found.fit, found.rejection
    assessment.preempts, assessment.detail = found.preempts, found.detail
    assessment.is_placed = found.assignment.is_placed
    assessment.level = _expected_level(found.assignment, asked, snapshot)
    where = candidate.local_queue, cluster_queue
    passes = passes_now(applicant.occupancy, found, *where, priority=priority)
    assessment.starts_now = passes and not found.has_checks(cluster_queue)
    if not cluster_queue.checks or found.rejection is not None:
        return
    remote_options.assess(applicant.occupancy, assessment, where, priority=priority)
    if assessment.clusters:
        # Any other AdmissionCheck may take its time after MultiKueue's has passed.
        is_alone = multikueue.only_multikueue(cluster_queue, snapshot.setup)
        _count_in_best(assessment, passes=passes and is_alone)


def _adapted_for(candidate: OptionCandidate) -> tuple[PodSet, ...] | Rejection:
    """Return the pod sets as adapted by the option, or why they may not be so.

    This is the one place that remembers what an option makes of a template.
    """
    before, option, policy = candidate.applicant.job, candidate.option, candidate.applicant.policy
    snapshot = candidate.applicant.snapshot

    def work() -> tuple[PodSet, ...] | Rejection:
        if refusal := refused_replicas(before, option.adaptation):
            return refusal
        job = adapted(before, option, policy)
        job = in_topologies(job, option.adaptation, candidate.cluster_queue, snapshot)
        return invalid(before, job, snapshot) or job.pod_sets

    if not isinstance(before.pod_sets, PodSets):
        return work()
    cluster, setup = snapshot.cluster, snapshot.setup
    depends_on: tuple[object, ...] = (
        _adapted_for,
        option,
        policy,
        BY_NAME[before.kind],
        cluster.limit_ranges.get(before.namespace, ()),
        MIN_PARALLELISM in before.annotations,
    )
    if option.adaptation.topology.mode is TopologyMode.AUTO:
        of_topologies = setup.flavors, setup.topologies, setup.kueue, cluster.overheads
        depends_on = (*depends_on, candidate.cluster_queue, *of_topologies)
    return before.pod_sets.recall(depends_on, work)


def invalid(before: Job, job: Job, snapshot: Snapshot) -> Rejection | None:
    """Return why the API server would not take the *job* as adapted; None: it would."""
    # An adapted Job that the API server refused would fail the user's own create.
    refusal = validity.refusal(before, job, snapshot.cluster.limit_ranges.get(job.namespace, ()))
    if refusal is None and (what := BY_NAME[job.kind].unwritable(before, job)):
        detail = f"a {job.kind} has no field to change {what}"
        return Rejection(reason=Reason.UNSUPPORTED, detail=detail)
    return refusal


def _count_in_best(assessment: Assessment, *, passes: bool) -> None:
    """Count the option in its best worker cluster.

    *passes*: the manager would send the Job to its workers now.
    """
    clusters = assessment.clusters
    best = remote_options.best(clusters)
    if best is None:
        assessment.rejection = remote_options.refusal(clusters, assessment.cluster_queue)
        return
    # A worker that is not watched is taken to be no worse than its manager says.
    if best.fit is None or assessment.fit is None:
        return
    # The Job needs quota at both, so the worse of the two decides.
    if best.fit < assessment.fit:
        assessment.fit, assessment.detail = best.fit, best.detail
    assessment.cluster = best.cluster
    assessment.starts_now = passes and best.starts_now
    # Where it also needs quota at a worker, it does not start by preempting here alone.
    assessment.preempts = 0
    # Those that wait at the manager have not come to the worker yet.
    assessment.pending = (assessment.pending or 0) + (best.pending or 0)
    assessment.reserving = best.reserving


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
    there = flavors_with_topology(cluster_queue, snapshot.setup)
    flavors = [name for group in cluster_queue.groups for name in group.flavors if name in there]
    known = [
        domains for name in flavors if (domains := domains_of(name, snapshot.setup)) is not None
    ]
    wanted = {
        need.name: _topology_changes(need, adaptation, known) if flavors else _NO_TOPOLOGY
        for need in needs(together, snapshot.cluster, snapshot.setup.kueue)
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
        return level_of(assigned.placed, assigned.flavors, snapshot.setup)
    largest = max(asked, key=_count, default=None)
    wanted = requested(largest.template) if largest is not None else None
    is_demanded = wanted is not None and wanted.placing is Placing.REQUIRED
    return wanted.level if wanted is not None and is_demanded else ""
