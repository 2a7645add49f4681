"""Looking a Job's start up in a profile, and adding to a profile what was placed since.

A few microseconds each: a profile has little more than a hundred steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from webhook.kueue.flavor_plan import Demand, FlavorChoice
from webhook.model.forecasts import Profile, Start
from webhook.model.queues import Amounts, FlavorResource

MAX_STEPS = 256
"""With placements added; of more, some are put together, so that no start looks earlier,"""
_STEPS_LEFT = 192
"""and so many are left."""
_SIGMAS = 1.2816
"""Either side of the mean lie 40 % of a normal distribution."""
_WIDER = 1.5
"""What each reason for uncertainty does to a range,"""
_LEAST_PART = 0.25
"""which then is at least so much of the wait, either way."""
PRIORITIES = "priorities"
"""Why it is not known who is served next: more ranks wait than a profile tells apart."""
_Table: TypeAlias = tuple[tuple[int, ...], ...]
"""Step after step, what is free of each cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """A start, and what the Job would use from then on. Both empty where it never starts."""

    start: Start
    flavors: tuple[str, ...] = ()
    """One for each part of the demand."""
    usage: Amounts

    @property
    def names(self) -> str:
        """Name the flavors as ``model.forecasts.Estimates`` does."""
        return ",".join(sorted(set(self.flavors)))


def start_of(
    profile: Profile, demand: Demand, *, priority: int = 0, elapsed: float = 0.0
) -> FoundStart:
    """Find when a newcomer would start; *elapsed* seconds after the profile was computed.

    Seconds of the answer count from that moment. Of those who wait only they are served before it
    that have at least its priority, and none that borrow as long as it need not. It comes when
    all have been served whose turn it was, and waits for the next turn that leaves it room.
    """
    columns = {cell: index for index, cell in enumerate(profile.cells)}
    for index, at, tables in _turns(profile, priority, elapsed) if demand.is_possible else ():
        found = (_flavors_at(table[index], columns, demand) for table in tables)
        chosen = next((each for each in found if each is not None), None)
        if chosen is not None:
            start = _start(profile, at - elapsed, _spread(profile, index, at))
            return _found(_with_doubts(start, profile, demand, priority), chosen)
    never = Start(seconds=inf, low=inf, high=inf, uncertain=profile.uncertain)
    return FoundStart(start=_with_doubts(never, profile, demand, priority), usage={})


def with_placement(
    profile: Profile,
    usage: Amounts,
    start_seconds: float,
    run_seconds: float,
    *,
    spread: float = 0.0,
    priority: int = 0,
) -> Profile:
    """Take *usage* from what is free for *run_seconds* from *start_seconds* on.

    Both count from ``computed_at``; *spread* is one sigma of the moment at which the run ends.
    Who comes later under StrictFIFO, with no higher priority, starts no earlier than this one.
    """
    taken = tuple(usage.get(cell, 0) for cell in profile.cells)
    end = start_seconds + run_seconds
    found = profile
    if any(taken) and start_seconds < inf:
        cut = _cut(_cut(profile, start_seconds, 0.0), end, spread)
        served = served_before(profile.priorities, priority)

        def less(table: _Table, *, comes_before: bool) -> _Table:
            """Whose turn comes before finds its place free when it would start, and not after."""
            return tuple(
                tuple(max(0, n - each) for n, each in zip(row, taken, strict=True))
                if (start_seconds < at if comes_before else start_seconds <= at) and at < end
                else row
                for at, row in zip(cut.times, table, strict=True)
            )

        ranked = {
            rank: less(table, comes_before=rank[1] < served) for rank, table in cut.ranked.items()
        }
        free = less(cut.free, comes_before=False)
        found = _shortened(replace(cut, free=free, ranked=ranked))
    if profile.behind:
        found = replace(found, behind=_with_behind(profile.behind, priority, start_seconds))
    return found


def _turns(
    profile: Profile, priority: int, elapsed: float
) -> Iterator[tuple[int, float, Sequence[_Table]]]:
    """List the moments at which a newcomer may start: step, seconds, and what is free to it."""
    behind = max((at for each, at in profile.behind if each >= priority), default=0.0)
    earliest = max(elapsed, behind)
    if earliest == inf:
        return
    first = bisect_right(profile.times, earliest) - 1
    tables = _tables(profile, priority)
    for index in range(first, len(profile.times)):
        # Whoever is ahead of it has been served by then.
        at = max(earliest, profile.times[index])
        yield index, at, (profile.free,) if index == first else tables


def _tables(profile: Profile, priority: int) -> Sequence[_Table]:
    """List what is free when its turn comes, without borrowing and with it."""
    served = served_before(profile.priorities, priority)
    found = [profile.ranked.get((borrows, served)) for borrows in (False, True)]
    if found[0] is not None and found[1] is None:
        found[1] = profile.free if served == len(profile.priorities) else None
    return [each for each in found if each is not None] or [profile.free]


def _with_doubts(start: Start, profile: Profile, demand: Demand, priority: int) -> Start:
    """Say what is not known of a start that is to come: who is served before, how long they run."""
    if start.seconds == 0.0:
        return start
    cells = demand.cells
    unseen = sum(
        each.count
        for each in profile.unseen
        if not cells.isdisjoint(each.cells) and (each.priority is None or each.priority >= priority)
    )
    is_ordered = profile.unordered or _is_ranked(profile, priority)
    return replace(
        start,
        unseen=unseen,
        unordered=profile.unordered if is_ordered else PRIORITIES,
        is_next=bool(profile.priorities) and priority > profile.priorities[0],
    )


def _is_ranked(profile: Profile, priority: int) -> bool:
    """Tell whether the profile tells apart who comes with this priority.

    Who is before others in a StrictFIFO queue would keep them waiting that the profile lets pass.
    """
    served, waiting = served_before(profile.priorities, priority), len(profile.priorities)
    overtakes = any(each < priority for each, _ in profile.behind)
    return not overtakes and (served == waiting or (False, served) in profile.ranked)


def _flavors_at(
    free: tuple[int, ...], columns: Mapping[FlavorResource, int], demand: Demand
) -> tuple[FlavorChoice, ...] | None:
    """Choose flavors in Kueue's order; later parts see what earlier ones take."""
    taken: dict[FlavorResource, int] = {}
    chosen: list[FlavorChoice] = []
    for choices in demand.parts:
        for choice in choices:
            if all(
                amount + taken.get(cell, 0) <= (free[columns[cell]] if cell in columns else 0)
                for cell, amount in choice.usage
                if amount
            ):
                break
        else:
            return None
        chosen.append(choice)
        for cell, amount in choice.usage:
            taken[cell] = taken.get(cell, 0) + amount
    return tuple(chosen)


def _found(start: Start, chosen: tuple[FlavorChoice, ...]) -> FoundStart:
    usage: dict[FlavorResource, int] = {}
    for choice in chosen:
        for cell, amount in choice.usage:
            usage[cell] = usage.get(cell, 0) + amount
    return FoundStart(start=start, flavors=tuple(choice.flavor for choice in chosen), usage=usage)


def _spread(profile: Profile, index: int, at: float) -> float:
    """Return the spread of the step that *at* falls into, or of the step it waits for."""
    return profile.spread[index] if at > 0.0 else 0.0


def _start(profile: Profile, seconds: float, spread: float) -> Start:
    least = _LEAST_PART * seconds if profile.uncertain else 0.0
    width = max(_SIGMAS * spread, least) * _WIDER ** len(profile.uncertain)
    return Start(
        seconds=seconds,
        low=max(0.0, seconds - width),
        high=seconds + width,
        uncertain=profile.uncertain,
    )


def _cut(profile: Profile, at: float, spread: float) -> Profile:
    """Let a step begin at a given moment."""
    index = bisect_right(profile.times, at)
    if index == 0 or profile.times[index - 1] == at:
        return profile
    return replace(
        profile,
        times=(*profile.times[:index], at, *profile.times[index:]),
        free=_with_row(profile.free, index, profile.free[index - 1]),
        ranked={
            # Nobody's turn comes at this moment.
            rank: _with_row(table, index, profile.free[index - 1])
            for rank, table in profile.ranked.items()
        },
        spread=(
            *profile.spread[:index],
            max(spread, profile.spread[index - 1]),
            *profile.spread[index:],
        ),
    )


def _with_row(table: _Table, index: int, row: tuple[int, ...]) -> _Table:
    return (*table[:index], row, *table[index:])


def _shortened(profile: Profile) -> Profile:
    """Where there are too many steps, keep a part of them, so that the next few are no work."""
    times = profile.times
    if len(times) <= MAX_STEPS:
        return profile
    kept = kept_steps(times, _STEPS_LEFT)
    return replace(
        profile,
        times=tuple(times[index] for index in kept),
        free=_put_together(profile.free, kept, min),
        ranked={rank: _put_together(each, kept, max) for rank, each in profile.ranked.items()},
        spread=tuple(profile.spread[index] for index in kept),
    )


def _put_together(table: _Table, kept: Sequence[int], choose: Callable[..., int]) -> _Table:
    """Put the rows between two kept ones together, cell by cell."""
    ends = (*kept[1:], len(table))
    return tuple(
        tuple(map(choose, *table[first:end])) if end - first > 1 else table[first]
        for first, end in zip(kept, ends, strict=True)
    )


def _with_behind(
    behind: tuple[tuple[int, float], ...], priority: int, at: float
) -> tuple[tuple[int, float], ...]:
    """Add one who waits until *at*; the highest priority first, seconds never falling."""
    levels = dict(behind)
    levels[priority] = max(at, levels.get(priority, 0.0))
    found: list[tuple[int, float]] = []
    latest = 0.0
    for level in sorted(levels, reverse=True):
        latest = max(latest, levels[level])
        found.append((level, latest))
    return tuple(found)


def served_before(waiting: Sequence[int], priority: int) -> int:
    """Count the priorities among *waiting* that are served before a newcomer's."""
    return sum(each >= priority for each in waiting)


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
