from __future__ import annotations

from math import inf

import pytest

from tests.builders import cluster_queue, cohort
from webhook.kueue import quota
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.line_turns import LineTurns
from webhook.kueue.preemption import Preemptor

LIGHT, HEAVY = "team/light", "team/heavy"


@pytest.fixture
def tree():
    """Two queues, of which the second uses one GPU more, and three more are free in their pool."""
    none = {"t4": {"gpu": "0"}}
    queues = [cluster_queue(name, none, cohort="all") for name in ("a-cq", "b-cq")]
    pool = {"all": cohort("all", {"t4": {"gpu": "6"}})}
    found = quota.plant({queue.name: queue for queue in queues}, pool)["a-cq"]
    found.charge(found.leaves["a-cq"], ((0, 1),))
    found.charge(found.leaves["b-cq"], ((0, 2),))
    return found


@pytest.mark.parametrize(("asks", "used"), [(1, 3), (3, 4)], ids=["for-little", "for-much"])
def test_a_newcomer_asks_for_what_the_last_head_of_its_queue_asked_for(tree, asks, used):
    a, b = tree.leaves["a-cq"], tree.leaves["b-cq"]
    turns = LineTurns(tree, [(a, ""), (b, "")], [(1, 0.0)], {a: ((0, 2),)})
    other = Preemptor(leaf=b, taken=((0, 1),), priority=0, queued_at=0.0)

    turns.begin()
    turns.begin_cycle({(a, ""): 5.0}, {a: ((0, asks),)}, is_again=False)
    turns.end_cycle(tree.used.copy)
    turns.begin_cycle({(b, ""): 0.0}, {b: other.taken}, is_again=False)
    tournament = Tournament(tree, [other])
    while (winner := tournament.pop()) is not None:
        turns.note_winner(tree.used.copy, tournament)
        tree.charge(winner.leaf, winner.taken)
    turns.end_cycle(tree.used.copy)

    # It is not tried in the first cycle. In the second the other head would borrow three of six.
    assert [usage[0] for (usage,) in turns.usage(tree.used).rows] == [used, 3]


@pytest.fixture
def turns(tree):
    """Newcomers of two LocalQueues that are served by their use, and of another queue."""
    a, b = tree.leaves["a-cq"], tree.leaves["b-cq"]
    return LineTurns(tree, [(a, LIGHT), (a, HEAVY), (b, "")], [(1, 0.0)], {})


def serve(turns, tree, name, taken=((0, 1),)):
    """Serve the head of a queue that borrows, of priority 0."""
    turns.note_head(tree.used.copy, (1, 0.0))
    tree.charge(tree.leaves[name], taken)


def begin(turns, tree, *, is_again=False):
    a, b = tree.leaves["a-cq"], tree.leaves["b-cq"]
    ahead = {(a, LIGHT): -inf, (a, HEAVY): inf, (b, ""): 0.0}
    turns.begin_cycle(ahead, {}, is_again=is_again)


def at_turns(turns, tree):
    return [usage[0] for (usage,) in turns.usage(tree.used[:]).rows]


def test_before_whom_a_newcomer_comes_in_its_queue_is_not_served_in_its_cycle(turns, tree):
    turns.begin()
    begin(turns, tree)
    serve(turns, tree, "b-cq")
    serve(turns, tree, "a-cq", ((0, 2),))
    turns.end_cycle(tree.used.copy)

    # Of the one with little use it takes the place; the others come when all have been served.
    assert at_turns(turns, tree) == [4, 6, 6]


@pytest.mark.parametrize(("is_again", "used"), [(False, 5), (True, 4)])
def test_who_has_another_turn_may_find_more_at_that(turns, tree, is_again, used):
    aside = ((0, 1),)
    turns.begin()
    begin(turns, tree)
    tree.charge(tree.leaves["b-cq"], aside)
    serve(turns, tree, "b-cq")
    turns.end_cycle(tree.used.copy)
    tree.charge(tree.leaves["b-cq"], aside, -1)
    begin(turns, tree, is_again=is_again)
    turns.end_cycle(tree.used.copy)

    end = [7] * len(tree.used)
    assert turns.usage(end).rows[0][0][0] == used
