"""Pending Workloads that compete for quota, by shape."""

import pytest

from tests.state.kueue import configuration
from tests.state.objects import (
    PENDING,
    cluster_queue,
    condition,
    local_queue,
    named,
    reserving,
    state_with,
    workload,
)
from webhook.api import resources as kinds
from webhook.model.queues import Held
from webhook.state.state import SHAPES_PER_QUEUE
from webhook.state.workload import SeenWorkload


def keys(snapshot):
    return [arrival.key for arrival in snapshot.workloads.arrivals]


def test_a_pending_workload_is_an_arrival_with_its_needs():
    source = workload(decision="d1", guest=("light-gpu", "cpu"), count=2, priority=5)

    snapshot = state_with(source).snapshot(1.0, 0.0)

    (arrival,) = snapshot.workloads.arrivals
    assert (arrival.key, arrival.namespace, arrival.local_queue) == ("d1", "team", "gpu-lq")
    assert (arrival.priority, arrival.policy, arrival.option) == (5, "light-gpu", "cpu")
    assert [need.total for need in arrival.needs] == [{"cpu": 8000}]
    assert snapshot.workloads.held == {"gpu-cq": Held()}


def test_it_is_none_any_more_once_it_reserves():
    state = state_with(workload())

    state.apply(kinds.WORKLOADS, "MODIFIED", reserving())
    snapshot = state.snapshot(1.0, 0.0)

    assert snapshot.workloads.arrivals == ()
    assert snapshot.workloads.held["gpu-cq"].reserving == 1


def test_a_workload_without_a_decision_goes_by_its_job():
    assert keys(state_with(workload()).snapshot(1.0, 0.0)) == ["job:team/train"]


def test_what_no_job_owns_goes_by_its_own_name():
    assert keys(state_with(workload("w", job="")).snapshot(1.0, 0.0)) == ["workload:team/w"]


def test_arrivals_come_oldest_first_over_all_queues():
    state = state_with(workload("a", job="late", created="2026-11-21T06:00:09Z"))
    state.apply(kinds.CLUSTER_QUEUES, "ADDED", cluster_queue("z-cq"))
    state.apply(kinds.LOCAL_QUEUES, "ADDED", local_queue("z-lq", "z-cq"))

    state.apply(kinds.WORKLOADS, "ADDED", workload("b", job="early", queue="z-lq"))

    assert keys(state.snapshot(1.0, 0.0)) == ["job:team/early", "job:team/late"]


def evicted(name, at, reason, **rest):
    """A Workload that was evicted at 06:00:*at* and is pending again."""
    again = condition("Evicted", reason=reason) | {"lastTransitionTime": f"2026-11-21T06:00:{at}Z"}
    return workload(name, job=name, conditions=(PENDING, again), **rest)


@pytest.mark.parametrize(
    ("reason", "timestamp", "order"),
    [
        ("PodsReadyTimeout", "Eviction", ["other", "evicted"]),
        ("PodsReadyTimeout", "Creation", ["evicted", "other"]),
        ("AdmissionCheck", "Creation", ["other", "evicted"]),
        ("Preempted", "Eviction", ["evicted", "other"]),
    ],
)
def test_who_was_evicted_queues_by_that_time_where_kueue_orders_so(reason, timestamp, order):
    other = workload("other", job="other", cpu="1", created="2026-11-21T06:00:09Z")
    state = state_with(evicted("evicted", 20, reason), other)
    text = f"waitForPodsReady: {{requeuingStrategy: {{timestamp: {timestamp}}}}}"

    state.replace(kinds.KUEUE_CONFIG, [configuration(text)])

    assert keys(state.snapshot(1.0, 0.0)) == [f"job:team/{name}" for name in order]
    state.replace(kinds.WORKLOADS, [])
    assert state.snapshot(2.0, 0.0).workloads.arrivals == ()


def tried(name="a", *, asked, seen=3, now=3, **rest):
    """A pending Workload of four CPUs that Kueue tried as it was in generation *seen*."""
    source = workload(name, conditions=(PENDING | {"observedGeneration": seen},), **rest)
    source["metadata"]["generation"] = now
    source["status"]["resourceRequests"] = [{"name": "main", "resources": asked}]
    return source


def needed(*workloads):
    arrivals = state_with(*workloads).snapshot(1.0, 0.0).workloads.arrivals
    return [need.total for arrival in arrivals for need in arrival.needs]


def test_what_kueue_has_counted_itself_goes_before_what_is_worked_out():
    assert needed(tried(asked={"whole-gpus": "2", "cpu": "10"}, count=2)) == [
        {"cpu": 10_000, "whole-gpus": 2}
    ]


@pytest.mark.parametrize(
    "changed",
    [
        tried(asked={"cpu": "9"}, now=4),
        tried(asked={"cpu": "9"}, seen=None, now=None),
        tried(asked={"cpu": "9"}) | {"status": {"conditions": [PENDING], "resourceRequests": []}},
    ],
)
def test_what_kueue_counted_of_a_workload_that_has_changed_since_does_not_count(changed):
    assert needed(changed) == [{"cpu": 4000}]


def test_a_count_that_cannot_be_read_is_a_problem_of_its_workload_alone():
    state = state_with(tried(asked={"cpu": "x"}), workload("b", job="b"))

    assert keys(state.snapshot(1.0, 0.0)) == ["job:team/b"]
    assert state.problems() == {"workloads": 1}


def test_a_workload_that_kueue_has_tried_needs_what_its_like_need():
    state = state_with(tried(asked={"cpu": "4"}), workload("b", job="b", cpu="4"))

    first, second = state.snapshot(1.0, 0.0).workloads.arrivals

    assert first.needs is second.needs


def test_workloads_of_one_shape_are_one_arrival_with_their_number():
    small = workload("c", cpu="1", job="small", created="2026-11-21T06:00:09Z")

    snapshot = state_with(workload("a"), workload("b", job="b"), small).snapshot(1.0, 0.0)

    assert [(arrival.key, arrival.count) for arrival in snapshot.workloads.arrivals] == [
        ("job:team/train", 2),
        ("job:team/small", 1),
    ]
    assert snapshot.workloads.held["gpu-cq"].pending == 0


def test_higher_priority_goes_before_age():
    urgent = workload("b", job="urgent", priority=9, created="2026-11-21T06:00:09Z")

    snapshot = state_with(workload("a", job="old"), urgent).snapshot(1.0, 0.0)

    assert keys(snapshot) == ["job:team/urgent", "job:team/old"]


def test_a_workload_that_backs_off_waits_and_does_not_compete():
    backing_off = workload(conditions=(PENDING, condition("Requeued", status="False")))

    snapshot = state_with(backing_off).snapshot(1.0, 0.0)

    assert (snapshot.workloads.held["gpu-cq"].pending, snapshot.workloads.arrivals) == (1, ())


@pytest.mark.parametrize("spec", [{"stopPolicy": "Hold"}, {"stopPolicy": "HoldAndDrain"}])
def test_a_stopped_cluster_queue_has_pending_workloads_and_no_arrivals(spec):
    snapshot = state_with(workload(), **spec).snapshot(1.0, 0.0)

    assert (snapshot.workloads.held["gpu-cq"].pending, snapshot.workloads.arrivals) == (1, ())


def test_shapes_beyond_the_limit_are_simply_pending():
    many = [
        workload(f"w{n:04}", job=f"j{n:04}", cpu=str(n + 1), guest=("p", "o"))
        for n in range(SHAPES_PER_QUEUE + 9)
    ]

    snapshot = state_with(*many).snapshot(1.0, 0.0)

    assert len(snapshot.workloads.arrivals) == SHAPES_PER_QUEUE
    assert snapshot.workloads.held["gpu-cq"] == Held(pending=9, guests={("p", "o", "team"): 9})


def test_needs_follow_limit_ranges_and_kueues_configuration():
    state = state_with(workload())
    state.replace(
        kinds.LIMIT_RANGES,
        [
            {
                "metadata": {"name": "defaults", "namespace": "team"},
                "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]},
            }
        ],
    )
    with_default = state.snapshot(1.0, 0.0).workloads.arrivals[0].needs[0].per_pod
    config = {"config.yaml": "kind: Configuration\nresources: {excludeResourcePrefixes: [cpu]}"}
    state.replace(kinds.KUEUE_CONFIG, [named("ConfigMap", "kueue-manager-config", data=config)])
    without_cpu = state.snapshot(2.0, 0.0).workloads.arrivals[0].needs[0].per_pod

    assert with_default == {"cpu": 4000, "memory": 1 << 30}
    assert without_cpu == {"memory": 1 << 30}


def test_each_workload_is_told_of_once():
    state = state_with(workload(decision="d1"))
    first = state.take_seen()
    state.apply(kinds.WORKLOADS, "MODIFIED", reserving(decision="d1"))
    state.apply(kinds.WORKLOADS, "ADDED", workload("w2", job="other"))

    assert first == (SeenWorkload("d1", "team", "train", "gpu-lq"),)
    assert state.take_seen() == (SeenWorkload("job:team/other", "team", "other", "gpu-lq"),)
    assert state.take_seen() == ()


def test_a_job_created_again_under_its_name_is_told_of_again():
    state = state_with(workload())
    state.take_seen()

    state.replace(kinds.WORKLOADS, [workload(created="2026-11-21T06:00:10Z")])

    assert [seen.key for seen in state.take_seen()] == ["job:team/train"]


def test_old_workloads_of_the_first_list_are_not_told_of():
    old, new = workload("a", job="old"), workload("b", job="new", created="2026-11-21T07:00:00Z")
    state = state_with(old, new)

    assert [seen.job_name for seen in state.take_seen()] == ["new"]
