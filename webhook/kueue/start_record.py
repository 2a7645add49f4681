"""The usage of a cohort tree over time, as its event loop goes: what profiles are made of.

After each scheduling cycle a step is added, with the usage at the turns of all ranks that newcomers
may have. Nothing here knows of ClusterQueues one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import compress
from math import inf
from typing import TypeAlias, TypeVar

from webhook.kueue.newcomer_turns import NewcomerTurns
from webhook.kueue.outranking_starts import OutrankingStarts
from webhook.kueue.profile import is_later, kept_steps, served_before
from webhook.kueue.schedule import Schedule
from webhook.kueue.turns import Line, LineUsage, joined
from webhook.kueue.whole_tree import all_free, all_free_below
from webhook.model.forecasts import Rank

STEPS = 128
MOST_LEVELS = 5
"""Most turns of newcomers that a profile distinguishes by priority, each with tables of its own."""
MAX_EVENTS = 20_000
_MAX_EXACT_EVENTS = 2_000
"""Where each cycle is run: it takes longer, and some Workloads preempt each other for ever,"""
_MAX_EXACT_EVENTS_OF_EACH = 5
"""but so many for each Workload."""
_Tables: TypeAlias = "list[list[int]]"
_STEPS_BEFORE_MERGING = 2 * STEPS
_MORE_THAN_THERE_IS = 1 << 61
_MOST_LOOKUPS = 1_000
"""So often a record asks what a newcomer could have by preemption: for each step, ClusterQueue and
priority. Of two ClusterQueues and three priorities that is more than it has steps."""
_MOST_SEARCHED = 60
"""For so many ClusterQueues and priorities at each step it is also searched for, by shares."""
_OfStep = TypeVar("_OfStep")
_Obtainable: TypeAlias = Mapping[str, Mapping[int, Sequence[int]]]
"""ClusterQueue to priority to amounts of each cell."""


class StartRecord:
    """The usage of a cohort tree over time: one step for each cycle that changed it."""

    def __init__(self, schedule: Schedule, newcomers: Collection[int] = ()) -> None:
        """Record *schedule*; *newcomers* are the priorities that new Jobs may have."""
        self._schedule = schedule
        self.priorities = schedule.priorities()
        self._newcomers = sorted(newcomers)
        self._newcomer_turns = turns = schedule.newcomer_turns()
        self.ranks = _ranks(turns, self.priorities, newcomers)
        behind = [self.priorities[served - 1] if served else inf for _, served in self.ranks]
        heights = (height for height, _ in self.ranks)
        turns.attend(tuple(zip(heights, behind, strict=True)), schedule.asked())
        self.lines = turns.lines
        """As in ``NewcomerTurns``."""
        self._places = {line: place for place, line in enumerate(turns.lines)}
        """Their places in ``LineUsage``."""
        self.times: list[float] = []
        """When each step begins, in seconds since the beginning of the schedule."""
        self.used: list[list[int]] = []
        """For each step the tree's usage, with what is set aside for heads."""
        self._turns: list[LineUsage] = []
        """For each step the usage when each turn came."""
        self._is_settled: list[bool] = []
        """For each step whether all were tried then; else StrictFIFO heads were, and preemptors."""
        self._awaited: list[Collection[int]] = []
        """For each step the ClusterQueues in which nobody is tried but who waits for victims."""
        self.spread: list[float] = []
        """Standard deviation of each of *times*, in seconds."""
        self.lowest: list[Sequence[float]] = []
        """For each step the lowest priority that holds quota, by node; empty: nobody preempts."""
        self.obtainable: list[_Obtainable] = []
        """For each step what a newcomer could have after its cycles, with what it would preempt;
        empty: no more than is free, or it is not known."""
        self.started: Counter[tuple[float, int, float]] = Counter()
        """Seconds, ClusterQueue's node and priority to the number of Workloads that start then, in
        a tree in which Kueue may preempt."""
        self._preemptors = schedule.preemptors if schedule.preempts else ()
        self._lookups = _MOST_LOOKUPS
        self.is_whole = True
        """False: it was cut short after too many events, and nothing is free from there on."""

    @cached_property
    def outranking(self) -> OutrankingStarts:
        """Return the starts in a finished record that may preempt newcomers."""
        return OutrankingStarts(
            self._schedule.preemption_policies,
            self.started,
            times=self.times,
            used=self.used,
            lowest=self.lowest,
        )

    @property
    def eviction_seconds(self) -> float:
        """How long those take to stop that are preempted."""
        return self._schedule.eviction.seconds

    @cached_property
    def _free(self) -> Sequence[Sequence[_Tables]]:
        """What ``tables`` returns of a finished record, for each step and kind of lines."""
        return [self._free_at(*step) for step in zip(self.used, self._turns, strict=True)]

    def _free_at(self, used: list[int], turns: LineUsage) -> list[_Tables]:
        tree = self._schedule.tree
        # By shares, all who borrow are of one height.
        top = 1 if self._newcomer_turns.by_shares else tree.heights[0]
        # Many turns come at one usage.
        free: dict[int, list[int]] = {id(used): all_free(tree, used)}
        at_rank: dict[tuple[int, int], list[int]] = {}
        found: list[_Tables] = []
        for row in turns.rows:
            tables = [free[id(used)]]
            for (height, _), usage in zip(self.ranks, row, strict=True):
                if id(usage) not in free:
                    free[id(usage)] = all_free(tree, usage)
                # Kueue admits heads first that borrow from lower down, so each height has ranks.
                if height >= top:
                    tables.append(free[id(usage)])
                    continue
                key = height, id(usage)
                if key not in at_rank:
                    below = all_free_below(tree, height, usage)
                    at_rank[key] = list(map(min, free[id(usage)], below))
                tables.append(at_rank[key])
            found.append(tables)
        return found

    def note(self) -> None:
        """Add a step for the last cycle, if it changed the usage or admitted anything."""
        if self._schedule.preempts:
            for group in self._schedule.started:
                place = self._schedule.now, group.heads.leaf, group.entry.waiting.priority
                self.started[place] += group.count
        used, turns = self._newcomer_turns.used()
        self._add_step(used, turns, is_settled=self._schedule.is_settled)

    def is_tried(self, step: int, leaf: int, *, is_strict: bool) -> bool:
        """Return whether newcomers of a ClusterQueue are tried at a step."""
        # They are tried at once and then with the others, in Kueue's next requeue batch: what is
        # free until then, they do not get, unless they need not wait for the batch.
        return (is_strict or self._is_settled[step]) and leaf not in self._awaited[step]

    def tables(self, step: int, line: Line) -> _Tables:
        """Return what all nodes have free at a step for newcomers of one line.

        The first table is that after the step's cycles; behind it come those at the turn of each
        rank: what they borrow from its height, or below. As ``whole_tree`` has them; what is free
        is at least 0.
        """
        return self._free[step][self._turns[step].kinds[self._places.get(line, line[0])]]

    def _add_step(self, used: list[int], turns: LineUsage, *, is_settled: bool) -> None:
        # A turn after which something was admitted is kept even where the usage is the same
        # again: at that moment a newcomer of its rank would have found room.
        is_new = any(usage is not used for row in turns.rows for usage in row)
        if not is_new and self.used and used == self.used[-1] and self._is_like_last(is_settled):
            return
        # Two cycles at one time are one step: what both leave free is free, and a turn may come
        # in either of them.
        if self.times and self._schedule.now <= self.times[-1]:
            self.used[-1] = list(map(max, self.used[-1], used))
            both = [self._is_settled[-1], is_settled]
            self._turns[-1] = joined(_tried([self._turns[-1], turns], both))
            now = self._obtainable_now()
            # What can be had while victims stop is known only once they have gone.
            self.obtainable[-1] = _tried([self.obtainable[-1], now], both)[-1] or now
            self._is_settled[-1] |= is_settled
            self._awaited[-1] = set(self._awaited[-1]).intersection(self._schedule.awaited())
            self.lowest[-1] = list(map(max, self.lowest[-1], self._schedule.lowest()))
            return
        self.times.append(self._schedule.now)
        self.used.append(used)
        self._turns.append(turns)
        self._is_settled.append(is_settled)
        self._awaited.append(self._schedule.awaited())
        self.spread.append(self._schedule.spread)
        self.lowest.append(self._schedule.lowest())
        self.obtainable.append(self._obtainable_now())
        if len(self.times) >= _STEPS_BEFORE_MERGING:
            self.merge()

    def _obtainable_now(self) -> _Obtainable:
        cost = len(self._preemptors) * len(self._newcomers)
        # The first step is known of any tree: a newcomer preempts at once more often than later.
        is_too_much = self._lookups < min(cost, _MOST_LOOKUPS)
        # Whom those who wait preempt, nobody else can.
        if self._schedule.evicts or is_too_much:
            return {}
        self._lookups -= cost
        by_search = cost <= _MOST_SEARCHED
        return {
            name: {
                level: self._schedule.obtainable(name, level, by_search=by_search)
                for level in self._newcomers
            }
            for name in self._preemptors
        }

    def _is_like_last(self, is_settled: bool) -> bool:  # noqa: FBT001
        """Return whether at least those are tried in the last step that are tried now."""
        if is_settled and not self._is_settled[-1]:
            return False
        awaited = self._awaited[-1]
        return not awaited or set(awaited) <= set(self._schedule.awaited())

    def merge(self) -> None:
        """Keep at most STEPS of the steps, and join each of the others to the one before it.

        After a cycle, what is free in all joined steps counts as free. At the turn of a rank, the
        most that is free in any of them does, because the turn may come in any of them; so does the
        most that a newcomer could have by preemption.
        """
        kept = kept_steps(self.times, STEPS)
        parts = list(zip(kept, (*kept[1:], len(self.times)), strict=True))
        self.used = [
            [max(column) for column in zip(*self.used[first:last], strict=True)]
            if last - first > 1
            else self.used[first]
            for first, last in parts
        ]
        self._turns = [
            joined(_tried(self._turns[first:last], self._is_settled[first:last]))
            if last - first > 1
            else self._turns[first]
            for first, last in parts
        ]
        self.obtainable = [
            _most(_tried(self.obtainable[first:last], self._is_settled[first:last]))
            for first, last in parts
        ]
        self._is_settled = [any(self._is_settled[first:last]) for first, last in parts]
        self._awaited = [
            set(self._awaited[first]).intersection(*self._awaited[first:last])
            for first, last in parts
        ]
        self.lowest = [
            list(map(max, *self.lowest[first:last])) if last - first > 1 else self.lowest[first]
            for first, last in parts
        ]
        self.spread = [self.spread[index] for index in kept]
        self.times = [self.times[index] for index in kept]

    def close(self) -> None:
        """End the record with a step in which nothing is free, because the rest is not known."""
        self.times.append(max(self._schedule.now, self.times[-1]) + 1.0)
        self.used.append([_MORE_THAN_THERE_IS] * len(self.used[-1]))
        nothing = [self.used[-1]] * len(self.ranks)
        kinds = [0] * len(self._turns[-1].kinds)
        self._turns.append(LineUsage(rows=[nothing], kinds=kinds))
        self._is_settled.append(True)
        self._awaited.append(())
        self.spread.append(self.spread[-1])
        self.lowest.append(self.lowest[-1])
        self.obtainable.append({})
        self.is_whole = False


def _ranks(
    turns: NewcomerTurns, waiting: Sequence[float], newcomers: Collection[int]
) -> tuple[Rank, ...]:
    """Return the ranks that newcomers may have, in the order of their turns.

    The rank after all pending Workloads of the only ClusterQueue is left out, unless use decides
    who comes first there: it finds the usage after the cycle.
    """
    last = len(waiting)
    there = [priority for priority in waiting if not is_later(priority)]
    levels = sorted({served_before(waiting, priority) for priority in (*newcomers, *there)})
    # Each rank costs a table in the profile, which goes over the pipe to the server.
    if len(levels) > MOST_LEVELS:
        levels = levels[: MOST_LEVELS - 1] + levels[-1:]
    # Where shares decide, it only matters whether somebody borrows at all.
    heights = (0, 1) if turns.by_shares else sorted(set(turns.tree.heights))
    ranks = [(height, served) for height in heights for served in levels]
    has_last = len(turns.tree.leaves) > 1 or bool(turns.lines)
    after_all = heights[-1], last
    return tuple(rank for rank in ranks if last and (has_last or rank != after_all))


def _tried(steps: Sequence[_OfStep], are_settled: Sequence[bool]) -> Sequence[_OfStep]:
    """Return what is known of the steps in which newcomers are tried, or of all if in none."""
    return list(compress(steps, are_settled)) or steps


def _most(steps: Sequence[_Obtainable]) -> _Obtainable:
    """Return the most that a newcomer could have in any of several steps, cell by cell."""
    first, *others = [step for step in steps if step] or [{}]
    return {
        name: {
            level: list(map(max, row, *(step[name][level] for step in others))) if others else row
            for level, row in rows.items()
        }
        for name, rows in first.items()
    }


def recorded(
    schedule: Schedule, newcomers: Collection[int] = (), *, most_tries: float = inf
) -> StartRecord:
    """Run a Schedule to its end, and record its usage.

    *newcomers* are the priorities that new Jobs may have. The record is of no use if more than
    *most_tries* heads are tried: then it ends at once.
    """
    record = StartRecord(schedule, newcomers)
    schedule.start_what_fits()
    record.note()
    # The bound keeps one tree's forecast from taking all the CPU that forecasts may have.
    for _ in range(_most_events(schedule)):
        if not schedule.step():
            record.merge()
            return record
        if schedule.tries > most_tries:
            return record
        record.note()
    record.merge()
    record.close()
    return record


def _most_events(schedule: Schedule) -> int:
    if not schedule.is_exact:
        return MAX_EVENTS
    waiting = sum(entry.count for heads in schedule.waiting() for _, _, entry in heads.entries)
    return max(_MAX_EXACT_EVENTS, _MAX_EXACT_EVENTS_OF_EACH * (schedule.running + waiting))
