"""Quota in trees of cohorts: what is available, what could ever be, and charging usage.

Mirrors Kueue's ``resourceNode``. Names become indices once, when a forest is planted: reviews keep
a ``Forest``, of which charging returns another one; a forecast owns a copy of one tree and changes
its usage in place. Amounts are as in ``model.quantity``. Workloads, priorities and preemption are
not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import ClusterQueue, Cohort, Quota, ResourceGroup

Taken: TypeAlias = tuple[tuple[int, int], ...]
"""What one Workload uses: (index of the cell, amount). A cell is one resource of one flavor."""
_NO_PARENT = -1
_COHORT_WITHOUT_CHILDREN = 1
"""Above 0, as height 0 marks a ClusterQueue. (In Kueue's ``getNodeHeight`` such a cohort has 0.)"""
_NO_LIMIT = 1 << 62
"""The borrowing limit where none is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTree:
    """One cohort tree, or a ClusterQueue without a cohort, and its usage.

    Nodes and cells are known by their index; the root is node 0, and parents come before their
    children. Amounts are flat lists: node after node, each with ``width`` cells. All but ``used``
    is shared among copies and never changes.
    """

    cells: tuple[FlavorResource, ...]
    width: int
    """Number of cells."""
    indices: Mapping[FlavorResource, int]
    leaves: Mapping[str, int]
    """ClusterQueue to the index of its node."""
    parents: Sequence[int]
    """Each node's parent; below 0 for the root."""
    heights: Sequence[int]
    """Steps down to a node's furthest ClusterQueue; 0 for a ClusterQueue."""
    rows: Sequence[tuple[int, ...]]
    """Where the cells begin of each node and of its ancestors, the root's last."""
    nominal: Sequence[int]
    subtree: Sequence[int]
    """A node's own nominal quota and what its children lend to it (Kueue's ``SubtreeQuota``)."""
    local: Sequence[int]
    """What its lending limit keeps from its parent of ``subtree`` (Kueue's ``localQuota``)."""
    limits: Sequence[int]
    """Borrowing limits."""
    potentials: Sequence[int]
    """What a node could use if nothing were used (``potentialAvailable``)."""
    weights: Sequence[float]
    """Each node's weight in fair sharing."""
    offered: Sequence[Sequence[int]]
    """For each node the cells of which it or a node below it has quota, if only 0."""
    keeps: bool
    """Some lending limit keeps quota from a parent."""
    shares_all: bool
    """Without lending and borrowing limits, the tree's quota is one pool."""
    used: list[int]
    """A node's usage; a cohort's is what its children use beyond their local quota."""

    def copy(self) -> UsageTree:
        """Return the same tree with usage of its own."""
        return replace(self, used=list(self.used))

    def taken(self, amounts: Amounts) -> Taken:
        """Return amounts by index; those of cells without quota in this tree limit nobody."""
        indices = self.indices
        return tuple([(indices[cell], n) for cell, n in amounts.items() if cell in indices])

    def amounts(self, taken: Taken) -> dict[FlavorResource, int]:
        return {self.cells[cell]: amount for cell, amount in taken}

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
        if self.shares_all:
            # What the root has left decides alone.
            return self.subtree[cell] - amounts[cell]
        at = node * self.width + cell
        parent = self.parents[node]
        if parent == _NO_PARENT:
            return self.subtree[at] - amounts[at]
        above = self.available(parent, cell, used)
        local, limit = self.local[at], self.limits[at]
        kept = local - amounts[at]
        if limit != _NO_LIMIT:
            # What it lends and nobody uses also comes from the parent, but is not borrowed.
            most = self.subtree[at] - local + limit
            if kept < 0:
                most += kept
            if most < above:  # noqa: PLR1730 - several times as fast as min()
                above = most
        return above + kept if kept > 0 else above

    def potential(self, node: int, cell: int) -> int:
        """Return how much of a cell a node could use if nothing were used."""
        return self.potentials[node * self.width + cell]

    def room(self, node: int, taken: Taken) -> int:
        """Return how many Workloads that use *taken* each still fit, borrowing included.

        It is negative where more is used than there is quota.
        """
        rooms = (self.available(node, cell) // amount for cell, amount in taken if amount)
        return min(rooms, default=_NO_LIMIT)

    def own_room(self, node: int, taken: Taken) -> int:
        """Return how many Workloads that use *taken* each still fit without borrowing."""
        first = node * self.width
        rooms = (
            (self.subtree[first + cell] - self.used[first + cell]) // amount
            for cell, amount in taken
            if amount
        )
        # Others may have borrowed of its quota, so what is available is a limit as well.
        return min(self.room(node, taken), min(rooms, default=_NO_LIMIT))

    def height(
        self, node: int, cell: int, amount: int, used: Sequence[int] | None = None
    ) -> tuple[int, bool]:
        """Return the height of the lowest subtree with quota for *amount*, and if it has a parent.

        The height is 0 where the ClusterQueue's own quota is enough, and that of the whole tree
        where no subtree has enough quota; the second value is then False. Where the subtree has a
        parent, its quota may be reclaimed from the rest of the tree. *used* replaces the tree's own
        usage.
        """
        # ``FindHeightOfLowestSubtreeThatFits`` in Kueue's ``hierarchical_preemption.go``.
        used = self.used if used is None else used
        remaining, index, height = amount, node, 0
        while index != _NO_PARENT:
            at, parent, height = index * self.width + cell, self.parents[index], self.heights[index]
            if self.subtree[at] >= used[at] + remaining:
                return height, parent != _NO_PARENT
            # What fits into a node's local quota is not taken from its parent. (A ClusterQueue
            # without a cohort has nobody to borrow from: its height stays 0.)
            if kept := self.local[at]:
                remaining -= max(0, kept - used[at])
            index = parent
        return height, False

    def has(self, node: int, taken: Taken) -> bool:
        """Return whether a node has that much free, borrowing included."""
        # Where more is used than there is quota, nothing is free, which is enough for nothing:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/clusterqueue_snapshot.go#L172
        return all(not amount or self.available(node, cell) >= amount for cell, amount in taken)

    def owns(self, node: int, taken: Iterable[tuple[int, int]]) -> bool:
        """Return whether a node's unused quota covers *taken*, so that none is borrowed.

        Others may have borrowed that quota: see ``has``.
        """
        first, quota, used = node * self.width, self.subtree, self.used
        for cell, amount in taken:  # noqa: SIM110 - twice as fast as all()
            if quota[first + cell] - used[first + cell] < amount:
                return False
        return True

    def borrows(self, node: int) -> bool:
        """Return whether a node uses more of some cell than its quota."""
        first, used, subtree = node * self.width, self.used, self.subtree
        return any(used[at] > subtree[at] for at in range(first, first + self.width))

    def others_borrow(self, leaf: int, cell: int) -> bool:
        """Return whether a ClusterQueue other than *leaf* uses more than its nominal quota."""
        # Kueue reclaims only from ClusterQueues that do.
        width, used, nominal = self.width, self.used, self.nominal
        return any(
            used[other_leaf * width + cell] > nominal[other_leaf * width + cell]
            for other_leaf in self.leaves.values()
            if other_leaf != leaf
        )

    def charge(self, node: int, taken: Taken, times: int = 1) -> None:
        """Add the usage of *times* Workloads to a node and its ancestors; below 0, release it.

        It changes this tree, so its usage must be the caller's own: see ``copy``.
        """
        used = self.used
        if not self.keeps:
            # All of it reaches the root; event loops charge a hundred thousand times.
            rows = self.rows[node]
            for cell, amount in taken:
                change = amount * times
                for first in rows:
                    used[first + cell] += change
            return
        local, width, parents = self.local, self.width, self.parents
        for cell, amount in taken:
            here, rising = node, amount * times
            while rising and here != _NO_PARENT:
                at = here * width + cell
                old = used[at]
                used[at] = old + rising
                # As ``addUsage`` and ``removeUsage``: the parent sees only usage beyond local
                # quota.
                if kept := local[at]:
                    rising = max(0, used[at] - kept) - max(0, old - kept)
                here = parents[here]

    def ceiling(self, node: int, cell: int, *, borrows: bool) -> int | None:
        """Return how much more a node may use by its own limits alone; None: no limit.

        *borrows*: its borrowing limit counts in addition to its nominal quota. The value is
        negative where more than that is used already.
        """
        at = node * self.width + cell
        limit = self.limits[at] if borrows else 0
        return None if limit == _NO_LIMIT else self.nominal[at] + limit - self.used[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """All trees that have a ClusterQueue; one under a cycle of cohorts is in none of them."""

    trees: tuple[UsageTree, ...] = ()
    places: Mapping[str, int]
    """ClusterQueue to the index of its tree."""

    def __getitem__(self, cluster_queue: str) -> UsageTree:
        """Return the tree of a ClusterQueue.

        Raises:
            KeyError: it is in none.

        """
        return self.trees[self.places[cluster_queue]]

    def tree(self, cluster_queue: str) -> UsageTree | None:
        """Return the tree of a ClusterQueue; None: it is in none."""
        index = self.places.get(cluster_queue)
        return None if index is None else self.trees[index]

    def charged(self, usage: Mapping[str, Amounts]) -> Forest:
        """Return the forest with more usage, by ClusterQueue; negative amounts release usage.

        A negative amount undoes exactly what the same positive one charged.
        """
        trees = list(self.trees)
        copied: set[int] = set()
        for name, amounts in usage.items():
            index = self.places.get(name)
            if index is None or not amounts:
                continue
            if index not in copied:
                copied.add(index)
                trees[index] = trees[index].copy()
            trees[index].charge(trees[index].leaves[name], trees[index].taken(amounts))
        return Forest(trees=tuple(trees), places=self.places) if copied else self


def plant(cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> Forest:
    """Build the trees of these ClusterQueues, with nothing used."""
    parents = _rooted(cluster_queues.values(), cohorts)
    # Parents come before their children, and cohorts before ClusterQueues.
    members: defaultdict[str, list[str]] = defaultdict(list)
    for cohort in sorted(parents, key=lambda name: (_depth(name, parents), name)):
        members[_root(cohort, parents)].append(cohort)
    # Like Kueue's snapshot, leave out the ClusterQueues under a cycle of cohorts.
    leaves: defaultdict[str, list[ClusterQueue]] = defaultdict(list)
    for name, tree in _trees(cluster_queues.values(), parents).items():
        if cluster_queues[name].cohort in ("", *parents):
            leaves[tree].append(cluster_queues[name])
    trees = []
    for queues in leaves.values():
        names = members[_root(queues[0].cohort, parents)] if queues[0].cohort else []
        trees.append(_tree(names, queues, parents, cohorts))
    places = {name: index for index, tree in enumerate(trees) for name in tree.leaves}
    return Forest(trees=tuple(trees), places=places)


def tree_names(
    cluster_queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]
) -> Mapping[str, str]:
    """Name the tree of each ClusterQueue, by its root cohort or else by the ClusterQueue itself.

    One under a cycle of cohorts is named as one without a cohort, as it shares quota with nobody.
    """
    return _trees(cluster_queues.values(), _rooted(cluster_queues.values(), cohorts))


def _trees(queues: Collection[ClusterQueue], parents: Mapping[str, str]) -> dict[str, str]:
    return {
        queue.name: f"cohort {_root(queue.cohort, parents)}"
        if queue.cohort in parents
        else f"queue {queue.name}"
        for queue in queues
    }


def _rooted(queues: Collection[ClusterQueue], cohorts: Mapping[str, Cohort]) -> dict[str, str]:
    """Map each cohort to its parent ("" for a root), without those on or below a cycle."""
    # A cohort exists also where only a ClusterQueue or a child cohort names it.
    named = {queue.cohort for queue in queues} | set(cohorts)
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


def _root(cohort: str, parents: Mapping[str, str]) -> str:
    while parents[cohort]:
        cohort = parents[cohort]
    return cohort


def _tree(
    names: Sequence[str],
    queues: Sequence[ClusterQueue],
    parents: Mapping[str, str],
    cohorts: Mapping[str, Cohort],
) -> UsageTree:
    """Build the tree of some cohorts, parents before children, and of the ClusterQueues in it."""
    groups = [cohorts[name].groups if name in cohorts else () for name in names]
    groups += [queue.groups for queue in queues]
    above = [parents[name] for name in names] + [queue.cohort for queue in queues]
    places = {name: index for index, name in enumerate(names)}
    quotas = [dict(_quotas(of_node)) for of_node in groups]
    cells = tuple(dict.fromkeys(cell for of_node in quotas for cell in of_node))
    table = _Table(
        quotas=quotas,
        parents=[places.get(name, _NO_PARENT) for name in above],
        indices={cell: index for index, cell in enumerate(cells)},
    )
    subtree, local = table.lent()
    limits = table.filled(_NO_LIMIT, lambda quota: quota.borrowing_limit)
    keeps = any(local)
    return UsageTree(
        cells=cells,
        width=len(cells),
        indices=table.indices,
        leaves={queue.name: len(names) + index for index, queue in enumerate(queues)},
        parents=table.parents,
        heights=_heights(table.parents, len(names)),
        rows=_rows(table.parents, len(cells)),
        nominal=table.filled(0, lambda quota: quota.nominal),
        subtree=subtree,
        local=local,
        limits=limits,
        potentials=table.potentials(subtree, local, limits),
        weights=_weights(names, queues, cohorts),
        offered=table.offered(),
        keeps=keeps,
        shares_all=not keeps and min(limits, default=0) == _NO_LIMIT,
        used=[0] * len(limits),
    )


def _weights(
    names: Sequence[str], queues: Sequence[ClusterQueue], cohorts: Mapping[str, Cohort]
) -> list[float]:
    above = [cohorts[name].fair_weight if name in cohorts else 1.0 for name in names]
    return above + [queue.fair_weight for queue in queues]


def _quotas(groups: Sequence[ResourceGroup]) -> Iterator[tuple[FlavorResource, Quota]]:
    """Yield the quota of each flavor and resource; where none is written it is 0."""
    for group in groups:
        for flavor in group.flavors:
            for resource in group.resources:
                cell = flavor, resource
                yield cell, group.quotas.get(cell, _NOTHING)


_NOTHING = Quota(nominal=0)


def _heights(parents: Sequence[int], cohorts: int) -> list[int]:
    """Return the heights of all nodes, of which the first *cohorts* are cohorts."""
    heights = [_COHORT_WITHOUT_CHILDREN] * cohorts + [0] * (len(parents) - cohorts)
    for node in reversed(range(len(parents))):
        if parents[node] != _NO_PARENT:
            heights[parents[node]] = max(heights[parents[node]], heights[node] + 1)
    return heights


def _rows(parents: Sequence[int], width: int) -> list[tuple[int, ...]]:
    """Return where the cells of each node and of its ancestors begin; parents come first."""
    rows: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents):
        rows.append((node * width, *(rows[parent] if parent != _NO_PARENT else ())))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The quotas of a tree's nodes, from which flat lists are made."""

    quotas: Sequence[Mapping[FlavorResource, Quota]]
    """For each node the quota of its own cells."""
    parents: Sequence[int]
    indices: Mapping[FlavorResource, int]

    def filled(self, default: int, value: Callable[[Quota], int | None]) -> list[int]:
        """Return a value of each node's quotas; *default* where there is none."""
        width = len(self.indices)
        flat = [default] * (width * len(self.quotas))
        for node, quotas in enumerate(self.quotas):
            for cell, quota in quotas.items():
                amount = value(quota)
                if amount is not None:
                    flat[node * width + self.indices[cell]] = amount
        return flat

    def lent(self) -> tuple[list[int], list[int]]:
        """Return what each node's subtree has, and what of it the node keeps from its parent."""
        width = len(self.indices)
        subtree = self.filled(0, lambda quota: quota.nominal)
        local = [0] * len(subtree)
        # A node's children come after it.
        for node in reversed(range(len(self.quotas))):
            first, parent = node * width, self.parents[node]
            for cell, quota in self.quotas[node].items():
                # Without a lending limit everything is lent.
                if quota.lending_limit is not None:
                    at = first + self.indices[cell]
                    local[at] = max(0, subtree[at] - quota.lending_limit)
            if parent != _NO_PARENT:
                for at in range(first, first + width):
                    subtree[at + (parent - node) * width] += subtree[at] - local[at]
        return subtree, local

    def offered(self) -> list[Sequence[int]]:
        """Return the cells that each node or one below it has quota of."""
        cells = [{self.indices[cell] for cell in quotas} for quotas in self.quotas]
        for node in reversed(range(len(cells))):
            if self.parents[node] != _NO_PARENT:
                cells[self.parents[node]] |= cells[node]
        return [sorted(of_node) for of_node in cells]

    def potentials(
        self, subtree: Sequence[int], local: Sequence[int], limits: Sequence[int]
    ) -> list[int]:
        """Return what each node could use if nothing were used."""
        width = len(self.indices)
        reachable = list(subtree)
        for node, parent in enumerate(self.parents):
            if parent == _NO_PARENT:
                continue
            for cell in range(width):
                at = node * width + cell
                most = local[at] + reachable[parent * width + cell]
                reachable[at] = min(most, subtree[at] + limits[at])
        return reachable
