"""The priorities of the heads of each ClusterQueue: behind them newcomers come a cycle later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import inf

from webhook.kueue.queue_heads import ClusterQueueHeads


def ahead_in(cycle: int, levels: Sequence[Sequence[float]]) -> Sequence[float]:
    """Return by node up to which priority newcomers come later than in a cycle.

    *cycle* is counted from 0 in a moment; *levels* are those of ``HeadLevels``.
    """
    # Each head takes a cycle of its ClusterQueue, even in vain.
    return [of_node[cycle] if len(of_node) > cycle else -inf for of_node in levels]


class HeadLevels:
    """The priorities of all heads, worked out anew where they may have changed."""

    def __init__(self, nodes: int, lines_of: Callable[[int], Iterable[ClusterQueueHeads]]) -> None:
        """*lines_of* returns the heads of a ClusterQueue, by its node, and maybe empty ones."""
        self._lines_of = lines_of
        self._levels: list[Sequence[float]] = [()] * nodes
        self._changed: set[int] = set()

    def change(self, leaf: int) -> None:
        """Note that the heads of a ClusterQueue are others."""
        self._changed.add(leaf)

    def with_started(self, started: Iterable[tuple[int, float]]) -> Sequence[Sequence[float]]:
        """Return by node the priorities of the heads of a ClusterQueue, the highest first.

        *started*: (ClusterQueue's node, priority) of those that were heads in this moment, too.
        """
        gone: defaultdict[int, list[float]] = defaultdict(list)
        for leaf, priority in started:
            gone[leaf].append(priority)
            self._changed.add(leaf)
        for leaf in self._changed:
            first = (-heads.entries[0][0] for heads in self._lines_of(leaf) if heads.entries)
            self._levels[leaf] = sorted(first, reverse=True)
        self._changed.clear()
        levels = self._levels[:]
        for leaf, of_leaf in gone.items():
            levels[leaf] = sorted([*levels[leaf], *of_leaf], reverse=True)
        return levels
