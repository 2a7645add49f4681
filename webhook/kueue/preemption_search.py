"""One question to Kueue's preemptor: what the preemptor and its candidates are, and what fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import combinations

from webhook.kueue.fair_sharing import Share, share
from webhook.kueue.preemption import Preemptor, QuotaHolder, Victim
from webhook.kueue.preemption_candidates import (
    Candidate,
    CandidateHolders,
    OrderedHolder,
    is_over,
)
from webhook.kueue.quota import UsageTree
from webhook.model.queues import NEVER, Preemption


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionSearch:
    """One question to the preemptor; what it takes out of the tree, it puts back."""

    tree: UsageTree
    candidates: CandidateHolders
    preemptor: Preemptor
    short: frozenset[int]
    policy: Preemption
    path: tuple[int, ...]
    """The preemptor's ClusterQueue and the cohorts above it."""

    def own(self) -> Iterator[OrderedHolder]:
        policy = self.policy.within_cluster_queue
        return self.candidates.of(self.preemptor.leaf, self.preemptor, policy, self.short)

    def others(self, leaf: int) -> Iterator[OrderedHolder]:
        policy = self.policy.reclaim_within_cohort
        return self.candidates.of(leaf, self.preemptor, policy, self.short)

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield what the preemptor wants of each cell, by its place in the lists of the tree."""
        first = self.preemptor.leaf * self.tree.width
        return ((first + cell, amount) for cell, amount in self.preemptor.taken)

    def reclaims(self) -> bool:
        return len(self.path) > 1 and self.policy.reclaim_within_cohort != NEVER

    def is_over(self, node: int) -> bool:
        return is_over(self.tree, node, self.short)

    def others_over(self) -> set[int]:
        """Return the other ClusterQueues with holders that use more than their quota of a cell."""
        tree, leaves = self.tree, self.candidates.leaves()
        used, subtree, width = tree.used, tree.subtree, tree.width
        over = {
            leaf
            for cell in self.short
            for leaf in leaves
            if used[leaf * width + cell] > subtree[leaf * width + cell]
        }
        return over - {self.preemptor.leaf}

    def is_under_nominal(self) -> bool:
        # ``queueUnderNominalInResourcesNeedingPreemption``
        tree, first = self.tree, self.preemptor.leaf * self.tree.width
        return all(tree.used[first + cell] < tree.nominal[first + cell] for cell in self.short)

    def must_borrow(self) -> bool:
        """Return whether only what may be reclaimed while borrowing is of use, at any priority."""
        return self.policy.borrow_within_cohort == NEVER and not self.is_under_nominal()

    def fits(self, *, borrowing: bool) -> bool:
        # ``workloadFits``
        tree, leaf = self.tree, self.preemptor.leaf
        for at, amount in () if borrowing else self.places():
            if tree.used[at] + amount > tree.nominal[at]:
                return False
        return tree.has(leaf, self.preemptor.taken)

    def fits_when_charged(self) -> bool:
        """Return whether it fits, where the preemptor's own usage is in the tree already."""
        # ``workloadFitsForFairSharing``
        self.tree.charge(self.preemptor.leaf, self.preemptor.taken, -1)
        fits = self.fits(borrowing=True)
        self.tree.charge(self.preemptor.leaf, self.preemptor.taken)
        return fits

    def release(self, holder: QuotaHolder) -> None:
        self.tree.charge(holder.leaf, holder.taken, -1)

    def share_without(self, holder: QuotaHolder, node: int) -> Share:
        """Return what a node's share would be without a holder below it."""
        self.tree.charge(holder.leaf, holder.taken, -1)
        without = share(self.tree, node)
        self.tree.charge(holder.leaf, holder.taken)
        return without

    def restore(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            self.tree.charge(victim.holder.leaf, victim.holder.taken)

    def minimized(self, victims: list[Victim], *, borrowing: bool) -> tuple[Victim, ...]:
        """Spare each victim without whom it fits as well, and put back the usage of all."""
        # ``fillBackWorkloads``; the order in which victims are spared decides who is left:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go#L339
        for index in reversed(range(len(victims) - 1)):
            holder = victims[index].holder
            self.tree.charge(holder.leaf, holder.taken)
            if self.fits(borrowing=borrowing):
                victims[index] = victims[-1]
                victims.pop()
            else:
                self.release(holder)
        self.restore(victims)
        return tuple(victims)


def by_usage(
    search: PreemptionSearch, candidates: Iterable[Candidate], *, beside: Iterable[Candidate] = ()
) -> Iterable[Candidate]:
    """Sort again by the usage of their LocalQueues, where admission fair sharing counts it.

    *beside*: others that Kueue sorts together with them.
    """
    usages, drawn = search.candidates.queue_usages, search.candidates.drawn
    if not usages:
        return candidates

    def compare(left: Candidate, right: Candidate) -> int:
        head, other_head = left[:2], right[:2]
        if head != other_head:
            return -1 if head < other_head else 1
        if left.holder.leaf == right.holder.leaf:
            usage = usages.get(left.holder.local_queue)
            other_usage = usages.get(right.holder.local_queue)
            if usage is not None and other_usage is not None and usage != other_usage:
                return -1 if usage > other_usage else 1
        return -1 if left.order < right.order else 1

    ordered = sorted(candidates, key=cmp_to_key(compare))
    if drawn and _is_circular(sorted([*ordered, *beside], key=cmp_to_key(compare)), compare):
        ordered.sort(key=lambda each: (*each[:2], each.holder.uid not in drawn))
    return ordered


def _is_circular(
    candidates: Sequence[Candidate], compare: Callable[[Candidate, Candidate], int]
) -> bool:
    """Return whether a candidate comes before another one that comes before it."""
    # Two of one ClusterQueue are told apart by usage, two of different ones by priority, so this
    # need not be an order. Kueue then sorts as a map of Go happens to list them: ``cq.Workloads``.
    return any(compare(left, right) > 0 for left, right in combinations(candidates, 2))
