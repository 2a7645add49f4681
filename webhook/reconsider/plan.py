"""Which of the pending Jobs to move, chosen together so that all pending Workloads finish sooner.

A move is judged by the sum of all their finishes, as the caller forecasts them (decision 0013), or
of all their costs where costs decide. It is made only when the Job is about to start: it keeps its
place in Kueue's order wherever it goes, so nothing is lost by waiting. Quota and policies are not
known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from webhook.model.queues import Arrival
from webhook.model.reasons import Obstacle

NEVER_SECONDS = 30 * 86_400.0
"""The finish, in seconds from now, of a Job that would never start."""
_WORK = 4_000
"""Pending Workloads forecast in all tries together, about: at most a second of CPU."""
_LEAST_TRIES, _MOST_TRIES = 2, 200
SOON_SECONDS = 10.0
"""A Job is about to start when it starts within this time: several reconsiderations and a move."""
SOON_PART = 0.1
"""It is also about to start within this part of its run, so that long Jobs can follow in time."""
MUCH_LATER = 1.5
"""A Job that finishes later than this many times its finish where it is must gain others at least
as much as it loses: the place that it takes may soon be worth more to another (decision 0013)."""
_HOUR = 3600.0
_BACK_FACTOR = 2.0
"""Factor by which each move of a Job raises what its next one must gain."""
FRESH_PART = 0.05
"""A forecast is taken to hold for this part of the longest wait in it, unless something changes: as
new Jobs are decided on forecasts of that age."""
TRUSTED_PART = 0.5
"""For this part of the time after which a Job should be about to start, or a move worth making, it
is taken not to be: expected run times change with the time that runs have taken."""
_LATER_SECONDS = 1e-3
"""A Job finishes later only by more than this: less is a rounding error of sums."""


class Rank(NamedTuple):
    """A Job's policy and namespace, and its priority among the Jobs of these."""

    policy: str
    namespace: str
    priority: int

    def may_give_way_to(self, other: Rank) -> bool:
        """Tell whether a Job of this rank may finish later so that one of *other* gains."""
        # Nobody else's Job, and none of lower priority, is worth a Job's own loss (decision 0018).
        is_theirs = (self.policy, self.namespace) == (other.policy, other.namespace)
        return is_theirs and other.priority >= self.priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One option that a Job could be moved to."""

    arrival: Arrival
    """What would be pending there; without name and age until it is the way of a chosen move."""
    cluster_queue: str
    job_class: str = ""
    """The class by which its run time is looked up there."""
    runs: float
    """Expected run time there, in seconds."""
    priced: float = inf
    """When it would finish there as the last in the queue, in seconds from now; inf: not known."""
    unsure: float = 0.0
    """Seconds that it must gain besides, so that it gains with enough probability although both
    starts are uncertain."""
    starts: float = -inf
    """When the oldest of its kind would start there, in seconds from now; -inf: not known."""
    least_times: float = 1.0
    """How many times what a move must gain at least one to this option must."""

    @property
    def option(self) -> str:
        return self.arrival.option


CostOf: TypeAlias = Callable[[str, float], float]
"""An option, and when a Job finishes there, in seconds from now, to what it costs in money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCandidate:
    """A pending Job that may be moved."""

    key: str
    rank: Rank
    option: str
    """The option that it is in."""
    runs: float
    """Expected run time where it is, in seconds."""
    kind: str
    """Equal for Jobs that differ only in name and age."""
    order: int
    """When its Workload was created; the least is the oldest."""
    ways: tuple[Way, ...]
    moved: int = 0
    """How often it was moved before."""
    least_seconds: float = 0.0
    """What a move must gain at least, in seconds."""
    least_part: float = 0.0
    """What a move must gain at least, as a part of the time until it finishes where it is."""
    cost_of: CostOf | None = None
    """What it costs; None: moves of it are judged by time alone, else ``least_part`` is of that."""
    least_saved: float = 0.0
    """What a move must save at least, in money."""
    hour_costs: float = 0.0
    """Money for an hour until anybody is done, by its policy."""

    @property
    def policy(self) -> str:
        return self.rank.policy

    @property
    def second_costs(self) -> float:
        return self.hour_costs / _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """When all pending Workloads would finish, in seconds from now."""

    finishes: Mapping[str, float]
    """Key of a Job to its finish; a Job that never starts is not among them."""
    starts: Mapping[str, float]
    """The same of its start: from there to its finish is the mean of its run, which is far beyond
    its middle where runs of one class differ much."""
    total: float
    """Sum of the finishes of all pending Workloads."""
    of_ranks: Mapping[Rank, float] = field(default_factory=dict)
    """The same for each rank; a moved Job counts with the rank that it had before."""
    next_start: float = inf
    """When the first pending Workload would start, in seconds from now; inf: none ever does."""

    def start_of(self, key: str) -> float:
        """Return when a Job would start, in seconds from now."""
        return self.starts.get(key, NEVER_SECONDS)

    def whole(self) -> Prospect:
        return self


class Outlook(Protocol):
    """A forecast that costs the less the less is asked of it."""

    def start_of(self, key: str) -> float:
        """Return when a Job would start that is moved, in seconds from now."""

    def whole(self) -> Prospect:
        """Return all that is forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move to be made, or that was written, and what is expected of it."""

    candidate: MoveCandidate
    way: Way
    gain: float
    """Seconds by which all pending Workloads together finish sooner."""
    before: float
    """When it would finish where it is, in seconds from now; inf: never."""
    after: float
    """When it would finish where it goes, in seconds from now; inf: never."""
    saved: float | None = None
    """Money that all pending Workloads together cost less; None: it is judged by time alone."""
    written_at: float = -inf
    """When it was written, on the clock of ``Snapshot.as_of``."""
    queue: str = ""
    """The LocalQueue that the Job was then in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesPlan:
    """The moves to be made, those that gain most first, and why other Jobs are not moved."""

    moves: tuple[Move, ...] = ()
    obstacles: Mapping[tuple[str, Obstacle], int] = field(default_factory=dict)
    """(policy, obstacle) to the number of Jobs that cannot be moved."""
    quiet_seconds: float = inf
    """For so long no other moves are to be expected unless something changes in the queues."""


Moved: TypeAlias = "Mapping[str, Way]"
"""Key of a Job to the option that it is taken to be moved to."""
Foresee: TypeAlias = Callable[[Moved], Outlook]
"""Forecasts all pending Workloads as if these Jobs were moved."""


def plan_moves(
    candidates: Sequence[MoveCandidate], foresee: Foresee, *, waiting: int, most: int
) -> MovesPlan:
    """Plan at most *most* moves.

    *foresee* forecasts all pending Workloads with some Jobs moved; *waiting* is their number.
    """
    if not candidates or most < 1:
        return MovesPlan()
    return _Planning(candidates, foresee, waiting).plan(most)


def tries_among(waiting: int) -> int:
    """Return how many forecasts a plan makes at most where so many wait, that without moves too."""
    # A forecast costs by the number of pending Workloads, so with more of them fewer are tried.
    return min(_MOST_TRIES, max(_LEAST_TRIES, _WORK // max(1, waiting)))


def first_size(tries: int, most: int) -> int:
    """Return how many Jobs the first batches have, of at most *most* moves."""
    # With thousands pending there is time for two forecasts, so a whole batch is tried at once.
    return most if tries == _LEAST_TRIES else 1


_Batch: TypeAlias = "tuple[tuple[MoveCandidate, Way], ...]"


class _Planning:
    """Accepts moves one batch after another, each judged by a forecast with those before it."""

    def __init__(self, candidates: Sequence[MoveCandidate], foresee: Foresee, waiting: int) -> None:
        self._candidates, self._foresee = candidates, foresee
        self._waiting = max(1, waiting)
        """How many Workloads are pending."""
        self._tries = tries_among(waiting)
        """How many more forecasts may be asked for."""
        self._now = foresee({}).whole()
        """The forecast with the moves accepted so far."""
        self._moved: dict[str, Way] = {}
        self._found: list[Move] = []
        self._quiet_seconds = inf
        """When the first Job of those tried that is not about to start will be."""

    def plan(self, most: int) -> MovesPlan:
        """Plan at most *most* moves."""
        size = first_size(self._tries, most)
        self._tries -= 1
        while self._tries > 0 and len(self._found) < most:
            size = min(size, most - len(self._found))
            if best := self._best(size):
                self._accept(*best)
            elif size == 1:
                break
            else:
                # No batch of this size gains enough; part of one still may.
                size //= 2
        return MovesPlan(moves=tuple(self._found), quiet_seconds=self._known_for())

    def _known_for(self) -> float:
        """Return how long the forecasts that were made say all that matters for a choice of moves.

        They do until a Job is about to start that was not, and until the first Workload should have
        started: if nothing has by then, they were wrong.
        """
        now = self._now
        stays = [
            wait
            for candidate in self._candidates
            for way in candidate.ways
            if (wait := _due_in(candidate, way, now, inf)) > 0
        ]
        longest = max(now.finishes.values(), default=inf)
        soon = min([self._quiet_seconds, *stays])
        return min(TRUSTED_PART * soon, now.next_start, FRESH_PART * longest)

    def _best(self, size: int) -> tuple[_Batch, Prospect] | None:
        """Return the batch that gains most above what it must gain, and the forecast with it.

        None: no batch gains enough.
        """
        best: tuple[float, _Batch, Prospect] | None = None
        for batch in self._batches(size):
            if self._tries <= 0:
                break
            due, after = self._tried(batch)
            surplus = self._surplus(after, due)
            if due and surplus <= 0:
                # What it lacks may come by the clock alone: in a second, one of each Workload.
                self._quiet_seconds = min(self._quiet_seconds, -surplus / self._waiting)
            elif due and (best is None or surplus > best[0]):
                best = surplus, due, after
        return best[1:] if best else None

    def _tried(self, batch: _Batch) -> tuple[_Batch, Prospect]:
        """Return the part of a batch that is due to be moved, and the forecast with it moved."""
        # Without those that are not due the forecast is another one, so it is made again.
        self._tries -= 1
        waits = [_due_in(candidate, way, self._now, way.starts) for candidate, way in batch]
        if min(waits) > 0:
            # None of them can be due, so the forecast is not needed to know that.
            self._quiet_seconds = min(self._quiet_seconds, *waits)
            return (), self._now
        after = self._foresee({**self._moved, **{candidate.key: way for candidate, way in batch}})
        waits = [
            _due_in(candidate, way, self._now, after.start_of(candidate.key))
            for candidate, way in batch
        ]
        self._quiet_seconds = min([self._quiet_seconds, *(wait for wait in waits if wait > 0)])
        due = tuple(move for move, wait in zip(batch, waits, strict=True) if wait <= 0)
        if not due:
            return (), self._now
        return (due, after.whole()) if len(due) == len(batch) else self._tried(due)

    def _batches(self, size: int) -> Iterator[_Batch]:
        """Yield the batches to try: for each kind and option the last *size* Jobs, or the first.

        Those that lose least by running elsewhere come first.
        """
        kinds: defaultdict[tuple[str, str], list[tuple[MoveCandidate, Way]]] = defaultdict(list)
        for candidate in self._candidates:
            if candidate.key not in self._moved:
                for way in candidate.ways:
                    kinds[candidate.kind, way.option].append((candidate, way))
        groups = sorted(kinds.values(), key=lambda group: self._loss(*group[-1]))
        tried: set[tuple[tuple[str, str], ...]] = set()
        # Jobs of one kind are alike, so those between the ends of a queue would bring little else.
        for of_ends in (True, False):
            for group in groups:
                ordered = sorted(group, key=lambda entry: entry[0].order)
                batch = tuple(ordered[-size:] if of_ends else ordered[:size])
                name = tuple((each.key, way.option) for each, way in batch)
                if name not in tried:
                    tried.add(name)
                    yield batch

    def _loss(self, candidate: MoveCandidate, way: Way) -> tuple[float, float]:
        """Return what a Job loses by a move, in seconds: of its run time, then of its finish."""
        stays = self._now.finishes.get(candidate.key, NEVER_SECONDS)
        return way.runs - candidate.runs, way.priced - stays

    def _surplus(self, after: Prospect, batch: _Batch) -> float:
        """Return by how much a batch gains more than it must, in seconds of what time is worth."""
        if not batch:
            return 0.0
        first, _ = batch[0]
        if first.cost_of is None:
            return _gain(self._now, after, batch) - _needed(self._now, after, batch)
        surplus = self._saved(after, batch) - self._least_saved(after, batch)
        # Where time is worth nothing, money is compared with that of the same policy alone.
        return surplus / (first.second_costs or 1.0)

    def _saved(self, after: Prospect, batch: _Batch) -> float:
        """Return by how much less all who wait cost, counted as ``_gain`` counts finishes."""
        second = batch[0][0].second_costs
        before = replace(self._now, of_ranks=self._costs(self._now, (), second))
        later = replace(after, of_ranks=self._costs(after, batch, second))
        return _gain(
            replace(before, total=sum(before.of_ranks.values())),
            replace(later, total=sum(later.of_ranks.values())),
            batch,
        )

    def _costs(self, prospect: Prospect, batch: _Batch, second: float) -> Mapping[Rank, float]:
        """Return by rank what all who wait cost: of whom nothing else is known, their time."""
        costs = {rank: seconds * second for rank, seconds in prospect.of_ranks.items()}
        moving = {candidate.key: way for candidate, way in batch}
        for candidate in self._candidates:
            if candidate.cost_of is None:
                continue
            finish = prospect.finishes.get(candidate.key, NEVER_SECONDS)
            way = moving.get(candidate.key, self._moved.get(candidate.key))
            cost = candidate.cost_of(candidate.option if way is None else way.option, finish)
            costs[candidate.rank] = costs.get(candidate.rank, 0.0) + cost - finish * second
        return costs

    def _least_saved(self, after: Prospect, batch: _Batch) -> float:
        """Return what the moves of a batch must save together, in money."""
        needed = 0.0
        for candidate, way in batch:
            stays = self._now.finishes.get(candidate.key, NEVER_SECONDS)
            goes = after.finishes.get(candidate.key, NEVER_SECONDS)
            if candidate.cost_of is None:
                continue
            here = candidate.cost_of(candidate.option, stays)
            least = max(candidate.least_saved, candidate.least_part * here) * way.least_times
            if goes > MUCH_LATER * stays:
                least = max(least, candidate.cost_of(way.option, goes) - here)
            least += min(way.unsure, stays) * candidate.second_costs
            needed += least * _BACK_FACTOR**candidate.moved
        return needed

    def _accept(self, batch: _Batch, after: Prospect) -> None:
        """Add a batch to the plan; the gain is shared evenly among its moves."""
        gain = (self._now.total - after.total) / len(batch)
        is_priced = batch[0][0].cost_of is not None
        saved = self._saved(after, batch) / len(batch) if is_priced else None
        for candidate, way in batch:
            self._moved[candidate.key] = way
            self._found.append(
                Move(
                    candidate=candidate,
                    way=way,
                    gain=gain,
                    before=self._now.finishes.get(candidate.key, inf),
                    after=after.finishes.get(candidate.key, inf),
                    saved=saved,
                )
            )
        self._now = after


def _due_in(candidate: MoveCandidate, way: Way, now: Prospect, there: float) -> float:
    """Return in how many seconds a Job is about to start, where it is or where it would go.

    It is 0 or less where the Job is about to start already. *there*: when it would start where it
    would go, in seconds from now.
    """
    # Jobs moved earlier used up ``maxMoves`` on what later Jobs changed again (decision 0013).
    return min(now.start_of(candidate.key), there) - soon(way.runs)


def soon(runs: float) -> float:
    """Return within how many seconds a Job is about to start that would run for so long."""
    return max(SOON_SECONDS, SOON_PART * runs)


def _gain(now: Prospect, after: Prospect, batch: _Batch) -> float:
    """Return by how many seconds the finishes that count come sooner, all together.

    Where no moved Job finishes later, all pending Workloads count, with what they gain and lose.
    Where one does, gains count only for Jobs of its own policy and namespace with the same or a
    higher priority; of all others only what they lose counts.
    """
    # A Job gives up its own time for its equals only (decision 0018).
    if not any(_is_made_later(candidate, now, after) for candidate, _ in batch):
        return now.total - after.total
    gained = 0.0
    for rank in now.of_ranks.keys() | after.of_ranks.keys():
        sooner = now.of_ranks.get(rank, 0.0) - after.of_ranks.get(rank, 0.0)
        counts = all(candidate.rank.may_give_way_to(rank) for candidate, _ in batch)
        gained += sooner if counts else min(0.0, sooner)
    return gained


def _is_made_later(candidate: MoveCandidate, now: Prospect, after: Prospect) -> bool:
    """Tell whether a Job finishes later in *after* than in *now*."""
    stays = now.finishes.get(candidate.key, NEVER_SECONDS)
    return after.finishes.get(candidate.key, NEVER_SECONDS) > stays + _LATER_SECONDS


def _needed(now: Prospect, after: Prospect, batch: _Batch) -> float:
    """Return what the moves of a batch must gain together, in seconds."""
    needed = 0.0
    for candidate, way in batch:
        stays = now.finishes.get(candidate.key, NEVER_SECONDS)
        goes = after.finishes.get(candidate.key, NEVER_SECONDS)
        least = max(candidate.least_seconds, candidate.least_part * stays)
        if goes > MUCH_LATER * stays:
            least = max(least, goes - stays)
        least += min(way.unsure, stays)
        # Doubling with each move keeps noise in forecasts from moving a Job to and fro.
        needed += least * _BACK_FACTOR**candidate.moved
    return needed
