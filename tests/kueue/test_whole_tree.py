from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import snapshots, trees
from webhook.kueue.whole_tree import all_free, all_free_below, all_unused


@st.composite
def used_trees(draw):
    """A tree in which somebody holds quota, more than there is in places."""
    tree = draw(st.sampled_from(trees(draw(snapshots()))))
    for leaf in tree.leaves.values():
        amounts = ((cell, draw(st.integers(0, 6))) for cell in range(tree.width))
        tree.charge(leaf, tuple(amounts))
    return tree


def rows(tree, flat):
    return [flat[node * tree.width : (node + 1) * tree.width] for node in range(len(tree.parents))]


def by_node(tree, amount_of):
    nodes, cells = range(len(tree.parents)), range(tree.width)
    return [[max(0, amount_of(node, cell)) for cell in cells] for node in nodes]


@given(used_trees())
def test_all_nodes_have_free_what_each_has_by_itself(tree):
    assert rows(tree, all_free(tree, tree.used)) == by_node(tree, tree.available)


@given(used_trees())
def test_what_is_free_below_a_height_is_the_most_that_is_borrowed_from_no_higher_up(tree):
    heights = set(tree.heights)

    free = {height: all_free_below(tree, height, tree.used) for height in heights}

    def is_enough(node, cell, amount, height):
        lowest, has_parent = tree.height(node, cell, amount)
        # Where no subtree has enough, the height is that of the whole tree.
        return lowest <= height and (has_parent or fits_in_root(node, cell, amount))

    def fits_in_root(node, cell, amount):
        for each in tree.path(node):
            at = each * tree.width + cell
            if tree.subtree[at] >= tree.used[at] + amount:
                return True
            amount -= max(0, tree.local[at] - tree.used[at])
        return False

    for height in heights:
        for leaf in tree.leaves.values():
            for cell in range(tree.width):
                most = free[height][leaf * tree.width + cell]
                assert not most or is_enough(leaf, cell, most, height)
                assert not is_enough(leaf, cell, most + 1, height)


@given(used_trees())
def test_what_all_leave_unused_is_the_most_of_a_node_and_the_cohorts_below_the_root(tree):
    def unused(node, cell):
        path = list(tree.path(node))
        places = [each * tree.width + cell for each in path[:-1] or path]
        return max(tree.subtree[at] - tree.used[at] for at in places)

    found = [[max(0, amount) for amount in row] for row in rows(tree, all_unused(tree))]

    assert found == by_node(tree, unused)
