from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import snapshots, trees
from webhook.kueue import fair_sharing
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.preemption import TriedHead


def entry(tree, queue, gpus, priority=0, queued_at=0.0):
    cell = tree.indices["default", "gpu"]
    return TriedHead(
        leaf=tree.leaves[queue], taken=((cell, gpus),), priority=priority, queued_at=queued_at
    )


@st.composite
def contests(draw):
    tree = draw(st.sampled_from([tree for tree in trees(draw(snapshots())) if tree.leaves]))
    weights = [draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) for _ in tree.weights]
    tree = replace(tree, weights=weights, used=list(tree.used))
    amounts = st.dictionaries(st.integers(0, tree.width - 1), st.integers(1, 4), min_size=1)
    entries = [
        TriedHead(
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
