"""The event loop where Workloads are preempted: who goes, who comes, and who waits again."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, cohort, snapshot
from tests.conftest import THOROUGH
from tests.worlds import arrivals, simulations, snapshots, used, waiting
from webhook.kueue.simulation import Running
from webhook.model.queues import KueueConfig, Preemption
from webhook.state.snapshot import updated

LOWER = Preemption(within_cluster_queue="LowerPriority")
OWNER = Preemption(reclaim_within_cohort="Any")
FOUR = {"default": {"cpu": "4"}}
CPU = ("default", "cpu")


def queue(name, **rest):
    return cluster_queue(f"{name}-cq", FOUR, **rest)


def world(*queues, seconds=1.0):
    """The Simulation of one tree, whose victims lose their quota after *seconds*."""
    state = snapshot(*queues)
    simulation = next(iter(simulations(state).values()))
    simulation.eviction_seconds = seconds
    return state, simulation


def come(state, simulation, *jobs):
    """Let Workloads come: key, queue, CPUs, priority, when, run time."""
    for key, name, cpus, priority, at, seconds in jobs:
        wanted = arrival(key, {"cpu": str(cpus)}, local_queue=f"{name}-lq", priority=priority)
        simulation.add_waiting(waiting(wanted, state, at=at, seconds=seconds, count=1))


def run(simulation):
    while simulation.next_event() < inf:
        simulation.step()
    return [(begun.key, begun.at) for begun in simulation.begun]


def preempted(simulation):
    return [(each.key, each.preempted_at, each.preempted_by) for each in simulation.preempted]


def test_a_higher_priority_starts_when_its_victim_has_stopped_which_then_begins_again():
    state, simulation = world(queue("a", preemption=LOWER))
    simulation.step()
    come(state, simulation, ("low", "a", 4, 0, 0.0, 100.0), ("high", "a", 4, 1, 10.0, 20.0))

    starts = run(simulation)

    assert starts == [("low", 0.0), ("high", 11.0), ("low", 31.0)]
    assert preempted(simulation) == [("low", 10.0, "high")]
    assert [(each.key, each.at + 0, each.finish) for each in simulation.ended] == [
        ("high", 11.0, 31.0),
        ("low", 31.0, 131.0),
    ]


def test_a_victim_that_leaves_while_it_stops_holds_its_quota_until_then_and_never_comes_again():
    state, simulation = world(queue("a", preemption=LOWER))
    simulation.step()
    come(state, simulation, ("low", "a", 4, 0, 0.0, 100.0), ("high", "a", 4, 1, 10.0, 20.0))
    while not simulation.preempted:
        simulation.step()

    simulation.withdraw("low")

    assert run(simulation) == [("low", 0.0), ("high", 11.0)]
    assert simulation.now == 31.0


def test_an_owner_takes_its_quota_back_from_who_has_borrowed_it():
    queues = [queue(name, cohort="all", preemption=OWNER) for name in ("a", "b")]
    state, simulation = world(*queues)
    simulation.step()
    come(
        state,
        simulation,
        ("own", "b", 4, 9, 0.0, 100.0),
        ("borrows", "b", 4, 9, 0.0, 100.0),
        ("owner", "a", 4, 0, 10.0, 20.0),
    )

    assert run(simulation) == [
        ("own", 0.0),
        ("borrows", 0.0),
        ("owner", 11.0),
        ("borrows", 31.0),
    ]


def test_nobody_of_its_clusterqueue_passes_a_head_whose_victims_are_stopping():
    # Two of the four CPUs are free; the head waits for two more, and keeps the small one out.
    state, simulation = world(queue("a", preemption=LOWER), seconds=30.0)
    simulation.step()
    come(
        state,
        simulation,
        ("low", "a", 2, 0, 0.0, 100.0),
        ("head", "a", 4, 2, 10.0, 20.0),
        ("small", "a", 1, 1, 15.0, 1.0),
    )

    assert run(simulation) == [("low", 0.0), ("head", 40.0), ("small", 60.0), ("low", 60.0)]


@pytest.mark.parametrize("grain", [0.0, 1e-9])
def test_who_preempts_is_the_first_of_its_clusterqueue_until_it_starts(grain):
    # Kueue's ``preemptorWorkload``. Behind the wide one, which is older, it would be tried a cycle
    # later, and who borrows in the other ClusterQueue would have taken the quota by then.
    state = snapshot(queue("a", cohort="all", preemption=OWNER), queue("b", cohort="all"))
    simulation = simulations(state, grain=grain)["a-cq"]
    come(state, simulation, ("own", "b", 4, 0, 0.0, 100.0), ("lent", "b", 4, 0, 0.0, 100.0))
    simulation.step()
    come(state, simulation, ("wide", "a", 8, 0, 10.0, 50.0), ("narrow", "a", 4, 0, 10.0, 20.0))

    starts = run(simulation)

    assert preempted(simulation) == [("lent", 10.0, "narrow")]
    assert starts == [
        ("own", 0.0),
        ("lent", 0.0),
        ("narrow", 11.0),
        ("lent", 31.0),
        ("wide", 131.0),
    ]


@pytest.mark.parametrize("grain", [0.0, 1e-9])
def test_the_next_of_a_clusterqueue_preempts_as_soon_as_the_one_before_it_has_started(grain):
    state = snapshot(queue("a", preemption=LOWER))
    simulation = simulations(state, grain=grain)["a-cq"]
    come(state, simulation, *((f"low-{n}", "a", 1, 0, 0.0, 100.0) for n in range(4)))
    simulation.step()
    come(state, simulation, *((f"high-{n}", "a", 1, 1, 10.0, 20.0) for n in range(3)))

    run(simulation)

    assert [(at, by) for _, at, by in preempted(simulation)] == [
        (10.0, "high-0"),
        (11.0, "high-1"),
        (12.0, "high-2"),
    ]


def test_who_starts_may_be_preempted_at_once_by_who_comes_in_a_later_cycle():
    # In the first cycle the wide one is tried in vain, and what is free is lent in its place.
    state = snapshot(queue("a", cohort="all", preemption=OWNER), queue("b", cohort="all"))
    simulation = simulations(state)["a-cq"]
    come(state, simulation, ("first", "a", 4, 0, 0.0, 10.0), ("own", "b", 4, 0, 0.0, 100.0))
    simulation.step()
    come(state, simulation, ("wide", "a", 8, 0, 5.0, 50.0), ("narrow", "a", 4, 0, 5.0, 20.0))
    come(state, simulation, ("lent", "b", 4, 0, 5.0, 50.0))

    starts = run(simulation)

    assert preempted(simulation) == [("lent", 10.0, "narrow")]
    assert starts[2:4] == [("lent", 10.0), ("narrow", 11.0)]


def test_who_held_quota_before_waits_again_on_the_same_flavors():
    state, simulation = world(queue("a", preemption=LOWER))
    usage = {CPU: 4000}
    simulation.add_running(
        Running(
            cluster_queue="a-cq", usage=usage, seconds=5.0, whole=(50.0, 0.0), key="old", priority=0
        )
    )
    come(state, simulation, ("high", "a", 2, 1, 0.0, 20.0))

    assert run(simulation) == [("high", 1.0), ("old", 21.0)]
    assert simulation.ended[-1].finish == 71.0


def test_a_holder_of_unknown_priority_is_not_preempted():
    state, simulation = world(queue("a", preemption=LOWER))
    simulation.add_running(Running(cluster_queue="a-cq", usage={CPU: 4000}, seconds=5.0))
    come(state, simulation, ("high", "a", 2, 1, 0.0, 20.0))

    assert run(simulation) == [("high", 5.0)]


seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])


@given(st.data())
def test_preemption_never_uses_more_than_quota_allows_and_everybody_finishes_once(data):
    state = data.draw(snapshots(fair_sharing=st.just(False)))
    found = simulations(state)
    let_in = {}
    for wanted in data.draw(arrivals(state, priorities=3)):
        at = data.draw(st.sampled_from([0.0, 1.0, 2.0, 4.0]))
        pending = waiting(wanted, state, seconds=data.draw(seconds), at=at)
        let_in[pending.key] = pending
        found[pending.cluster_queue].add_waiting(pending)

    for simulation in set(found.values()):
        steps = 0
        while simulation.next_event() < inf and steps < 500:
            simulation.step()
            steps += 1
            tree = simulation.tree
            for at, amount in enumerate(tree.used):
                assert amount >= 0
                if tree.parents[at // tree.width] < 0:
                    assert amount <= tree.subtree[at]
                assert amount <= max(tree.potentials[at], 0)
        assert steps < 500
        assert not any(simulation.tree.used)
        for name in simulation.tree.leaves:
            assert used(simulation, name) == {}
        done = {}
        for ended in simulation.ended:
            done[ended.key] = done.get(ended.key, 0) + ended.count
        pending = {
            entry.waiting.key: entry.count
            for heads in simulation.waiting()
            for _, _, entry in heads.entries
        }
        for key, count in done.items():
            assert count + pending.get(key, 0) == let_in[key].count


@pytest.mark.parametrize("grain", [0.0, 0.01])
def test_a_head_preempts_in_its_own_clusterqueue_and_takes_quota_back_at_once(grain):
    policy = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
    state = snapshot(queue("a", cohort="all", preemption=policy), queue("b", cohort="all"))
    simulation = next(iter(simulations(state, grain=grain).values()))
    here = [("low", "a", 1, 0, 0.0, 90.0), ("high", "a", 2, 2, 0.0, 90.0)]
    there = [(f"b-{number}", "b", 1, 0, 0.0, 90.0) for number in range(5)]
    come(state, simulation, *here, *there)
    simulation.step()
    come(state, simulation, ("middle", "a", 2, 1, 10.0, 20.0))

    run(simulation)

    # One CPU is lacking of its own quota, and one that the other ClusterQueue has borrowed.
    victims = [(key, at, by) for key, at, by in preempted(simulation) if by == "middle"]
    assert victims == [("b-4", 10.0, "middle"), ("low", 10.0, "middle")]


@st.composite
def crowds(draw):
    """Six ClusterQueues of two teams, whose waves of Workloads ask for more than there is."""
    policies = st.builds(
        Preemption,
        within_cluster_queue=st.sampled_from(["LowerPriority", "LowerOrNewerEqualPriority"]),
        reclaim_within_cohort=st.sampled_from(["Any", "Any", "LowerPriority"]),
        borrow_within_cohort=st.sampled_from(["Never", "Never", "LowerPriority"]),
    )
    policy = draw(policies)
    queues = [
        queue(name, cohort=team, preemption=policy)
        for name, team in zip("abcdef", "xxxyyy", strict=True)
    ]
    cohorts = [cohort("x", parent="all"), cohort("y", parent="all")]
    jobs = [
        (
            f"{wave}-{number}",
            # Who comes first borrows what the others want back.
            draw(st.sampled_from("aad" if wave == 0 else "abcdef")),
            draw(st.sampled_from([1, 1, 2, 4])),
            draw(st.integers(0, 2)),
            10.0 * wave,
            draw(st.sampled_from([5.0, 15.0, 40.0])),
        )
        for wave in range(3)
        for number in range(draw(st.integers(4, 14)))
    ]
    kueue = KueueConfig(fair_sharing=draw(st.sampled_from([False, False, True])))
    return snapshot(*queues, cohorts=cohorts, kueue=kueue), jobs


def told_apart(state):
    """The same world, with limits that nothing reaches and no two ClusterQueues alike by them."""

    def apart(number, each):
        (groups,) = each.groups
        far = {
            cell: replace(amount, borrowing_limit=1_000_000 + number)
            for cell, amount in groups.quotas.items()
        }
        policy = replace(each.preemption, max_priority_threshold=1000 + number)
        return replace(each, groups=(replace(groups, quotas=far),), preemption=policy)

    queues = enumerate(state.setup.cluster_queues.values())
    return updated(
        state, cluster_queues={each.name: apart(number, each) for number, each in queues}
    )


@pytest.mark.agreement
# Each plays dozens of Workloads twice.
@settings(max_examples=60 if THOROUGH <= 5_000 else THOROUGH)
@given(crowds(), st.sampled_from([0.0, 0.01]))
def test_nobody_is_served_otherwise_where_less_is_shared(world, grain):
    # Searches are shared among ClusterQueues that are alike, and less is looked at where no quota
    # has a limit.
    state, jobs = world
    outcomes = []
    for variant in (state, told_apart(state)):
        simulation = simulations(variant, grain=grain)["a-cq"]
        come(variant, simulation, *jobs)
        steps = 0
        while simulation.next_event() < inf and steps < 300:
            simulation.step()
            steps += 1
        starts = [(begun.key, begun.at) for begun in simulation.begun]
        outcomes.append((starts, preempted(simulation), steps))

    assert outcomes[0] == outcomes[1]
