"""The priorities of the heads of each ClusterQueue: behind them newcomers come a cycle later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from webhook.kueue.queue_heads import ClusterQueueHeads


class HeadsAhead(Mapping[int, float]):
    """ClusterQueue's node to up to which priority newcomers come later than in one cycle.

    It is worked out where it is asked for: of most moments nobody asks.
    """

    def __init__(self, levels: Mapping[int, Sequence[float]], cycle: int) -> None:
        """*levels* are those of ``HeadLevels``; *cycle* is counted from 0 in a moment."""
        self._levels, self._cycle = levels, cycle

    def __getitem__(self, leaf: int) -> float:
        # Each head takes a cycle of its ClusterQueue, even in vain.
        levels = self._levels[leaf]
        if len(levels) <= self._cycle:
            raise KeyError(leaf)
        return levels[self._cycle]

    def __iter__(self) -> Iterator[int]:
        return (leaf for leaf, levels in self._levels.items() if len(levels) > self._cycle)

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
        """Return the priorities of the heads of each ClusterQueue, the highest first, as they are.

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
