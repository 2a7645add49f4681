"""Which Workloads are pending, reserving, charged: Kueue's own rules."""

import pytest

from tests.state.objects import (
    PENDING,
    RESERVED,
    condition,
    counted,
    local_queue,
    reserving,
    state_with,
    workload,
)
from webhook.api import resources as kinds
from webhook.model.queues import Held
from webhook.state.workloads import Admitted

CPU = ("a100", "cpu")


def held(*workloads, **queue):
    return counted(state_with(*workloads, **queue).snapshot(1.0, 0.0)).get("gpu-cq", Held())


def test_a_judged_workload_without_quota_is_pending():
    assert held(workload(conditions=(PENDING,))) == Held(pending=1)


def test_a_reserving_workload_is_charged_what_it_was_given():
    found = held(reserving(usage={"cpu": "3500m"}, priority=7))

    assert found == Held(reserving=1, usage={CPU: 3500}, lowest_priority=7)


def test_an_evicted_workload_holds_its_quota_until_it_is_taken_back():
    found = held(reserving(also=(condition("Evicted", reason="Preempted"),)))

    assert found == Held(reserving=1, usage={CPU: 4000}, lowest_priority=0)


def test_the_reservation_counts_where_it_was_made_and_not_where_the_label_points():
    snapshot = state_with(reserving(to="cpu-cq", queue="gpu-lq")).snapshot(1.0, 0.0)

    assert snapshot.held == {
        "cpu-cq": Held(reserving=1, usage={CPU: 4000}, lowest_priority=0),
    }


def test_pods_given_back_are_not_charged():
    source = reserving(count=4, assigned=4, usage={"cpu": "8"})
    source["status"]["reclaimablePods"] = [{"name": "main", "count": 3}]

    assert held(source).usage == {CPU: 2000}


def test_a_partly_admitted_workload_is_charged_for_the_pods_it_got():
    source = reserving(count=8, assigned=4, usage={"cpu": "8"})
    source["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]

    assert held(source).usage == {CPU: 8000}


def test_a_resource_that_no_flavor_covers_is_not_charged():
    source = reserving(usage={"cpu": "1", "example.com/licence": "1"})
    del source["status"]["admission"]["podSetAssignments"][0]["flavors"]["example.com/licence"]

    assert held(source).usage == {CPU: 1000}


@pytest.mark.parametrize(
    "source",
    [
        workload(conditions=(PENDING, condition("Finished"))),
        reserving(also=(condition("Finished"),)),
        workload(conditions=(PENDING,), active=False),
        reserving(active=False),
        workload(conditions=(condition("QuotaReserved", "False", "OnHold"),)),
        workload(conditions=(PENDING, condition("WaitingForReplacementPods"))),
        workload(conditions=(PENDING,), annotations={"kueue.x-k8s.io/admission-gated-by": "a.b/c"}),
        workload(
            conditions=(PENDING,), labels={"kueue.x-k8s.io/concurrent-admission-parent": "true"}
        ),
        workload(conditions=(PENDING,), queue="no-such-queue"),
        workload(conditions=(RESERVED,)),
    ],
    ids=[
        "finished",
        "finished with its reservation",
        "deactivated",
        "deactivated with its reservation",
        "on hold",
        "waiting for replacement pods",
        "gated",
        "parent of variants",
        "its LocalQueue does not exist",
        "reserved in no ClusterQueue",
    ],
)
def test_it_is_neither_pending_nor_charged(source):
    assert held(source) == Held()


@pytest.mark.parametrize(
    "source",
    [
        workload(conditions=(PENDING, condition("Requeued", "False", "PodsReadyTimeout"))),
        workload(conditions=(PENDING,), annotations={"kueue.x-k8s.io/admission-gated-by": ""}),
    ],
    ids=["waiting before it is tried again", "no longer gated"],
)
def test_it_is_pending(source):
    assert held(source) == Held(pending=1)


def test_a_stopped_local_queue_has_no_pending_workloads_until_it_resumes():
    state = state_with(workload(conditions=(PENDING,)), reserving("job-train-2"))
    charged = Held(reserving=1, usage={CPU: 4000}, lowest_priority=0)

    state.apply(kinds.LOCAL_QUEUES, "MODIFIED", local_queue(stopPolicy="Hold"))
    stopped = state.snapshot(1.0, 0.0).held["gpu-cq"]
    state.apply(kinds.LOCAL_QUEUES, "MODIFIED", local_queue(stopPolicy="None"))
    resumed = counted(state.snapshot(2.0, 0.0))["gpu-cq"]

    assert stopped == charged
    assert (resumed.pending, resumed.reserving) == (1, 1)


def test_a_replacement_slice_adds_only_its_difference():
    old = reserving("old", usage={"cpu": "2"})
    new = reserving(
        "new",
        usage={"cpu": "3"},
        annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"},
    )
    state = state_with(old, new)

    both = state.snapshot(1.0, 0.0).held["gpu-cq"]
    state.apply(kinds.WORKLOADS, "DELETED", new)
    back = state.snapshot(2.0, 0.0).held["gpu-cq"]

    assert both.usage == {CPU: 3000}
    assert back.usage == {CPU: 2000}


def test_guests_are_counted_by_policy_and_option_pending_or_reserving():
    guest = ("light-gpu", "cpu")
    found = held(
        reserving("a", guest=guest),
        workload("b", conditions=(PENDING,), guest=guest),
        workload("c", conditions=(PENDING,), guest=("light-gpu", "gpu")),
    )

    assert found.guests == {(*guest, "team"): 2, ("light-gpu", "gpu", "team"): 1}


def test_of_what_is_reserved_the_admitted_is_told_apart():
    state = state_with(reserving("w1", usage={"cpu": "3500m"}), admitted("w2"))
    state.snapshot(1.0, 0.0)

    assert state.admitted == {"gpu-cq": Admitted(1, {CPU: 4000})}


def test_what_was_told_of_the_admitted_does_not_change_afterwards():
    state = state_with(admitted("w1"))
    state.snapshot(1.0, 0.0)
    before = state.admitted

    state.apply(kinds.WORKLOADS, "DELETED", admitted("w1"))
    state.snapshot(2.0, 0.0)

    assert before == {"gpu-cq": Admitted(1, {CPU: 4000})}
    assert state.admitted == {}


def admitted(name):
    since = {**condition("Admitted"), "lastTransitionTime": "2026-12-01T08:00:00Z"}
    return reserving(name, also=(since,))
