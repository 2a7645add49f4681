from __future__ import annotations

from collections import Counter

import pytest

from tests.builders import NAMESPACE, arrival, cluster_queue, held, needs, snapshot
from webhook.model.decision import Fit
from webhook.model.queues import (
    Held,
    KueueConfig,
    LocalQueue,
    Preemption,
    Queueing,
    QuotaHolder,
    Selector,
    StopPolicy,
)
from webhook.state import counted_arrivals, occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
T4 = {"t4": {GPU: "4"}}
ONE = {GPU: "1"}


def starts(state, per_pod=ONE, placements=()):
    """Ask for the first ClusterQueue, through its LocalQueue."""
    found = occupancy_of(state, placements)
    (local_queue, *_) = state.setup.local_queues.values()
    queue = state.setup.cluster_queues[local_queue.cluster_queue]
    assigned = occupancy.assignment(found, [needs(per_pod)], queue)
    passes = occupancy.passes_now(found, assigned, local_queue, queue)
    return passes and not assigned.has_checks(queue)


def test_arrivals_are_charged_until_the_quota_is_gone_and_then_pend():
    waiting = tuple(arrival(str(n), ONE) for n in range(3))
    state = snapshot(cluster_queue(quotas=T4), competing={"gpu-cq": waiting})
    placed = [arrival(f"p{n}", ONE, policy="light", option="gpu", priority=n) for n in range(3)]

    found = occupancy_of(state, placed)

    assert found.held("gpu-cq") == Held(
        pending=2,
        reserving=4,
        usage={("t4", GPU): 4},
        guests={("light", "gpu", "team"): 3},
        lowest_priority=0,
    )


def test_adding_one_arrival_leaves_the_occupancy_it_came_from_alone():
    before = occupancy_of(snapshot(cluster_queue(quotas=T4)))

    after = counted_arrivals.with_arrival(before, arrival("a", ONE))

    assert before.held("gpu-cq") == Held()
    assert after == occupancy_of(before.snapshot, [arrival("a", ONE)])


def test_an_arrival_in_an_unknown_or_stopped_local_queue_counts_nowhere():
    stopped = LocalQueue(
        namespace=NAMESPACE, name="held", cluster_queue="gpu-cq", stop_policy=StopPolicy.HOLD
    )
    state = snapshot(cluster_queue(quotas=T4))
    state = updated(state, local_queues={**state.setup.local_queues, (NAMESPACE, "held"): stopped})

    found = occupancy_of(
        state, [arrival("a", ONE, local_queue="none"), arrival("b", ONE, local_queue="held")]
    )

    assert found.held("gpu-cq") == Held()


def test_an_arrival_that_can_never_fit_pends():
    found = occupancy_of(snapshot(cluster_queue(quotas=T4)), [arrival("a", {GPU: "9"})])

    assert found.held("gpu-cq") == Held(pending=1)


def test_the_next_snapshot_is_charged_by_what_differs():
    state = snapshot(cluster_queue(quotas=T4), cluster_queue("other-cq", T4, cohort="all"))
    states = [
        updated(state, held=found)
        for found in (
            {"gpu-cq": held({"t4": {GPU: "3"}})},
            {"gpu-cq": held({"t4": {GPU: "1"}}), "other-cq": held({"t4": {GPU: "2"}})},
            {},
        )
    ]

    free = []
    for each in states:
        queues = occupancy_of(each)
        queue = state.setup.cluster_queues["gpu-cq"]
        free.append(occupancy.assignment(queues, [needs({GPU: "4"})], queue).detail)

    assert free == [
        "needs nvidia.com/gpu 4 (flavor t4), 1 free",
        "needs nvidia.com/gpu 4 (flavor t4), 3 free",
        "flavor t4",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"active": False},
        {"stop_policy": StopPolicy.HOLD},
        {"checks": ("provision",)},
        {"namespaces": Selector(labels={"team": "other"})},
    ],
    ids=str,
)
def test_a_queue_that_is_not_open_starts_nothing(change):
    assert not starts(snapshot(cluster_queue(quotas=T4, **change)))


def test_blocked_admission_starts_nothing_while_anybody_may_not_be_ready():
    kueue = KueueConfig(block_admission=True)
    ready = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=2)}
    busy = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=1)}

    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue))
    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=ready))
    assert not starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=busy))


def test_one_whose_namespace_is_not_selected_keeps_no_quota_from_others():
    selective = cluster_queue(
        "a-cq",
        T4,
        cohort="all",
        queueing=Queueing.STRICT,
        namespaces=Selector(labels={"team": "other"}),
    )
    state = snapshot(
        selective,
        cluster_queue("b-cq", T4, cohort="all"),
        held={"b-cq": held({"t4": {GPU: "6"}}, reserving=1)},
    )

    found = occupancy_of(state, [arrival("a", {GPU: "3"}, local_queue="a-lq")])

    assert found.held("a-cq") == Held(pending=1)


LOWER = Preemption(within_cluster_queue="LowerPriority")


def reserving(*priorities, flavor="t4"):
    """Workloads with a GPU each, the newest first."""
    return tuple(
        QuotaHolder(
            key=f"team/{flavor}-{number}",
            local_queue="team/gpu-lq",
            charge=(((flavor, GPU), 1),),
            priority=priority,
            reserved_at=-number,
            queued_at=-number,
            is_evicted=False,
            uid="",
        )
        for number, priority in enumerate(priorities)
    )


def fit(state, *, gpus=1, priority=9, placements=()):
    """How the first ClusterQueue would take a Job, and whom it would preempt."""
    queues = occupancy_of(state, placements)
    queue = next(iter(state.setup.cluster_queues.values()))
    assigned = occupancy.assignment(queues, [needs({GPU: str(gpus)})], queue, priority=priority)
    return assigned.fit, assigned.preempts


def full(*queues, **holding):
    """ClusterQueues and who holds quota there, as ``reserving`` makes them."""
    usage = {
        name: Held(
            reserving=len(found),
            usage=dict(Counter(cell for each in found for cell, _ in each.charge)),
            lowest_priority=min(each.priority for each in found),
        )
        for name, found in holding.items()
    }
    names = {name.replace("_", "-"): name for name in holding}
    return snapshot(
        *queues,
        held={name: usage[key] for name, key in names.items()},
        reserving={name: holding[key] for name, key in names.items()},
    )


def test_placements_may_be_preempted_as_those_that_are_observed():
    state = full(cluster_queue(quotas=T4, preemption=LOWER), gpu_cq=reserving(9, 9))
    placements = [arrival(str(n), ONE, priority=n) for n in (0, 9)]

    assert fit(state, gpus=1, placements=placements) == (Fit.MAY_PREEMPT, 1)
    assert fit(state, gpus=2, placements=placements) == (Fit.WAITS, 0)


def test_where_nothing_is_known_of_the_holders_their_lowest_priority_decides():
    known = full(cluster_queue(quotas=T4, preemption=LOWER), gpu_cq=reserving(0, 9, 9, 9))

    assert fit(updated(known, reserving={}), gpus=2) == (Fit.MAY_PREEMPT, 0)


def test_quota_kept_for_a_head_is_there_for_who_comes_before_it_in_its_queue():
    # It has to borrow, which in another queue would put it behind the head.
    quotas = {"t4": {"cpu": "4", GPU: "4"}}
    queues = [
        cluster_queue("gpu-cq", quotas, cohort="all", queueing=Queueing.STRICT),
        cluster_queue("other-cq", quotas, cohort="all"),
    ]
    state = snapshot(
        *queues,
        held={"other-cq": held({"t4": {GPU: "8"}}, reserving=1)},
        competing={"gpu-cq": (arrival("first", {"cpu": "1", GPU: "4"}, priority=1),)},
    )
    found = occupancy_of(state)

    def starts(queue):
        local_queue = state.setup.local_queues["team", queue.name.replace("-cq", "-lq")]
        assigned = occupancy.assignment(found, [needs({"cpu": "8"})], queue, priority=2)
        passes = occupancy.passes_now(found, assigned, local_queue, queue, priority=2)
        return passes and not assigned.has_checks(queue)

    assert found.held("gpu-cq").head is not None
    assert [starts(queue) for queue in queues] == [True, False]
