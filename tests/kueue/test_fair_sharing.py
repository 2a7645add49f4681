from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cluster_queue, cohort
from tests.worlds import snapshots, trees
from webhook.kueue import fair_sharing, quota
from webhook.kueue.fair_sharing import Share, Tournament
from webhook.kueue.preemption import Preemptor


def tree_of(*queues, cohorts=()):
    named = {queue.name: queue for queue in queues}
    return quota.plant(named, {node.name: node for node in cohorts})[queues[0].name]


def test_a_share_is_what_is_borrowed_of_the_dominant_resource():
    quotas = {"a": {"cpu": "1", "gpu": "2"}, "b": {"cpu": "1", "gpu": "0"}}
    pool = {"a": {"cpu": "6", "gpu": "8"}}
    tree = tree_of(
        cluster_queue("a-cq", quotas, cohort="all", fair_weight=2.0), cohorts=[cohort("all", pool)]
    )
    leaf = tree.leaves["a-cq"]
    cells = [tree.indices[cell] for cell in (("a", "cpu"), ("b", "cpu"), ("a", "gpu"))]

    # Of 8 CPUs it borrows 1 in each flavor, of 10 GPUs 3.
    tree.charge(leaf, tuple(zip(cells, (2000, 2000, 4), strict=True)))

    borrows = fair_sharing.share(tree, leaf)
    assert sorted(borrows.borrowed) == sorted(cells)
    assert (borrows.ratio, borrows.weight, borrows.rank) == (250.0, 2.0, (False, 125.0))
    assert fair_sharing.share(tree, leaf, ((cells[2], 1),)).ratio == 300.0
    assert fair_sharing.share(tree, 0) == Share(ratio=0.0, weight=1.0)


def test_a_flavor_that_a_queue_has_no_quota_of_is_not_counted_as_borrowed():
    tree = tree_of(
        cluster_queue("a-cq", {"a": {"gpu": "1"}}, cohort="all"),
        cluster_queue("b-cq", {"b": {"gpu": "1"}}, cohort="all"),
    )
    leaf = tree.leaves["a-cq"]

    tree.charge(leaf, ((tree.indices["b", "gpu"], 1),))

    assert fair_sharing.share(tree, leaf).borrowed == ()


def test_who_borrows_with_weight_0_comes_last():
    shares = [
        Share(ratio=20.0, weight=0.0),
        Share(ratio=10.0, weight=0.0),
        Share(ratio=900.0, weight=0.5),
        Share(ratio=900.0, weight=2.0),
        Share(ratio=0.0, weight=0.0),
    ]

    assert sorted(shares, key=lambda one_share: one_share.rank) == shares[::-1]


def served(tree, entries):
    tournament, names = Tournament(tree, entries.values()), []
    while (entry := tournament.pop()) is not None:
        names.append(next(name for name, other in entries.items() if other is entry))
        tree.charge(entry.leaf, entry.taken)
    return names


def entry(tree, queue, gpus, priority=0, queued_at=0.0):
    cell = tree.indices["default", "gpu"]
    return Preemptor(
        leaf=tree.leaves[queue], taken=((cell, gpus),), priority=priority, queued_at=queued_at
    )


@pytest.mark.parametrize(
    ("left", "right", "first"),
    [
        # Own quota before borrowed, whatever the priority.
        ({"gpus": 2}, {"gpus": 3, "priority": 9}, "left"),
        ({"gpus": 4}, {"gpus": 3}, "right"),
        ({"gpus": 3}, {"gpus": 3, "priority": 9}, "right"),
        ({"gpus": 3}, {"gpus": 3, "queued_at": -1.0}, "right"),
    ],
)
def test_the_smaller_share_after_admission_is_served_first_then_priority_then_age(
    left, right, first
):
    quotas = {"default": {"gpu": "2"}}
    tree = tree_of(
        cluster_queue("a-cq", quotas, cohort="all"), cluster_queue("b-cq", quotas, cohort="all")
    )
    entries = {"left": entry(tree, "a-cq", **left), "right": entry(tree, "b-cq", **right)}

    assert served(tree, entries)[0] == first


def test_borrowing_another_resource_does_not_put_a_head_behind_one_that_borrows_its_own():
    quotas = {"default": {"gpu": "2", "cpu": "0"}}
    tree = tree_of(
        cluster_queue("a-cq", quotas, cohort="all"),
        cluster_queue("b-cq", quotas, cohort="all"),
        cohorts=[cohort("all", {"default": {"gpu": "96", "cpu": "10"}})],
    )
    tree.charge(tree.leaves["a-cq"], ((tree.indices["default", "cpu"], 9000),))
    entries = {"a": entry(tree, "a-cq", 2), "b": entry(tree, "b-cq", 3)}

    assert served(tree, entries) == ["a", "b"]


def test_each_cohort_sends_one_and_cohorts_are_compared_by_their_own_shares():
    tree = tree_of(
        cluster_queue("a-cq", {"default": {"gpu": "0"}}, cohort="left"),
        cluster_queue("b-cq", {"default": {"gpu": "0"}}, cohort="left"),
        cluster_queue("c-cq", {"default": {"gpu": "0"}}, cohort="all"),
        cohorts=[cohort("left", parent="all"), cohort("all", {"default": {"gpu": "9"}})],
    )
    entries = {
        "a": entry(tree, "a-cq", 1),
        "b": entry(tree, "b-cq", 2),
        "c": entry(tree, "c-cq", 2),
    }

    # Once a holds 1, b would bring their cohort to 3.
    assert served(tree, entries) == ["a", "c", "b"]


@st.composite
def contests(draw):
    tree = draw(st.sampled_from([tree for tree in trees(draw(snapshots())) if tree.leaves]))
    weights = [draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) for _ in tree.weights]
    tree = replace(tree, weights=weights, used=list(tree.used))
    amounts = st.dictionaries(st.integers(0, tree.width - 1), st.integers(1, 4), min_size=1)
    entries = [
        Preemptor(
            leaf=leaf,
            taken=tuple(draw(amounts).items()),
            priority=draw(st.integers(0, 1)),
            # Without ties: Kueue draws for them.
            queued_at=leaf,
        )
        for leaf in tree.leaves.values()
        if draw(st.booleans())
    ]
    return tree, entries


@given(contests(), st.data())
def test_what_a_tournament_remembers_between_two_winners_is_still_true(contest, data):
    tree, entries = contest
    tournament = Tournament(tree, entries)
    left = list(entries)

    while (winner := tournament.pop()) is not None:
        assert winner == Tournament(tree, left).pop()
        left.remove(winner)
        if data.draw(st.booleans()):
            tree.charge(winner.leaf, winner.taken)
    assert left == []


@given(contests(), st.data())
def test_one_more_entry_comes_first_where_a_tournament_with_it_says_so(contest, data):
    tree, entries = contest
    leaf = data.draw(st.sampled_from(sorted(tree.leaves.values())))
    cell, amount = data.draw(st.tuples(st.integers(0, tree.width - 1), st.integers(1, 4)))
    # It takes the place of the head of its ClusterQueue.
    left = [entry for entry in entries if entry.leaf != leaf]
    more = Preemptor(leaf=leaf, taken=((cell, amount),), priority=0, queued_at=math.inf)
    tournament = Tournament(tree, left)

    while (winner := tournament.pop()) is not None:
        shares = fair_sharing.shares_with(tree, leaf, more.taken)
        rivals = tournament.rivals(tuple(tree.path(leaf)))
        said = fair_sharing.comes_before(shares, more.priority, rivals)

        assert said == (Tournament(tree, [*left, more]).pop() is more)
        left.remove(winner)
        if data.draw(st.booleans()):
            tree.charge(winner.leaf, winner.taken)


def test_the_usage_of_a_local_queue_is_weighed_by_resource_and_divided_by_its_weight():
    consumed = fair_sharing.in_whole_units({"cpu": 1500, "gpu": 2})

    def usage(weight, resource_weights):
        return fair_sharing.queue_usage(consumed, weight=weight, resource_weights=resource_weights)

    assert usage(1.0, {}) == 3.5
    assert usage(2.0, {"gpu": 10.0, "cpu": 0.0}) == 10.0
    assert usage(0.0, {}) == math.inf


def test_what_was_consumed_fades_by_its_half_life():
    consumed, used = {"cpu": 1000, "gpu": 4}, {"gpu": 8}

    assert fair_sharing.decayed(consumed, used, elapsed=60, half_life=60) == {
        "cpu": 500,
        "gpu": 6,
    }
    assert fair_sharing.decayed(consumed, used, elapsed=60, half_life=0) == {}
    assert fair_sharing.entry_penalty(used, sampling=120, half_life=60) == {"gpu": 6}
    assert fair_sharing.entry_penalty(used, sampling=120, half_life=0) == {"gpu": 0}
