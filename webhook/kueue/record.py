"""The usage of one tree over time, in a bounded number of steps, and the profiles it comes to.

Where steps are put together each cell keeps the most that is used in them, so no start ever looks
earlier than it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from math import inf
from operator import gt

from webhook.kueue.schedule import Schedule, is_open
from webhook.kueue.scheduling_cycle import Turn
from webhook.model.forecasts import Profile, Rank
from webhook.model.queues import ClusterQueue, FlavorResource, Queueing

STEPS = 128
MOST_LEVELS = 5
"""Places among the priorities that wait, for each of which a profile has tables of its own."""
_MAX_EVENTS = 20_000
_STEPS_BEFORE_MERGING = 2 * STEPS
_MORE_THAN_THERE_IS = 1 << 61


class Record:
    """Steps of usage, as a Schedule goes through its events."""

    def __init__(self, schedule: Schedule, newcomers: Collection[int] = ()) -> None:
        """*newcomers*: the priorities that one may have."""
        self._schedule = schedule
        self.priorities = schedule.priorities()
        self.ranks = _ranks(schedule, self.priorities, newcomers)
        schedule.attend([_turn(rank, self.priorities) for rank in self.ranks])
        self.times: list[float] = []
        self.used: list[list[int]] = []
        self.before: list[list[list[int]]] = []
        """For each step and each of *ranks*: what was used when its turn came."""
        self.spread: list[float] = []
        self.is_whole = True
        """False: it was cut short, and nothing is free from there on."""

    def note(self) -> None:
        """Take down what is used from now on, what was at each turn, and what is set aside."""
        used, before = self._schedule.used()
        is_new = any(each is not used for each in before)
        if self.used and used == self.used[-1] and not is_new:
            return
        if self.times and self._schedule.now <= self.times[-1]:
            self.used[-1] = list(map(max, self.used[-1], used))
            self.before[-1] = _least([self.before[-1], before])
            return
        self.times.append(self._schedule.now)
        self.used.append(used)
        self.before.append(before)
        self.spread.append(self._schedule.spread)
        if len(self.times) >= _STEPS_BEFORE_MERGING:
            self.merge()

    def merge(self) -> None:
        """Keep at most STEPS of the steps, those that lie furthest from the ones before them.

        Whose turn comes in any of the steps put together may start there.
        """
        kept = kept_steps(self.times, STEPS)
        parts = list(zip(kept, (*kept[1:], len(self.times)), strict=True))
        self.used = [
            [max(column) for column in zip(*self.used[first:last], strict=True)]
            if last - first > 1
            else self.used[first]
            for first, last in parts
        ]
        self.before = [
            _least(self.before[first:last]) if last - first > 1 else self.before[first]
            for first, last in parts
        ]
        self.spread = [self.spread[index] for index in kept]
        self.times = [self.times[index] for index in kept]

    def close(self) -> None:
        """Let everything be used from now on, where what comes is not known."""
        self.times.append(max(self._schedule.now, self.times[-1]) + 1.0)
        self.used.append([_MORE_THAN_THERE_IS] * len(self.used[-1]))
        self.before.append([self.used[-1]] * len(self.ranks))
        self.spread.append(self.spread[-1])
        self.is_whole = False


def _ranks(
    schedule: Schedule, waiting: Sequence[int], newcomers: Collection[int]
) -> tuple[Rank, ...]:
    """List the ranks that newcomers may have, in order; whoever is last needs none."""
    last = len(waiting)
    levels = sorted({served_before(waiting, each) for each in (*newcomers, *waiting)})
    if len(levels) > MOST_LEVELS:
        levels = levels[: MOST_LEVELS - 1] + levels[-1:]
    shares = any(parent >= 0 for parent in schedule.tree.parents)
    ranks = [(borrows, each) for borrows in (False, True)[: 1 + shares] for each in levels]
    return tuple(rank for rank in ranks if last and rank != (shares, last))


def served_before(waiting: Sequence[int], priority: int) -> int:
    """Count the priorities among *waiting* that are served before a newcomer's."""
    return sum(each >= priority for each in waiting)


def _turn(rank: Rank, waiting: Sequence[int]) -> Turn:
    borrows, served = rank
    return int(borrows), -waiting[served - 1] if served else -inf


def _least(before: Sequence[list[list[int]]]) -> list[list[int]]:
    return [
        rows[0] if all(row is rows[0] for row in rows) else list(map(min, *rows))
        for rows in map(list, zip(*before, strict=True))
    ]


def recorded(schedule: Schedule, newcomers: Collection[int] = ()) -> Record:
    """Run a Schedule to its end; *newcomers*: the priorities that one may have."""
    record = Record(schedule, newcomers)
    schedule.look()
    record.note()
    for _ in range(_MAX_EVENTS):
        if schedule.next_event() == inf:
            record.merge()
            return record
        schedule.step()
        record.note()
    record.merge()
    record.close()
    return record


def kept_steps(times: Sequence[float], steps: int) -> list[int]:
    """Choose which steps begin one of at most *steps*: with equal relative distances at least.

    The first stays. What is left out joins the kept one before it.
    """
    if len(times) <= steps:
        return list(range(len(times)))
    ratio = max(times[-1] / times[1], 1.0) ** (1 / steps) if times[1] > 0 else 1.0
    while True:
        kept = _spaced(times, ratio)
        if len(kept) <= steps:
            return kept
        ratio = 1 + (ratio - 1) * 1.25 if ratio > 1 else 1.001


def _spaced(times: Sequence[float], ratio: float) -> list[int]:
    kept = [0]
    for index in range(1, len(times)):
        if times[index] >= times[kept[-1]] * ratio:
            kept.append(index)
    return kept


def profile(
    schedule: Schedule,
    record: Record,
    queue: ClusterQueue,
    *,
    computed_at: float,
    uncertain: tuple[str, ...],
) -> Profile:
    """Say what a newcomer would find in one ClusterQueue of the tree."""
    cells = tuple(cell for group in queue.groups for cell in group.quotas)
    rows = _Rows(schedule, queue, cells)
    kept: list[int] = []
    free: list[tuple[tuple[int, ...], ...]] = []
    for index, (used, before) in enumerate(zip(record.used, record.before, strict=True)):
        row = rows.free(used)
        found = (
            row,
            *(rows.at(rank, each) for rank, each in zip(record.ranks, before, strict=True)),
        )
        if not free or found != free[-1] or any(map(_has_more, found[1:], repeat(row))):
            kept.append(index)
            free.append(found)
    last = _last_starts(schedule, queue)
    return Profile(
        computed_at=computed_at,
        cells=cells,
        times=tuple(record.times[index] for index in kept),
        free=tuple(each[0] for each in free),
        priorities=record.priorities if record.ranks else (),
        ranked={
            rank: tuple(each[number] for each in free)
            for number, rank in enumerate(record.ranks, start=1)
        },
        spread=tuple(record.spread[index] for index in kept),
        behind=_behind(last) if queue.queueing is Queueing.STRICT else (),
        waits=max(last.values()),
        uncertain=uncertain,
    )


def _has_more(row: tuple[int, ...], than: tuple[int, ...]) -> bool:
    return row is not than and any(map(gt, row, than))


class _Rows:
    """What is free in one ClusterQueue, of each of its cells."""

    def __init__(
        self, schedule: Schedule, queue: ClusterQueue, cells: Sequence[FlavorResource]
    ) -> None:
        self._tree, self._is_open = schedule.tree, is_open(queue)
        self._leaf = schedule.tree.leaves[queue.name]
        self._columns = [schedule.tree.indices[cell] for cell in cells]
        self._has_cohort = schedule.tree.parents[self._leaf] >= 0

    def free(self, used: Sequence[int]) -> tuple[int, ...]:
        if not self._is_open:
            return (0,) * len(self._columns)
        available, leaf = self._tree.available, self._leaf
        return tuple(max(0, available(leaf, column, used)) for column in self._columns)

    def at(self, rank: Rank, used: Sequence[int]) -> tuple[int, ...]:
        """Leave out what would be borrowed, where the turn of those that borrow is later."""
        row = self.free(used)
        if rank[0] or not self._has_cohort:
            return row
        own, first = self._tree.subtree, self._leaf * self._tree.width
        places = (first + column for column in self._columns)
        return tuple(
            min(amount, max(0, own[place] - used[place]))
            for amount, place in zip(row, places, strict=True)
        )


def _last_starts(schedule: Schedule, queue: ClusterQueue) -> Mapping[int, float]:
    """Say when the last of each priority starts; there is one priority at least."""
    last = {0: 0.0} | schedule.waits.get(queue.name, {})
    for line in schedule.waiting():
        if line.queue.name == queue.name:
            last |= {entry.waiting.priority: inf for _, _, entry in line.entries}
    return last


def _behind(last: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """Say when all of at least each priority have started."""
    found: list[tuple[int, float]] = []
    seconds = 0.0
    for priority in sorted(last, reverse=True):
        seconds = max(seconds, last[priority])
        found.append((priority, seconds))
    return tuple(found)
