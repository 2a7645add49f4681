"""Those who hold quota in one tree, in the order in which Kueue preempts them.

Whom a policy allows to preempt is asked of ``preemption``; nobody is chosen here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from operator import gt
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from webhook.kueue.preemption import (
    Preemptor,
    QuotaHolder,
    Victim,
    satisfies_policy,
)
from webhook.kueue.quota import UsageTree
from webhook.model.queues import (
    ANY,
    LOWER_OR_NEWER_EQUAL_PRIORITY,
    LOWER_PRIORITY,
    NEVER,
    Preemption,
)

CandidateOrder: TypeAlias = tuple[bool, float, float, str, str]
OrderedHolder: TypeAlias = tuple[CandidateOrder, QuotaHolder]


class CandidateGroup(IntEnum):
    """Whom a ClusterQueue preempts first, apart from those that are evicted already."""

    HIERARCHICAL = 0
    """In subtrees over which its place in the hierarchy gives it an advantage."""
    BY_PRIORITY = 1
    SAME_QUEUE = 2


class Candidate(NamedTuple):
    is_kept: bool
    """It is not evicted already."""
    group: CandidateGroup
    order: CandidateOrder
    holder: QuotaHolder


def grouped(candidates: Iterable[OrderedHolder], group: CandidateGroup) -> Iterator[Candidate]:
    for order, holder in candidates:
        yield Candidate(order[0], group, order, holder)


class CandidateHolders:
    """The holders of one tree, those of each ClusterQueue in the order in which they go."""

    def __init__(self, tree: UsageTree, queue_usages: Mapping[str, float]) -> None:
        self.queue_usages = queue_usages
        self.drawn: Collection[str] = ()
        """UIDs of those that go first where Kueue's order does not say who does."""
        self.version = 0
        """Another one whenever others hold quota."""
        self.children: dict[int, list[int]] = {}
        for node, parent in enumerate(tree.parents):
            self.children.setdefault(parent, []).append(node)
        self._below: dict[int, frozenset[int]] = {}
        self._by_leaf: dict[int, list[OrderedHolder]] = {}
        self._counts: dict[float, int] = {}
        """Priority to the number of holders."""
        self._newest: dict[int, float] = {}
        """By leaf: no holder was queued later than this."""
        self._merged: dict[tuple[int, ...], _SharedRows[OrderedHolder]] = {}
        """Some ClusterQueues to all who hold quota there, until others do."""

    def add(self, holder: QuotaHolder) -> None:
        self.version += 1
        self._merged.clear()
        insort(self._by_leaf.setdefault(holder.leaf, []), (order_of(holder), holder))
        self._counts[holder.priority] = self._counts.get(holder.priority, 0) + 1
        newest = self._newest.get(holder.leaf, holder.queued_at)
        self._newest[holder.leaf] = max(newest, holder.queued_at)

    def remove(self, holder: QuotaHolder) -> None:
        self.version += 1
        self._merged.clear()
        entries = self._by_leaf[holder.leaf]
        del entries[bisect_left(entries, (order_of(holder),))]
        if not entries:
            del self._by_leaf[holder.leaf], self._newest[holder.leaf]
        self._counts[holder.priority] -= 1
        if not self._counts[holder.priority]:
            del self._counts[holder.priority]

    def may_have(self, preemptor: Preemptor, policy: Preemption) -> bool:
        """Return whether the lowest priority of all leaves it possible that one is preempted."""
        # Forecasts ask for each head in each cycle, and most often the answer is no.
        lowest = min(self._counts, default=None)
        policies = (policy.within_cluster_queue, policy.reclaim_within_cohort)
        if lowest is None or ANY in policies:
            return lowest is not None
        if LOWER_OR_NEWER_EQUAL_PRIORITY in policies:
            return lowest <= preemptor.priority
        return LOWER_PRIORITY in policies and lowest < preemptor.priority

    def leaves(self) -> Collection[int]:
        """Return the ClusterQueues with holders."""
        return self._by_leaf.keys()

    def leaves_below(self, node: int) -> frozenset[int]:
        """Return a node, and all that are below it."""
        below = self._below.get(node)
        if below is None:
            children = map(self.leaves_below, self.children.get(node, ()))
            below = self._below[node] = frozenset([node]).union(*children)
        return below

    def is_evicting(self, leaf: int) -> bool:
        """Return whether somebody there is evicted already: those go first."""
        return leaf in self._by_leaf and self._by_leaf[leaf][0][1].is_evicted

    def held_in(self, leaves: tuple[int, ...]) -> Iterable[OrderedHolder]:
        """Return all who hold quota in some ClusterQueues, in the order in which they go."""
        if leaves not in self._merged:
            rows = [self._by_leaf[leaf] for leaf in leaves]
            self._merged[leaves] = _SharedRows(heapq.merge(*rows))
        return self._merged[leaves]

    def of(
        self, leaf: int, preemptor: Preemptor, policy: str, short: frozenset[int]
    ) -> Iterator[OrderedHolder]:
        """Yield those of a ClusterQueue that use one of the cells and may be preempted."""
        if policy == NEVER or leaf not in self._by_leaf:
            return
        bound = preemptor.priority
        if policy == LOWER_OR_NEWER_EQUAL_PRIORITY and preemptor.queued_at < self._newest[leaf]:
            bound += 1
        for order, holder in self._by_leaf[leaf]:
            if holder.priority >= bound and policy != ANY and not holder.is_evicted:
                # The others have this priority or a higher one.
                return
            if satisfies_policy(preemptor, holder, policy) and _uses(holder, short):
                yield order, holder


def order_of(holder: QuotaHolder) -> CandidateOrder:
    # ``CandidatesOrdering``, but for what compares ClusterQueues and LocalQueues:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go#L42
    return not holder.is_evicted, holder.priority, -holder.reserved_at, holder.uid, holder.key


class ReclaimCandidates:
    """The candidates in ClusterQueues that use more than their quota, at one usage of the tree.

    Many ask at the same usage, the heads of one cycle, and are told apart by little: so candidates
    are merged cohort by cohort, as far as somebody goes through them, and what was found is kept.
    """

    def __init__(self, tree: UsageTree, candidates: CandidateHolders) -> None:
        self.found: dict[tuple[object, ...] | None, tuple[Victim, ...]] = {}
        """The victims that were found, by all that the search for them depended on."""
        self._tree, self._candidates = tree, candidates
        self._used, self._version = tree.used[:], candidates.version
        self._reached: dict[frozenset[int], Mapping[int, tuple[int, ...]]] = {}
        """By what is short: cohort to the ClusterQueues from which others in it may reclaim."""
        self._known: dict[tuple[int, frozenset[int], CandidateGroup], _SharedRows[Candidate]] = {}

    def is_current(self) -> bool:
        """Return whether the usage and the holders are still the same."""
        return self._version == self._candidates.version and self._used == self._tree.used

    def of(self, cohort: int, short: frozenset[int], group: CandidateGroup) -> Iterable[Candidate]:
        """Return those below a cohort that it does not protect, in the order in which they go."""
        known = self._known.get((cohort, short, group))
        if known is None:
            held = self._candidates.held_in(self.leaves(cohort, short))
            holders = ((order, each) for order, each in held if _uses(each, short))
            known = self._known[cohort, short, group] = _SharedRows(grouped(holders, group))
        return known

    def leaves(self, cohort: int, short: frozenset[int]) -> tuple[int, ...]:
        """Return the ClusterQueues below a cohort that it does not protect."""
        if short not in self._reached:
            self._reached[short] = self._reachable(short)
        return self._reached[short].get(cohort, ())

    def _reachable(self, short: frozenset[int]) -> Mapping[int, tuple[int, ...]]:
        reached: defaultdict[int, list[int]] = defaultdict(list)
        tree = self._tree
        used, quota, width = tree.used, tree.subtree, tree.width
        over = {
            node
            for cell in short
            for node, is_over_there in enumerate(map(gt, used[cell::width], quota[cell::width]))
            if is_over_there
        }
        for leaf in self._candidates.leaves():
            node = leaf
            while node in over and tree.parents[node] >= 0:
                node = tree.parents[node]
                reached[node].append(leaf)
        return {node: tuple(leaves) for node, leaves in reached.items()}


def _uses(holder: QuotaHolder, short: frozenset[int]) -> bool:
    for cell, _ in holder.taken:  # noqa: SIM110 - twice as fast as any()
        if cell in short:
            return True
    return False


_Row = TypeVar("_Row")


class _SharedRows(Generic[_Row]):
    """Rows that many go through, read no further than anybody asked."""

    def __init__(self, rest: Iterable[_Row]) -> None:
        self._known: list[_Row] = []
        self._rest = iter(rest)

    def __iter__(self) -> Iterator[_Row]:
        known, place = self._known, 0
        while True:
            if place == len(known):
                row = next(self._rest, None)
                if row is None:
                    return
                known.append(row)
            yield known[place]
            place += 1


def is_over(tree: UsageTree, node: int, short: Iterable[int]) -> bool:
    """Return whether a node uses more than its quota of any of the cells that are short."""
    # The opposite of ``IsWithinNominalInResources``.
    used, subtree, first = tree.used, tree.subtree, node * tree.width
    for cell in short:  # noqa: SIM110 - twice as fast as any()
        if used[first + cell] > subtree[first + cell]:
            return True
    return False
