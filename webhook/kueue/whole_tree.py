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
        root = _at_least_0(list(map(sub, tree.subtree[:width], used[:width])))
        return root * len(tree.parents)
    return _at_least_0(_available(tree, used))


def _available(tree: UsageTree, used: Sequence[int]) -> list[int]:
    """Return what ``UsageTree.available`` says, node after node."""
    width, subtree, local, limits = tree.width, tree.subtree, tree.local, tree.limits
    found: list[int] = []
    for node, parent in enumerate(tree.parents):
        first = node * width
        if parent < 0:
            found += map(sub, subtree[first : first + width], used[first : first + width])
            continue
        above = (parent - node) * width
        for at in range(first, first + width):
            # As ``UsageTree.available`` says; a limit that is not set is never the least.
            free, kept = found[at + above], local[at] - used[at]
            most = subtree[at] - local[at] + limits[at]
            if kept < 0:
                most += kept
            if most < free:  # noqa: PLR1730 - several times as fast as min()
                free = most
            found.append(free + kept if kept > 0 else free)
    return found


def _at_least_0(amounts: list[int]) -> list[int]:
    # Several times as fast as max().
    return [amount if amount > 0 else 0 for amount in amounts]  # noqa: FURB136


def all_free_below(tree: UsageTree, height: int, used: Sequence[int]) -> list[int]:
    """Return how much each node may still use without borrowing from above *height*; at least 0.

    What the limits of nodes leave free does not count. Nodes above that height have nothing.
    """
    # As in ``UsageTree.height``, for the most that it finds below. Parents come first.
    width, local, heights = tree.width, tree.local, tree.heights
    left = list(map(sub, tree.subtree, used))
    most = left[:]
    for node, parent in enumerate(tree.parents):
        if heights[node] > height or parent < 0 or heights[parent] > height:
            continue
        above = (parent - node) * width
        for at in range(node * width, (node + 1) * width):
            # What a node keeps from its parent is there beside what the parent has.
            kept = local[at] - used[at]
            there = most[at + above] + kept if kept > 0 else most[at + above]
            if there > left[at]:
                most[at] = there
    return _at_least_0(most)


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
