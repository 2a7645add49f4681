"""What a replay tells admission, against what admission would count by itself."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import arrivals, simulations, snapshots, waiting
from webhook.model.queues import Held, Queueing
from webhook.simulate.site import KnownOccupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])


class Course:
    """Workloads on their way through queues, and who waits in Kueue's order."""

    def __init__(self, state):
        self.state = state
        self.known = KnownOccupancy(state)
        self.simulations = simulations(state)
        self.arrivals = {}
        self.pending = {name: [] for name in state.setup.cluster_queues}
        for simulation in set(self.simulations.values()):
            simulation.step()

    def join(self, arrival, run_seconds):
        each = waiting(arrival, self.state, seconds=run_seconds)
        name = each.cluster_queue
        self.arrivals[arrival.key] = arrival
        self.pending[name].append(arrival)
        self.pending[name].sort(key=lambda arrival: -arrival.priority)
        self.known.join(name, arrival)
        self.simulations[name].add_waiting(each)
        self.step(self.simulations[name])

    def step(self, simulation):
        simulation.step()
        for ended in simulation.ended:
            self._tell(self.known.end, simulation, ended)
        for begun in simulation.begun:
            self.pending[begun.cluster_queue].remove(self.arrivals[begun.key])
            self._tell(self.known.start, simulation, begun)
        simulation.ended.clear()
        simulation.begun.clear()

    def _tell(self, tell, simulation, begun):
        usage = {simulation.tree.cells[cell]: amount for cell, amount in begun.usage}
        tell(begun.cluster_queue, self.arrivals[begun.key], usage)

    def view(self):
        heads = {
            name: waits[0]
            for name, waits in self.pending.items()
            if waits and self.state.setup.cluster_queues[name].queueing == "StrictFIFO"
        }
        return self.known.at(self.state, heads)


@given(st.data())
def test_the_counts_are_those_of_an_occupancy_that_folds_who_waits(data):
    state = data.draw(snapshots())
    course = Course(state)
    for each in data.draw(arrivals(state)):
        guest = replace(each, count=1, policy="p", option=each.local_queue)
        course.join(guest, data.draw(seconds))
        if data.draw(st.booleans()):
            simulation = data.draw(st.sampled_from(list(course.simulations.values())))
            if simulation.next_event() < inf:
                course.step(simulation)

        found = course.view()

        assert {name: held for name, held in found.holdings.items() if held != Held()} == {
            name: held for name, held in folded(course, found).holdings.items() if held != Held()
        }


def folded(course, found):
    """Let the occupancy itself count those who wait."""
    running = {
        name: replace(
            tally,
            pending=0,
            head=None,
            guests={}
            if not tally.reserving
            else {("p", name.replace("-cq", "-lq"), "team"): tally.reserving},
        )
        for name, tally in found.holdings.items()
    }
    ages = list(course.arrivals)
    waits = [each for pending in course.pending.values() for each in pending]
    # Of one priority the oldest counts first, whatever queue it waits in.
    waits.sort(key=lambda each: (-each.priority, ages.index(each.key)))
    return occupancy_of(updated(course.state, held=running), tuple(waits))


@pytest.mark.parametrize("told", [("a-cq", "b-cq"), ("b-cq", "a-cq")])
def test_who_waits_is_never_taken_to_start_whatever_queue_is_told_first(told):
    """The borrower's head fits as long as the lender's head, which needs more, is not known of."""
    state = snapshot(
        *(
            cluster_queue(
                f"{name}-cq", {"default": {"cpu": cpu}}, cohort="all", queueing=Queueing.STRICT
            )
            for name, cpu in (("a", "0"), ("b", "3"))
        )
    )
    known = KnownOccupancy(state)
    running, lender, borrower = (
        arrival("1", {"cpu": "1"}, local_queue="a-lq"),
        arrival("2", {"cpu": "3"}, local_queue="b-lq"),
        arrival("3", {"cpu": "1"}, local_queue="a-lq"),
    )
    for each in (running, lender, borrower):
        known.join(f"{each.local_queue[0]}-cq", each)
    known.start("a-cq", running, {("default", "cpu"): 1000})
    heads = {"a-cq": borrower, "b-cq": lender}

    found = known.at(state, {name: heads[name] for name in told})

    assert {name: (held.reserving, held.pending) for name, held in found.holdings.items()} == {
        "a-cq": (1, 1),
        "b-cq": (0, 1),
    }
