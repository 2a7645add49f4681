"""Which Workloads are pending, reserving, charged: Kueue's own rules."""

import pytest

from tests.state.objects import (
    PENDING,
    RESERVED,
    cluster_queue,
    condition,
    counted,
    local_queue,
    reserving,
    state_with,
    workload,
)
from webhook.api import resources as kinds
from webhook.model.queues import ConsumedResources, Held, QuotaHolder
from webhook.state import queue_counts

CPU = ("a100", "cpu")
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


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


def test_those_whose_pods_are_ready_are_told_apart():
    ready = reserving("a", also=(condition("PodsReady"),))
    starting = reserving("b", also=(condition("PodsReady", "False"),))

    found = held(ready, starting)

    assert (found.reserving, found.ready) == (2, 1)


def test_the_reservation_counts_where_it_was_made_and_not_where_the_label_points():
    snapshot = state_with(reserving(to="cpu-cq", queue="gpu-lq")).snapshot(1.0, 0.0)

    assert snapshot.workloads.held == {
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
    stopped = state.snapshot(1.0, 0.0).workloads.held["gpu-cq"]
    state.apply(kinds.LOCAL_QUEUES, "MODIFIED", local_queue(stopPolicy="None"))
    resumed = counted(state.snapshot(2.0, 0.0))["gpu-cq"]

    assert stopped == charged
    assert (resumed.pending, resumed.reserving) == (1, 1)


def test_what_a_local_queue_has_used_changes_without_the_queues_counting_as_changed():
    state = state_with(workload())
    before = state.snapshot(1.0, 0.0)
    usage = {"consumedResources": {"cpu": "2"}, "lastUpdate": "1970-01-01T00:00:09Z"}
    status = {"fairSharing": {"admissionFairSharingStatus": usage}}

    state.apply(kinds.LOCAL_QUEUES, "MODIFIED", local_queue() | {"status": status})
    after = state.snapshot(2.0, 0.0)

    used = ConsumedResources(amounts={"cpu": 2.0}, updated=9)
    assert (before.setup.consumed, after.setup.consumed) == ({}, {("team", "gpu-lq"): used})
    assert after.setup.local_queues is before.setup.local_queues
    assert after.workloads.competing is before.workloads.competing


def test_a_replacement_slice_adds_only_its_difference():
    old = reserving("old", usage={"cpu": "2"})
    new = reserving(
        "new",
        usage={"cpu": "3"},
        annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"},
    )
    state = state_with(old, new)

    both = state.snapshot(1.0, 0.0).workloads.held["gpu-cq"]
    state.apply(kinds.WORKLOADS, "DELETED", new)
    back = state.snapshot(2.0, 0.0).workloads.held["gpu-cq"]

    assert both.usage == {CPU: 3000}
    assert back.usage == {CPU: 2000}


def test_a_pending_slice_knows_what_the_one_holds_that_it_replaces():
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"}
    new = workload("new", job="new", count=5, annotations=replaces)
    held = {"count": 3, "assigned": 3, "usage": {"cpu": "12"}}
    state = state_with(new, reserving("old", **held, annotations=ELASTIC))

    grown = state.snapshot(1.0, 0.0)
    state.apply(kinds.WORKLOADS, "DELETED", reserving("old"))
    alone = state.snapshot(2.0, 0.0)
    state.apply(kinds.WORKLOADS, "DELETED", new)

    assert [need.held for arrival in grown.workloads.arrivals for need in arrival.needs] == [
        {CPU: 12000}
    ]
    assert [need.held for arrival in alone.workloads.arrivals for need in arrival.needs] == [{}]
    assert state.snapshot(3.0, 0.0).workloads.arrivals == ()


def test_a_workload_replaces_none_of_another_namespace_and_only_few_replace_the_same():
    key = "kueue.x-k8s.io/workload-slice-replacement-for"
    foreign = workload("new", count=5, annotations={key: "team/old"})
    foreign["metadata"]["namespace"] = "other"
    elsewhere = local_queue()
    elsewhere["metadata"]["namespace"] = "other"
    many = [workload(f"w{n}", count=5, annotations={key: "team/old"}) for n in range(20)]
    state = state_with(foreign, reserving("old", count=3, assigned=3, annotations=ELASTIC), *many)
    state.apply(kinds.LOCAL_QUEUES, "ADDED", elsewhere)

    found = state.snapshot(1.0, 0.0).workloads.arrivals

    replaced = [(bool(need.held), a.namespace, a.count) for a in found for need in a.needs]
    assert (False, "other", 1) in replaced
    assert sum(number for is_slice, _, number in replaced if is_slice) == 16


def variant(name, *, parent="parent", source=workload, **rest):
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": parent}
    found = source(name, **rest)
    found["metadata"]["ownerReferences"] = [owner]
    return found


def test_of_the_variants_of_one_workload_one_counts():
    state = state_with(variant("b"), variant("a"), variant("c", parent="another"))

    waiting = [arrival.count for arrival in state.snapshot(1.0, 0.0).workloads.arrivals]
    state.apply(kinds.WORKLOADS, "DELETED", variant("a"))
    still = [arrival.count for arrival in state.snapshot(2.0, 0.0).workloads.arrivals]
    state.apply(kinds.WORKLOADS, "ADDED", variant("d", source=reserving))
    admitted = state.snapshot(3.0, 0.0)

    assert (waiting, still) == ([2], [2])
    assert [arrival.count for arrival in admitted.workloads.arrivals] == [1]
    assert admitted.workloads.held["gpu-cq"].reserving == 1


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

    found = state.snapshot(1.0, 0.0).workloads.admitted

    assert {name: (part.reserving, part.usage) for name, part in found.items()} == {
        "gpu-cq": (1, {CPU: 4000})
    }


def test_what_was_told_of_the_admitted_does_not_change_afterwards():
    state = state_with(admitted("w1"))
    before = state.snapshot(1.0, 0.0).workloads.admitted

    state.apply(kinds.WORKLOADS, "DELETED", admitted("w1"))
    after = state.snapshot(2.0, 0.0).workloads.admitted

    assert before["gpu-cq"].usage == {CPU: 4000}
    assert after == {}


def admitted(name):
    since = {**condition("Admitted"), "lastTransitionTime": "2026-12-01T08:00:00Z"}
    return reserving(name, also=(since,))


def holding(name, at, *, evicted=False, **rest):
    """A Workload that got quota at 06:00:*at*, with its name as its UID."""
    reserved = RESERVED | {"lastTransitionTime": f"2026-11-21T06:00:{at}Z"}
    conditions = (reserved, *([condition("Evicted", reason="Preempted")] if evicted else ()))
    source = workload(name, conditions=conditions, admitted_to="gpu-cq", assigned=1, **rest)
    source["metadata"]["uid"] = name
    return source


def names(reservations):
    return [reservation.uid for reservation in reservations]


LOWER = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def test_who_may_be_preempted_is_named_in_kueues_order():
    state = state_with(
        holding("early", 10),
        holding("late", 20),
        holding("twin", 20),
        holding("urgent", 30, priority=9),
        holding("leaving", 10, priority=9, evicted=True),
        **LOWER,
    )

    found = state.snapshot(1.0, 0.0).workloads.reserving["gpu-cq"]

    assert names(found) == ["leaving", "late", "twin", "early", "urgent"]
    assert found[1] == QuotaHolder(
        key="team/late",
        local_queue="team/gpu-lq",
        charge=((CPU, 4000),),
        priority=0,
        reserved_at=1795240820,
        queued_at=1795240800,
        is_evicted=False,
        uid="late",
    )


def test_where_nobody_may_be_preempted_nobody_is_named():
    state = state_with(holding("a", 10))
    assert state.snapshot(1.0, 0.0).workloads.reserving == {}

    state.replace(kinds.CLUSTER_QUEUES, [cluster_queue(**LOWER)])
    assert names(state.snapshot(2.0, 0.0).workloads.reserving["gpu-cq"]) == ["a"]

    reclaims = {"preemption": {"reclaimWithinCohort": "Any"}, "cohortName": "all"}
    lender = cluster_queue("other-cq", **reclaims)
    state.replace(kinds.CLUSTER_QUEUES, [cluster_queue(cohortName="all"), lender])
    assert names(state.snapshot(3.0, 0.0).workloads.reserving["gpu-cq"]) == ["a"]

    state.replace(kinds.CLUSTER_QUEUES, [cluster_queue(), lender])
    assert state.snapshot(4.0, 0.0).workloads.reserving == {}


def test_of_very_many_only_the_first_to_be_preempted_are_named(monkeypatch):
    monkeypatch.setattr(queue_counts, "MOST_HOLDERS", 2)
    state = state_with(
        *(holding(name, at) for name, at in zip("abc", (10, 11, 12), strict=True)), **LOWER
    )
    assert names(state.snapshot(1.0, 0.0).workloads.reserving["gpu-cq"]) == ["c", "b"]

    state.apply(kinds.WORKLOADS, "DELETED", holding("c", 12))

    assert names(state.snapshot(2.0, 0.0).workloads.reserving["gpu-cq"]) == ["b", "a"]
