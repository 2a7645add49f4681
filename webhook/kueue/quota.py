"""Quota in trees of cohorts: what is available, what could ever be, and charging usage.

Mirrors Kueue's ``resourceNode``. ``Forest`` holds what usage does not change; ``Quotas`` adds usage
as a value for reviews, ``UsageTree`` as mutable state for forecasts. Amounts are as in
``model.quantity``. Workloads, priorities and preemption are not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.model.queues import Amounts, ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup

_Limits: TypeAlias = "dict[FlavorResource, int]"
_NO_PARENT = -1
_COHORT_WITHOUT_CHILDREN = 1
"""Above 0, as height 0 marks a ClusterQueue. (In Kueue's ``getNodeHeight`` such a cohort has 0.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A ClusterQueue or a cohort, with everything about it that usage does not change."""

    parent: int
    """The parent's index in the forest; ``_NO_PARENT`` for a root."""
    root: int
    """The index of the root of its tree; a root's is its own."""
    height: int
    """Steps down to its furthest ClusterQueue; 0 for a ClusterQueue."""
    nominal: Mapping[FlavorResource, int]
    borrowing: Mapping[FlavorResource, int]
    """Borrowing limits, where one is set."""
    subtree: Mapping[FlavorResource, int]
    """Its own nominal quota and what its children lend to it (Kueue's ``SubtreeQuota``)."""
    local: Mapping[FlavorResource, int]
    """The part of ``subtree`` that its lending limit keeps from its parent (Kueue's
    ``localQuota``), where that is not zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """All trees, without usage; a ClusterQueue under a cycle of cohorts is in none of them."""

    nodes: tuple[Node, ...]
    places: Mapping[str, int]
    """ClusterQueue to the index of its node."""
    potentials: tuple[Mapping[FlavorResource, int], ...]
    """For each node, what it could use if nothing were used."""

    def path(self, cluster_queue: str) -> Iterator[int]:
        """Yield the indices of a ClusterQueue's node and of its ancestors, the root last."""
        index = self.places.get(cluster_queue, _NO_PARENT)
        while index != _NO_PARENT:
            yield index
            index = self.nodes[index].parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """A forest and its usage; immutable, so charging returns another one."""

    forest: Forest
    used: tuple[Mapping[FlavorResource, int], ...] = field(default=())
    """For each node, its usage; a cohort's is what its children use beyond their local quota."""

    def holds(self, cluster_queue: str) -> bool:
        return cluster_queue in self.forest.places


def plant(cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> Quotas:
    """Build the trees, with nothing used."""
    parents = _rooted(cluster_queues, cohorts)
    # Parents come before their children, and cohorts before ClusterQueues.
    order = sorted(parents, key=lambda name: _depth(name, parents))
    indices = {name: index for index, name in enumerate(order)}
    # Like Kueue's snapshot, leave out the ClusterQueues under a cycle of cohorts.
    leaves = [queue for queue in cluster_queues.values() if queue.cohort in ("", *indices)]
    kin = [(indices.get(parents[name], _NO_PARENT), cohorts.get(name)) for name in order]
    nodes = _nodes(
        [(parent, cohort.groups if cohort else (), False) for parent, cohort in kin]
        + [(indices.get(queue.cohort, _NO_PARENT), queue.groups, True) for queue in leaves]
    )
    places = {queue.name: len(order) + index for index, queue in enumerate(leaves)}
    forest = Forest(nodes=nodes, places=places, potentials=_potentials(nodes))
    return Quotas(forest=forest, used=tuple({} for _ in nodes))


def available(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    """Return how much a ClusterQueue may still use, borrowing included; at least 0."""
    index = quotas.forest.places.get(cluster_queue)
    # Kueue's value is negative while more is used than there is quota, and then nothing fits.
    return 0 if index is None else max(0, _available(quotas, index, resource))


def potential(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    """Return how much a ClusterQueue could use if nothing were used (``potentialAvailable``)."""
    index = quotas.forest.places.get(cluster_queue)
    return 0 if index is None else quotas.forest.potentials[index].get(resource, 0)


def own_room(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    """Return how much a ClusterQueue may still use without borrowing; at least 0."""
    index = quotas.forest.places.get(cluster_queue)
    if index is None:
        return 0
    used = quotas.used[index].get(resource, 0)
    own = quotas.forest.nodes[index].subtree.get(resource, 0) - used
    # Others may have borrowed of its quota, so what is available is a limit as well.
    return max(0, min(own, _available(quotas, index, resource)))


def nominal(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    index = quotas.forest.places.get(cluster_queue)
    return 0 if index is None else quotas.forest.nodes[index].nominal.get(resource, 0)


def ceiling(
    quotas: Quotas, cluster_queue: str, resource: FlavorResource, *, borrows: bool
) -> int | None:
    """Return how much more a ClusterQueue may use by its own limits alone; None: no limit.

    *borrows*: its borrowing limit counts in addition to its nominal quota. The value is negative
    where more than that is used already.
    """
    index = quotas.forest.places[cluster_queue]
    node = quotas.forest.nodes[index]
    limit = node.borrowing.get(resource) if borrows else 0
    if limit is None:
        return None
    return node.nominal.get(resource, 0) + limit - quotas.used[index].get(resource, 0)


def charge(quotas: Quotas, cluster_queue: str, amounts: Amounts) -> Quotas:
    """Add usage to a ClusterQueue, and to each ancestor what exceeds its child's local quota.

    Negative amounts release usage, and undo exactly what the same positive amounts charged.
    """
    if not quotas.holds(cluster_queue) or not amounts:
        return quotas
    used = list(quotas.used)
    rising: Mapping[FlavorResource, int] = amounts
    for index in quotas.forest.path(cluster_queue):
        if not rising:
            break
        node, before = quotas.forest.nodes[index], used[index]
        after = dict(before)
        above: _Limits = {}
        for resource, amount in rising.items():
            old = before.get(resource, 0)
            after[resource] = old + amount
            local = node.local.get(resource, 0)
            # As ``addUsage`` and ``removeUsage``: the parent sees only usage beyond local quota.
            passed_on = max(0, old + amount - local) - max(0, old - local)
            if passed_on:
                above[resource] = passed_on
        used[index], rising = after, above
    return Quotas(forest=quotas.forest, used=tuple(used))


def borrowing_height(
    quotas: Quotas, cluster_queue: str, resource: FlavorResource, amount: int
) -> tuple[int, bool]:
    """Return the height of the lowest subtree with quota for *amount* more, and if it has a parent.

    The height is 0 where the ClusterQueue's own quota is enough, and that of the whole tree where
    no subtree has enough quota; the second value is then False. Where the subtree has a parent, its
    quota may be reclaimed from the rest of the tree.
    """
    # ``FindHeightOfLowestSubtreeThatFits`` in Kueue's ``hierarchical_preemption.go``.
    remaining = amount
    height = 0
    for index in quotas.forest.path(cluster_queue):
        node = quotas.forest.nodes[index]
        has_parent = node.parent != _NO_PARENT
        used = quotas.used[index].get(resource, 0)
        height = node.height
        if node.subtree.get(resource, 0) >= used + remaining:
            return height, has_parent
        if node.height == 0 and not has_parent:
            # A ClusterQueue without a cohort has nobody to borrow from.
            return 0, False
        # What fits into a node's local quota is not taken from its parent.
        remaining -= max(0, node.local.get(resource, 0) - used)
    return height, False


def over_nominal(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> bool:
    """Return whether another ClusterQueue of the same tree uses more than its nominal quota."""
    # Kueue reclaims only from ClusterQueues that do.
    forest = quotas.forest
    own = forest.places[cluster_queue]
    root = forest.nodes[own].root
    return any(
        used.get(resource, 0) > node.nominal.get(resource, 0)
        for index, (node, used) in enumerate(zip(forest.nodes, quotas.used, strict=True))
        if node.height == 0 and node.root == root and index != own
    )


def _available(quotas: Quotas, index: int, resource: FlavorResource) -> int:
    node = quotas.forest.nodes[index]
    used = quotas.used[index].get(resource, 0)
    subtree = node.subtree.get(resource, 0)
    if node.parent == _NO_PARENT:
        return subtree - used
    above = _available(quotas, node.parent, resource)
    local = node.local.get(resource, 0)
    limit = node.borrowing.get(resource)
    if limit is not None:
        # What it lends and nobody uses also comes from the parent, but is not borrowed.
        above = min(above, subtree - local - max(0, used - local) + limit)
    return max(0, local - used) + above


def _rooted(
    cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]
) -> dict[str, str]:
    """Map each cohort to its parent ("" for a root), without those on or below a cycle."""
    # A cohort exists also where only a ClusterQueue or a child cohort names it.
    named = {queue.cohort for queue in cluster_queues.values()} | set(cohorts)
    named |= {cohort.parent for cohort in cohorts.values()}
    parents = {name: cohorts[name].parent if name in cohorts else "" for name in named if name}
    return {name: parent for name, parent in parents.items() if _depth(name, parents) >= 0}


def _depth(name: str, parents: Mapping[str, str]) -> int:
    """Return the number of steps to the root; -1 if they lead into a cycle."""
    depth = 0
    while parents[name]:
        name, depth = parents[name], depth + 1
        if depth > len(parents):
            return -1
    return depth


def _nodes(kin: list[tuple[int, tuple[ResourceGroup, ...], bool]]) -> tuple[Node, ...]:
    """Build the nodes from the leaves up; *kin* lists parents before their children.

    Each of *kin* is the parent's index, the resource groups, and whether it is a ClusterQueue.
    """
    lent: list[_Limits] = [{} for _ in kin]
    heights = [0 if is_leaf else _COHORT_WITHOUT_CHILDREN for _, _, is_leaf in kin]
    roots: list[int] = []
    for index, (parent, _, _) in enumerate(kin):
        roots.append(index if parent == _NO_PARENT else roots[parent])
    nodes: list[Node] = []
    for index in reversed(range(len(kin))):
        parent, groups, _ = kin[index]
        node = _node(_cells(groups), lent[index], parent, heights[index], roots[index])
        nodes.append(node)
        if parent != _NO_PARENT:
            heights[parent] = max(heights[parent], node.height + 1)
            for resource, amount in node.subtree.items():
                part = amount - node.local.get(resource, 0)
                lent[parent][resource] = lent[parent].get(resource, 0) + part
    return tuple(reversed(nodes))


def _node(
    cells: Mapping[FlavorResource, Quota], lent: _Limits, parent: int, height: int, root: int
) -> Node:
    nominal_quota = {resource: cell.nominal for resource, cell in cells.items()}
    subtree = {
        resource: nominal_quota.get(resource, 0) + lent.get(resource, 0)
        for resource in {**nominal_quota, **lent}
    }
    # Without a lending limit everything is lent, and local quota is 0.
    kept = {
        resource: max(0, subtree[resource] - cell.lending_limit)
        for resource, cell in cells.items()
        if cell.lending_limit is not None
    }
    return Node(
        parent=parent,
        root=root,
        height=height,
        nominal=nominal_quota,
        borrowing={
            resource: cell.borrowing_limit
            for resource, cell in cells.items()
            if cell.borrowing_limit is not None
        },
        subtree=subtree,
        local={resource: amount for resource, amount in kept.items() if amount},
    )


def _cells(groups: Iterable[ResourceGroup]) -> Mapping[FlavorResource, Quota]:
    return {resource: cell for group in groups for resource, cell in group.quotas.items()}


def _potentials(nodes: tuple[Node, ...]) -> tuple[Mapping[FlavorResource, int], ...]:
    """Return what each node could use if nothing were used; parents come before their children."""
    potentials: list[Mapping[FlavorResource, int]] = []
    for node in nodes:
        if node.parent == _NO_PARENT:
            potentials.append(node.subtree)
            continue
        above = potentials[node.parent]
        reachable = {
            resource: node.local.get(resource, 0) + above.get(resource, 0)
            for resource in {**node.subtree, **above}
        }
        for resource, limit in node.borrowing.items():
            reachable[resource] = min(
                reachable.get(resource, 0), node.subtree.get(resource, 0) + limit
            )
        potentials.append(reachable)
    return tuple(potentials)


Taken: TypeAlias = tuple[tuple[int, int], ...]
"""What one Workload uses: (index of the cell, amount). A cell is one resource of one flavor."""
_NO_LIMIT = 1 << 62
"""The borrowing limit where none is set."""


class UsageTree:
    """One cohort tree, or a ClusterQueue without a cohort, with usage that changes in place.

    Nodes and cells are known by their index. Amounts are flat lists: node after node, each with
    ``width`` cells.
    """

    def __init__(self, forest: Forest, root: int) -> None:
        # Forecasts ask and charge in their innermost loops, so names become indices once, here.
        members = [index for index, node in enumerate(forest.nodes) if node.root == root]
        local = {index: position for position, index in enumerate(members)}
        nodes = [forest.nodes[index] for index in members]
        named = {cell: None for node in nodes for cell in node.subtree}
        self.cells: tuple[FlavorResource, ...] = tuple(named)
        self.indices = {cell: index for index, cell in enumerate(self.cells)}
        self.leaves = {
            name: local[index] for name, index in forest.places.items() if index in local
        }
        """ClusterQueue to the index of its node in this tree."""
        self.parents = [local.get(node.parent, _NO_PARENT) for node in nodes]
        self.heights = [node.height for node in nodes]
        self.nominal = [node.nominal.get(cell, 0) for node in nodes for cell in self.cells]
        self.subtree = [node.subtree.get(cell, 0) for node in nodes for cell in self.cells]
        self.local = [node.local.get(cell, 0) for node in nodes for cell in self.cells]
        """Local quota: what a node's lending limit keeps from its parent."""
        self.keeps = any(self.local)
        self.limits = [node.borrowing.get(cell, _NO_LIMIT) for node in nodes for cell in self.cells]
        # Without lending and borrowing limits, the tree's quota is one pool.
        self._shares_all = not self.keeps and min(self.limits, default=0) == _NO_LIMIT
        self.potentials = [
            forest.potentials[index].get(cell, 0) for index in members for cell in self.cells
        ]
        self.used = [0] * (len(nodes) * len(self.cells))
        self.width = len(self.cells)

    def path(self, node: int) -> Iterator[int]:
        """Yield a node and its ancestors, the root last."""
        while node != _NO_PARENT:
            yield node
            node = self.parents[node]

    def available(self, node: int, cell: int, used: Sequence[int] | None = None) -> int:
        """Return how much of a cell a node may still use, borrowing included.

        It is negative where more is used than there is quota. *used* replaces the tree's own usage.
        """
        amounts = self.used if used is None else used
        if self._shares_all:
            # What the root has left decides alone; the root is node 0.
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
        """Return how many Workloads that use *taken* each still fit, borrowing included.

        It is negative where more is used than there is quota.
        """
        return min(
            (self.available(node, cell) // amount for cell, amount in taken), default=_NO_LIMIT
        )

    def own_room(self, node: int, taken: Taken) -> int:
        """Return how many Workloads that use *taken* each still fit without borrowing."""
        first = node * self.width
        rooms = (
            (self.subtree[first + cell] - self.used[first + cell]) // amount
            for cell, amount in taken
        )
        return min(self.room(node, taken), min(rooms, default=_NO_LIMIT))

    def height(self, node: int, cell: int, amount: int) -> tuple[int, bool]:
        """Return what ``borrowing_height`` does, for a node and a cell of this tree."""
        remaining = amount
        height = 0
        for index in self.path(node):
            at = index * self.width + cell
            has_parent = self.parents[index] != _NO_PARENT
            height = self.heights[index]
            if self.subtree[at] >= self.used[at] + remaining:
                return height, has_parent
            if height == 0 and not has_parent:
                return 0, False
            remaining -= max(0, self.local[at] - self.used[at])
        return height, False

    def others_borrow(self, leaf: int, cell: int) -> bool:
        """Return whether a ClusterQueue other than *leaf* uses more than its nominal quota."""
        width, used, nominal = self.width, self.used, self.nominal
        return any(
            used[other_leaf * width + cell] > nominal[other_leaf * width + cell]
            for other_leaf in self.leaves.values()
            if other_leaf != leaf
        )

    def charge(self, node: int, taken: Taken, times: int = 1) -> None:
        """Add the usage of *times* Workloads to a node and its ancestors; below 0, release it."""
        used, local, width, parents = self.used, self.local, self.width, self.parents
        for cell, amount in taken:
            here, rising = node, amount * times
            while rising and here != _NO_PARENT:
                at = here * width + cell
                old = used[at]
                used[at] = old + rising
                # As in ``quota.charge``: only usage beyond local quota reaches the parent.
                if kept := local[at]:
                    rising = max(0, used[at] - kept) - max(0, old - kept)
                here = parents[here]

    def ceiling(self, node: int, cell: int, *, borrows: bool) -> int | None:
        """Return how much more a node may use by its own limits alone; None: no limit."""
        at = node * self.width + cell
        limit = self.limits[at] if borrows else 0
        return None if limit == _NO_LIMIT else self.nominal[at] + limit - self.used[at]
