"""Profiles with placements added: what is free once Jobs run that the profile does not contain.

Each takes a few microseconds a step, because a review waits for it. When a Job starts is not
decided here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from webhook.kueue.profile import Table, kept_steps, served_before
from webhook.model.forecasts import Profile
from webhook.model.queues import Amounts

MAX_STEPS = 256
"""Most steps of a profile with placements; with more, some are joined to the one before."""
_STEPS_LEFT = 192
"""Steps that are left then, so that the next few placements need not join any."""


def with_placement(
    profile: Profile,
    usage: Amounts,
    start_seconds: float,
    run_seconds: float,
    *,
    spread: float = 0.0,
    priority: int = 0,
) -> Profile:
    """Return the profile with *usage* taken for *run_seconds* from *start_seconds* on.

    *start_seconds* counts from ``computed_at``; *spread* is the standard deviation of the time at
    which the run ends, in seconds. Under StrictFIFO, Jobs that come later with no higher priority
    start no earlier than this one.
    """
    taken = tuple(usage.get(cell, 0) for cell in profile.cells)
    end = start_seconds + run_seconds
    updated = profile
    if any(taken) and start_seconds < inf:
        cut = _cut(_cut(profile, start_seconds, 0.0), end, spread)
        updated = _shortened(_less(cut, taken, start_seconds, end, priority=priority))
    if profile.behind:
        updated = replace(updated, behind=_with_behind(profile.behind, priority, start_seconds))
    return updated


def _less(
    profile: Profile, taken: Sequence[int], start: float, end: float, *, priority: int
) -> Profile:
    """Return the profile with an amount of each cell taken between two of its steps."""
    during = [start <= at < end for at in profile.times]
    until_end = [at < end for at in profile.times]
    served = served_before(profile.priorities, priority)
    index = bisect_right(profile.times, start) - 1
    at_start = [at == start for at in profile.times]
    after_start = [start < at < end for at in profile.times]

    def at_turn(served_first: int, table: Table) -> Table:
        # Who comes after that turn and would have started with the placement holds nothing later
        # on: what it would have had is gone for that turn at this moment, and not after it.
        others = [max(0, n - m) for n, m in zip(table[index], profile.free[index], strict=True)]
        left = [max(0, n - other) for n, other in zip(taken, others, strict=True)]
        # A turn that comes before the placement's still finds the quota free in this step.
        if served_first >= served:
            table = _lessened(table, taken, at_start)
        return _lessened(table, left, after_start)

    return replace(
        profile,
        free=_lessened(profile.free, taken, during),
        ranked={rank: at_turn(rank[1], table) for rank, table in profile.ranked.items()},
        # Who outranks the placement may preempt it as well; others get no victims before it does.
        preempting={
            level: _lessened(table, taken, until_end) if level <= priority else table
            for level, table in profile.preempting.items()
        },
        # It may be one of another ClusterQueue, but then less is certain, not more.
        owned=_lessened(profile.owned, taken, during) if profile.owned else (),
    )


def _lessened(table: Table, taken: Sequence[int], is_taken: Sequence[bool]) -> Table:
    """Take an amount of each cell from some of the rows."""
    return tuple(
        tuple(max(0, n - amount) for n, amount in zip(row, taken, strict=True)) if is_less else row
        for row, is_less in zip(table, is_taken, strict=True)
    )


def _cut(profile: Profile, at: float, spread: float) -> Profile:
    """Return the profile with a step that begins at *at*, in seconds since it was computed."""
    index = bisect_right(profile.times, at)
    if index == 0 or profile.times[index - 1] == at:
        return profile
    return replace(
        profile,
        times=(*profile.times[:index], at, *profile.times[index:]),
        free=_with_row(profile.free, index, profile.free[index - 1]),
        ranked={
            # No cycle runs at this time, so no turn comes: all find what is free after the last.
            rank: _with_row(table, index, profile.free[index - 1])
            for rank, table in profile.ranked.items()
        },
        preempting={
            level: _with_row(table, index, table[index - 1])
            for level, table in profile.preempting.items()
        },
        owned=_with_row(profile.owned, index, profile.owned[index - 1]) if profile.owned else (),
        spread=(
            *profile.spread[:index],
            max(spread, profile.spread[index - 1]),
            *profile.spread[index:],
        ),
    )


def _with_row(table: Table, index: int, row: tuple[int, ...]) -> Table:
    return (*table[:index], row, *table[index:])


def _shortened(profile: Profile) -> Profile:
    """Return the profile with fewer steps, if it has more than MAX_STEPS."""
    times = profile.times
    if len(times) <= MAX_STEPS:
        return profile
    kept = kept_steps(times, _STEPS_LEFT)
    # Quota counts as free only where it is in all joined steps; a turn may come in any of them.
    return replace(
        profile,
        times=tuple(times[index] for index in kept),
        free=_put_together(profile.free, kept, min),
        ranked={rank: _put_together(table, kept, max) for rank, table in profile.ranked.items()},
        preempting={
            level: _put_together(table, kept, min) for level, table in profile.preempting.items()
        },
        owned=_put_together(profile.owned, kept, min) if profile.owned else (),
        spread=tuple(profile.spread[index] for index in kept),
    )


def _put_together(table: Table, kept: Sequence[int], choose: Callable[..., int]) -> Table:
    """Join the rows from each kept one up to the next, cell by cell."""
    ends = (*kept[1:], len(table))
    return tuple(
        tuple(map(choose, *table[first:end])) if end - first > 1 else table[first]
        for first, end in zip(kept, ends, strict=True)
    )


def _with_behind(
    behind: tuple[tuple[int, float], ...], priority: int, at: float
) -> tuple[tuple[int, float], ...]:
    """Return *behind* with a Workload added that waits until *at*.

    The highest priority is first, and the seconds never fall.
    """
    levels = dict(behind)
    levels[priority] = max(at, levels.get(priority, 0.0))
    updated: list[tuple[int, float]] = []
    latest = 0.0
    for level in sorted(levels, reverse=True):
        latest = max(latest, levels[level])
        updated.append((level, latest))
    return tuple(updated)
