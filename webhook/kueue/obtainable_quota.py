"""What a newcomer could have of quota at once, with what it would preempt.

Each (flavor, resource) cell is judged alone, mostly by sums, as forecasts ask this for each of
their steps: whom exactly Kueue would preempt for a Workload, ``QuotaHolders.targets`` says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import inf
from operator import add, sub
from typing import NamedTuple

from webhook.kueue.preemption import Preemptor, preempts_while_borrowing
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import QuotaHolders
from webhook.model.queues import ANY, NEVER, Preemption


class _Given(NamedTuple):
    """What Workloads of others would give back at a node if they were preempted, by cell."""

    up: list[int]
    """To the cohort above it, by those in its subtree."""
    among: list[int]
    """To itself, by those in the subtrees right below it."""


class ObtainableQuota:
    """What newcomers could have in one tree, with those who hold quota as they are."""

    def __init__(self, tree: UsageTree, holders: QuotaHolders) -> None:
        self._tree, self._holders = tree, holders
        self._known: dict[float, Sequence[_Given]] = {}
        """What ``_given`` returned at the usage *_used*, in this version of the holders."""
        self._used: Sequence[int] = ()
        self._version = -1

    def of(self, leaf: int, priority: float, *, by_search: bool = False) -> Sequence[int]:
        """Return what a newcomer of a ClusterQueue could have of each cell.

        *by_search*: under fair sharing, also what shares let it preempt beyond its quota, which
        sums do not tell.
        """
        row = self._by_sums(leaf, priority)
        reclaims = self._holders.queues[leaf].preemption.reclaim_within_cohort != NEVER
        if not (by_search and self._holders.fair_sharing and reclaims):
            return row
        held: defaultdict[int, set[int]] = defaultdict(set)
        for group in self._holders.groups():
            for cell, amount in group.each:
                held[cell].add(amount)
        return [
            self._by_search(leaf, priority, cell, least, held[cell] - {0})
            for cell, least in enumerate(row)
        ]

    def _by_search(
        self, leaf: int, priority: float, cell: int, least: int, held: Collection[int]
    ) -> int:
        """Return how much of a cell searches for victims find, or *least* if they find no more.

        It is a multiple of the least that any Workload holds of it, and at most what one does;
        *held* is what each of them does.
        """
        step = min(held, default=1)
        low = least // step
        high = min(max(held, default=0), self._tree.potential(leaf, cell)) // step
        while low < high:
            middle = (low + high + 1) // 2
            asked = ((cell, middle * step),)
            newcomer = Preemptor(leaf=leaf, taken=asked, priority=priority, queued_at=inf)
            if self._holders.targets(newcomer, (cell,)):
                low = middle
            else:
                high = middle - 1
        return max(least, low * step)

    def _by_sums(self, leaf: int, priority: float) -> Sequence[int]:
        policy = self._holders.queues[leaf].preemption
        tree, cells = self._tree, range(self._tree.width)
        row = free = [tree.available(leaf, cell) for cell in cells]
        own: Sequence[int] = [0] * tree.width
        has_cohort, is_fair = tree.parents[leaf] >= 0, self._holders.fair_sharing
        if policy.within_cluster_queue != NEVER:
            # A newcomer is the newest of its priority.
            own = self._holders.used_below(leaf, priority)
            row = list(map(add, free, own))
            if has_cohort and not preempts_while_borrowing(policy, fair_sharing=is_fair):
                # It may not preempt for what its cohort would have to lend.
                nominal = [tree.nominal[leaf * tree.width + cell] for cell in cells]
                most = map(max, nominal, self._holders.unused(leaf))
                row = list(map(max, free, map(min, row, most)))
        if not has_cohort or policy.reclaim_within_cohort == NEVER:
            return row
        if policy.borrow_within_cohort != NEVER and not is_fair:
            *_, (_, given) = self._claims(leaf, _below_threshold(policy, priority), own)
            row = list(map(add, row, given))
        bound = inf if policy.reclaim_within_cohort == ANY else priority
        for quota, given in self._claims(leaf, bound, own):
            reach = map(add, map(add, free, own), given)
            row = list(map(max, row, map(min, quota, reach)))
        return [self._within_limits(leaf, cell, row[cell], own[cell]) for cell in cells]

    def _claims(
        self, leaf: int, below: float, own: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Yield for each subtree with a ClusterQueue, the widest first, what it may take back.

        That is at most what its quota leaves unused, and what those beyond it would give back who
        are below a priority. *own* is what the ClusterQueue's own Workloads give back before.
        """
        # ``collectCandidatesForHierarchicalReclaim``:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L149
        tree, given = self._tree, self._given(below)
        total: Sequence[int] = [0] * tree.width
        for node in reversed(list(tree.path(leaf))[:-1]):
            beside = map(sub, given[tree.parents[node]].among, given[node].up)
            total = list(map(add, total, beside))
            unused = self._holders.unused_at(node)
            yield (list(map(add, unused, own)) if node == leaf else unused), total

    def _within_limits(self, leaf: int, cell: int, amount: int, own: int) -> int:
        """Return how much of an amount the limits of a tree allow a ClusterQueue.

        *own* is what its own Workloads give back before.
        """
        most = self._tree.ceiling(leaf, cell, borrows=True)
        amount = min(amount, self._tree.potential(leaf, cell))
        return amount if most is None else min(amount, most + own)

    def _given(self, below: float) -> Sequence[_Given]:
        """Return what those below a priority would give back at each node."""
        if (self._used, self._version) != (self._tree.used, self._holders.version):
            self._known.clear()
            self._used, self._version = self._tree.used[:], self._holders.version
        if below not in self._known:
            self._known[below] = self._find_given(below)
        return self._known[below]

    def _find_given(self, below: float) -> Sequence[_Given]:
        tree = self._tree
        found = [_Given([0] * tree.width, [0] * tree.width) for _ in tree.parents]
        gone: defaultdict[int, Counter[int]] = defaultdict(Counter)
        beyond_quota = {leaf for leaf in tree.leaves.values() if tree.borrows(leaf)}
        lower = [
            (group.priority, -group.reserved_at, group)
            for group in self._holders.groups()
            if group.leaf in beyond_quota and group.priority is not None and group.priority < below
        ]
        # In the order in which Kueue would preempt them.
        for _, _, group in sorted(lower, key=lambda each: each[:2]):
            path = list(tree.path(group.leaf))[:-1]
            for cell, amount in group.each:
                places = [node * tree.width + cell for node in path]
                for height, node in enumerate(path, 1):
                    for _ in range(group.count):
                        back = self._given_up(places[:height], amount, gone[node])
                        found[node].up[cell] += back
                        found[tree.parents[node]].among[cell] += back
        return found

    def _given_up(self, places: Sequence[int], amount: int, gone: Counter[int]) -> int:
        """Return how much of an amount the common cohort gets back if its holder is preempted.

        *places* are those of the cell in the nodes below that cohort, and *gone* is what they have
        given up before.
        """
        # ``classifyPreemptionVariant`` and ``candidateIsValid``, as in ``kueue.preemption``: from
        # who borrows, until nobody on the way to the common cohort does.
        tree = self._tree
        used = {at: tree.used[at] - gone[at] for at in places}
        if any(used[at] <= tree.subtree[at] for at in places):
            return 0
        for at in places:
            gone[at] += amount
            # What a node keeps for itself does not reach the one above it.
            above = used[at] - tree.local[at]
            amount = max(0, above) - max(0, above - amount)
        return amount


def _below_threshold(policy: Preemption, priority: float) -> float:
    """Return below which priority a newcomer may preempt others though it borrows."""
    most = policy.max_priority_threshold
    return priority if most is None else min(priority, most + 1)
