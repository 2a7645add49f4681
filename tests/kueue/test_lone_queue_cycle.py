from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import arrivals, snapshots, trees, waiting
from webhook.kueue.lone_queue_cycle import LoneQueueCycle
from webhook.kueue.queue_heads import QueueEntry, shape_of
from webhook.kueue.scheduling_cycle import SchedulingCycle
from webhook.model.queues import KueueConfig, Preemption

TURNS = [(0, -1), (0, 0)]
"""Of newcomers behind those of priority 1, and behind all."""


class Moments:
    """The moments of one ClusterQueue, with what starts in each."""

    def __init__(self, tree, cycle, queue, leaf):
        self.tree, self.cycle, self.queue, self.leaf = tree, cycle, queue, leaf
        self.running = []
        cycle.turns = TURNS

    def come(self, group, order):
        entry = QueueEntry(shape_of(self.tree, self.leaf, group.demand), group, group.count)
        self.cycle.join(self.queue, entry, order)

    def end(self, number):
        start = self.running.pop(number % len(self.running))
        self.tree.charge(self.leaf, start.found.taken, -start.count)
        self.cycle.released(self.leaf)

    def run(self):
        started = self.cycle.starts()
        self.running += started
        pending = [
            (entry.waiting.key, entry.count)
            for heads in self.cycle.waiting()
            for _, _, entry in heads.entries
        ]
        return (
            [(s.entry.waiting.key, s.order, s.count, s.found.taken) for s in started],
            [start.found.flavors for start in started],
            self.cycle.before,
            self.tree.used,
            sorted(pending),
            self.cycle.is_awaited(),
        )


@pytest.mark.agreement
@given(st.data())
def test_a_queue_by_itself_fares_as_in_the_cycles_of_a_cohort_tree(data):
    state = data.draw(snapshots(parents=("",), policies=st.just(Preemption())))
    (tree, *_), kueue = trees(state), KueueConfig()
    ((name, leaf),) = tree.leaves.items()
    queue, other = state.cluster_queues[name], tree.copy()
    alone = Moments(tree, LoneQueueCycle(tree, kueue), queue, leaf)
    among = Moments(other, SchedulingCycle(other, [queue], kueue), queue, leaf)
    order = 0
    for _ in range(data.draw(st.integers(1, 4))):
        for arrival in data.draw(arrivals(state)):
            group = waiting(arrival, state)
            if group.cluster_queue != name:
                continue
            order += 1
            group = replace(group, key=str(order))
            for moments in (alone, among):
                moments.come(group, order)
        assert alone.run() == among.run()
        for number in data.draw(st.lists(st.integers(0, 9), max_size=len(alone.running))):
            for moments in (alone, among):
                moments.end(number)
    assert alone.run() == among.run()
