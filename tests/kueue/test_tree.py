from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import snapshots, trees
from webhook.kueue import quota


@given(st.data())
def test_a_tree_that_changes_in_place_says_what_immutable_quotas_say(data):
    state = data.draw(snapshots())
    quotas = quota.plant(state.cluster_queues, state.cohorts)
    tree = data.draw(st.sampled_from([tree for tree in trees(state) if tree.leaves]))
    for _ in range(data.draw(st.integers(0, 6))):
        name = data.draw(st.sampled_from(sorted(tree.leaves)))
        cell, amount = data.draw(st.integers(0, tree.width - 1)), data.draw(st.integers(1, 3))
        released = data.draw(st.integers(0, amount))
        tree.charge(tree.leaves[name], ((cell, 1),), amount)
        tree.charge(tree.leaves[name], ((cell, 1),), -released)
        quotas = quota.charge(quotas, name, {tree.cells[cell]: amount - released})

    for name, leaf in tree.leaves.items():
        for index, cell in enumerate(tree.cells):
            room = tree.own_room(leaf, ((index, 1),))
            limit = tree.ceiling(leaf, index, borrows=True)
            assert max(0, tree.available(leaf, index)) == quota.available(quotas, name, cell)
            assert max(0, room) == quota.own_room(quotas, name, cell)
            assert limit == quota.ceiling(quotas, name, cell, borrows=True)
            assert tree.height(leaf, index, 2) == quota.borrowing_height(quotas, name, cell, 2)
            at = leaf * tree.width + index
            assert tree.potentials[at] == quota.potential(quotas, name, cell)
