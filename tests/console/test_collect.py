"""What the console shows of a state: whole values, and Kueue's own numbers in random worlds."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import worlds
from tests.builders import arrival, cluster_queue, foreseen, snapshot, team_policy
from tests.console.viewers import Only
from tests.console.waiting import waiting
from tests.console.worlds import (
    FORECASTS,
    GPU,
    MOVED,
    NOW,
    UNIX,
    counted,
    decision,
    known,
    option,
    state,
    with_workers,
)
from webhook.console.collect import Leads, collect, restricted, savings, with_waiting
from webhook.console.view import Cell, Judged, Queue, ShownCluster, View, view_json
from webhook.hindsight.savings_record import FORECASTS as BY_FORECASTS
from webhook.hindsight.savings_record import Gained
from webhook.kueue import quota
from webhook.model.queues import Held, StopPolicy
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated


def by_forecasts(**sums):
    return Gained(rests=BY_FORECASTS, **sums)


def test_a_queue_is_shown_with_what_it_has_and_holds():
    found = collect(known())

    assert found.queues[1] == Queue(
        name="gpu-cq",
        cohort="all",
        trouble="",
        pending=3,
        reserving=3,
        admitted=2,
        waits=60.0,
        cells=(
            Cell(
                flavor="t4",
                resource=GPU,
                nominal=2,
                reserved=3,
                borrowed=1,
                available=0,
                used=2,
            ),
            Cell(
                flavor="t4",
                resource="cpu",
                nominal=4000,
                reserved=1500,
                borrowed=0,
                available=2500,
                used=1000,
            ),
        ),
        local_queues=("team/gpu-lq",),
    )
    assert [queue.name for queue in found.queues] == ["cpu-cq", "gpu-cq", "spare-cq"]


def test_a_queue_that_no_policy_has_forecast_waits_as_long_as_its_last_one():
    line = (
        waiting("a", seconds=30.0),
        waiting("b", seconds=90.0),
        replace(waiting("c", seconds=inf), cluster_queue="cpu-cq"),
    )
    found = {
        name: {queue.name: queue.waits for queue in with_waiting(view, line).queues}
        for name, view in {
            "forecast": collect(known()),
            "not": collect(known(counted=counted(None, {}))),
        }.items()
    }

    assert found["forecast"] == {"cpu-cq": inf, "gpu-cq": 60.0, "spare-cq": None}
    assert found["not"] == {"cpu-cq": inf, "gpu-cq": 90.0, "spare-cq": None}
    assert with_waiting(collect(known()), None) == collect(known())


def test_a_workers_queues_come_after_those_of_this_cluster():
    found = collect(with_workers())

    assert [(queue.cluster, queue.name) for queue in found.queues] == [
        ("", "cpu-cq"),
        ("", "gpu-cq"),
        ("", "spare-cq"),
        ("far", "gpu-cq"),
        ("near", "gpu-cq"),
    ]
    near = found.queues[-1]
    assert (near.pending, near.reserving, near.admitted) == (4, 5, 3)
    assert near.cells == (
        Cell(flavor="l4", resource=GPU, nominal=8, reserved=5, borrowed=0, available=3, used=3),
    )


def test_each_worker_cluster_has_an_age_of_its_own():
    found = collect(with_workers())

    assert (found.age, found.is_stale) == (2.0, False)
    assert found.clusters == (
        ShownCluster(name="far", age=40.0, is_stale=True),
        ShownCluster(name="near", age=1.0, is_stale=False),
        ShownCluster(name="new", age=inf, is_stale=True),
    )


def test_the_rest_of_the_view_is_of_the_same_moment():
    found = collect(known())

    assert replace(found, queues=()) == View(
        at=UNIX,
        age=2.0,
        is_stale=False,
        off="",
        leader="",
        queues=(),
        policies=tuple(state().fallback.policies),
        judged={"light-gpu": Judged(is_ready=True, message="its options can be taken")},
        decisions=(decision(), MOVED),
        savings=by_forecasts(since=UNIX - 90, jobs=2, moved=1, gained_seconds=130.0),
    )


def test_what_was_borrowed_by_one_is_not_available_to_another():
    found = {queue.name: queue for queue in collect(known()).queues}

    assert found["spare-cq"].cells[0].available == 1


def test_before_the_first_state_all_is_unknown():
    found = collect(known(counted=None))

    assert (found.age, found.is_stale, found.queues) == (inf, True, ())


@pytest.mark.parametrize(
    ("changed", "trouble"),
    [
        ({"stop_policy": StopPolicy.HOLD}, "stopped (Hold)"),
        ({"active": False, "inactive_because": "flavor t4 is missing"}, "flavor t4 is missing"),
        ({"active": False}, "inactive"),
    ],
)
def test_a_queue_that_admits_nobody_has_nothing_available(changed, trouble):
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "2"}}, **changed), as_of=NOW)

    (found,) = collect(known(counted=counted(queues))).queues

    assert (found.trouble, [cell.available for cell in found.cells]) == (trouble, [0])


NEVER = foreseen(
    state(),
    ("spare-cq", {"t4": {GPU: "2"}}, inf),
    ("gpu-cq", {"t4": {GPU: "2"}}, inf),
    waiting=[(arrival("a", {GPU: "1"}), 1.0)],
).forecasts


@pytest.mark.parametrize(
    ("forecasts", "waits"),
    [
        ({}, None),
        (NEVER, inf),
        (FORECASTS, 60.0),
        (foreseen(state(), now=NOW - 5).forecasts, 0.0),
    ],
)
def test_a_queue_is_as_long_as_was_forecast(forecasts, waits):
    found = {queue.name: queue for queue in collect(known(counted=counted(None, forecasts))).queues}

    assert found["gpu-cq"].waits == waits


@pytest.mark.parametrize(
    ("switch", "text"),
    [
        (OffSwitch(), "all new decisions and moves"),
        (OffSwitch(namespaces=frozenset({"b", "a"})), "new decisions and moves in a, b"),
    ],
)
def test_the_off_switch_is_told(switch, text):
    queues = snapshot(off=switch)

    assert collect(known(counted=counted(queues))).off == text


def test_a_policy_that_is_not_ready_says_why():
    judged = {"light-gpu": Judged(is_ready=False, message="why")}

    (found,) = view_json(collect(known(judged=judged)))["policies"]

    assert (found["ready"], found["message"]) == (False, "why")


def test_only_what_was_carried_out_and_forecast_counts_as_saved():
    unknown = decision(options=(option("gpu"), option("cpu", 70.0)))
    observed, alone = decision(mode="Observe"), decision(option="")
    worse = decision(options=(option("gpu", 10.0), option("cpu", 70.0)))

    assert savings((unknown, observed, alone)) is None
    assert savings((unknown, worse)) == by_forecasts(
        since=UNIX - 60, jobs=1, moved=1, lost_seconds=60.0, slower=1
    )


def test_what_may_not_be_seen_is_left_out_and_counted_nowhere():
    rights = Only("clusterqueues.kueue.x-k8s.io/cpu-cq", "other")

    found = restricted(collect(known()), rights)

    assert [queue.name for queue in found.queues] == ["cpu-cq"]
    assert (found.policies, found.judged, found.decisions) == ((), {}, (MOVED,))
    assert found.savings == by_forecasts(since=UNIX - 90, jobs=1)


def test_a_right_to_a_queue_here_is_one_to_those_of_its_name_in_workers():
    rights = Only("clusterqueues.kueue.x-k8s.io/gpu-cq", "multikueueclusters.kueue.x-k8s.io/new")

    found = restricted(collect(with_workers()), rights)

    assert {(queue.cluster, queue.name) for queue in found.queues} == {
        ("", "gpu-cq"),
        ("far", "gpu-cq"),
        ("near", "gpu-cq"),
    }
    assert [cluster.name for cluster in found.clusters] == ["far", "near", "new"]


def test_local_queues_are_named_to_those_who_may_list_jobs_in_their_namespace():
    queue = "clusterqueues.kueue.x-k8s.io/gpu-cq"
    some, none = (restricted(collect(known()), Only(queue, name)) for name in ("team", "other"))

    assert [found.queues[0].local_queues for found in (some, none)] == [("team/gpu-lq",), ()]


def test_a_cluster_of_which_nothing_may_be_seen_is_not_named():
    found = restricted(collect(with_workers()), Only("clusterqueues.kueue.x-k8s.io/cpu-cq"))

    assert found.clusters == ()


def test_namespaces_that_are_off_are_named_to_those_who_may_list_their_jobs():
    switched = snapshot(off=OffSwitch(namespaces=frozenset({"team", "secret"})))
    view = collect(known(counted=counted(switched)))

    some, none = (restricted(view, Only(name)) for name in ("team", "elsewhere"))

    assert (some.off, some.off_in) == ("new decisions and moves in team", ("team",))
    assert (none.off, none.off_in) == ("", ())
    everywhere = collect(known(counted=counted(snapshot(off=OffSwitch()))))
    assert restricted(everywhere, Only("elsewhere")).off == "all new decisions and moves"


def test_the_leader_is_named_to_those_who_may_get_the_lease():
    view = collect(known(leads=Leads("controller-0", UNIX + 10)))

    named = restricted(view, Only("leases.coordination.k8s.io/kueue-fallback-controller"))

    assert (named.leader, restricted(view, Only("team")).leader) == ("controller-0", "a replica")


def test_a_policys_numbers_are_of_the_decisions_that_may_be_seen():
    rights = Only("fallbackpolicies.kueue-fallback.dev/light-gpu", "team")

    (found,) = view_json(restricted(collect(known()), rights))["policies"]

    assert [(each["option"], each["count"]) for each in found["decided"]] == [
        ("gpu", 0),
        ("cpu", 1),
        ("", 0),
    ]


def test_a_namespaces_own_policies_are_shown_to_those_who_may_list_its_jobs():
    own = (team_policy(), team_policy(namespace="other"))
    view = collect(known(counted=counted(snapshot(policies=own))))

    seen = restricted(view, Only("team")).policies

    assert [policy.name for policy in view.policies] == ["team/light", "other/light"]
    assert [policy.name for policy in seen] == ["team/light"]


@st.composite
def charged(draw):
    """A world in which each queue holds something, some of it admitted."""
    state, usage, admitted = draw(worlds.snapshots()), {}, {}
    for name, queue in state.setup.cluster_queues.items():
        cells = [cell for each in queue.groups for cell in each.quotas]
        usage[name] = {cell: draw(st.integers(0, 6)) for cell in cells}
        part = {cell: draw(st.integers(0, most)) for cell, most in usage[name].items()}
        admitted[name] = Held(usage=part)
    holdings = {name: Held(usage=used) for name, used in usage.items()}
    return updated(state, held=holdings, admitted=admitted)


@settings(max_examples=150, deadline=None)
@given(charged())
def test_what_is_available_can_be_reserved_and_one_more_cannot(world):
    view = collect(known(counted=world))

    idle = quota.plant(world.setup.cluster_queues, world.setup.cohorts)
    forest = idle.charged({name: each.usage for name, each in world.workloads.held.items()})

    for queue in view.queues:
        for cell in queue.cells:
            place = cell.flavor, cell.resource
            tree = forest.charged({queue.name: {place: cell.available}}).tree(queue.name)
            leaf, index = tree.leaves[queue.name], tree.indices[place]
            assert tree.available(leaf, index) <= 0
            assert cell.used <= cell.reserved
            assert cell.reserved - cell.borrowed <= cell.nominal
            potential = tree.potential(leaf, index)
            if cell.reserved <= potential:
                assert cell.reserved + cell.available <= potential


@pytest.mark.parametrize(("until", "leader"), [(UNIX + 1, "a"), (UNIX, "")])
def test_a_lease_that_was_not_renewed_is_nobodys(until, leader):
    assert collect(known(leads=Leads("a", until))).leader == leader
