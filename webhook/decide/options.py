"""Turns a policy's options into assessments for one Job: filtered, adapted, fitted, forecast.

What an option gives in place of a device is judged as the smallest that its ClusterQueue could
give, by what the Job says that it needs, or else what runs of its class took. It must not know
which option is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Final

from webhook.adapt import accelerators, validity
from webhook.adapt.adaptation import (
    adapt,
    asked_accelerators,
    is_adapted,
    refused_replicas,
    with_topology,
)
from webhook.adapt.movable_env import with_movable_env
from webhook.cost.cluster_prices import devices_of
from webhook.cost.device_shares import DeviceShare, is_worse, share_of, worst
from webhook.cost.learned_serving import learned_serving
from webhook.cost.slice_geometry import USABLE
from webhook.decide import expectations, filters, remote_options, serving
from webhook.decide.applicant import Applicant
from webhook.decide.filters import OptionCandidate
from webhook.decide.wishes import Wishes
from webhook.jobs import BY_NAME
from webhook.kueue import multikueue, topology_requests
from webhook.kueue.assignment import Assignment
from webhook.kueue.flavor_plan import flavors_with_topology, plan_flavors
from webhook.kueue.requests import MIN_PARALLELISM, declared, needs, priority_of
from webhook.kueue.topology_placement import FlavorDomains, could_hold, domains_of, level_of
from webhook.learn.device_runs import DevicePart
from webhook.model import quantity
from webhook.model.costs.device_table import slice_by_name
from webhook.model.costs.devices import Device, DeviceUse, Isolation
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.costs.prices import NO_PRICES
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.pods import PodTemplate
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Adaptation,
    FallbackPolicy,
    Option,
    TopologyChanges,
    TopologyMode,
)
from webhook.model.policy.spec import UnknownMemory
from webhook.model.quantity import FlavorResource
from webhook.model.queues import ClusterQueue, PodSetNeeds
from webhook.model.reasons import Reason
from webhook.state.occupancy import ExplainedAssignment, Occupancy, assignment, passes_now
from webhook.state.snapshot import Snapshot

_count = attrgetter("count")


def assess(applicant: Applicant) -> tuple[Assessment, ...]:
    """Assess each option, in the policy's order; with forecasts if its strategy needs them.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    assessments = fitted(applicant)
    if applicant.is_sized:
        serving.weigh(applicant, assessments)
    elif applicant.policy.spec.strategy.forecasts:
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
    job = _judged(candidate, assessment)
    if isinstance(job, Rejection):
        assessment.rejection = job
        return
    asked = needs(job, snapshot.cluster, snapshot.setup.kueue)
    priority = priority_of(applicant.job, candidate.option, snapshot.cluster)
    # Quota is judged after recent placements are counted in, so a burst is decided one by one
    # (decision 0001).
    found = assignment(applicant.occupancy, asked, cluster_queue, priority=priority)
    assessment.job, assessment.needs = job, asked
    if assessment.service is not None:
        found = _of_all_replicas(found, candidate, assessment, priority)
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
    for there in assessment.clusters:
        if there.rejection is None and there.cluster_queue:
            worker = applicant.occupancy.clusters[there.cluster].snapshot.setup
            queue = worker.cluster_queues[there.cluster_queue]
            there.rejection = _too_small(candidate, job, asked, cluster=there.cluster, queue=queue)
    if assessment.clusters:
        # Any other AdmissionCheck may take its time after MultiKueue's has passed.
        is_alone = multikueue.only_multikueue(cluster_queue, snapshot.setup)
        _count_in_best(assessment, passes=passes and is_alone)


def _judged(candidate: OptionCandidate, assessment: Assessment) -> Job | Rejection:
    """Return the Job as adapted, if it is valid and its devices are enough; or why it is not.

    Of a service its replicas are set, and how it does with them is filled in.
    """
    applicant, snapshot = candidate.applicant, candidate.applicant.snapshot
    pod_sets = _adapted_for(candidate)
    if isinstance(pod_sets, Rejection):
        return pod_sets
    job = applicant.job
    if pod_sets is not job.pod_sets:
        job = job.with_pod_sets(pod_sets)
    if refusal := refusal_of_devices(candidate, job):
        return refusal
    asked = needs(job, snapshot.cluster, snapshot.setup.kueue)
    if refusal := _too_small(candidate, job, asked, queue=candidate.cluster_queue):
        return refusal
    if not applicant.is_sized:
        return job
    known = known_replica(applicant, candidate.option)
    sized = serving.sized(applicant, candidate.option, job, known)
    if isinstance(sized, Rejection):
        return sized
    job, assessment.service = sized
    return job


def known_replica(applicant: Applicant, option: Option) -> serving.Known | None:
    """Return what one replica of a service does in an option; None: nothing tells."""
    parts, learned = partial(_parts_in, applicant), partial(_learned_in, applicant)
    return serving.known_of(applicant.policy, option, parts, learned)


def _learned_in(applicant: Applicant, option: Option) -> LearnedServing | None:
    """Return what one replica of a service was learned to do in an option; None: nothing was."""
    learned = applicant.snapshot.learned
    queues = filters.resolve(option, applicant.job, applicant.submitted, applicant.snapshot)
    if not learned.served or isinstance(queues, Rejection):
        return None
    return learned_serving(learned, applicant.job_class.key, queues[1], option.name)


def _parts_in(applicant: Applicant, option: Option) -> list[DevicePart | None]:
    """Return the parts of devices that a pod of a service could get in an option."""
    queues = filters.resolve(option, applicant.job, applicant.submitted, applicant.snapshot)
    if isinstance(queues, Rejection):
        return [None]
    candidate = OptionCandidate(
        applicant=applicant, option=option, local_queue=queues[0], cluster_queue=queues[1]
    )
    pod_sets = _adapted_for(candidate)
    if isinstance(pod_sets, Rejection):
        return [None]
    setup, cluster = applicant.snapshot.setup, applicant.snapshot.cluster
    asked = needs(applicant.job.with_pod_sets(pod_sets), cluster, setup.kueue)
    templates = [pod_set.template for pod_set in pod_sets]
    given = devices_given(templates, asked, queues[1], applicant.occupancy, cluster="")
    return [
        DevicePart(
            device=device,
            resource=resource,
            amount=max(each.per_pod.get(resource, 0) for each in asked),
        )
        if device is not None
        else None
        for (_, resource), device in given
    ]


def _of_all_replicas(
    one: ExplainedAssignment, candidate: OptionCandidate, assessment: Assessment, priority: int
) -> ExplainedAssignment:
    """Return how the ClusterQueue would take all Workloads of a service, *one* of which it would.

    It is refused where they would wait: some of its replicas alone do not hold its latency.
    """
    job, level, found = assessment.job, assessment.service, one
    occupancy, queue = candidate.applicant.occupancy, candidate.cluster_queue
    if job is None or level is None:
        return one
    # Where something else scales it, it will have more of them than it is created with.
    scaled = serving.with_replicas(job, level.replicas)
    if one.rejection is None and (scaled is not job or job.workloads > 1):
        asked = needs(scaled, occupancy.snapshot.cluster, occupancy.snapshot.setup.kueue)
        everything = serving.together(asked, scaled.workloads)
        found = assignment(occupancy, everything, queue, priority=priority)
    tree = occupancy.forest.tree(queue.name)
    if tree is not None:
        assessment.usage = tree.amounts(found.assignment.taken)
    if found.rejection is None and found.fit is not Fit.WAITS:
        return found
    why = found.rejection or Rejection(reason=Reason.REPLICAS_WOULD_WAIT, detail=found.detail)
    detail = f"for its {level.replicas} replicas it {why.detail}"
    return replace(found, rejection=replace(why, detail=detail))


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
    asked_of_it = largest.template.annotations if largest is not None else {}
    return asked_of_it.get(topology_requests.REQUIRED, "")


_HAMI_MEMORY: Final = "nvidia.com/gpumem"
"""In MiB, of one device."""
_MIB: Final = 1 << 20
_NOT_DEVICES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def refusal_of_devices(candidate: OptionCandidate, after: Job) -> Rejection | None:
    """Return why what replaces devices is not enough for a Job; None: it is, or nothing does.

    *after* is the Job as adapted.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    adaptation = candidate.option.adaptation
    if adaptation.accelerator is not Accelerator.REPLACE:
        return None
    replaced = [
        (old, new)
        for old, new in zip(candidate.applicant.job.pod_sets, after.pod_sets, strict=True)
        if is_adapted(old, adaptation) and asked_accelerators(old.template)
    ]
    if not replaced:
        return None
    before = [old for old, _ in replaced]
    pods = sum(new.count for _, new in replaced)
    if detail := _too_many(before, pods, allowed=candidate.applicant.policy.spec.slices.pods):
        return Rejection(reason=Reason.TOO_MANY_DEVICES, detail=detail)
    return _insufficient(candidate, before, _smallest(candidate, after))


def _too_small(
    candidate: OptionCandidate,
    after: Job,
    asked: Sequence[PodSetNeeds],
    *,
    cluster: str = "",
    queue: ClusterQueue,
) -> Rejection | None:
    """Return in what a device of the option is less than a Job needs; None: in nothing known.

    *after* is the Job as adapted, and *asked* is what it asks for; *queue* is the ClusterQueue in
    the worker *cluster*, or in this one (empty).

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    applicant = candidate.applicant
    templates = [pod_set.template for pod_set in after.pod_sets]
    return too_small(
        applicant.wishes,
        applicant.device_use,
        candidate.option,
        given=devices_given(templates, asked, queue, applicant.occupancy, cluster=cluster),
    )


def too_small(
    wishes: Wishes,
    use: DeviceUse | None,
    option: Option,
    *,
    given: Iterable[tuple[FlavorResource, Device | None]],
) -> Rejection | None:
    """Return in what a device is less than a Job needs; None: in nothing known.

    *given* are flavors and resources from which it could get one, with what one is, if it is known.
    The memory of what replaces a device is judged by ``refusal_of_devices``, which refuses what is
    not known, too.
    """
    said, took = wishes.gpu_memory, None
    if said is None and use is not None and not use.preallocates:
        took = use.peak
    if option.adaptation.accelerator is Accelerator.REPLACE:
        said, took = None, None
    needs_speed = wishes.gpu_bandwidth is not None or wishes.gpu_compute
    if said is None and took is None and not needs_speed:
        return None
    for (flavor, resource), device in given:
        share, where = share_of(resource, device), f"{resource} in flavor {flavor}"
        if detail := _too_little(said, took, share, where):
            return Rejection(reason=Reason.MEMORY_TOO_SMALL, detail=detail)
        if detail := _too_slow(wishes, share, where):
            return Rejection(reason=Reason.DEVICE_TOO_SLOW, detail=detail)
    return None


def _too_little(said: int | None, took: int | None, share: DeviceShare, where: str) -> str:
    """Say that a device has less memory than a Job says, or its class took; empty: it has not."""
    if share.memory is None:
        return ""
    usable = USABLE * share.memory
    if said is not None and said > usable:
        return f"needs {_gibibytes(said)} GiB, and of {where} {_gibibytes(usable)} are usable"
    # Without a margin: where a run was measured, it did not need more than there was.
    if took is not None and took > share.memory:
        return f"runs took {_gibibytes(took)} GiB, and {where} has {_gibibytes(share.memory)}"
    return ""


def _devices_of(cluster: str, queue: ClusterQueue, occupancy: Occupancy) -> Mapping[str, Device]:
    """Return the devices of a ClusterQueue's flavors, as far as they are known.

    A worker's are those of its own flavors; where nothing tells them, those that flavors of the
    same names have here.
    """
    snapshot = occupancy.snapshot
    known = snapshot.costs.prices.get(cluster, NO_PRICES).devices
    if not cluster:
        return known
    setup = occupancy.clusters[cluster].snapshot.setup
    names = [name for group in queue.groups for name in group.flavors if name in setup.flavors]
    flavors = (setup.flavors[name] for name in names)
    own = devices_of(flavors, snapshot.costs.accelerator_profiles, setup.node_labels)
    return {**known, **own}


def devices_given(
    templates: Sequence[PodTemplate],
    asked: Sequence[PodSetNeeds],
    queue: ClusterQueue,
    occupancy: Occupancy,
    *,
    cluster: str,
) -> Iterator[tuple[FlavorResource, Device | None]]:
    """Yield each flavor, with the resource, from which the ClusterQueue could give a device.

    *templates* and *asked* are of the same pod sets; *queue* is in the worker *cluster*, or in this
    one (empty).

    Raises:
        FieldError: a quantity of a template cannot be read.

    """
    setup = (occupancy.clusters[cluster] if cluster else occupancy).snapshot.setup
    devices = _devices_of(cluster, queue, occupancy)
    for template, needed in zip(templates, asked, strict=True):
        named = sorted(filter(accelerators.counts_devices, asked_accelerators(template)))
        if not named:
            continue
        flavors = [
            flavor
            for group in plan_flavors(needed, queue, setup).groups
            for flavor in group
            if flavor.refusal is None
        ]
        # By what Kueue counts, whose transformations may have renamed what is asked for.
        counted = [
            cell
            for flavor in flavors
            for cell, _ in flavor.usage
            if accelerators.counts_devices(cell[1])
        ]
        # Where it counts no devices, any of the flavors may have one.
        for cell in counted or product([flavor.name for flavor in flavors], named):
            yield cell, devices.get(cell[0])


def _too_slow(wishes: Wishes, share: DeviceShare, where: str) -> str:
    """Say in which speed a device is less than a Job needs; empty: in none that is known."""
    needed = wishes.gpu_bandwidth
    if needed is not None and share.bandwidth is not None and needed > share.bandwidth:
        return f"needs {needed:,.4g} GB/s of device memory, and {where} has {share.bandwidth:,.4g}"
    for kind, speed in wishes.gpu_compute:
        known = share.compute.get(kind)
        if known is not None and speed > known:
            unit = "TOPS" if kind.startswith("int") else "TFLOPS"
            return f"needs {speed:,.4g} {unit} in {kind}, and {where} has {known:,.4g}"
    return ""


def _too_many(before: list[PodSet], pods: int, *, allowed: bool) -> str:
    """Say which number of devices or of pods a slice cannot stand in for; empty: none."""
    for pod_set in before:
        devices = _devices(pod_set)
        if devices > 1:
            return f"a pod of {pod_set.name} asks for {devices} devices"
    if pods > 1 and not allowed:
        return f"{pods} pods use a device each, and the policy's slices.pods is false"
    return ""


def _devices(pod_set: PodSet) -> int:
    """Return how many devices a pod asks for; of a device's memory alone, one."""
    asked = declared(pod_set.template)
    counted = sum(n for resource, n in asked.items() if accelerators.counts_devices(resource))
    return counted or 1


def _smallest(candidate: OptionCandidate, after: Job) -> DeviceShare:
    """Return the least that the ClusterQueue could give for one device."""
    by = candidate.option.adaptation.by
    counting = [resource for resource in by if accelerators.counts_devices(resource)] or list(by)
    snapshot = candidate.applicant.snapshot
    devices = snapshot.costs.prices.get("", NO_PRICES).devices
    shares = [
        _share(resource, by, devices.get(flavor))
        for flavor in _flavors(candidate, after)
        for resource in counting
    ]
    least = min(shares, key=lambda share: -1 if share.memory is None else share.memory)
    isolation = worst(*(share.isolation for share in shares))
    return DeviceShare(resource=least.resource, memory=least.memory, isolation=isolation)


def _flavors(candidate: OptionCandidate, after: Job) -> Sequence[str]:
    """Return the ResourceFlavors from which the ClusterQueue gives something like a device.

    By what Kueue counts, whose transformations may have renamed what is asked for. Where it counts
    no devices, any of its flavors may have one; at least one flavor, if only one without a name.
    """
    pod_sets = needs(
        after, candidate.applicant.snapshot.cluster, candidate.applicant.snapshot.setup.kueue
    )
    asked = {resource for pod_set in pod_sets for resource in pod_set.per_pod} - _NOT_DEVICES
    groups = candidate.cluster_queue.groups
    giving = [group for group in groups if not asked.isdisjoint(group.resources)] or groups
    return [flavor for group in giving for flavor in group.flavors] or [""]


def _share(resource: str, by: Mapping[str, str], device: Device | None) -> DeviceShare:
    share = share_of(resource, device)
    if _HAMI_MEMORY not in by:
        return share
    given = quantity.parse(by[_HAMI_MEMORY], resource=_HAMI_MEMORY) * _MIB
    isolation = worst(share.isolation, Isolation.MEMORY)
    return DeviceShare(resource=_HAMI_MEMORY, memory=given, isolation=isolation)


def _insufficient(
    candidate: OptionCandidate, before: list[PodSet], share: DeviceShare
) -> Rejection | None:
    rules, said = candidate.applicant.policy.spec.slices, candidate.applicant.wishes.gpu_memory
    if is_worse(share.isolation, rules.isolation):
        detail = f"{share.resource} has isolation {share.isolation}"
        detail += f", and the policy wants at least {rules.isolation}"
        return Rejection(reason=Reason.NOT_ISOLATED, detail=detail)
    if share.isolation is Isolation.NONE and said is None:
        detail = f"nothing limits what a Job uses of {share.resource}, and it has no gpu-memory"
        return Rejection(reason=Reason.MEMORY_UNKNOWN, detail=detail)
    use = candidate.applicant.device_use
    need = said or _asked_memory(before)
    by = ","
    if need is None and use is not None and use.need is not None:
        need, by = use.need, f", as {use.runs} runs took at most {_gibibytes(use.peak)},"
    if need is None and _is_no_less(before, share):
        return None
    if need is None or share.memory is None:
        if rules.unknown is UnknownMemory.ALLOW:
            return None
        verb = "needs" if need is None else f"would get by {share.resource}"
        detail = f"how much device memory the Job {verb} is not known"
        if need is None and use is not None and use.preallocates:
            detail += ": what it runs takes most of a device at once"
        return Rejection(reason=Reason.MEMORY_UNKNOWN, detail=detail)
    usable = USABLE * share.memory
    if need <= usable:
        return None
    detail = f"needs {_gibibytes(need)} GiB{by} and of {share.resource} "
    detail += f"{_gibibytes(usable)} are usable"
    return Rejection(reason=Reason.MEMORY_TOO_SMALL, detail=detail)


def _asked_memory(before: list[PodSet]) -> int | None:
    """Return the bytes of a device that a Job asks for by HAMi's resource; None: it does not."""
    asked = [
        quantity.parse(amounts[_HAMI_MEMORY], resource=_HAMI_MEMORY)
        for pod_set in before
        for container in (*pod_set.template.containers, *pod_set.template.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
        if _HAMI_MEMORY in amounts
    ]
    return max(asked, default=0) * _MIB or None


def _is_no_less(before: list[PodSet], share: DeviceShare) -> bool:
    """Return whether a Job that asks for a slice gets one as large, or a whole device."""
    slices = [slice_by_name(name) for pods in before for name in asked_accelerators(pods.template)]
    memories = [part.memory for part in slices if part is not None]
    if not memories or None in slices:
        return False
    if share.memory is None:
        return share.isolation is Isolation.EXCLUSIVE
    return max(memories) <= share.memory


def _gibibytes(amount: float) -> str:
    return f"{amount / (1 << 30):.3g}"
