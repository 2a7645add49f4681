"""The profile of a ClusterQueue, from what was recorded of its tree's event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from math import inf
from operator import gt, itemgetter
from typing import TypeAlias

from webhook.kueue.profile import is_later
from webhook.kueue.schedule import Schedule, is_open
from webhook.kueue.start_record import MOST_LEVELS, StartRecord
from webhook.model.forecasts import Profile
from webhook.model.queues import ClusterQueue, FlavorResource, Queueing

_ByPriority: TypeAlias = Mapping[int, tuple[int, ...]]


def profile(
    schedule: Schedule,
    record: StartRecord,
    queue: ClusterQueue,
    *,
    computed_at: float,
    uncertain: tuple[str, ...],
) -> Profile:
    """Return the profile of one ClusterQueue: what a newcomer would find free there over time.

    *record* is that of *schedule*, which was run to its end. *computed_at* is in seconds on the
    clock of ``Snapshot.as_of``; *uncertain* says why starts are uncertain, in the profile's words.
    """
    cells = tuple(cell for group in queue.groups for cell in group.quotas)
    rows = _Rows(schedule, queue, cells)
    last = _last_starts(schedule, queue)
    outranking = record.outranking.of(rows.leaf, rows.owned, has_cohort=rows.has_cohort)
    is_taken_back = any(one.owned is not None for one in outranking)
    of_queue = Profile(
        computed_at=computed_at,
        cells=cells,
        times=(),
        free=(),
        priorities=record.priorities if record.ranks else (),
        outranking=outranking,
        own_starts=record.outranking.own(rows.leaf) if is_taken_back else (),
        spread=(),
        behind=_behind(last) if queue.queueing is Queueing.STRICT else (),
        waits=max(last.values()),
        uncertain=uncertain,
    )
    return _with_steps(of_queue, record, queue, rows)


def for_local_queue(
    of_queue: Profile,
    schedule: Schedule,
    record: StartRecord,
    queue: ClusterQueue,
    local_queue: str,
) -> Profile:
    """Return the profile of a ClusterQueue as newcomers of one of its LocalQueues find it.

    That LocalQueue is served by its use, and has turns of its own (``StartRecord.lines``).
    """
    rows = _Rows(schedule, queue, of_queue.cells, local_queue)
    return replace(_with_steps(of_queue, record, queue, rows), local_queue=local_queue)


def _with_steps(
    of_queue: Profile, record: StartRecord, queue: ClusterQueue, rows: _Rows
) -> Profile:
    """Return a profile with what is free over time."""
    kept, free, preempting = _steps(record, queue, rows)
    after, *at_ranks = zip(*free, strict=True)
    by_level = _by_level(preempting, after)
    is_taken_back = any(one.owned is not None for one in of_queue.outranking)
    return replace(
        of_queue,
        times=tuple(record.times[index] for index in kept),
        free=after,
        ranked=dict(zip(record.ranks, at_ranks, strict=True)),
        preempting=by_level,
        eviction_seconds=record.eviction_seconds if by_level else 0.0,
        owned=tuple(rows.owned(record.used[index]) for index in kept) if is_taken_back else (),
        spread=tuple(record.spread[index] for index in kept),
    )


def _steps(
    record: StartRecord, queue: ClusterQueue, rows: _Rows
) -> tuple[Sequence[int], Sequence[Sequence[tuple[int, ...]]], Sequence[_ByPriority]]:
    """Return the steps of a record that matter to newcomers of a ClusterQueue.

    These are their indices, what is free after the cycles and at the turn of each rank, and what
    can be had by preemption.
    """
    kept: list[int] = []
    free: list[Sequence[tuple[int, ...]]] = []
    preempting: list[_ByPriority] = []
    is_strict = queue.queueing is Queueing.STRICT
    for index in range(len(record.times)):
        is_tried = record.is_tried(index, rows.leaf, is_strict=is_strict)
        if index and not is_tried:
            continue
        at_step = list(map(rows.free, record.tables(index, rows.line)))
        if not is_tried:
            at_step[0] = rows.nothing
        # Nobody preempts either while victims stop for another one of the ClusterQueue.
        obtainable = record.obtainable[index].get(queue.name, {}) if is_tried else {}
        more = rows.more(obtainable, at_step[0])
        # A rank's table holds at the moment of its step alone, so a step at which it has more
        # than is left afterwards is kept, however much it is like the one before.
        is_new = not free or at_step != free[-1] or more != preempting[-1]
        if is_new or any(map(_has_more, at_step[1:], repeat(at_step[0]))):
            kept.append(index)
            free.append(at_step)
            preempting.append(more)
    return kept, free, preempting


def _has_more(row: tuple[int, ...], than: tuple[int, ...]) -> bool:
    """Return whether any cell of *row* has more free than in *than*."""
    return row != than and any(map(gt, row, than))


class _Rows:
    """Free quota of one ClusterQueue by usage, for each of its (flavor, resource) cells.

    CPU is in milli-CPU, all other resources are in whole units.
    """

    def __init__(
        self,
        schedule: Schedule,
        queue: ClusterQueue,
        cells: Sequence[FlavorResource],
        local_queue: str = "",
    ) -> None:
        self._tree, self._is_open = schedule.tree, is_open(queue)
        self.leaf = schedule.tree.leaves[queue.name]
        self.line = self.leaf, local_queue
        self._columns = [schedule.tree.indices[cell] for cell in cells]
        self.nothing = (0,) * len(cells)
        first = self.leaf * schedule.tree.width
        self._places = [first + column for column in self._columns]
        self.has_cohort = schedule.tree.parents[self.leaf] >= 0
        self.free = _picker(self._places) if self._is_open else lambda _: self.nothing
        """From a table of all nodes to what is free; a stopped ClusterQueue has nothing free."""

    def owned(self, used: Sequence[int]) -> tuple[int, ...]:
        """Return what is unused of its own quota."""
        own = self._tree.subtree
        return tuple(max(0, own[place] - used[place]) for place in self._places)

    def more(
        self, obtainable: Mapping[int, Sequence[int]], free: tuple[int, ...]
    ) -> Mapping[int, tuple[int, ...]]:
        """Return, by priority, what can be had by preemption where that is more than is free."""
        if not (self._is_open and obtainable):
            return {}
        more = {
            priority: tuple(map(max, free, (row[column] for column in self._columns)))
            for priority, row in obtainable.items()
        }
        return {priority: row for priority, row in more.items() if row != free}


def _by_level(
    steps: Sequence[Mapping[int, tuple[int, ...]]], free: Sequence[tuple[int, ...]]
) -> Mapping[int, tuple[tuple[int, ...], ...]]:
    """Return, by priority, what can be had at each step where that is more than is free."""
    levels = sorted({level for step in steps for level in step})
    # What is left out counts as what a lower priority could have.
    return {
        level: tuple(step.get(level, row) for step, row in zip(steps, free, strict=True))
        for level in levels[-MOST_LEVELS:]
    }


def _picker(places: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that takes these places out of a table; profiles ask it for each step."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda table: tuple(table[place] for place in places)


def _last_starts(schedule: Schedule, queue: ClusterQueue) -> Mapping[int, float]:
    """Map each priority to when its last pending Workload starts; inf: some never start.

    In seconds since the beginning of the schedule; priority 0 is always among them, and those that
    are expected to come are not.
    """
    last: dict[float, float] = {0: 0.0, **schedule.waits.get(queue.name, {})}
    for heads in schedule.waiting():
        if heads.queue.name == queue.name:
            # Under BestEffortFIFO nobody waits for those that can never fit.
            last |= {
                entry.waiting.priority: inf
                for _, _, entry in heads.entries
                if heads.is_strict or entry.shape.is_possible
            }
    return {int(priority): at for priority, at in last.items() if not is_later(priority)}


def _behind(last: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """Return for each priority when all with at least that priority have started.

    In seconds since the beginning of the schedule, the highest priority first.
    """
    behind: list[tuple[int, float]] = []
    seconds = 0.0
    for priority in sorted(last, reverse=True):
        seconds = max(seconds, last[priority])
        behind.append((priority, seconds))
    return tuple(behind)
