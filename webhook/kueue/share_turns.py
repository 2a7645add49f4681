"""The usage at the turns of newcomers in a scheduling cycle whose order is that of shares.

A newcomer's share depends on what its ClusterQueue uses by then, and on what it asks for: that is
taken to be what Workloads last asked for there. Nothing here knows of time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from webhook.kueue.fair_sharing import EntryT, Share, ShareRank, Tournament, share, shares_with
from webhook.kueue.quota import Taken, UsageTree

_Shares: TypeAlias = "tuple[ShareRank, ...]"
_LEAST_RATIO = 1e-9
"""Of who borrows next to nothing."""


class ShareTurns:
    """For each ClusterQueue and rank the usage when a newcomer would be served at one moment.

    A rank is whether the newcomer borrows, and the lowest priority that comes before it in its
    ClusterQueue. Its turn is in the first cycle in which no such Workload is the head there.
    """

    def __init__(
        self, tree: UsageTree, ranks: Sequence[tuple[bool, float]], asked: Mapping[int, Taken]
    ) -> None:
        """Record nothing yet; *ranks* are (whether it borrows, priority).

        *asked*: ClusterQueue to what one of its Workloads uses, where it has any.
        """
        self.leaves = tuple(sorted(tree.leaves.values()))
        self._tree, self._ranks = tree, ranks
        self._paths = {leaf: tuple(tree.path(leaf)) for leaf in self.leaves}
        self._asked: dict[int, Taken] = {**asked}
        """ClusterQueue to what was last asked for there."""
        self._usual: Taken = next(reversed(self._asked.values()), ())
        """What was last asked for anywhere, which stands in for what is not known."""
        self._found: dict[tuple[int, int], list[int]] = {}
        """ClusterQueue and rank to the usage at that turn."""
        self._open: dict[int, list[int]] = {}
        """ClusterQueue to the ranks whose turn comes later in this cycle."""
        self._known: dict[int, tuple[Taken, Sequence[int], Sequence[_Shares]]] = {}
        """ClusterQueue to what is asked for, the usage of its path below the root, and the shares
        of a newcomer there that borrows nothing itself, and of one that does."""

    def begin(self) -> None:
        """Begin a moment: no turn has come."""
        self._found.clear()

    def begin_cycle(self, heads: Mapping[int, tuple[float, Taken]]) -> None:
        """Begin a cycle with these heads.

        *heads*: ClusterQueue to up to which priority newcomers come behind its head, and what that
        asks for.
        """
        for leaf, (_, taken) in heads.items():
            self._asked[leaf] = self._usual = taken
        self._open = {}
        for leaf in self.leaves:
            ahead = heads[leaf][0] if leaf in heads else -inf
            ranks = [
                rank
                for rank, (_, behind) in enumerate(self._ranks)
                if ahead < behind and (leaf, rank) not in self._found
            ]
            if ranks:
                self._open[leaf] = ranks

    def note(self, usage: Callable[[], list[int]], tournament: Tournament[EntryT]) -> None:
        """Record the usage at the turns that come before that of the last winner."""
        now: list[int] | None = None
        for leaf, ranks in list(self._open.items()):
            later = []
            for rank in ranks:
                borrows, behind = self._ranks[rank]
                shares = self._shares(leaf)[borrows]
                if tournament.comes_before(self._paths[leaf], shares, behind):
                    now = usage() if now is None else now
                    self._found[leaf, rank] = now
                else:
                    later.append(rank)
            if later:
                self._open[leaf] = later
            else:
                del self._open[leaf]

    def end_cycle(self, usage: list[int]) -> None:
        """Record the usage at the end of a cycle for the turns that came after all heads."""
        for leaf, ranks in self._open.items():
            for rank in ranks:
                self._found[leaf, rank] = usage
        self._open = {}

    def before(self, after: list[int]) -> list[list[int]]:
        """Return the usage at all turns: those of each rank of the first ClusterQueue, and so on.

        *after* is that of turns that have not come.
        """
        return [
            self._found.get((leaf, rank), after)
            for leaf in self.leaves
            for rank in range(len(self._ranks))
        ]

    def _shares(self, leaf: int) -> Sequence[_Shares]:
        """Return what ``_known`` has of a ClusterQueue, as its usage is now."""
        tree, path = self._tree, self._paths[leaf]
        used = [
            amount
            for node in path[:-1]
            for amount in tree.used[node * tree.width : (node + 1) * tree.width]
        ]
        known, taken = self._known.get(leaf), self._asked.get(leaf, self._usual)
        if known is None or known[:2] != (taken, used):
            first, *above = shares_with(tree, leaf, taken)
            own = False, share(tree, leaf).rank
            least = True, Share(ratio=_LEAST_RATIO, weight=tree.weights[leaf]).rank
            known = taken, used, ((own, *above), (max(first, least), *above))
            self._known[leaf] = known
        return known[2]
