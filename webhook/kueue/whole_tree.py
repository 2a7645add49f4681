"""What all nodes of a cohort tree have left, worked out at once: flat lists as in ``UsageTree``.

For one node by itself its tree is asked. Nothing here knows of heads, time or preemption.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub

from webhook.kueue.quota import UsageTree


def all_free(tree: UsageTree, used: Sequence[int]) -> list[int]:
    """Return how much of each cell each node may still use, borrowing included; at least 0."""
    width = tree.width
    if tree.shares_all:
        root = [max(0, amount) for amount in map(sub, tree.subtree[:width], used[:width])]
        return root * len(tree.parents)
    return [max(0, amount) for amount in _available(tree, used)]


def _available(tree: UsageTree, used: Sequence[int]) -> list[int]:
    """Return what ``UsageTree.available`` says, node after node."""
    width, subtree, local, limits = tree.width, tree.subtree, tree.local, tree.limits
    found: list[int] = []
    for node, parent in enumerate(tree.parents):
        places = range(node * width, (node + 1) * width)
        if parent < 0:
            found += [subtree[at] - used[at] for at in places]
            continue
        for at in places:
            kept, taken = local[at], used[at]
            # As ``UsageTree.available`` says; a limit that is not set is never the least.
            most = subtree[at] - kept - max(0, taken - kept) + limits[at]
            above = found[at + (parent - node) * width]
            found.append(min(above, most) + max(0, kept - taken))
    return found


def all_free_below(tree: UsageTree, height: int, used: Sequence[int]) -> list[int]:
    """Return how much each node may still use without borrowing from above *height*; at least 0.

    What the limits of nodes leave free does not count. Nodes above that height have nothing.
    """
    # As in ``UsageTree.height``, for the most that it finds below. Parents come first.
    width, local = tree.width, tree.local
    left = list(map(sub, tree.subtree, used))
    most = left[:]
    for node, parent in enumerate(tree.parents):
        if tree.heights[node] > height or parent < 0 or tree.heights[parent] > height:
            continue
        for at in range(node * width, (node + 1) * width):
            # What a node keeps from its parent is there beside what the parent has.
            above = most[at + (parent - node) * width] + max(0, local[at] - used[at])
            most[at] = max(left[at], above)
    return [max(0, amount) for amount in most]


def all_unused(tree: UsageTree) -> list[int]:
    """Return the most that each node and the cohorts between it and the root leave of their quota.

    Up to that much a ClusterQueue may reclaim without the right to borrow meanwhile.
    """
    width = tree.width
    left = list(map(sub, tree.subtree, tree.used))
    for node, parent in enumerate(tree.parents):
        # Those below the root count with the cohorts between; parents come first.
        if parent >= 0 and tree.parents[parent] >= 0:
            for at in range(node * width, (node + 1) * width):
                left[at] = max(left[at], left[at + (parent - node) * width])
    return left
