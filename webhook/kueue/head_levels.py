"""The priorities of the heads of each ClusterQueue: behind them newcomers come a cycle later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from webhook.kueue.queue_heads import ClusterQueueHeads


def ahead_in(cycle: int, levels: Mapping[int, Sequence[float]]) -> Mapping[int, float]:
    """Return by ClusterQueue up to which priority newcomers come later than in a cycle.

    *cycle* is counted from 0 in a moment; *levels* are those of ``HeadLevels``.
    """
    # Each head takes a cycle of its ClusterQueue, even in vain.
    return {leaf: of_leaf[cycle] for leaf, of_leaf in levels.items() if len(of_leaf) > cycle}


class HeadLevels:
    """The priorities of all heads, worked out anew where they may have changed."""

    def __init__(self, lines_of: Callable[[int], Iterable[ClusterQueueHeads]]) -> None:
        """*lines_of* returns the heads of a ClusterQueue, by its node, and maybe empty ones."""
        self._lines_of = lines_of
        self._levels: dict[int, Sequence[float]] = {}
        self._changed: set[int] = set()

    def change(self, leaf: int) -> None:
        """Note that the heads of a ClusterQueue are others."""
        self._changed.add(leaf)

    def with_started(self, started: Iterable[tuple[int, float]]) -> Mapping[int, Sequence[float]]:
        """Return the priorities of the heads of each ClusterQueue, the highest first.

        *started*: (ClusterQueue's node, priority) of those that were heads in this moment, too.
        """
        gone: defaultdict[int, list[float]] = defaultdict(list)
        for leaf, priority in started:
            gone[leaf].append(priority)
            self._changed.add(leaf)
        for leaf in self._changed:
            levels = (-heads.entries[0][0] for heads in self._lines_of(leaf) if heads.entries)
            self._levels[leaf] = sorted(levels, reverse=True)
        self._changed.clear()
        more = {leaf: sorted([*self._levels[leaf], *gone[leaf]], reverse=True) for leaf in gone}
        return {**self._levels, **more}
