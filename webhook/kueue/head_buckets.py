"""The buckets of the heads of one cohort tree, shared by those that need the same of one cohort.

A cycle passes them over together where there is no room. Who is served when is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from webhook.kueue import queue_heads
from webhook.kueue.queue_heads import ClusterQueueHeads, FullQueues, Key
from webhook.kueue.quota import Taken, UsageTree


class HeadBuckets:
    """Finds the bucket of a head, and those that have room."""

    def __init__(self, tree: UsageTree) -> None:
        self.own: dict[ClusterQueueHeads, FullQueues] = {}
        """The buckets of heads that share none."""
        self._tree = tree
        self._is_deep = max(tree.heights) > 1
        self._shared: dict[Taken, dict[int, FullQueues]] = {}
        """What heads need of a cohort to the bucket of each cohort's node."""
        self._least: Taken = ()
        """No more than any head in a shared bucket needs."""

    def of(self, heads: ClusterQueueHeads) -> FullQueues:
        """Return the bucket of a queue's head, which it shares with all that need the same.

        It is checked at the cohort; a head in StrictFIFO, with a choice of flavors or without a
        cohort has a bucket of its own at the ClusterQueue.
        """
        known = heads.claim or heads.shared
        if known is not None:
            return known
        tree, shape = self._tree, heads.entries[0][2].shape
        parent = tree.parents[heads.leaf]
        if heads.is_strict or shape.only is None or parent < 0:
            own = self.own.get(heads)
            if own is None:
                own = self.own[heads] = FullQueues(node=heads.leaf)
            return own
        if tree.keeps:
            return self._of_cohort(parent, queue_heads.wanted_above(tree, heads.leaf, shape.only))
        heads.shared = self._of_cohort(parent, shape.only)
        return heads.shared

    def _of_cohort(self, node: int, wanted: Taken) -> FullQueues:
        if wanted not in self._shared:
            self._shared[wanted] = {}
            self._least = _least(self._shared)
        buckets = self._shared[wanted]
        if node not in buckets:
            buckets[node] = FullQueues(node=node, wanted=wanted)
        return buckets[node]

    def with_room(self) -> Iterator[tuple[Key, FullQueues]]:
        """Yield the shared buckets with a head for which there is room, and its key."""
        tree = self._tree
        for wanted, buckets in self._shared.items():
            # Where nobody has a limit, what fits into one cohort fits into all.
            if tree.shares_all and not tree.has(0, wanted):
                continue
            for node, bucket in buckets.items():
                key = bucket.top()
                if key is not None and (tree.shares_all or tree.has(node, wanted)):
                    yield key, bucket

    def are_full(self) -> bool:
        """Return whether there is no room for any head; False: there may be."""
        if self.own or not self._tree.shares_all:
            return False
        return not self._tree.has(0, self._least)

    def turn(self, key: Key, bucket: FullQueues, used: Sequence[int]) -> Key:
        """Return when a bucket's first head, which has this key, is served at the earliest.

        *used*: the usage that says from how high up it borrows.
        """
        if not (self._is_deep and key[1] and bucket.wanted is not None):
            return key
        # Those that borrow all do so from at least this height.
        height = self._least_height(bucket.node, bucket.wanted, used, least=key[1])
        return (key[0], height, *key[2:]) if height > key[1] else key

    def _least_height(self, node: int, wanted: Taken, used: Sequence[int], *, least: int) -> int:
        """Return the least height of all cells from which a node then borrows, or *least*."""
        heights = []
        for cell, amount in wanted:
            height = self._tree.height(node, cell, amount, used)[0]
            if height <= least:
                return least
            heights.append(height)
        return min(heights)


def _least(wanted: Iterable[Taken]) -> Taken:
    """Return of each cell the least that is wanted, where all want some of it."""
    rows = [dict(taken) for taken in wanted]
    return tuple(
        (cell, min(row[cell] for row in rows))
        for cell in rows[0]
        if all(cell in row for row in rows)
    )
