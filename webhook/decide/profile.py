"""Looking a Job's start up in a profile, and adding to a profile what was placed since.

A few microseconds each: a profile has little more than a hundred steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from webhook.decide.demand import Choice, Demand
from webhook.decide.record import kept_steps
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
_LEAST_PART = 0.1
"""which then is at least so much of the wait, either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A start, and what the Job would use from then on. Both empty where it never starts."""

    start: Start
    flavors: tuple[str, ...] = ()
    """One for each part of the demand."""
    usage: Amounts

    @property
    def names(self) -> str:
        """Name the flavors as ``model.forecasts.Estimates`` does."""
        return ",".join(sorted(set(self.flavors)))


def start_of(profile: Profile, demand: Demand, *, priority: int = 0, elapsed: float = 0.0) -> Found:
    """Find when a newcomer would start; *elapsed* seconds after the profile was computed.

    Seconds of the answer count from that moment. A newcomer stands behind all who wait; under
    StrictFIFO it also starts no earlier than the last of those with at least its priority.
    """
    earliest = max(elapsed, _behind(profile, priority))
    if earliest < inf and demand.is_possible:
        first = bisect_right(profile.times, earliest) - 1
        columns = {cell: index for index, cell in enumerate(profile.cells)}
        for index in range(first, len(profile.times)):
            flavors = _flavors_at(profile.free[index], columns, demand)
            if flavors is not None:
                at = max(earliest, profile.times[index])
                start = _start(profile, at - elapsed, _spread(profile, index, at))
                return _found(start, flavors)
    never = Start(seconds=inf, low=inf, high=inf, uncertain=profile.uncertain)
    return Found(start=never, usage={})


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
        free = tuple(
            tuple(max(0, n - each) for n, each in zip(row, taken, strict=True))
            if start_seconds <= at < end
            else row
            for at, row in zip(cut.times, cut.free, strict=True)
        )
        found = _shortened(replace(cut, free=free))
    if profile.behind:
        found = replace(found, behind=_with_behind(profile.behind, priority, start_seconds))
    return found


def _behind(profile: Profile, priority: int) -> float:
    return max((at for each, at in profile.behind if each >= priority), default=0.0)


def _flavors_at(
    free: tuple[int, ...], columns: Mapping[FlavorResource, int], demand: Demand
) -> tuple[Choice, ...] | None:
    """Choose flavors in Kueue's order; later parts see what earlier ones take."""
    taken: dict[FlavorResource, int] = {}
    chosen: list[Choice] = []
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


def _found(start: Start, chosen: tuple[Choice, ...]) -> Found:
    usage: dict[FlavorResource, int] = {}
    for choice in chosen:
        for cell, amount in choice.usage:
            usage[cell] = usage.get(cell, 0) + amount
    return Found(start=start, flavors=tuple(choice.flavor for choice in chosen), usage=usage)


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
        free=(*profile.free[:index], profile.free[index - 1], *profile.free[index:]),
        spread=(
            *profile.spread[:index],
            max(spread, profile.spread[index - 1]),
            *profile.spread[index:],
        ),
    )


def _shortened(profile: Profile) -> Profile:
    """Where there are too many steps, keep a part of them, so that the next few are no work."""
    times = profile.times
    if len(times) <= MAX_STEPS:
        return profile
    kept = kept_steps(times, _STEPS_LEFT)
    ends = (*kept[1:], len(times))
    return replace(
        profile,
        times=tuple(times[index] for index in kept),
        free=tuple(
            tuple(map(min, *profile.free[first:end])) if end - first > 1 else profile.free[first]
            for first, end in zip(kept, ends, strict=True)
        ),
        spread=tuple(profile.spread[index] for index in kept),
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
