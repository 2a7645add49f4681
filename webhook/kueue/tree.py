"""One cohort tree whose usage changes in place: ``kueue.quota`` for a loop of many thousand steps.

Amounts lie in flat lists, node after node, and in each node cell after cell. The rules are those of
``kueue.quota``, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from webhook.kueue.quota import Forest
from webhook.model.queues import FlavorResource

Taken: TypeAlias = tuple[tuple[int, int], ...]
"""What one Workload uses: (cell's index, amount)."""
_NO_PARENT = -1
_NO_LIMIT = 1 << 62


class Tree:
    """A cohort tree, or a ClusterQueue alone. Nodes and cells are known by their index."""

    def __init__(self, forest: Forest, root: int) -> None:
        members = [index for index, node in enumerate(forest.nodes) if node.root == root]
        local = {index: position for position, index in enumerate(members)}
        nodes = [forest.nodes[index] for index in members]
        named = {cell: None for node in nodes for cell in node.subtree}
        self.cells: tuple[FlavorResource, ...] = tuple(named)
        self.indices = {cell: index for index, cell in enumerate(self.cells)}
        self.leaves = {
            name: local[index] for name, index in forest.places.items() if index in local
        }
        """ClusterQueue to its node."""
        self.parents = [local.get(node.parent, _NO_PARENT) for node in nodes]
        self.heights = [node.height for node in nodes]
        self.nominal = [node.nominal.get(cell, 0) for node in nodes for cell in self.cells]
        self.subtree = [node.subtree.get(cell, 0) for node in nodes for cell in self.cells]
        self.local = [node.local.get(cell, 0) for node in nodes for cell in self.cells]
        """The part that a node lends to nobody."""
        self.keeps = any(self.local)
        self.limits = [node.borrowing.get(cell, _NO_LIMIT) for node in nodes for cell in self.cells]
        self._shares_all = not self.keeps and min(self.limits, default=0) == _NO_LIMIT
        self.potentials = [
            forest.potentials[index].get(cell, 0) for index in members for cell in self.cells
        ]
        self.used = [0] * (len(nodes) * len(self.cells))
        self.width = len(self.cells)

    def path(self, node: int) -> Iterator[int]:
        """Walk from a node to the root."""
        while node != _NO_PARENT:
            yield node
            node = self.parents[node]

    def available(self, node: int, cell: int, used: Sequence[int] | None = None) -> int:
        """Say how much a node may still take, borrowing included; may be negative.

        *used* stands in for the usage of now.
        """
        amounts = self.used if used is None else used
        if self._shares_all:
            # Then the root alone counts, and it is the first node.
            return self.subtree[cell] - amounts[cell]
        at = node * self.width + cell
        parent = self.parents[node]
        if parent == _NO_PARENT:
            return self.subtree[at] - amounts[at]
        above = self.available(parent, cell, used)
        local, taken, limit = self.local[at], amounts[at], self.limits[at]
        if limit != _NO_LIMIT:
            above = min(above, self.subtree[at] - local - max(0, taken - local) + limit)
        return above + max(0, local - taken)

    def room(self, node: int, taken: Taken) -> int:
        """Count the Workloads that a node could take."""
        return min((self.available(node, cell) // each for cell, each in taken), default=_NO_LIMIT)

    def own_room(self, node: int, taken: Taken) -> int:
        """Count the Workloads that a node could take without borrowing."""
        first = node * self.width
        rooms = (
            (self.subtree[first + cell] - self.used[first + cell]) // each for cell, each in taken
        )
        return min(self.room(node, taken), min(rooms, default=_NO_LIMIT))

    def height(self, node: int, cell: int, amount: int) -> tuple[int, bool]:
        """Find the lowest subtree whose own quota holds *amount* more; see ``kueue.quota``."""
        remaining = amount
        height = 0
        for each in self.path(node):
            at = each * self.width + cell
            has_parent = self.parents[each] != _NO_PARENT
            height = self.heights[each]
            if self.subtree[at] >= self.used[at] + remaining:
                return height, has_parent
            if height == 0 and not has_parent:
                return 0, False
            remaining -= max(0, self.local[at] - self.used[at])
        return height, False

    def others_borrow(self, leaf: int, cell: int) -> bool:
        """Tell whether another ClusterQueue uses more than its nominal quota."""
        width, used, nominal = self.width, self.used, self.nominal
        return any(
            used[other * width + cell] > nominal[other * width + cell]
            for other in self.leaves.values()
            if other != leaf
        )

    def charge(self, node: int, taken: Taken, times: int = 1) -> None:
        """Add usage; cohorts get what exceeds a child's own part. *times* below 0 releases."""
        used, local, width, parents = self.used, self.local, self.width, self.parents
        for cell, amount in taken:
            here, rising = node, amount * times
            while rising and here != _NO_PARENT:
                at = here * width + cell
                old = used[at]
                used[at] = old + rising
                if kept := local[at]:
                    rising = max(0, used[at] - kept) - max(0, old - kept)
                here = parents[here]

    def ceiling(self, node: int, cell: int, *, borrows: bool) -> int | None:
        """Say how much more a node may use by its own limits alone; None: no limit."""
        at = node * self.width + cell
        limit = self.limits[at] if borrows else 0
        return None if limit == _NO_LIMIT else self.nominal[at] + limit - self.used[at]
