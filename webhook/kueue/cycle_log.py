"""What each cycle of a cohort tree's simulation saw, so that newcomers can be looked up in it.

A newcomer that waits changes nothing for the others, only its start does. So one simulation without
it is enough: it starts in the first of the logged cycles in which it would be the head of its
ClusterQueue, would fit, and would still fit when its turn comes (``newcomer``). Observers send logs
to their servers, so all of it is in flat arrays, which are sent and read without looking at each
item.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from webhook.kueue.preemption import TriedHead
from webhook.kueue.quota import Taken
from webhook.model.queues import QuotaHolder
from webhook.model.topologies import PlacedPods

MOST_LOGGED = 100_000
"""Of so many tries each cycle is logged; after them, what a moment leaves once all were tried."""
CHECKPOINT = 64
"""So many entries at most are gone through to know the usage at one."""

Rank: TypeAlias = tuple[float, bool, float, float]
"""Who is first in a ClusterQueue, the least: what its LocalQueue has used where that counts,
whether it does not wait for its victims, its negated priority, its place by age."""
Kind: TypeAlias = tuple[int, tuple[object, ...], float]
"""By what Kueue takes Workloads to be equal: ClusterQueue's node, what they ask for, priority."""
_Item = TypeVar("_Item")
_MOST = (1 << 63) - 1
"""More fits into no array, and is as much as anybody asks for."""


class Change(NamedTuple):
    """What becomes of quota between two cycles."""

    leaf: int
    taken: Taken
    sign: int
    """1: it is taken, -1: it is released, 0: its holder is evicted, and stops."""
    holder: QuotaHolder | None = None
    """Of whom it is, in a tree in which somebody may be preempted, and if its priority is known."""
    placed: tuple[PlacedPods, ...] = ()
    """Where the pods are in the domains of Topologies."""


class _Numbered(Generic[_Item]):
    """Equal items, each once, by number."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._numbers: dict[_Item, int] = {}

    def number(self, item: _Item) -> int:
        number = self._numbers.setdefault(item, len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number

    def __getstate__(self) -> list[_Item]:
        """Leave out what only those need who add items."""
        return self.items

    def __setstate__(self, items: list[_Item]) -> None:
        self.items, self._numbers = items, {}


class CycleLog:
    """The cycles of one tree, one entry each, and one for what each moment leaves."""

    def __init__(self, quota: Sequence[int]) -> None:
        """*quota*: by cell, that of the whole tree."""
        self.times = array("d")
        """In seconds since the beginning; ascending."""
        self.rests = bytearray()
        """1: the entry is the last of its moment; who comes after it is tried as in this one."""
        self.wakes = bytearray()
        """1: it is the first after a requeue batch, and all are tried again."""
        self.spreads = array("d")
        """Standard deviation of when quota was last released by then, in seconds."""
        self.free = [array("q") for _ in quota]
        """By cell and entry, how much of the tree's quota is free as the cycle begins."""
        self.used: list[Sequence[int]] = []
        """The tree's usage as each CHECKPOINT-th cycle begins."""
        self.uses: list[Mapping[str, float]] = []
        """What LocalQueues have used by then, where ClusterQueues order them by it; else empty."""
        self._quota = quota
        self._taken: _Numbered[Taken] = _Numbered()
        self._ranks: _Numbered[Rank] = _Numbered()
        self._ahead: dict[int, tuple[array[int], array[int]]] = {}
        """ClusterQueue's node to the entries in which it has a head, and to the ranks of these."""
        self._asleep: _Numbered[frozenset[Kind]] = _Numbered()
        self._sleeps = array("q")
        """By entry the number of what rests after it."""
        self._change_ends, self._served_ends = array("q"), array("q")
        """How many changes, and served heads, there are up to each entry."""
        self._changes = tuple(array("q") for _ in range(3))
        """Leaf, number of what is taken, sign."""
        self._holders: dict[int, QuotaHolder] = {}
        self._placed: dict[int, tuple[PlacedPods, ...]] = {}
        self._served: tuple[array[Any], ...] = tuple(array(code) for code in "qddqqqq")
        """As in TriedHead, with numbers of what is taken, but for *leaving*."""
        self._leaving: dict[int, tuple[QuotaHolder, ...]] = {}
        self._tries = 0

    def note(self, change: Change) -> None:
        """Note a change before the next entry."""
        number = len(self._changes[0])
        row = change.leaf, self._taken.number(change.taken), change.sign
        for column, item in zip(self._changes, row, strict=True):
            column.append(item)
        if change.holder is not None:
            self._holders[number] = change.holder
        if change.placed:
            self._placed[number] = change.placed

    def add(  # noqa: PLR0913 - an entry has so many parts
        self,
        at: float,
        *,
        rests: bool,
        wakes: bool,
        spread: float,
        heads: Sequence[tuple[int, Rank]],
        served: Sequence[TriedHead],
        use: Mapping[str, float],
        used: Sequence[int],
        asleep: frozenset[Kind] = frozenset(),
    ) -> None:
        """Add an entry; *heads* are the ClusterQueues' heads in it with their ranks.

        *used*: the tree's usage as it begins. *asleep*: what was tried in vain by
        its end since the last requeue batch.
        """
        if not rests and self._tries > MOST_LOGGED:
            return
        number = len(self.times)
        self.times.append(at)
        self.rests.append(rests)
        self.wakes.append(wakes)
        self.spreads.append(spread)
        for column, amount in zip(self.free, map(sub, self._quota, used), strict=True):
            column.append(max(-_MOST, min(amount, _MOST)))
        if not number % CHECKPOINT:
            self.used.append(tuple(used))
        self.uses.append(use)
        self._sleeps.append(self._asleep.number(asleep))
        self._change_ends.append(len(self._changes[0]))
        for head in served:
            self._add_served(head)
        self._served_ends.append(len(self._served[0]))
        self._tries += len(heads)
        for leaf, rank in heads:
            if leaf not in self._ahead:
                self._ahead[leaf] = array("q"), array("q")
            entries, ranks = self._ahead[leaf]
            entries.append(number)
            ranks.append(self._ranks.number(rank))

    def _add_served(self, head: TriedHead) -> None:
        if head.leaving:
            self._leaving[len(self._served[0])] = head.leaving
        row = (
            head.leaf,
            head.priority,
            head.queued_at,
            self._taken.number(head.taken),
            head.height,
            self._taken.number(head.charged),
            head.starts,
        )
        for column, item in zip(self._served, row, strict=True):
            column.append(item)

    def changes(self, entry: int) -> Iterator[Change]:
        """Yield what was taken and released since the entry before, in order."""
        leaves, takens, signs = self._changes
        for number in _within(self._change_ends, entry):
            yield Change(
                leaves[number],
                self._taken.items[takens[number]],
                signs[number],
                self._holders.get(number),
                self._placed.get(number, ()),
            )

    def served(self, entry: int) -> Iterator[TriedHead]:
        """Yield the heads in the order in which they were served.

        Those that took nothing are among them only where they may decide who comes next.
        """
        leaves, priorities, ages, takens, heights, charges, starts = self._served
        known = self._taken.items
        for number in _within(self._served_ends, entry):
            yield TriedHead(
                leaves[number],
                priorities[number],
                ages[number],
                known[takens[number]],
                heights[number],
                known[charges[number]],
                self._leaving.get(number, ()),
                bool(starts[number]),
            )

    def is_asleep(self, kind: Kind, entry: int) -> bool:
        """Return whether an equal Workload was tried in vain by the end of an entry."""
        return kind in self._asleep.items[self._sleeps[entry]]

    def ahead(self, leaf: int, entry: int) -> Rank | None:
        """Return the rank of a ClusterQueue's head in an entry; None: it has none."""
        entries, ranks = self._ahead.get(leaf, ((), ()))
        place = bisect_left(entries, entry)
        if place == len(entries) or entries[place] != entry:
            return None
        return self._ranks.items[ranks[place]]


def _within(ends: Sequence[int], entry: int) -> range:
    return range(ends[entry - 1] if entry else 0, ends[entry])
