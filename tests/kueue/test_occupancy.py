from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import NAMESPACE, arrival, cluster_queue, held, needs, snapshot
from webhook.kueue import occupancy
from webhook.model.queues import (
    Held,
    KueueConfig,
    LocalQueue,
    Queueing,
    Selector,
    StopPolicy,
)

GPU = "nvidia.com/gpu"
T4 = {"t4": {GPU: "4"}}
ONE = {GPU: "1"}


def starts(state, per_pod=ONE, placements=()):
    """Ask for the first ClusterQueue, through its LocalQueue."""
    found = occupancy.build(state, placements)
    (local_queue, *_) = state.local_queues.values()
    queue = state.cluster_queues[local_queue.cluster_queue]
    assigned = occupancy.assignment(found, [needs(per_pod)], queue)
    return occupancy.starts_now(found, assigned, local_queue, queue)


def test_arrivals_are_charged_until_the_quota_is_gone_and_then_pend():
    waiting = tuple(arrival(str(n), ONE) for n in range(3))
    state = snapshot(cluster_queue(quotas=T4), competing={"gpu-cq": waiting})
    placed = [arrival(f"p{n}", ONE, policy="light", option="gpu", priority=n) for n in range(3)]

    found = occupancy.build(state, placed)

    assert found.held("gpu-cq") == Held(
        pending=2,
        reserving=4,
        usage={("t4", GPU): 4},
        guests={("light", "gpu", "team"): 3},
        lowest_priority=0,
    )


def test_a_smaller_job_overtakes_a_larger_one_under_best_effort_only():
    large, small = arrival("large", {GPU: "3"}), arrival("small", ONE)
    for queueing, expected in ((Queueing.BEST_EFFORT, (1, 3)), (Queueing.STRICT, (2, 2))):
        queue = cluster_queue(quotas=T4, queueing=queueing)
        state = snapshot(queue, held={"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2)})

        found = occupancy.build(state, [large, small]).held("gpu-cq")

        assert (found.pending, found.reserving) == expected


def test_adding_one_arrival_leaves_the_occupancy_it_came_from_alone():
    before = occupancy.build(snapshot(cluster_queue(quotas=T4)))

    after = occupancy.with_arrival(before, arrival("a", ONE))

    assert before.held("gpu-cq") == Held()
    assert after == occupancy.build(before.snapshot, [arrival("a", ONE)])


def test_an_arrival_in_an_unknown_or_stopped_local_queue_counts_nowhere():
    stopped = LocalQueue(
        namespace=NAMESPACE, name="held", cluster_queue="gpu-cq", stop_policy=StopPolicy.HOLD
    )
    state = snapshot(cluster_queue(quotas=T4))
    state = replace(state, local_queues={**state.local_queues, (NAMESPACE, "held"): stopped})

    found = occupancy.build(
        state, [arrival("a", ONE, local_queue="none"), arrival("b", ONE, local_queue="held")]
    )

    assert found.held("gpu-cq") == Held()


def test_an_arrival_that_can_never_fit_pends():
    found = occupancy.build(snapshot(cluster_queue(quotas=T4)), [arrival("a", {GPU: "9"})])

    assert found.held("gpu-cq") == Held(pending=1)


def test_the_next_snapshot_is_charged_by_what_differs():
    state = snapshot(cluster_queue(quotas=T4), cluster_queue("other-cq", T4, cohort="all"))
    states = [
        replace(state, held=found)
        for found in (
            {"gpu-cq": held({"t4": {GPU: "3"}})},
            {"gpu-cq": held({"t4": {GPU: "1"}}), "other-cq": held({"t4": {GPU: "2"}})},
            {},
        )
    ]

    free = []
    for each in states:
        queues = occupancy.build(each)
        queue = state.cluster_queues["gpu-cq"]
        free.append(occupancy.assignment(queues, [needs({GPU: "4"})], queue).detail)

    assert free == [
        "needs nvidia.com/gpu 4 (flavor t4), 1 free",
        "needs nvidia.com/gpu 4 (flavor t4), 3 free",
        "flavor t4",
    ]


def test_what_fits_starts_now():
    assert starts(snapshot(cluster_queue(quotas=T4)))


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


def test_a_pending_head_holds_back_under_strict_fifo():
    behind = {"gpu-cq": held(pending=1)}

    assert not starts(snapshot(cluster_queue(quotas=T4, queueing=Queueing.STRICT), held=behind))
    assert starts(snapshot(cluster_queue(quotas=T4), held=behind))


def test_blocked_admission_starts_nothing_while_anybody_may_not_be_ready():
    kueue = KueueConfig(block_admission=True)
    ready = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=2)}
    busy = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=1)}

    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue))
    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=ready))
    assert not starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=busy))
