"""What a newcomer could have by preemption, against searches for its victims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster_queue, cohort, snapshot
from tests.worlds import trees
from webhook.kueue.obtainable_quota import ObtainableQuota
from webhook.kueue.preemption import Preemptor
from webhook.kueue.quota_holders import QuotaHolders, RunningGroup
from webhook.model.queues import KueueConfig, Preemption

PRIORITIES = (0, 1, 2)
within = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
reclaims = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"])


class Held:
    """A tree of ClusterQueues with GPUs, and Workloads that hold them."""

    def __init__(self, *queues, cohorts=None, fair_sharing=False):
        (tree,) = trees(snapshot(*queues, cohorts=cohorts or [cohort("all")]))
        self.tree = replace(tree, used=list(tree.used))
        of_leaf = {self.tree.leaves[queue.name]: queue for queue in queues}
        self.holders = QuotaHolders(self.tree, of_leaf, KueueConfig(fair_sharing=fair_sharing))
        self.obtainable = ObtainableQuota(self.tree, self.holders)
        self.number = 0

    def hold(self, name, gpus, *, priority=0, at=0.0):
        self.number += 1
        leaf = self.tree.leaves[name]
        self.tree.charge(leaf, ((0, gpus),))
        group = RunningGroup(
            leaf=leaf,
            taken=((0, gpus),),
            count=1,
            variance=0.0,
            priority=priority,
            uid=str(self.number),
            order=self.number,
            reserved_at=at,
        )
        self.holders.hold(group)
        return self

    def has(self, name, gpus, priority):
        """Whether that much is free, or a search finds whom to preempt for it."""
        leaf, asked = self.tree.leaves[name], ((0, gpus),)
        newcomer = Preemptor(leaf=leaf, taken=asked, priority=priority, queued_at=1000)
        return self.tree.has(leaf, asked) or bool(self.holders.targets(newcomer, (0,)))

    def of(self, name, priority, **how):
        (gpus,) = self.obtainable.of(self.tree.leaves[name], priority, **how)
        return gpus


def queue(name, gpus, **rest):
    return cluster_queue(f"{name}-cq", {"t4": {"gpu": str(gpus)}}, **{"cohort": "all", **rest})


@st.composite
def held_in_cohorts(draw, *, fair_sharing=False):
    """One cohort, in which as much is held as there is quota, or nearly."""
    names = range(draw(st.integers(2, 4)))
    rules = st.builds(Preemption, within_cluster_queue=within, reclaim_within_cohort=reclaims)
    queues = [queue(name, draw(st.integers(0, 8)), preemption=draw(rules)) for name in names]
    held = Held(*queues, fair_sharing=fair_sharing)
    for _ in range(draw(st.integers(0, 12))):
        gpus = draw(st.sampled_from([1, 1, 2, 4]))
        if held.tree.available(1, 0) >= gpus:
            name = draw(st.sampled_from([each.name for each in queues]))
            held.hold(name, gpus, priority=draw(st.sampled_from(PRIORITIES)), at=draw(times))
    return queues, held


times = st.integers(0, 3)


@pytest.mark.agreement
@given(held_in_cohorts())
def test_in_one_cohort_sums_tell_what_a_search_finds(drawn):
    queues, held = drawn
    for each in queues:
        (own,) = (of_flavor.nominal for group in each.groups for of_flavor in group.quotas.values())
        for priority in (*PRIORITIES, 3):
            told = max(0, held.of(each.name, priority))
            for gpus in range(1, held.tree.potential(1, 0) + 1):
                # For what it would borrow, it may not preempt: then Kueue does not search.
                may = gpus <= own or held.tree.has(held.tree.leaves[each.name], ((0, gpus),))
                assert (gpus <= told) == (may and held.has(each.name, gpus, priority))


@pytest.mark.agreement
@given(held_in_cohorts(fair_sharing=True))
def test_where_shares_decide_what_is_told_beyond_sums_is_what_a_search_finds(drawn):
    queues, held = drawn
    for each in queues:
        for priority in (*PRIORITIES, 3):
            by_sums = held.of(each.name, priority)
            told = held.of(each.name, priority, by_search=True)
            assert told == by_sums or (told > by_sums and held.has(each.name, told, priority))


def test_a_borrowing_limit_holds_whoever_is_preempted():
    reclaim = Preemption(reclaim_within_cohort="Any")
    limited = {"borrowing": "1", "cohort": "team", "preemption": reclaim}
    queues = [
        queue("own", 2, **limited),
        queue("mate", 4, cohort="team"),
        queue("far", 0, cohort="other"),
    ]
    teams = [cohort("team", parent="all"), cohort("other", parent="all"), cohort("all")]
    held = Held(*queues, cohorts=teams).hold("own-cq", 2).hold("far-cq", 4)

    assert held.of("own-cq", 0) == 1
    assert held.has("own-cq", 1, 0)
    assert not held.has("own-cq", 2, 0)
