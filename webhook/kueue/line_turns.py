"""The usage at the turns of newcomers, where these differ from line to line of newcomers.

They do where shares decide which ClusterQueue is served next, and where a ClusterQueue serves its
LocalQueues by their use. Nothing here knows of time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import inf
from operator import sub
from typing import TypeAlias

from webhook.kueue.fair_sharing import (
    EntryT,
    Rival,
    Share,
    ShareRank,
    Tournament,
    comes_before,
    share,
    shares_with,
)
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.turns import Line, LineUsage, Turn, least

_Place: TypeAlias = tuple[int, float]
"""A newcomer's rank: the height from which it borrows, and the lowest priority that comes before it
in its line."""
_Shares: TypeAlias = "tuple[ShareRank, ...]"
_NO_LEAF = -1
"""Stands for all ClusterQueues whose heads were charged nothing."""
_LEAST_RATIO = 1e-9
"""Of who borrows next to nothing."""


class LineTurns:
    """For each line and rank the usage when a newcomer would be served at one moment.

    Its turn is in the first cycle in which no head of its ClusterQueue comes before it.
    """

    def __init__(
        self,
        tree: UsageTree,
        lines: Sequence[Line],
        ranks: Sequence[_Place],
        asked: Mapping[int, Taken],
    ) -> None:
        """Record nothing yet.

        *ranks* are (height, priority): from how high up a newcomer borrows, by shares from
        wherever, and the lowest priority that comes before it. *asked*: ClusterQueue to what one of
        its Workloads uses, where it has any.
        """
        self.lines = tuple(lines)
        self._tree = tree
        self._began: Sequence[int] = ()
        """The usage with which this cycle began."""
        self._ranks = ranks
        self._turns: Sequence[Turn] = [(height, -behind) for height, behind in ranks]
        """In ascending order."""
        self._shares = _NewcomerShares(tree, asked)
        self._found: list[dict[Line, list[int]]] = [{} for _ in ranks]
        """For each rank, line to the usage at that turn."""
        self._open: list[list[Line]] = [[] for _ in ranks]
        """For each rank the lines whose turn comes later in this cycle."""
        self._is_again = False

    def begin(self) -> None:
        """Begin a moment: no turn has come."""
        self._found = [{} for _ in self._ranks]

    def begin_cycle(
        self, ahead: Mapping[Line, float], asked: Mapping[int, Taken], *, is_again: bool
    ) -> None:
        """Begin a cycle.

        *ahead*: line to up to which priority newcomers come behind the head of its ClusterQueue.
        *asked*: ClusterQueue to what its head asks for. *is_again*: who found no room at its turn
        has another one in this cycle.
        """
        self._shares.note(asked)
        self._began, self._is_again = self._tree.used[:], is_again
        self._open = [
            [
                line
                for line in self.lines
                if (is_again or line not in found) and ahead.get(line, -inf) < behind
            ]
            for found, (_, behind) in zip(self._found, self._ranks, strict=True)
        ]

    def note_winner(self, usage: Callable[[], list[int]], tournament: Tournament[EntryT]) -> None:
        """Record the usage at the turns that come before that of the last winner by shares."""
        known = _KnownUsage()
        at_leaf: dict[int, tuple[Sequence[_Shares], Sequence[Rival]]] = {}
        for rank, lines in enumerate(self._open):
            height, behind = self._ranks[rank]
            later = []
            for line in lines:
                if line[0] not in at_leaf:
                    path, by_borrowing = self._shares.of(line[0])
                    at_leaf[line[0]] = by_borrowing, tournament.rivals(path)
                by_borrowing, rivals = at_leaf[line[0]]
                if comes_before(by_borrowing[height > 0], behind, rivals):
                    self._record(rank, line, usage, known)
                else:
                    later.append(line)
            self._open[rank] = later

    def note_head(self, usage: Callable[[], list[int]], turn: Turn) -> None:
        """Record the usage at the turns that come before that of a head, where no shares decide."""
        self._note_first(bisect_left(self._turns, turn), usage)

    def end_cycle(self, usage: Callable[[], list[int]]) -> None:
        """Record the usage at the end of a cycle for the turns that came after all heads."""
        self._note_first(len(self._turns), usage)

    def _note_first(self, number: int, usage: Callable[[], list[int]]) -> None:
        """Record the usage at the turns of so many ranks, as far as these have not yet come."""
        known = _KnownUsage()
        for rank, lines in enumerate(self._open[:number]):
            for line in lines:
                self._record(rank, line, usage, known)
            self._open[rank] = []

    def _record(
        self, rank: int, line: Line, usage: Callable[[], list[int]], known: _KnownUsage
    ) -> None:
        """Record the usage at a turn: the least of several cycles in which it comes."""
        now, found = self._without_head(line[0], usage, known), self._found[rank]
        found[line] = known.least(found[line], now) if line in found else now

    def _without_head(
        self, leaf: int, usage: Callable[[], list[int]], known: _KnownUsage
    ) -> list[int]:
        """Return the usage without the head before whom newcomers of a ClusterQueue come.

        It is not served in a cycle in which one of them is.
        """
        tree = self._tree
        first, end = leaf * tree.width, (leaf + 1) * tree.width
        now, began = tree.used[first:end], self._began[first:end]
        is_charged = now != began
        key = leaf if is_charged else _NO_LEAF
        if key not in known.by_leaf:
            charged = tuple(enumerate(map(sub, now, began))) if is_charged else ()
            tree.charge(leaf, charged, -1)
            known.by_leaf[key] = usage()
            tree.charge(leaf, charged)
        return known.by_leaf[key]

    def usage(self, after: list[int]) -> LineUsage:
        """Return the usage at all turns; *after* is that of turns that have not come."""
        if self._is_again:
            for found in self._found:
                found |= {line: least([after, usage]) for line, usage in found.items()}
        rows = [[found.get(line, after) for found in self._found] for line in self.lines]
        return LineUsage(rows=rows, kinds=range(len(rows)))


class _KnownUsage:
    """The usage that was worked out before one head is served."""

    def __init__(self) -> None:
        self.by_leaf: dict[int, list[int]] = {}
        """ClusterQueue to the usage without what its head was charged."""
        self._least: dict[tuple[int, int], tuple[list[int], list[int], list[int]]] = {}
        """By the ids of two, which are kept, their least."""

    def least(self, before: list[int], now: list[int]) -> list[int]:
        """Return the least of two usages, cell by cell: the same list for the same two."""
        key = id(before), id(now)
        if key not in self._least:
            self._least[key] = before, now, least([before, now])
        return self._least[key][2]


class _NewcomerShares:
    """The shares by which newcomers would be served, by what is used now and what they ask for.

    They are taken to ask for what Workloads last asked for in their ClusterQueue.
    """

    def __init__(self, tree: UsageTree, asked: Mapping[int, Taken]) -> None:
        self._tree = tree
        self._paths = {leaf: tuple(tree.path(leaf)) for leaf in tree.leaves.values()}
        self._asked: dict[int, Taken] = {**asked}
        self._usual: Taken = next(reversed(self._asked.values()), ())
        """What was last asked for anywhere, which stands in for what is not known."""
        self._known: dict[int, tuple[Taken, Sequence[int], Sequence[_Shares]]] = {}
        """ClusterQueue to what is asked for, the usage of its path below the root, and the shares
        of a newcomer there that borrows nothing itself, and of one that does."""

    def note(self, asked: Mapping[int, Taken]) -> None:
        """Note what the heads of ClusterQueues ask for."""
        for leaf, taken in asked.items():
            self._asked[leaf] = self._usual = taken

    def of(self, leaf: int) -> tuple[Sequence[int], Sequence[_Shares]]:
        """Return a ClusterQueue's path, and a newcomer's shares along it.

        They are those of one that borrows nothing itself, and of one that does.
        """
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
        return path, known[2]
