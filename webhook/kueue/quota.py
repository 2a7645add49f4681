"""Kueue's rule for quota in trees of cohorts: what is free, what could ever be, charging.

The rule is that of Kueue's ``resource_node.go``. What does not depend on usage is worked out once a
topology (``Forest``); usage is kept for each node and changed along one path at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
