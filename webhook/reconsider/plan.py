"""Which of the pending Jobs to move, looked at together: so that all of them are done sooner.

What counts is the sum of the times until everybody who waits is done, those included whom a moved
Job overtakes. A Job is itself made later only for the sake of its equals (``_gain``).
Each candidate move is tried on the event loop; what the queues would be like is asked of the
caller, so that it is the same forecast that decisions are made on.

A Job keeps its place in line wherever it is moved, so nothing is lost by waiting: it is moved when
it is about to start, here or there, and by then more is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

NEVER_SECONDS = 30 * 86_400.0
"""What a Job counts for that would not start at all."""
_WORK = 4_000
"""Workloads scheduled in one look, about: what it costs is a second of CPU at most."""
_LEAST_TRIES, _MOST_TRIES = 2, 200
SOON_SECONDS = 10.0
"""A Job is about to start when no more is left until then: several looks, and what a move takes,"""
SOON_PART = 0.1
"""or no more than this part of its run, so that many long Jobs can follow one another."""
MUCH_LATER = 1.5
"""Times as long as where it is, from which on a Job that is moved for the sake of others must bring
at least as much as it loses itself: the place that it takes may soon be worth more to another."""
_BACK_FACTOR = 2.0
"""Each move of a Job makes its next one this much dearer, so that none goes to and fro."""
_LATER_SECONDS = 1e-3
"""By more than this a Job is made later; less is what adding up leaves."""


class Rank(NamedTuple):
    """Whose a Job is, and how it ranks among theirs."""

    policy: str
    namespace: str
    priority: int

    def may_give_way_to(self, other: Rank) -> bool:
        """Tell whether a Job of this rank may be made later for the sake of one of the other."""
        is_theirs = (self.policy, self.namespace) == (other.policy, other.namespace)
        return is_theirs and other.priority >= self.priority


_OF_NOBODY = Rank("", "", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One option that a Job could be moved to."""

    option: str
    cluster_queue: str
    runs: float
    """Expected seconds there."""
    priced: float = inf
    """When it would be done there as the last in line, seconds from now."""
    unsure: float = 0.0
    """Seconds that it must gain besides, so that it gains with enough probability, as far as the
    starts here and there may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCandidate:
    """A pending Job that may be moved."""

    key: str
    policy: str
    option: str
    """Where it is."""
    cluster_queue: str
    runs: float
    """Expected seconds where it is."""
    kind: str
    """Jobs of one kind differ in nothing that matters here but their age."""
    order: int
    """The older come first."""
    ways: tuple[Way, ...]
    moved: int = 0
    """How often it was moved before."""
    least_seconds: float = 0.0
    least_part: float = 0.0
    """What a move must gain at least: so many seconds, and such a part of what is left to it."""
    rank: Rank = _OF_NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """How all that wait would fare."""

    finishes: Mapping[str, float]
    """Key to seconds from now; a Job that never starts is not in it."""
    total: float
    """Seconds, of all that wait together;"""
    of_ranks: Mapping[Rank, float] = field(default_factory=dict)
    """and of those of each rank, a moved Job counted where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    candidate: MoveCandidate
    way: Way
    gain: float
    """Seconds that all who wait are done sooner, together."""
    before: float
    """Seconds until it would be done where it is,"""
    after: float
    """and where it goes."""


Moved: TypeAlias = "Mapping[str, Way]"
"""Key to where it is taken to be."""
Foresee: TypeAlias = Callable[[Moved], Prospect]


@dataclass(slots=True)
class _MovePlan:
    """What has been accepted so far."""

    foresee: Foresee
    now: Prospect
    tries: int
    moved: dict[str, Way] = field(default_factory=dict)
    found: list[Move] = field(default_factory=list)


def plan_moves(
    candidates: Sequence[MoveCandidate], foresee: Foresee, *, waiting: int, most: int
) -> tuple[Move, ...]:
    """Choose at most *most* moves, of *waiting* Workloads in all; the first are worth most."""
    if not candidates or most < 1:
        return ()
    tries = min(_MOST_TRIES, max(_LEAST_TRIES, _WORK // max(1, waiting)))
    state = _MovePlan(foresee=foresee, now=foresee({}), tries=tries - 1)
    size = most if tries == _LEAST_TRIES else 1
    while state.tries > 0 and len(state.found) < most:
        size = min(size, most - len(state.found))
        if best := _best(state, candidates, size):
            _accept(state, *best)
        elif size == 1:
            break
        else:
            size //= 2
    return tuple(state.found)


_Batch: TypeAlias = "tuple[tuple[MoveCandidate, Way], ...]"


def _best(
    state: _MovePlan, candidates: Sequence[MoveCandidate], size: int
) -> tuple[_Batch, Prospect] | None:
    """Find the batch that brings the sum down most, of those for which it is enough."""
    best: tuple[float, _Batch, Prospect] | None = None
    for batch in _batches(state, candidates, size):
        if state.tries <= 0:
            break
        due, after = _tried(state, batch)
        surplus = _gain(state.now, after, due) - _needed(state.now, after, due)
        if due and surplus > 0 and (best is None or surplus > best[0]):
            best = surplus, due, after
    return best[1:] if best else None


def _tried(state: _MovePlan, batch: _Batch) -> tuple[_Batch, Prospect]:
    """Move a batch and see; those who need not be moved yet stay, and it is seen again."""
    state.tries -= 1
    after = state.foresee({**state.moved, **{each.key: way for each, way in batch}})
    due = tuple((each, way) for each, way in batch if _is_due(each, way, state.now, after))
    return (due, after) if len(due) == len(batch) or not due else _tried(state, due)


def _is_due(candidate: MoveCandidate, way: Way, now: Prospect, after: Prospect) -> bool:
    """Tell whether it is about to start, where it is or where it goes."""
    here = now.finishes.get(candidate.key, NEVER_SECONDS) - candidate.runs
    there = after.finishes.get(candidate.key, NEVER_SECONDS) - way.runs
    return min(here, there) <= max(SOON_SECONDS, SOON_PART * way.runs)


def _batches(state: _MovePlan, candidates: Sequence[MoveCandidate], size: int) -> Iterator[_Batch]:
    """List what to try: of each kind the first in line, who let most others pass, and the last.

    Those come first who lose least by running elsewhere.
    """
    kinds: defaultdict[tuple[str, str], list[tuple[MoveCandidate, Way]]] = defaultdict(list)
    for candidate in candidates:
        if candidate.key not in state.moved:
            for way in candidate.ways:
                kinds[candidate.kind, way.option].append((candidate, way))
    groups = sorted(kinds.values(), key=lambda group: _loss(state, *group[-1]))
    tried: set[tuple[tuple[str, str], ...]] = set()
    for of_ends in (True, False):
        for group in groups:
            ordered = sorted(group, key=lambda each: each[0].order)
            batch = tuple(ordered[-size:] if of_ends else ordered[:size])
            name = tuple((each.key, way.option) for each, way in batch)
            if name not in tried:
                tried.add(name)
                yield batch


def _loss(state: _MovePlan, candidate: MoveCandidate, way: Way) -> tuple[float, float]:
    """Compare first by what running there costs, then by what it gains itself."""
    stays = state.now.finishes.get(candidate.key, NEVER_SECONDS)
    return way.runs - candidate.runs, way.priced - stays


def _gain(now: Prospect, after: Prospect, batch: _Batch) -> float:
    """Say how much sooner all are done who count.

    Where the moved Jobs are done no later themselves, nobody gives anything up for another: all who
    wait count, whoever they are, those who lose by it as well as those who gain. Where one of them
    is done later, those gain for whose sake it may be: Jobs of its own policy and namespace, and of
    the same priority or a higher one. Of all others only what they lose counts.
    """
    if not any(_is_made_later(candidate, now, after) for candidate, _ in batch):
        return now.total - after.total
    gained = 0.0
    for rank in now.of_ranks.keys() | after.of_ranks.keys():
        sooner = now.of_ranks.get(rank, 0.0) - after.of_ranks.get(rank, 0.0)
        counts = all(candidate.rank.may_give_way_to(rank) for candidate, _ in batch)
        gained += sooner if counts else min(0.0, sooner)
    return gained


def _is_made_later(candidate: MoveCandidate, now: Prospect, after: Prospect) -> bool:
    stays = now.finishes.get(candidate.key, NEVER_SECONDS)
    return after.finishes.get(candidate.key, NEVER_SECONDS) > stays + _LATER_SECONDS


def _needed(now: Prospect, after: Prospect, batch: _Batch) -> float:
    """Sum up what each must gain; what loses much, or was moved before, must gain more."""
    found = 0.0
    for candidate, way in batch:
        stays = now.finishes.get(candidate.key, NEVER_SECONDS)
        goes = after.finishes.get(candidate.key, NEVER_SECONDS)
        least = max(candidate.least_seconds, candidate.least_part * stays)
        if goes > MUCH_LATER * stays:
            least = max(least, goes - stays)
        least += min(way.unsure, stays)
        found += least * _BACK_FACTOR**candidate.moved
    return found


def _accept(state: _MovePlan, batch: _Batch, after: Prospect) -> None:
    gain = (state.now.total - after.total) / len(batch)
    for candidate, way in batch:
        state.moved[candidate.key] = way
        state.found.append(
            Move(
                candidate=candidate,
                way=way,
                gain=gain,
                before=state.now.finishes.get(candidate.key, inf),
                after=after.finishes.get(candidate.key, inf),
            )
        )
    state.now = after
