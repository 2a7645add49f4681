"""Kueue's rule for quota in trees of cohorts: what is free, what could ever be, charging.

The rule is that of Kueue's ``resource_node.go``. What does not depend on usage is worked out once a
topology (``Forest``); usage is kept for each node and changed along one path at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.model.queues import Amounts, ClusterQueue, Cohort, FlavorResource, Quota, ResourceGroup

_Limits: TypeAlias = "dict[FlavorResource, int]"
_NO_PARENT = -1
_COHORT_WITHOUT_CHILDREN = 1
"""Any height above 0 would do: it tells a cohort from a ClusterQueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A ClusterQueue or a cohort, with everything about it that usage does not change."""

    parent: int
    """Its index in the forest; ``_NO_PARENT`` for a root."""
    root: int
    height: int
    """Steps to its furthest ClusterQueue; 0 for a ClusterQueue."""
    nominal: Mapping[FlavorResource, int]
    borrowing: Mapping[FlavorResource, int]
    """Borrowing limits, where one is set."""
    subtree: Mapping[FlavorResource, int]
    """Its own quota and what its children lend to it."""
    local: Mapping[FlavorResource, int]
    """The part of ``subtree`` that it lends to nobody, where it is not zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """All cohort trees. A ClusterQueue under a cycle of cohorts is in none of them."""

    nodes: tuple[Node, ...]
    places: Mapping[str, int]
    """ClusterQueue to its node."""
    potentials: tuple[Mapping[FlavorResource, int], ...]
    """For each node what it could use were everything idle."""

    def path(self, cluster_queue: str) -> Iterator[int]:
        """Walk from a ClusterQueue to its root."""
        index = self.places.get(cluster_queue, _NO_PARENT)
        while index != _NO_PARENT:
            yield index
            index = self.nodes[index].parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """A forest and what is used of it. Never changed: charging gives another one."""

    forest: Forest
    used: tuple[Mapping[FlavorResource, int], ...] = field(default=())
    """For each node; at a cohort only what its children use of what they lend or borrow."""

    def holds(self, cluster_queue: str) -> bool:
        return cluster_queue in self.forest.places


def plant(cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> Quotas:
    """Build the trees, with nothing used. Cohorts that are only named exist too."""
    parents = _rooted(cluster_queues, cohorts)
    order = sorted(parents, key=lambda name: _depth(name, parents))
    indices = {name: index for index, name in enumerate(order)}
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
    """Say how much a ClusterQueue may still take now, borrowing included; never below zero."""
    index = quotas.forest.places.get(cluster_queue)
    return 0 if index is None else max(0, _available(quotas, index, resource))


def potential(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    """Say how much a ClusterQueue could take were everything idle."""
    index = quotas.forest.places.get(cluster_queue)
    return 0 if index is None else quotas.forest.potentials[index].get(resource, 0)


def own_room(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    """Say how much a ClusterQueue may still take now without borrowing."""
    index = quotas.forest.places.get(cluster_queue)
    if index is None:
        return 0
    used = quotas.used[index].get(resource, 0)
    own = quotas.forest.nodes[index].subtree.get(resource, 0) - used
    return max(0, min(own, _available(quotas, index, resource)))


def nominal(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> int:
    index = quotas.forest.places.get(cluster_queue)
    return 0 if index is None else quotas.forest.nodes[index].nominal.get(resource, 0)


def ceiling(
    quotas: Quotas, cluster_queue: str, resource: FlavorResource, *, borrows: bool
) -> int | None:
    """Say how much more a ClusterQueue may use by its own limits alone; None: no limit."""
    index = quotas.forest.places[cluster_queue]
    node = quotas.forest.nodes[index]
    limit = node.borrowing.get(resource) if borrows else 0
    if limit is None:
        return None
    return node.nominal.get(resource, 0) + limit - quotas.used[index].get(resource, 0)


def charge(quotas: Quotas, cluster_queue: str, amounts: Amounts) -> Quotas:
    """Add usage to a ClusterQueue, and to its cohorts what exceeds its own part.

    Negative amounts release: what was charged and is released leaves no trace.
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
            passed_on = max(0, old + amount - local) - max(0, old - local)
            if passed_on:
                above[resource] = passed_on
        used[index], rising = after, above
    return Quotas(forest=quotas.forest, used=tuple(used))


def borrowing_height(
    quotas: Quotas, cluster_queue: str, resource: FlavorResource, amount: int
) -> tuple[int, bool]:
    """Find the lowest subtree whose own quota would hold *amount* more.

    Returns its height (0: the ClusterQueue's own nominal quota is enough), and whether it is less
    than the whole tree, which is what gives a right to reclaim from the rest of it.
    """
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
            return 0, False
        remaining -= max(0, node.local.get(resource, 0) - used)
    return height, False


def over_nominal(quotas: Quotas, cluster_queue: str, resource: FlavorResource) -> bool:
    """Tell whether another ClusterQueue of the same tree uses more than its nominal quota."""
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
        above = min(above, subtree - local - max(0, used - local) + limit)
    return max(0, local - used) + above


def _rooted(
    cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]
) -> dict[str, str]:
    """Map each cohort to its parent ("" for a root), without those on or below a cycle."""
    named = {queue.cohort for queue in cluster_queues.values()} | set(cohorts)
    named |= {cohort.parent for cohort in cohorts.values()}
    parents = {name: cohorts[name].parent if name in cohorts else "" for name in named if name}
    return {name: parent for name, parent in parents.items() if _depth(name, parents) >= 0}


def _depth(name: str, parents: Mapping[str, str]) -> int:
    """Count the steps to the root; -1 where the way leads into a cycle."""
    depth = 0
    while parents[name]:
        name, depth = parents[name], depth + 1
        if depth > len(parents):
            return -1
    return depth


def _nodes(kin: list[tuple[int, tuple[ResourceGroup, ...], bool]]) -> tuple[Node, ...]:
    """Work from the leaves up; *kin* lists parents before their children."""
    lent: list[_Limits] = [{} for _ in kin]
    heights = [0 if is_leaf else _COHORT_WITHOUT_CHILDREN for _, _, is_leaf in kin]
    roots: list[int] = []
    for index, (parent, _, _) in enumerate(kin):
        roots.append(index if parent == _NO_PARENT else roots[parent])
    found: list[Node] = []
    for index in reversed(range(len(kin))):
        parent, groups, _ = kin[index]
        node = _node(_cells(groups), lent[index], parent, heights[index], roots[index])
        found.append(node)
        if parent != _NO_PARENT:
            heights[parent] = max(heights[parent], node.height + 1)
            for resource, amount in node.subtree.items():
                part = amount - node.local.get(resource, 0)
                lent[parent][resource] = lent[parent].get(resource, 0) + part
    return tuple(reversed(found))


def _node(
    cells: Mapping[FlavorResource, Quota], lent: _Limits, parent: int, height: int, root: int
) -> Node:
    nominal_quota = {resource: cell.nominal for resource, cell in cells.items()}
    subtree = {
        resource: nominal_quota.get(resource, 0) + lent.get(resource, 0)
        for resource in {**nominal_quota, **lent}
    }
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
    """Work from the roots down; *nodes* lists parents before their children."""
    found: list[Mapping[FlavorResource, int]] = []
    for node in nodes:
        if node.parent == _NO_PARENT:
            found.append(node.subtree)
            continue
        above = found[node.parent]
        reachable = {
            resource: node.local.get(resource, 0) + above.get(resource, 0)
            for resource in {**node.subtree, **above}
        }
        for resource, limit in node.borrowing.items():
            reachable[resource] = min(
                reachable.get(resource, 0), node.subtree.get(resource, 0) + limit
            )
        found.append(reachable)
    return tuple(found)


Taken: TypeAlias = tuple[tuple[int, int], ...]
"""What one Workload uses: (cell's index, amount)."""
_NO_LIMIT = 1 << 62


class UsageTree:
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
