"""Whom Kueue preempts in a tree without limits: all that victims give back is free for all there.

So sums tell who is preempted, and no usage has to be changed to find out. Who the candidates are,
and in which order they go, is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.kueue.preemption_candidates import Candidate
from webhook.kueue.preemption_search import PreemptionSearch


class PooledSearch:
    """What is still missing in one search, after the victims so far."""

    def __init__(self, search: PreemptionSearch, *, borrowing: bool) -> None:
        """Begin with nobody preempted; without *borrowing* it is to stay within its own quota."""
        self._tree, self._search = search.tree, search
        leaf, taken = search.preemptor.leaf, search.preemptor.taken
        self._missing = {
            cell: amount - self._tree.available(leaf, cell) for cell, amount in taken if amount
        }
        """By cell, how much too little is free; at most 0: there is enough."""
        self._beyond = {} if borrowing else self._beyond_quota()
        """By cell, how much its ClusterQueue would use beyond its own quota."""
        self._excess: dict[int, int] = {}
        """By place in the lists of the tree, what a node still uses beyond its quota."""
        self._below: dict[int, Sequence[int]] = {}
        """ClusterQueue to where the cells begin of the nodes that it does not share with the
        preemptor."""

    def _beyond_quota(self) -> dict[int, int]:
        first, tree = self._search.preemptor.leaf * self._tree.width, self._tree
        return {
            cell: tree.used[first + cell] + amount - tree.nominal[first + cell]
            for cell, amount in self._search.preemptor.taken
        }

    def victims(
        self, candidates: Iterable[Candidate], within_quota: set[int]
    ) -> Sequence[Candidate]:
        """Return the victims among these candidates, which go in this order; none: it is no help.

        The ClusterQueues from which nothing may be reclaimed any more are added to *within_quota*.
        """
        leaf, missing, beyond = self._search.preemptor.leaf, self._missing, self._beyond
        victims: list[Candidate] = []
        for candidate in candidates:
            holder = candidate.holder
            is_own = holder.leaf == leaf
            if not (is_own or self._reclaims(holder.leaf, within_quota)):
                continue
            victims.append(candidate)
            for cell, amount in holder.taken:
                if cell in missing:
                    missing[cell] -= amount
                if is_own and cell in beyond:
                    beyond[cell] -= amount
            if not is_own:
                self._give_back(candidate)
            if _is_enough(missing) and _is_enough(beyond):
                return self._minimized(victims)
        return ()

    def _reclaims(self, leaf: int, within_quota: set[int]) -> bool:
        """Return whether each node up to the cohort in common still uses more than its quota."""
        # ``candidateIsValid``: earlier victims may have brought a subtree within its quota.
        if leaf in within_quota:
            return False
        below = self._below.get(leaf)
        if below is None:
            below = self._below[leaf] = self._apart(leaf)
        for first in below:
            for cell in self._search.short:
                if self._excess[first + cell] > 0:
                    break
            else:
                # Until the search ends, usage only falls.
                within_quota.add(leaf)
                return False
        return True

    def _apart(self, leaf: int) -> Sequence[int]:
        tree, shared = self._tree, set(self._search.path)
        below = [node * tree.width for node in tree.path(leaf) if node not in shared]
        for first in below:
            for at in range(first, first + tree.width):
                self._excess.setdefault(at, tree.used[at] - tree.subtree[at])
        return below

    def _give_back(self, candidate: Candidate) -> None:
        excess = self._excess
        for first in self._below[candidate.holder.leaf]:
            for cell, amount in candidate.holder.taken:
                excess[first + cell] -= amount

    def _minimized(self, victims: list[Candidate]) -> Sequence[Candidate]:
        """Spare each victim without whom it fits as well, as ``PreemptionSearch`` does."""
        leaf, missing, beyond = self._search.preemptor.leaf, self._missing, self._beyond
        for index in reversed(range(len(victims) - 1)):
            holder = victims[index].holder
            sums = (missing, beyond) if holder.leaf == leaf else (missing,)
            if all(
                of.get(cell, -amount) + amount <= 0 for of in sums for cell, amount in holder.taken
            ):
                for of in sums:
                    for cell, amount in holder.taken:
                        if cell in of:
                            of[cell] += amount
                victims[index] = victims[-1]
                victims.pop()
        return victims


def _is_enough(short: dict[int, int]) -> bool:
    for amount in short.values():  # noqa: SIM110 - twice as fast as all()
        if amount > 0:
            return False
    return True
