"""The usage of one tree over time, in a bounded number of steps, and the profiles it comes to.

Where steps are put together each cell keeps the most that is used in them, so no start ever looks
earlier than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from webhook.decide.schedule import Schedule, is_open
from webhook.model.forecasts import Profile
from webhook.model.queues import ClusterQueue, Queueing

STEPS = 128
_MAX_EVENTS = 20_000
_STEPS_BEFORE_MERGING = 2 * STEPS
_MORE_THAN_THERE_IS = 1 << 61


class Record:
    """Steps of usage, as a Schedule goes through its events."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.times: list[float] = []
        self.used: list[list[int]] = []
        self.spread: list[float] = []
        self.is_whole = True
        """False: it was cut short, and nothing is free from there on."""

    def note(self) -> None:
        """Take down what is used from now on, and what is set aside."""
        schedule = self._schedule
        used = _with_set_aside(schedule)
        if self.used and used == self.used[-1]:
            return
        if self.times and schedule.now <= self.times[-1]:
            self.used[-1] = list(map(max, self.used[-1], used))
            return
        self.times.append(schedule.now)
        self.used.append(used)
        self.spread.append(schedule.spread)
        if len(self.times) >= _STEPS_BEFORE_MERGING:
            self.merge()

    def merge(self) -> None:
        """Keep at most STEPS of the steps, those that lie furthest from the ones before them."""
        kept = kept_steps(self.times, STEPS)
        self.used = [
            [max(column) for column in zip(*self.used[first:last], strict=True)]
            if last - first > 1
            else self.used[first]
            for first, last in zip(kept, (*kept[1:], len(self.times)), strict=True)
        ]
        self.spread = [self.spread[index] for index in kept]
        self.times = [self.times[index] for index in kept]

    def close(self) -> None:
        """Let everything be used from now on, where what comes is not known."""
        self.times.append(max(self._schedule.now, self.times[-1]) + 1.0)
        self.used.append([_MORE_THAN_THERE_IS] * len(self.used[-1]))
        self.spread.append(self.spread[-1])
        self.is_whole = False


def recorded(schedule: Schedule) -> Record:
    """Run a Schedule to its end."""
    record = Record(schedule)
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


def _with_set_aside(schedule: Schedule) -> list[int]:
    tree = schedule.tree
    if not schedule.kept:
        return list(tree.used)
    for leaf, aside in schedule.kept:
        tree.charge(leaf, aside)
    used = list(tree.used)
    for leaf, aside in schedule.kept:
        tree.charge(leaf, aside, -1)
    return used


def profile(
    schedule: Schedule,
    record: Record,
    queue: ClusterQueue,
    *,
    computed_at: float,
    uncertain: tuple[str, ...],
) -> Profile:
    """Say what a newcomer would find in one ClusterQueue of the tree."""
    tree = schedule.tree
    cells = tuple(cell for group in queue.groups for cell in group.quotas)
    leaf = tree.leaves[queue.name]
    columns = [tree.indices[cell] for cell in cells]
    times: list[float] = []
    free: list[tuple[int, ...]] = []
    spread: list[float] = []
    is_there = is_open(queue)
    for at, used, sigma in zip(record.times, record.used, record.spread, strict=True):
        row = tuple(
            max(0, tree.available(leaf, column, used)) if is_there else 0 for column in columns
        )
        if not free or row != free[-1]:
            times.append(at)
            free.append(row)
            spread.append(sigma)
    last = _last_starts(schedule, queue)
    return Profile(
        computed_at=computed_at,
        cells=cells,
        times=tuple(times),
        free=tuple(free),
        spread=tuple(spread),
        behind=_behind(last) if queue.queueing is Queueing.STRICT else (),
        waits=max(last.values()),
        uncertain=uncertain,
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
