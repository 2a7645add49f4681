"""Settles what ``topology: {mode: Auto}`` asks for, by what the option's ClusterQueue has.

All pods of a pod set have to be in one domain where some domain is large enough to hold them, and
are kept together as far as it goes where none is. What is in use is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from webhook.adapt.adaptation import is_adapted
from webhook.adapt.topology_annotations import with_topology
from webhook.kueue.assignment import Assignment
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.requests import needs
from webhook.kueue.topology_placement import FlavorDomains, could_hold, domains_of, level_of
from webhook.kueue.topology_requests import Placing, requested
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.policy.fallback_policy import Adaptation, TopologyChanges, TopologyMode
from webhook.model.queues import ClusterQueue, PodSetNeeds, Snapshot


def settled(
    after: Job, adaptation: Adaptation, cluster_queue: ClusterQueue, snapshot: Snapshot
) -> Job:
    """Return an adapted Job with what it asks of the ClusterQueue's Topologies.

    Raises:
        FieldError: a quantity, toleration or affinity term of the Job cannot be read.

    """
    if adaptation.topology.mode is not TopologyMode.AUTO:
        return after
    together = _asking(after, adaptation, dict.fromkeys(_names(after), _required(adaptation)))
    there = flavors_with_topology(cluster_queue, snapshot)
    flavors = [name for group in cluster_queue.groups for name in group.flavors if name in there]
    known = [domains for name in flavors if (domains := domains_of(name, snapshot)) is not None]
    wanted = {
        need.name: _changes(need, adaptation, known) if flavors else _NOTHING
        for need in needs(together, snapshot)
    }
    return _asking(after, adaptation, wanted)


_NOTHING = TopologyChanges(mode=TopologyMode.REMOVE)


def _names(job: Job) -> list[str]:
    return [pod_set.name for pod_set in job.pod_sets]


def _required(adaptation: Adaptation) -> TopologyChanges:
    return TopologyChanges(mode=TopologyMode.REQUIRED, level=adaptation.topology.level)


def _changes(
    need: PodSetNeeds, adaptation: Adaptation, known: list[FlavorDomains]
) -> TopologyChanges:
    if need.count == 1 and known:
        lowest = known[0].tree.levels[-1]
        return TopologyChanges(mode=TopologyMode.PREFERRED, level=lowest)
    if need.count > 1 and any(could_hold(need, domains) for domains in known):
        return _required(adaptation)
    return adaptation.topology


def _asking(job: Job, adaptation: Adaptation, wanted: Mapping[str, TopologyChanges]) -> Job:
    def asking(pod_set: PodSet) -> PodSet:
        if not is_adapted(pod_set, adaptation):
            return pod_set
        template = with_topology(pod_set.template, pod_set.count, wanted[pod_set.name])
        return replace(pod_set, template=template)

    pod_sets = PodSets(map(asking, job.pod_sets))
    return job if pod_sets == job.pod_sets else replace(job, pod_sets=pod_sets)


def expected_level(assigned: Assignment, asked: Sequence[PodSetNeeds], snapshot: Snapshot) -> str:
    """Return the level of which one domain would have all pods; empty: that is not known."""
    if assigned.fits and assigned.placed:
        return level_of(assigned.placed, assigned.flavors, snapshot)
    largest = max(asked, key=lambda need: need.count, default=None)
    wanted = requested(largest.template) if largest is not None else None
    is_demanded = wanted is not None and wanted.placing is Placing.REQUIRED
    return wanted.level if wanted is not None and is_demanded else ""
