"""When a new Job would start, by the profile of a ClusterQueue.

A lookup takes microseconds, because a review has a millisecond and a profile some hundred steps.
What runs and what is pending is not known here: the profile already contains it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, sqrt
from typing import TypeAlias

from webhook.kueue.flavor_plan import Demand, FlavorChoice
from webhook.model.forecasts import SIGMAS_OF_A_SIDE, Profile, Start
from webhook.model.queues import Amounts, FlavorResource

_WIDER = 1.5
"""Factor by which each reason for uncertainty widens a range."""
_LEAST_PART = 0.25
"""Least half-width of an uncertain range, as a part of the wait."""
_LEAST_DELAY = 0.05
"""Part of a wait by which those who come later must prolong it: event loops that differ anywhere
differ by a little everywhere."""
PREEMPTION = "preemption"
"""A reason why a start is uncertain: those who are still to come may preempt the Job."""
ARRIVALS = "arrivals"
"""A reason why a start is uncertain: others that are expected to come may come first."""
PRIORITIES = "priorities"
"""A reason why the order is not known: the profile does not tell this priority's turn apart."""
LATER = 0.5
"""How much lower those rank that are expected to come: behind newcomers of the same priority,
before all lower ones, as priorities are whole numbers."""
Table: TypeAlias = tuple[tuple[int, ...], ...]
"""For each step what is free of each cell: milli-CPU, or whole units of other resources."""
_Needed: TypeAlias = Sequence[tuple[int, int]]
"""Index of a cell in a table's rows, and how much of it is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """A Job's expected start, and the flavors and quota it would get (empty: it never starts)."""

    start: Start
    flavors: tuple[str, ...] = ()
    """One for each part of the demand."""
    usage: Amounts
    is_own: bool = False
    """It certainly needs no quota but its ClusterQueue's own."""

    @property
    def names(self) -> str:
        """The flavors as ``model.forecasts.Estimates`` names them, joined by commas."""
        return ",".join(sorted(set(self.flavors)))


def start_of(
    profile: Profile, demand: Demand, *, priority: int = 0, elapsed: float = 0.0
) -> FoundStart:
    """Return the expected start of a Job that comes *elapsed* seconds after the profile was made.

    The start is in seconds from then on; inf: it never starts. Pending Workloads of at least its
    priority are admitted before it, except those that would borrow while the Job need not; others
    that are expected to come may be, too.
    """
    found = start_among_pending(profile, demand, priority=priority, elapsed=elapsed)
    if profile.later is None or found.start.seconds in (0.0, inf):
        return found
    # Under StrictFIFO nobody overtakes those of his own priority, however wide they are.
    if profile.behind and not _is_outranked_later(profile.later, priority):
        return found
    later = start_among_pending(profile.later, demand, priority=priority, elapsed=elapsed)
    rate = profile.expected_per_second
    return replace(found, start=overtaken(found.start, later.start, rate))


def _is_outranked_later(later: Profile, priority: int) -> bool:
    """Return whether any of those that are expected to come are of a higher priority."""
    return any(is_later(level) and level > priority for level in later.priorities)


def overtaken(start: Start, later: Start, per_second: float) -> Start:
    """Return a start before which others may come that are not there yet.

    *later* is the start if they come as often as they have, *per_second*.
    """
    delay = later.seconds - start.seconds
    if not _LEAST_DELAY * start.seconds < delay < inf:
        return start
    # The number of those that come within a time varies as the root of its mean.
    off = SIGMAS_OF_A_SIDE * delay / sqrt(max(1.0, per_second * later.seconds))
    is_large = later.seconds > start.high
    return replace(
        start,
        seconds=later.seconds if is_large else start.seconds,
        high=max(start.high, later.high, later.seconds + off),
        uncertain=(*start.uncertain, ARRIVALS),
    )


def start_among_pending(
    profile: Profile, demand: Demand, *, priority: int = 0, elapsed: float = 0.0
) -> FoundStart:
    """Return the start as ``start_of`` does, if no other Job came any more."""
    profile = _as_sure_as(profile, priority)
    found = _by_waiting(profile, demand, priority, elapsed)
    if profile.preempting and found.start.seconds > profile.eviction_seconds:
        sooner = _by_preempting(profile, demand, priority, elapsed)
        if sooner is not None and sooner.start.seconds < found.start.seconds:
            return sooner
    return found


def pending_start(profile: Profile, seconds: float, spread: float, *, priority: int) -> Start:
    """Return the start of a Workload that is pending already, with its range.

    *seconds*: when the event loop that the profile comes from lets it start; inf: it never does.
    *spread*: the standard deviation of that.
    """
    profile = _as_sure_as(profile, priority)
    if seconds == inf:
        return Start(seconds=inf, low=inf, high=inf, uncertain=profile.uncertain)
    return _start(profile, seconds, spread)


def _as_sure_as(profile: Profile, priority: int) -> Profile:
    """Return the profile without doubts that a Job of this priority need not have."""
    if profile.outranked_below is None or priority < profile.outranked_below:
        return profile
    # Nobody can preempt it.
    certain = tuple(reason for reason in profile.uncertain if reason != PREEMPTION)
    return replace(profile, uncertain=certain)


def _by_waiting(profile: Profile, demand: Demand, priority: int, elapsed: float) -> FoundStart:
    # In a cycle its turn comes after all pending heads of its rank (decision 0023), and it waits
    # for the first cycle in which it finds room at its turn.
    columns = {cell: index for index, cell in enumerate(profile.cells)}
    only = _only(demand, columns)
    for index, at, tables in _turns(profile, priority, elapsed, only) if demand.is_possible else ():
        tries = (_flavors_at(table[index], columns, demand) for table in tables)
        chosen = next((flavors for flavors in tries if flavors is not None), None)
        if chosen is not None:
            start = _start(profile, at - elapsed, _spread(profile, index, at))
            start = _with_doubts(start, profile, demand, priority)
            return _found(start, chosen, _own_rows(profile, index, tables), columns)
    never = Start(seconds=inf, low=inf, high=inf, uncertain=profile.uncertain)
    return FoundStart(start=_with_doubts(never, profile, demand, priority), usage={})


def _by_preempting(
    profile: Profile, demand: Demand, priority: int, elapsed: float
) -> FoundStart | None:
    """Return the start of a Job that preempts others; None: it would not, or cannot."""
    levels = [level for level in profile.preempting if level <= priority]
    earliest = max(elapsed, _behind(profile, priority))
    if not levels or earliest == inf or not demand.is_possible:
        return None
    columns = {cell: index for index, cell in enumerate(profile.cells)}
    table, only = profile.preempting[max(levels)], _only(demand, columns)
    steps = range(bisect_right(profile.times, earliest) - 1, len(profile.times))
    for index in steps if only is None else _first_with_room((table,), steps, only):
        chosen = _flavors_at(table[index], columns, demand)
        if chosen is not None:
            after = max(earliest, profile.times[index]) - elapsed
            start = _start_on_preempted(profile, demand, priority, index, after)
            return _found(start, chosen, _own_rows(profile, index, ()), columns)
    return None


def _start_on_preempted(
    profile: Profile, demand: Demand, priority: int, index: int, after: float
) -> Start:
    """Return the start of a Job for which others stop *after* so many seconds, in a step."""
    seconds = after + profile.eviction_seconds
    if after > profile.eviction_seconds:
        # Until then it waits as others do: for runs to end, and for its turn.
        start = _start(profile, seconds, profile.spread[index])
        start = _with_doubts(start, profile, demand, priority)
        return replace(start, preempts=True, preempts_later=True)
    # It waits for nobody but its victims, so neither others' run times nor their order matter.
    start = _start(profile, seconds, 0.0)
    is_next = _is_next(profile, priority)
    # Under StrictFIFO it is the first of its ClusterQueue only in that order.
    unordered = profile.unordered if profile.behind else ""
    return replace(start, preempts=True, is_next=is_next, unordered=unordered)


def last_start(
    profile: Profile,
    demand: Demand,
    first: FoundStart,
    run_seconds: float,
    *,
    priority: int = 0,
    elapsed: float = 0.0,
) -> Start:
    """Return the start from which a Job runs to its end, where those that outrank it preempt it.

    They do so where they start on its quota before it is done; it then begins again. Starts are in
    seconds from *elapsed* on, as in ``start_of``.
    """
    columns = {cell: index for index, cell in enumerate(profile.cells)}
    last, count = first, 0
    for outranking in profile.outranking:
        since, after = last.start.seconds, outranking.at - elapsed
        is_spared = priority >= outranking.below or priority > outranking.spared_above
        if is_spared or not since < after < since + run_seconds:
            continue
        free = profile.free[bisect_right(profile.times, outranking.at) - 1]
        # It keeps what would be left, and nobody takes back quota of its own ClusterQueue.
        rows = (free,) if outranking.owned is None else (free, outranking.owned)
        if any(_covers(row, last.usage, columns) for row in rows):
            continue
        if outranking.owned is not None and last.is_own:
            # Those who start after it borrow, and they are preempted before it.
            starts = (level for at, level in profile.own_starts if since < at - elapsed <= after)
            if max(starts, default=-inf) <= priority:
                continue
        again = _by_waiting(profile, demand, priority, outranking.at)
        last = replace(again, start=_shifted(again.start, after))
        count += outranking.workloads
    return first.start if last is first else replace(last.start, preempted_by=count)


def _covers(row: tuple[int, ...], usage: Amounts, columns: Mapping[FlavorResource, int]) -> bool:
    return all(amount <= row[columns[cell]] for cell, amount in usage.items() if amount)


def _shifted(start: Start, seconds: float) -> Start:
    return replace(
        start,
        seconds=start.seconds + seconds,
        low=start.low + seconds,
        high=start.high + seconds,
    )


def taken_after(profile: Profile, usage: Amounts, at: float, *, priority: int) -> Amounts:
    """Return the part of *usage* that those get at *at* who come after a Job of this priority.

    *at* is in seconds since ``computed_at``.
    """
    index = bisect_right(profile.times, at) - 1
    if profile.times[index] != at:
        return {}
    columns = {cell: index for index, cell in enumerate(profile.cells)}
    after = profile.free[index]
    rows = (table[index] for table in _tables(profile, priority))
    row = next((row for row in rows if _covers(row, usage, columns)), after)
    return {
        cell: min(amount, row[columns[cell]] - after[columns[cell]])
        for cell, amount in usage.items()
        if cell in columns and row[columns[cell]] > after[columns[cell]]
    }


def _turns(
    profile: Profile, priority: int, elapsed: float, only: _Needed | None
) -> Iterator[tuple[int, float, Sequence[Table]]]:
    """Yield when a newcomer may start: a step's index, a time, and what is free for it then.

    The time is in seconds since the profile was computed. With *only*, what it needs, these are
    its first turn and, of all later ones, the first that finds as much.
    """
    earliest = max(elapsed, _behind(profile, priority))
    if earliest == inf:
        return
    # It comes in the middle of its first step: all pending have been tried by then, and only from
    # the next cycle on does its turn come before that of others.
    first = bisect_right(profile.times, earliest) - 1
    yield first, max(earliest, profile.times[first]), (profile.free,)
    tables, steps = _tables(profile, priority), range(first + 1, len(profile.times))
    for index in steps if only is None else _first_with_room(tables, steps, only):
        yield index, profile.times[index], tables


def _behind(profile: Profile, priority: int) -> float:
    """Return when all have started behind whom a newcomer waits, since the profile was computed."""
    # Under StrictFIFO nothing starts before all that are older, of at least its priority.
    if not profile.behind:
        return 0.0
    return max((at for level, at in profile.behind if level >= priority), default=0.0)


def _first_with_room(tables: Iterable[Table], steps: range, needed: _Needed) -> range:
    """Return the first of these steps, in a range, at which a table has as much; empty: none."""
    # Of hundreds of steps few have room, so each is passed over at as little cost as can be.
    if not needed or not steps:
        return steps[:1]
    (column, least), *others = needed
    end = steps.stop
    for table in tables:
        for index, row in enumerate(islice(table, steps.start, end), steps.start):
            if row[column] >= least and all(row[other] >= amount for other, amount in others):
                end = index
                break
    return range(end, min(end + 1, steps.stop))


def _tables(profile: Profile, priority: int) -> Sequence[Table]:
    """Return what is free at a priority's turns: without borrowing, then from ever higher up."""
    served = served_before(profile.priorities, priority)
    tables: list[Table] = []
    while (len(tables), served) in profile.ranked:
        tables.append(profile.ranked[len(tables), served])
    # The very last turn has no table of its own: it finds what is free after the cycle.
    if not tables or served == len(profile.priorities):
        tables.append(profile.free)
    return tables


def _with_doubts(start: Start, profile: Profile, demand: Demand, priority: int) -> Start:
    """Add to a start what is not known of it: run times ahead of it, or the order of admission."""
    # A Job that starts at once waits for nobody, so nothing about others can be wrong.
    if start.seconds == 0.0:
        return start
    cells = demand.cells
    unseen = sum(
        jobs.count
        for jobs in profile.unseen
        if not cells.isdisjoint(jobs.cells) and (jobs.priority is None or jobs.priority >= priority)
    )
    is_ordered = profile.unordered or _is_ranked(profile, priority)
    unordered = profile.unordered if is_ordered else PRIORITIES
    is_next = _is_next(profile, priority)
    if not (unseen or unordered or is_next):
        # Most often there is no doubt, and a copy is a fifth of a lookup.
        return start
    return replace(start, unseen=unseen, unordered=unordered, is_next=is_next)


def _is_next(profile: Profile, priority: int) -> bool:
    """Return whether all pending Workloads come after a newcomer of this priority."""
    # Use comes before priority.
    if profile.local_queue:
        return profile.is_first_by_use
    return bool(profile.priorities) and priority > profile.priorities[0]


def _is_ranked(profile: Profile, priority: int) -> bool:
    """Return whether the profile knows when a newcomer of this priority has its turn."""
    served, waiting = served_before(profile.priorities, priority), len(profile.priorities)
    # In front of a StrictFIFO queue it would block Workloads that this profile lets start.
    overtakes = any(level < priority for level, _ in profile.behind)
    return not overtakes and (served == waiting or (0, served) in profile.ranked)


def _only(demand: Demand, columns: Mapping[FlavorResource, int]) -> _Needed | None:
    """Return what a demand needs of each column, where it has no choice of flavors.

    None: it has one, or it needs what the ClusterQueue does not have.
    """
    needed: dict[int, int] = {}
    for choices in demand.parts:
        if len(choices) != 1:
            return None
        for cell, amount in choices[0].usage:
            if amount and cell not in columns:
                return None
            if amount:
                column = columns[cell]
                needed[column] = needed.get(column, 0) + amount
    return tuple(needed.items())


def _flavors_at(
    free: tuple[int, ...], columns: Mapping[FlavorResource, int], demand: Demand
) -> tuple[FlavorChoice, ...] | None:
    """Return the first flavor that fits for each part of a demand; None: some part has none.

    Later parts find taken what earlier ones take.
    """
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


def _own_rows(profile: Profile, index: int, tables: Sequence[Table]) -> Sequence[tuple[int, ...]]:
    """Return what a newcomer finds in a step of its ClusterQueue's own quota; none: unknown.

    *tables* are those of its turn, the first of which is that without borrowing.
    """
    if not profile.owned:
        return ()
    is_turn = len(tables) > 1
    return (profile.owned[index], tables[0][index]) if is_turn else (profile.owned[index],)


def _found(
    start: Start,
    chosen: tuple[FlavorChoice, ...],
    own_rows: Sequence[tuple[int, ...]],
    columns: Mapping[FlavorResource, int],
) -> FoundStart:
    usage: dict[FlavorResource, int] = {}
    for choice in chosen:
        for cell, amount in choice.usage:
            usage[cell] = usage.get(cell, 0) + amount
    return FoundStart(
        start=start,
        flavors=tuple(choice.flavor for choice in chosen),
        usage=usage,
        is_own=any(_covers(row, usage, columns) for row in own_rows),
    )


def _spread(profile: Profile, index: int, at: float) -> float:
    """Return the standard deviation, in seconds, of a start at *at* or with the step *index*."""
    return profile.spread[index] if at > 0.0 else 0.0


def _start(profile: Profile, seconds: float, spread: float) -> Start:
    """Return a start with the range that holds about 80 % of cases, wider where uncertain."""
    least = _LEAST_PART * seconds if profile.uncertain else 0.0
    width = max(SIGMAS_OF_A_SIDE * spread, least) * _WIDER ** len(profile.uncertain)
    return Start(
        seconds=seconds,
        low=max(0.0, seconds - width),
        high=seconds + width,
        uncertain=profile.uncertain,
    )


def is_later(priority: float) -> bool:
    """Return whether this is the priority of Workloads that are expected to come."""
    return not float(priority).is_integer()


def served_before(waiting: Sequence[float], priority: float) -> int:
    """Count the priorities among *waiting* that are admitted before a newcomer's."""
    # Of equal priorities Kueue takes the older Workload first, and a newcomer is the youngest.
    return sum(level >= priority for level in waiting)


def kept_steps(times: Sequence[float], steps: int) -> list[int]:
    """Return the indices of at most *steps* steps to keep, the first always among them.

    The others join the kept one before them. The ratio of consecutive times kept has a lower
    bound: the further away a start is, the less its exact time matters.
    """
    if len(times) <= steps:
        return list(range(len(times)))
    ratio = max(times[-1] / times[1], 1.0) ** (1 / steps) if times[1] > 0 else 1.0
    # The first ratio may keep one or two steps too many, so it is widened until it does not.
    while True:
        kept = _spaced(times, ratio)
        if len(kept) <= steps:
            return kept
        ratio = 1 + (ratio - 1) * 1.25 if ratio > 1 else 1.001


def _spaced(times: Sequence[float], ratio: float) -> list[int]:
    """Return the indices of times that are each at least *ratio* times the one kept before."""
    kept = [0]
    for index in range(1, len(times)):
        if times[index] >= times[kept[-1]] * ratio:
            kept.append(index)
    return kept
