from __future__ import annotations

import pytest

from tests.builders import cluster_queue, cohort
from webhook.kueue import quota
from webhook.kueue.fair_sharing import Tournament
from webhook.kueue.preemption import Preemptor
from webhook.kueue.share_turns import ShareTurns

GPU = ("t4", "gpu")


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
    turns = ShareTurns(tree, [(True, 0.0)], {a: ((0, 2),)})
    other = Preemptor(leaf=b, taken=((0, 1),), priority=0, queued_at=0.0)

    turns.begin()
    turns.begin_cycle({a: (5.0, ((0, asks),))})
    turns.end_cycle(tree.used[:])
    turns.begin_cycle({b: (0.0, other.taken)})
    tournament = Tournament(tree, [other])
    while (winner := tournament.pop()) is not None:
        turns.note(tree.used.copy, tournament)
        tree.charge(winner.leaf, winner.taken)
    turns.end_cycle(tree.used[:])

    # It is not tried in the first cycle. In the second the other head would borrow three of six.
    before = turns.before(tree.used)
    assert before[turns.leaves.index(a)][0] == used
