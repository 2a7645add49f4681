from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.worlds import arrivals, simulations, snapshots, used, waiting
from webhook.kueue.queue_lines import has_room
from webhook.kueue.simulation import Running
from webhook.model.queues import Preemption, Queueing
from webhook.state.counted_arrivals import occupancy_of

seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])


ENDLESS = 1000
"""Steps of a few Workloads after which they preempt each other for ever, as some do in Kueue."""


def steps(simulation):
    """Take one step after the other, until nothing happens any more."""
    for _ in range(ENDLESS):
        if simulation.next_event() == inf:
            return
        simulation.step()
        yield
    assume(False)


def fill(data, state, found, *, count=None, late=False):
    """Let random Workloads come; returns what was let in, by key."""
    placed = {}
    for arrival in data.draw(arrivals(state)):
        each = waiting(
            arrival,
            state,
            seconds=data.draw(seconds),
            at=data.draw(st.sampled_from([0.0, 0.0, 1.0, 4.0])) if late else 0.0,
            count=count,
        )
        placed[each.key] = each
        found[each.cluster_queue].add_waiting(each)
    return placed


@pytest.mark.agreement
@given(st.data())
def test_those_who_come_one_by_one_fare_as_in_the_cycles_that_they_share(data):
    # Placements know nothing of shares, nor of flavors that are taken for whom they may preempt.
    state = data.draw(snapshots(fair_sharing=st.just(False), policies=st.just(Preemption())))
    come = data.draw(arrivals(state))
    found = simulations(state, came_one_by_one=True)
    for arrival in come:
        each = waiting(arrival, state)
        found[each.cluster_queue].add_waiting(each)

    expected = occupancy_of(state, placements=come)
    for simulation in set(found.values()):
        simulation.step()

    for name, simulation in found.items():
        held = expected.held(name)
        assert used(simulation, name) == {cell: n for cell, n in held.usage.items() if n}
        assert sum(b.count for b in simulation.begun if b.cluster_queue == name) == held.reserving
    # Outside of cohorts there is nobody to set something aside from.
    in_cohorts = {name for name, queue in state.setup.cluster_queues.items() if queue.cohort}
    assert {name: of for name, of in set_aside(found).items() if name in in_cohorts} == {
        name: expected.held(name).head.set_aside for name in in_cohorts & set(expected.heads)
    }


def set_aside(found):
    kept = {}
    for simulation in set(found.values()):
        names = {leaf: name for name, leaf in simulation.tree.leaves.items()}
        for *_, leaf, aside in simulation.kept:
            kept[names[leaf]] = {simulation.tree.cells[cell]: amount for cell, amount in aside}
    return kept


@given(st.data())
def test_no_more_is_ever_used_than_quota_allows(data):
    state = data.draw(snapshots())
    found = simulations(state)
    fill(data, state, found, late=True)

    for simulation in set(found.values()):
        for _ in steps(simulation):
            for leaf in simulation.tree.leaves.values():
                for index in range(simulation.tree.width):
                    at = leaf * simulation.tree.width + index
                    assert simulation.tree.used[at] <= simulation.tree.potential(leaf, index)
            for index in range(simulation.tree.width):
                root = simulation.tree.parents.index(-1) * simulation.tree.width + index
                assert simulation.tree.used[root] <= simulation.tree.subtree[root]
        assert not any(simulation.tree.used)


@given(st.data())
def test_under_best_effort_nobody_who_fits_stays_pending(data):
    # Nobody passes a head whose victims are stopping. One that met quota kept for another head goes
    # on with its next flavor, and rests until something is released where that has no quota.
    nobody_preempts = st.just(Preemption())
    state = data.draw(snapshots(queueing=st.just(Queueing.BEST_EFFORT), policies=nobody_preempts))
    found = simulations(state)
    fill(data, state, found, late=True)

    for simulation in set(found.values()):
        for _ in steps(simulation):
            for line in simulation.waiting():
                first = line.entries[0][2].shape
                has_next = any(len(group.flavors) > 1 for group in line.queue.groups)
                is_free = first.only is not None and has_room(simulation.tree, line.leaf, first)
                assert has_next or not is_free


@given(st.data())
def test_under_strict_fifo_nobody_starts_before_one_who_came_before(data):
    state = data.draw(snapshots(queueing=st.just(Queueing.STRICT)))
    found = simulations(state)
    placed = fill(data, state, found, count=1)

    run_all(found)

    for name, simulation in found.items():
        moments = {begun.key: begun.at for begun in simulation.begun}
        mine = [key for key, each in placed.items() if each.cluster_queue == name]
        starts = [moments.get(key, inf) for key in mine]
        assert starts == sorted(starts)


@given(st.data())
def test_starts_within_a_grain_are_near_the_exact_ones_in_one_queue(data):
    parts = {"queueing": st.just(Queueing.STRICT), "parents": ("",), "flavors": ("a",)}
    state = data.draw(snapshots(**parts))
    exact, coarse = simulations(state), simulations(state, grain=0.01)
    for arrival in data.draw(arrivals(state, priorities=1)):
        each = waiting(arrival, state, seconds=data.draw(seconds), count=1)
        exact[each.cluster_queue].add_waiting(each)
        coarse[each.cluster_queue].add_waiting(each)

    run_all(exact)
    run_all(coarse)

    for name, simulation in exact.items():
        expected = {begun.key: begun.at for begun in simulation.begun}
        for begun in coarse[name].begun:
            at = expected[begun.key]
            assert abs(begun.at - at) <= 0.02 * at + 1e-9


@pytest.mark.agreement
@given(st.data())
def test_equal_workloads_in_one_entry_start_as_they_would_one_by_one(data):
    state = data.draw(snapshots())
    together, single = simulations(state), simulations(state)
    for arrival in data.draw(arrivals(state)):
        each = waiting(arrival, state, seconds=data.draw(seconds))
        together[each.cluster_queue].add_waiting(each)
        for _ in range(each.count):
            single[each.cluster_queue].add_waiting(replace(each, count=1))

    run_all(together)
    run_all(single)

    for name, simulation in together.items():
        assert moments(simulation) == moments(single[name])


def moments(simulation):
    return sorted((b.key, b.at, b.flavors) for b in simulation.begun for _ in range(b.count))


def run_all(found):
    for simulation in set(found.values()):
        for _ in steps(simulation):
            pass


@given(st.data())
def test_who_is_withdrawn_has_never_come(data):
    state = data.draw(snapshots())
    found, without = simulations(state), simulations(state)
    placed = fill(data, state, found, late=True)
    gone = data.draw(st.sets(st.sampled_from(sorted(placed)))) if placed else set()
    for age, (key, each) in enumerate(placed.items()):
        if key not in gone:
            without[each.cluster_queue].add_waiting(each, age=age + 1)

    for key in gone:
        found[placed[key].cluster_queue].withdraw(key)
    for simulation in {*found.values(), *without.values()}:
        for _ in steps(simulation):
            pass

    for name in found:
        assert [(b.key, b.at, b.count) for b in found[name].begun] == [
            (b.key, b.at, b.count) for b in without[name].begun
        ]


@given(st.data())
def test_who_is_told_when_to_end_is_as_one_whose_run_time_was_known(data):
    state = data.draw(snapshots())
    known, told = simulations(state), simulations(state)
    placed = fill(data, state, simulations(state), late=True)
    for age, each in enumerate(placed.values()):
        # Under one key there is one Workload.
        known[each.cluster_queue].add_waiting(replace(each, count=1), age=age)
        told[each.cluster_queue].add_waiting(replace(each, count=1, seconds=inf), age=age)
    run_all(known)

    for simulation in set(told.values()):
        noted = 0
        for _ in steps(simulation):
            for begun in simulation.begun[noted:]:
                simulation.end(begun.key, begun.at + placed[begun.key].seconds)
            noted = len(simulation.begun)

    for name in known:
        for found, wanted in (
            (told[name].begun, known[name].begun),
            (told[name].ended, known[name].ended),
        ):
            assert [(b.key, b.at) for b in found] == [(b.key, b.at) for b in wanted]
        assert [each.finish for each in told[name].ended] == [
            each.finish for each in known[name].ended
        ]


MANY_CYCLES = 40


@pytest.mark.agreement
@given(st.data())
def test_who_rests_untried_would_have_got_nothing_in_all_of_kueues_cycles(data):
    state = data.draw(snapshots())
    loops, followed = simulations(state), simulations(state)
    for name, queue in state.setup.cluster_queues.items():
        for cell in (cell for group in queue.groups for cell in group.quotas):
            held = data.draw(st.integers(0, 4))
            run = Running(
                cluster_queue=name,
                usage={cell: held},
                seconds=100.0,
                priority=data.draw(st.integers(0, 1)),
                key=f"holder of {cell} in {name}",
            )
            loops[name].add_running(run)
            followed[name].add_running(run)
    for arrival in data.draw(arrivals(state)):
        each = waiting(arrival, state)
        loops[each.cluster_queue].add_waiting(each)
        followed[each.cluster_queue].add_waiting(each)

    for loop in set(loops.values()):
        loop.step()
    # These cycles are run whatever comes of them.
    for simulation in set(followed.values()):
        for number in range(MANY_CYCLES):
            simulation.follow(0.0, wakes=not number, drawn={})

    assert outcome(loops) == outcome(followed)


def outcome(found):
    """Who has started where, who was preempted by whom, the usage, and whom Kueue still tries."""
    return {
        name: (
            # Equal ones may start in one cycle if nobody else would get anything.
            [(begun.key, begun.flavors) for begun in simulation.begun for _ in range(begun.count)],
            [(gone.key, gone.preempted_by) for gone in simulation.preempted],
            simulation.tree.used,
            sorted(heads.entries[0][2].waiting.key for heads in simulation.tried()),
        )
        for name, simulation in found.items()
    }
