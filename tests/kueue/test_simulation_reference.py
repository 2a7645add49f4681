"""The event loop against a plain one, which runs cycle after cycle whenever something ends.

StrictFIFO queues stand outside cohorts here, there is one flavor, so that no search for flavors
goes on in a later cycle, and nobody preempts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import arrivals, simulations, snapshots, waiting
from webhook.kueue.assignment import set_aside
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.simulation import Running
from webhook.model.quantity import Amounts
from webhook.model.queues import Preemption, Queueing, StopPolicy
from webhook.state import counted_arrivals, occupancy
from webhook.state.snapshot import updated

seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0])
NOBODY_PREEMPTS = {"policies": st.just(Preemption()), "fair_sharing": st.just(False)}
WORLDS = {
    "alone": {"parents": ("",), "flavors": ("a",), **NOBODY_PREEMPTS},
    "cohorts": {
        "queueing": st.just(Queueing.BEST_EFFORT),
        "flavors": ("a",),
        **NOBODY_PREEMPTS,
    },
}


@dataclass(frozen=True)
class Job:
    arrival: object
    seconds: float
    at: float
    order: int
    queue: str
    demand: Demand


@dataclass(frozen=True)
class Run:
    end: float
    queue: str
    usage: Amounts
    priority: int | None = None


class Plain:
    """Start whom Kueue would: in each cycle one of each queue, as ``schedule`` in its scheduler."""

    def __init__(self, state, jobs, runs):
        self.queues = state.setup.cluster_queues
        self.found = counted_arrivals.idle(state)
        self.jobs, self.runs = list(jobs), list(runs)
        self.starts = []
        for run in runs:
            self._charge(run, 1)
        self._look(0.0)
        while (now := min([*self._ends(), *self._comes()], default=inf)) < inf:
            self._release(now)
            self._look(now)

    def _ends(self):
        return [run.end for run in self.runs]

    def _comes(self):
        return [job.at for job in self.jobs if job.at > self.now]

    def _release(self, now):
        for run in [run for run in self.runs if run.end <= now]:
            self.runs.remove(run)
            self._charge(run, -1)

    def _look(self, now):
        self.now = now
        parked = set()
        while heads := self._heads(parked):
            nominated = [(self._assigned(job), job) for job in heads]
            kept = []
            for assigned, job in sorted(
                nominated, key=lambda each: (each[0].height, rank(each[1]))
            ):
                if not assigned.fits:
                    # Those that are equal are not tried either.
                    parked |= {other.order for other in self.jobs if is_equal(job, other)}
                    kept.append(self._kept_for(job, assigned))
                    self._charge(kept[-1], 1)
                elif self._has_room(job, assigned):
                    self._start(job, assigned)
            for run in kept:
                self._charge(run, -1)

    def _heads(self, parked):
        """The first of each queue of those that were not found not to fit at this moment."""
        heads = {}
        for job in sorted(self._open(parked), key=rank):
            heads.setdefault(job.queue, job)
        return list(heads.values())

    def _open(self, parked):
        for job in self.jobs:
            queue = self.queues[job.queue]
            is_open = queue.active and queue.stop_policy is StopPolicy.NONE
            if (
                job.at <= self.now
                and is_open
                and job.order not in parked
                and self._is_head(job, queue)
            ):
                yield job

    def _assigned(self, job):
        """What it is assigned, each at the present usage."""
        queue, priority = self.queues[job.queue], job.arrival.priority
        needs = job.arrival.needs
        return occupancy.assignment(self.found, needs, queue, priority=priority).assignment

    def _kept_for(self, job, assigned):
        """What is set aside in this cycle for one that does not fit and may preempt nobody."""
        queue = self.queues[job.queue]
        place = occupancy.claimant(self.found, queue, priority=job.arrival.priority)
        return Run(inf, job.queue, place.tree.amounts(set_aside(assigned, place)))

    def _has_room(self, job, assigned):
        tree = self.found.forest[job.queue]
        return tree.room(tree.leaves[job.queue], assigned.taken) >= 1

    def _start(self, job, assigned):
        self.jobs.remove(job)
        usage = self.found.forest[job.queue].amounts(assigned.taken)
        run = Run(self.now + job.seconds, job.queue, usage, job.arrival.priority)
        self.runs.append(run)
        self._charge(run, 1)
        self.starts.append((job.arrival.key, self.now))

    def _is_head(self, job, queue):
        if queue.queueing is not Queueing.STRICT:
            return True
        line = [each for each in self.jobs if each.queue == job.queue and each.at <= self.now]
        return job is min(line, key=rank)

    def _charge(self, run, sign):
        queue, usage, held = run.queue, run.usage, self.found.held(run.queue)
        amounts = {
            cell: held.usage.get(cell, 0) + sign * usage.get(cell, 0)
            for cell in {**held.usage, **usage}
        }
        state = self.found.snapshot
        ranks = [each.priority for each in self.runs if each.queue == queue]
        held = replace(
            held,
            usage=amounts,
            reserving=len(ranks),
            lowest_priority=None if None in ranks else min(ranks, default=None),
        )
        state = updated(state, held={**state.workloads.held, queue: held})
        self.found = counted_arrivals.as_held(replace(self.found, snapshot=state), [queue])


def is_equal(job, other):
    """Whether Kueue takes two for equal."""
    return (job.queue, job.demand, job.arrival.priority) == (
        other.queue,
        other.demand,
        other.arrival.priority,
    )


def rank(job):
    return -job.arrival.priority, job.order


@pytest.mark.agreement
@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
@given(data=st.data())
def test_the_loop_starts_whom_a_plain_one_starts_and_when(world, data):
    state = closed(data, data.draw(snapshots(**world)))
    jobs, runs = drawn_jobs(data, state), drawn_runs(data, state)
    found = simulations(state)
    for run in runs:
        usage = dict(run.usage)
        found[run.queue].add_running(Running(cluster_queue=run.queue, usage=usage, seconds=run.end))
    for job in jobs:
        pending = waiting(job.arrival, state, seconds=job.seconds, at=job.at)
        found[job.queue].add_waiting(pending)
    expected = Plain(state, jobs, runs)

    for simulation in set(found.values()):
        while simulation.next_event() < inf:
            simulation.step()

    begun = [(each.key, each.at) for simulation in set(found.values()) for each in simulation.begun]
    assert sorted(begun) == sorted(expected.starts)


def closed(data, state):
    """Stop some queues."""
    change = st.sampled_from([{}, {}, {}, {"active": False}, {"stop_policy": StopPolicy.HOLD}])
    queues = {
        name: replace(queue, **data.draw(change))
        for name, queue in state.setup.cluster_queues.items()
    }
    return updated(state, cluster_queues=queues)


def drawn_jobs(data, state):
    """One Workload each; those that come at the same time in Kueue's order."""
    found = []
    for order, arrival in enumerate(data.draw(arrivals(state))):
        place = state.setup.local_queues[arrival.namespace, arrival.local_queue]
        at = data.draw(st.sampled_from([0.0, 0.0, 1.0, 4.0]))
        one = replace(arrival, count=1)
        wanted = waiting(one, state).demand
        found.append(Job(one, data.draw(seconds), at, order, place.cluster_queue, wanted))
    return found


def drawn_runs(data, state):
    """Workloads that run already, each within its queue's own quota."""
    found = []
    for name, queue in state.setup.cluster_queues.items():
        cells = {
            cell: data.draw(st.integers(0, quota.nominal))
            for group in queue.groups
            for cell, quota in group.quotas.items()
        }
        found.append(Run(data.draw(seconds), name, cells))
    return found
