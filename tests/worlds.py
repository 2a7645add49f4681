"""Small random worlds of cohort trees for properties: queues, cohorts, and who wants quota."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.builders import NAMESPACE, cluster_queue, cohort, snapshot
from webhook.kueue import quota
from webhook.kueue.flavor_plan import demand
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.simulation import Simulation
from webhook.model.pods import PodTemplate
from webhook.model.queues import (
    BORROWING_OVER_PREEMPTION,
    PREEMPTION_OVER_BORROWING,
    Arrival,
    KueueConfig,
    PodSetNeeds,
    Preemption,
    Queueing,
    Quota,
)

GPU = "gpu"
FLAVORS = ("a", "b")

amounts = st.integers(0, 4)
ANY_QUEUEING = st.sampled_from(Queueing)
fungible = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
pod_sets = st.sampled_from([("main",), ("main",), ("leader", "main")])
limits = st.none() | st.integers(0, 3)
preferred = st.sampled_from([BORROWING_OVER_PREEMPTION, PREEMPTION_OVER_BORROWING])
asked = st.dictionaries(st.sampled_from(["cpu", GPU]), st.integers(0, 3), min_size=1)
"""Of each resource something, nothing, or a written 0, which borrows where quota is borrowed and so
may move a Workload to its next flavor."""


@st.composite
def quotas(draw, flavors, *, cohorts):
    """``{flavor: {resource: Quota}}``; limits only where there is a cohort."""
    return {
        flavor: {
            resource: Quota(
                nominal=draw(amounts),
                borrowing_limit=draw(limits) if cohorts else None,
                lending_limit=draw(limits) if cohorts else None,
            )
            for resource in ("cpu", GPU)
        }
        for flavor in flavors
    }


@st.composite
def preemptions(draw):
    """What a ClusterQueue may preempt: most may nothing."""
    policies = st.sampled_from(["Never", "Never", "LowerPriority", "Any"])
    return Preemption(
        within_cluster_queue=draw(st.sampled_from(["Never", "Never", "LowerPriority"])),
        reclaim_within_cohort=draw(policies),
        borrow_within_cohort=draw(st.sampled_from(["Never", "Never", "LowerPriority"])),
    )


@st.composite
def snapshots(
    draw,
    *,
    queueing=ANY_QUEUEING,
    parents=("", "x", "y"),
    flavors=FLAVORS,
    policies=None,
    fair_sharing=None,
):
    """One to three ClusterQueues under up to three cohorts (y and x, x under all)."""
    policies = preemptions() if policies is None else policies
    fair_sharing = st.booleans() if fair_sharing is None else fair_sharing
    queues = []
    for name in ("1-cq", "2-cq", "3-cq")[: draw(st.integers(1, 3))]:
        parent = draw(st.sampled_from(parents))
        queues.append(
            cluster_queue(
                name,
                draw(quotas(draw(st.sampled_from([flavors[:1], flavors])), cohorts=parent)),
                cohort=parent,
                queueing=draw(queueing),
                preemption=draw(policies),
                when_can_borrow=draw(fungible),
                when_can_preempt=draw(fungible),
                preference=draw(preferred),
            )
        )
    kueue = KueueConfig(fair_sharing=draw(fair_sharing))
    return snapshot(*queues, cohorts=[cohort("x", parent="all"), cohort("all")], kueue=kueue)


@st.composite
def arrivals(draw, state, *, size=8, priorities=2):
    """In Kueue's order: priority down, then age."""
    found = [
        Arrival(
            key=str(index),
            namespace=NAMESPACE,
            local_queue=draw(st.sampled_from(sorted(name for _, name in state.setup.local_queues))),
            needs=tuple(
                PodSetNeeds(name=name, count=1, per_pod=draw(asked), template=PodTemplate())
                for name in draw(pod_sets)
            ),
            priority=draw(st.integers(0, priorities - 1)),
            count=draw(st.integers(1, 3)),
        )
        for index in range(draw(st.integers(0, size)))
    ]
    return tuple(sorted(found, key=lambda arrival: -arrival.priority))


def trees(state):
    return quota.plant(state.setup.cluster_queues, state.setup.cohorts).trees


def simulations(state, *, grain=0.0, came_one_by_one=False, requeue=0.0):
    """One Simulation for each tree that holds a ClusterQueue, by ClusterQueue."""
    kueue = replace(state.setup.kueue, requeue_seconds=requeue)
    queues = state.setup.cluster_queues.values()
    found = {}
    for tree in trees(state):
        simulation = Simulation(
            tree, queues, kueue=kueue, grain=grain, came_one_by_one=came_one_by_one
        )
        found |= dict.fromkeys(tree.leaves, simulation)
    return found


def waiting(arrival, state, *, seconds=10.0, at=0.0, count=None, spread=0.0):
    group = pending_group(arrival, at=at)
    if count is not None:
        group = replace(group, count=count)
    return with_run(group, state, seconds=seconds, spread=spread)


def with_run(group, state, *, seconds, spread=0.0):
    name = state.setup.local_queues[tuple(group.local_queue.split("/"))].cluster_queue
    asked = demand(group.needs, state.setup.cluster_queues[name], state.setup)
    return replace(group, cluster_queue=name, demand=asked, seconds=seconds, spread=spread)


def used(simulation, cluster_queue):
    """What a ClusterQueue uses, by cell, without zeros."""
    tree = simulation.tree
    first = tree.leaves[cluster_queue] * tree.width
    found = zip(tree.cells, tree.used[first : first + tree.width], strict=True)
    return {cell: amount for cell, amount in found if amount}
