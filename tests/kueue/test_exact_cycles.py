"""The event loop where each of Kueue's cycles counts: who is tried in which, and with what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import simulations, waiting
from webhook.kueue.fair_sharing import LocalQueueUse
from webhook.kueue.simulation import Running
from webhook.model.pods import PodTemplate
from webhook.model.queues import (
    AdmissionFairSharing,
    Arrival,
    KueueConfig,
    LocalQueue,
    PodSetNeeds,
    Preemption,
    Queueing,
)
from webhook.state.snapshot import updated

STRICT = {"queueing": Queueing.STRICT}
LOWER = Preemption(within_cluster_queue="LowerPriority")
NEWER = Preemption(within_cluster_queue="LowerOrNewerEqualPriority")


def tree(*, more=(), grain=0.0, **queues):
    """Return ClusterQueues of one cohort, each with CPUs of some flavors and the rest."""
    state = snapshot(
        *(
            cluster_queue(
                f"{name}-cq",
                {flavor: {"cpu": cpus} for flavor, cpus in flavors.items()},
                cohort="all",
                **rest,
            )
            for name, (flavors, rest) in queues.items()
        ),
        kueue=KueueConfig(),
    )
    state = updated(
        state, local_queues=state.setup.local_queues | {("team", q.name): q for q in more}
    )
    return state, next(iter(simulations(state, requeue=1.0, grain=grain).values()))


def hold(simulation, name, cpus, seconds, *, flavor="f0", priority=0, key=""):
    usage = {(flavor, "cpu"): cpus * 1000}
    simulation.add_running(
        Running(
            cluster_queue=f"{name}-cq", usage=usage, seconds=seconds, priority=priority, key=key
        )
    )


def come(state, simulation, *jobs):
    """Let Workloads wait: key, LocalQueue, CPUs, priority, when."""
    for key, name, cpus, priority, at in jobs:
        wanted = arrival(key, {"cpu": str(cpus)}, local_queue=name, priority=priority)
        simulation.add_waiting(replace(waiting(wanted, state, seconds=50.0, at=at), count=1))


def events(simulation, until):
    """Return who starts, on which flavors and when, and whom has been preempted by whom."""
    while simulation.next_event() < until:
        simulation.step()
    starts = [(begun.key, *begun.flavors, begun.at) for begun in simulation.begun]
    return starts, [(victims.key, victims.preempted_by) for victims in simulation.preempted]


def test_quota_kept_for_the_next_strict_head_keeps_a_preemptor_out():
    # As "first" gets its quota, what is left of the cohort's is kept for "second", so the cycle
    # after it has no room for "urgent" either, whose victim would have to borrow.
    state, simulation = tree(own=({"f0": "0"}, {"preemption": NEWER}), strict=({"f0": "3"}, STRICT))
    hold(simulation, "own", 1, 90.0, key="victim")
    hold(simulation, "strict", 2, 10.0)
    come(
        state,
        simulation,
        ("first", "strict-lq", 1, 9, 0.0),
        ("second", "strict-lq", 2, 8, 0.0),
        ("urgent", "own-lq", 2, 5, 0.0),
    )

    assert events(simulation, 20.0) == ([("first", "f0", 10.0)], [])


def test_a_head_that_finds_nobody_to_preempt_keeps_its_quota_from_others_for_one_cycle():
    # "wide" may not start, yet "borrows" does not get ahead of "next", which owns the quota.
    state, simulation = tree(own=({"f0": "2"}, {}), other=({"f0": "0"}, {}))
    hold(simulation, "other", 1, 90.0)
    hold(simulation, "own", 1, 10.0)
    come(
        state,
        simulation,
        ("wide", "own-lq", 2, 9, 0.0),
        ("next", "own-lq", 1, 0, 0.0),
        ("borrows", "other-lq", 1, 9, 0.0),
    )

    assert events(simulation, 50.0)[0] == [("next", "f0", 11.0)]


def test_who_was_skipped_goes_on_with_its_next_flavor():
    # In the first cycle f0 is kept for "wide", in the second it is free again.
    state, simulation = tree(
        own=({"f0": "2", "f1": "0"}, {}),
        other=({"f0": "0", "f1": "0"}, {}),
        lender=({"f0": "0", "f1": "1"}, {}),
    )
    hold(simulation, "own", 1, 90.0)
    come(state, simulation, ("wide", "own-lq", 2, 9, 0.0), ("skipped", "other-lq", 1, 0, 0.0))

    assert events(simulation, 1.0)[0] == [("skipped", "f1", 0.0)]


@pytest.mark.parametrize("counts", [(2,), (1, 1)], ids=str)
def test_the_next_of_two_equal_workloads_begins_with_the_first_flavor_again(counts):
    # The first goes on with f1, as f0 is kept for "wide" in one cycle; by then f0 is free again.
    state, simulation = tree(
        own=({"f0": "2"}, {}),
        other=({"f0": "0", "f1": "2"}, {}),
    )
    hold(simulation, "own", 1, 90.0)
    come(state, simulation, ("wide", "own-lq", 2, 9, 0.0))
    for count in counts:
        wanted = arrival("equal", {"cpu": "1"}, local_queue="other-lq")
        simulation.add_waiting(waiting(wanted, state, seconds=50.0, count=count))

    assert events(simulation, 1.0)[0] == [("equal", "f1", 0.0), ("equal", "f0", 0.0)]


@pytest.mark.parametrize(
    ("queueing", "starts"),
    [
        (Queueing.BEST_EFFORT, [("preemptor", "f0", 1.0)]),
        (Queueing.STRICT, [("higher", "f0", 1.0)]),
    ],
)
def test_a_preemptor_is_overtaken_in_a_strict_queue_alone(queueing, starts):
    state, simulation = tree(
        own=({"f0": "1"}, {"preemption": LOWER, "queueing": queueing}), other=({"f0": "0"}, {})
    )
    hold(simulation, "own", 1, 90.0, key="victim")
    come(state, simulation, ("preemptor", "own-lq", 1, 5, 0.0), ("higher", "own-lq", 1, 9, 0.5))

    found, preempted = events(simulation, 1.5)

    assert found == starts
    assert preempted[0] == ("victim", "preemptor")


def test_who_comes_beside_one_that_was_tried_in_vain_waits_for_the_batch_if_it_is_equal():
    state, simulation = tree(own=({"f0": "2"}, {"preemption": LOWER}), other=({"f0": "0"}, {}))
    hold(simulation, "own", 2, 10.0)
    come(
        state,
        simulation,
        ("rests", "own-lq", 2, 0, 0.0),
        ("equal", "own-lq", 2, 0, 10.2),
        ("small", "own-lq", 1, 0, 10.4),
    )

    assert events(simulation, 20.0)[0] == [("small", "f0", 10.4)]


@pytest.mark.parametrize("queueing", list(Queueing))
def test_of_two_that_came_in_one_second_the_lesser_uid_is_first(queueing):
    state, simulation = tree(own=({"f0": "1"}, {"queueing": queueing}), other=({"f0": "0"}, {}))
    for key, uid in (("one", "b"), ("two", "a")):
        wanted = arrival(key, {"cpu": "1"}, local_queue="own-lq")
        simulation.add_waiting(replace(waiting(wanted, state, count=1), uid=uid), age=7)

    assert events(simulation, 5.0)[0] == [("two", "f0", 0.0)]


def test_cycles_can_be_run_when_kueue_ran_them():
    state, simulation = tree(own=({"f0": "1"}, {}), other=({"f0": "0"}, {}))
    hold(simulation, "own", 1, 10.0)
    come(state, simulation, ("one", "own-lq", 1, 9, 0.0), ("two", "own-lq", 1, 0, 0.0))

    for at, wakes in ((0.0, False), (0.1, False), (10.5, False), (12.0, True)):
        simulation.follow(at, wakes=wakes, drawn={})

    assert [(begun.key, begun.at) for begun in simulation.begun] == [("one", 12.0)]


def test_those_that_rest_at_the_beginning_wait_for_the_next_batch():
    state, simulation = tree(own=({"f0": "2"}, {}), other=({"f0": "0"}, {}))
    come(state, simulation, ("one", "own-lq", 1, 9, 0.0), ("two", "own-lq", 1, 0, 0.0))
    simulation.rest(frozenset({"two"}))

    for at, wakes in ((0.0, False), (0.1, False), (12.0, True)):
        simulation.follow(at, wakes=wakes, drawn={})

    assert [(begun.key, begun.at) for begun in simulation.begun] == [("two", 0.0), ("one", 12.0)]


@pytest.mark.parametrize(
    ("preemptors", "first"), [(frozenset(), "higher"), (frozenset({"lower"}), "lower")]
)
def test_who_preempted_before_the_beginning_still_comes_first(preemptors, first):
    state, simulation = tree(own=({"f0": "1"}, {}), other=({"f0": "0"}, {}))
    come(state, simulation, ("lower", "own-lq", 1, 0, 0.0), ("higher", "own-lq", 1, 9, 0.0))
    simulation.rest(frozenset(), preemptors=preemptors)

    simulation.follow(12.0, wakes=True, drawn={})

    assert [begun.key for begun in simulation.begun] == [first]


@pytest.mark.parametrize(("changed", "flavor"), [((), "f1"), (("own-cq",), "f0")])
def test_a_search_that_a_cycle_passed_over_begins_anew_where_its_queue_changed(changed, flavor):
    state, simulation = tree(own=({"f0": "0", "f1": "2"}, {}), other=({"f0": "1", "f1": "0"}, {}))
    come(state, simulation, ("owner", "other-lq", 1, 0, 0.0), ("skipped", "own-lq", 1, 0, 0.0))
    come(state, simulation, ("urgent", "own-lq", 1, 9, 1.0))

    simulation.follow(0.0, wakes=False, drawn={})
    simulation.end("owner", 2.0)
    simulation.follow(1.0, wakes=False, drawn={})
    simulation.follow(3.0, wakes=False, drawn={}, changed=changed)

    assert [(begun.key, *begun.flavors) for begun in simulation.begun] == [
        ("owner", "f0"),
        ("urgent", "f1"),
        ("skipped", flavor),
    ]


def test_a_search_goes_on_in_the_next_cycle_whatever_has_changed():
    state, simulation = tree(own=({"f0": "0", "f1": "2"}, {}), other=({"f0": "1", "f1": "0"}, {}))
    come(state, simulation, ("owner", "other-lq", 1, 0, 0.0), ("skipped", "own-lq", 1, 0, 0.0))

    simulation.follow(0.0, wakes=False, drawn={})
    simulation.end("owner", 2.0)
    simulation.follow(3.0, wakes=False, drawn={}, changed=("own-cq",))

    assert [(begun.key, *begun.flavors) for begun in simulation.begun] == [
        ("owner", "f0"),
        ("skipped", "f1"),
    ]


@pytest.mark.parametrize("drawn", ["most", "lower"])
def test_any_head_can_be_drawn_where_the_heap_was_not_in_order(drawn):
    local = [LocalQueue(namespace="team", name=name, cluster_queue="own-cq") for name in "xy"]
    state, simulation = tree(
        own=({"f0": "1"}, {"usage_based": True} | STRICT), other=({"f0": "0"}, {}), more=local
    )
    rules = AdmissionFairSharing(half_life_seconds=300.0, sampling_seconds=300.0)
    used = {"team/x": {"cpu": 1.0}, "team/y": {"cpu": 5.0}}
    simulation.order_by_use(
        LocalQueueUse(simulation.tree, rules, used, lambda amounts, _: sum(amounts.values()))
    )
    rest = ("lower", "x", 1, -1, 0.0), ("most", "y", 1, 0, 0.0)
    come(state, simulation, ("least", "x", 1, 0, 0.0), *rest)

    overruled = simulation.follow(0.0, wakes=False, drawn={"own-cq": drawn})

    assert overruled == [("least", drawn)]
    assert [begun.key for begun in simulation.begun] == [drawn]


def test_pod_sets_may_find_together_in_the_next_cycle_what_they_did_not_in_the_first():
    # The first one takes a flavor of which the second then finds too little.
    state = snapshot(cluster_queue("own-cq", {"f0": {"cpu": "2"}, "f1": {"cpu": "1"}}))
    simulation = next(iter(simulations(state).values()))
    needs = tuple(
        PodSetNeeds(name=name, count=1, per_pod={"cpu": cpus}, template=PodTemplate())
        for name, cpus in (("leader", 1000), ("main", 2000))
    )
    one = replace(arrival("both", {"cpu": "1"}, local_queue="own-lq"), needs=needs)
    simulation.add_waiting(waiting(one, state, count=1))

    simulation.step()

    assert [begun.flavors for begun in simulation.begun] == [("f1", "f0")]


@pytest.mark.parametrize("way", [{"grain": 0.01}, {}], ids=str)
def test_quota_kept_for_a_strict_head_keeps_out_who_borrows_as_far_up(way):
    # The second of "a" has come before the second of "b", and is tried first in each cycle.
    state = snapshot(
        cluster_queue("a-cq", {"f0": {"cpu": "4"}}, cohort="all", borrowing="0", **STRICT),
        cluster_queue("b-cq", {"f0": {"cpu": "3"}}, cohort="all", **STRICT),
    )
    simulation = simulations(state, **way)["a-cq"]
    come(state, simulation, ("a1", "a-lq", 3, 0, 0.0), ("a2", "a-lq", 3, 0, 0.0))
    come(state, simulation, ("b1", "b-lq", 2, 0, 0.0), ("b2", "b-lq", 2, 0, 0.0))

    simulation.step()

    assert [begun.key for begun in simulation.begun] == ["a1", "b1"]
    assert [(leaf, aside) for _, _, leaf, aside in simulation.kept] == [(1, ((0, 1000),))]


def test_quota_kept_for_a_head_keeps_nobody_out_who_asks_for_nothing_of_it():
    state = snapshot(
        cluster_queue("a-cq", {"f0": {"cpu": "4"}}, cohort="all", **STRICT),
        cluster_queue("b-cq", {"f0": {"cpu": "0"}}, cohort="all"),
    )
    simulation = simulations(state)["a-cq"]
    hold(simulation, "b", 4, 90.0)
    come(state, simulation, ("lender", "a-lq", 4, 0, 0.0), ("nothing", "b-lq", 0, 0, 0.0))

    simulation.step()

    assert [begun.key for begun in simulation.begun] == ["nothing"]


def test_one_that_comes_before_a_strict_head_begins_its_own_search_for_flavors():
    # The head would go on behind "f0" in the next cycle; "urgent" has not tried that yet.
    first, urgent = (
        Arrival(
            key=key,
            namespace="team",
            local_queue="a-lq",
            needs=tuple(
                PodSetNeeds(name=name, count=1, per_pod={"cpu": 1}, template=PodTemplate())
                for name in names
            ),
            priority=priority,
        )
        for key, names, priority in (("first", ("leader", "main"), 0), ("urgent", ("main",), 1))
    )
    state = snapshot(
        cluster_queue("a-cq", {"f0": {"cpu": "1m"}, "f1": {"cpu": "1m"}}, cohort="all", **STRICT)
    )
    simulation = simulations(state)["a-cq"]
    hold_one = Running(cluster_queue="a-cq", usage={("f1", "cpu"): 1}, seconds=90.0)
    simulation.add_running(hold_one)
    simulation.add_waiting(waiting(first, state))
    simulation.step()

    simulation.add_waiting(waiting(urgent, state))
    simulation.follow(0.0, wakes=False, drawn={})

    assert [(begun.key, begun.flavors) for begun in simulation.begun] == [("urgent", ("f0",))]


def starts(simulation, until):
    return [(key, at) for key, _, at in events(simulation, until)[0]]


def test_a_strict_head_takes_what_is_released_before_the_batch_whatever_its_priority():
    state, simulation = tree(strict=({"f0": "0"}, STRICT), other=({"f0": "2"}, {}))
    hold(simulation, "other", 2, 10.0)
    come(state, simulation, ("strict", "strict-lq", 1, 0, 0.0), ("urgent", "other-lq", 1, 9, 0.0))

    assert starts(simulation, 50.0) == [("strict", 10.0), ("urgent", 11.0)]


def test_a_preemptor_takes_its_quota_as_its_victim_stops_and_others_wait_for_the_batch():
    state, simulation = tree(own=({"f0": "2"}, {"preemption": LOWER}), other=({"f0": "1"}, {}))
    hold(simulation, "own", 2, 100.0, key="victim")
    hold(simulation, "other", 1, 100.0)
    come(state, simulation, ("urgent", "own-lq", 1, 9, 0.0), ("small", "other-lq", 1, 0, 0.0))

    assert starts(simulation, 10.0) == [("urgent", 1.0), ("small", 2.0)]


def test_who_finds_its_quota_taken_in_a_cycle_preempts_in_the_next():
    state, simulation = tree(own=({"f0": "1"}, {"preemption": LOWER}), lender=({"f0": "3"}, {}))
    hold(simulation, "own", 1, 100.0, key="victim")
    hold(simulation, "lender", 3, 10.0)
    come(state, simulation, ("lends", "lender-lq", 3, 0, 0.0), ("urgent", "own-lq", 1, 9, 0.0))

    found = starts(simulation, 20.0)

    assert [victims.key for victims in simulation.preempted] == ["victim"]
    assert sorted(found) == [("lends", 11.0), ("urgent", 1.0)]


def test_a_head_that_was_only_skipped_does_not_wait_for_the_batch():
    state, simulation = tree(
        strict=({"f0": "2"}, STRICT), other=({"f0": "0"}, {}), third=({"f0": "2"}, {})
    )
    hold(simulation, "other", 1, 90.0)
    hold(simulation, "third", 2, 10.0)
    # One CPU is free, which is set aside for the strict head.
    come(state, simulation, ("wide", "strict-lq", 2, 9, 0.0), ("skipped", "other-lq", 1, 0, 0.0))

    assert starts(simulation, 50.0) == [("wide", 10.0), ("skipped", 10.0)]


@pytest.mark.parametrize("grain", [0.0, 0.01])
def test_what_can_never_fit_takes_its_turn_after_a_batch(grain):
    rest = {"preemption": LOWER}
    state, simulation = tree(first=({"f0": "0"}, rest), other=({"f0": "2"}, rest), grain=grain)
    hold(simulation, "other", 2, 10.0, priority=9)
    come(
        state,
        simulation,
        ("never", "first-lq", 9, 5, 0.0),
        ("next", "first-lq", 2, 5, 0.0),
        ("low", "other-lq", 2, 0, 0.0),
    )

    assert [key for key, _ in starts(simulation, 50.0)] == ["low"]


def test_quota_is_kept_for_a_head_in_its_cycle_alone_and_not_in_the_first():
    state, simulation = tree(waits=({"f0": "2"}, {}), other=({"f0": "0"}, {}))
    hold(simulation, "waits", 1, 90.0)
    come(state, simulation, ("wide", "waits-lq", 2, 0, 0.0), ("narrow", "other-lq", 1, 0, 0.0))

    assert starts(simulation, 60.0) == [("narrow", 0.0)]
