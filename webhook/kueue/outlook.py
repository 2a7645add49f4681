"""When a newcomer would start, by the profiles in use and what was placed since they were computed.

Profiles are computed off the path of reviews and may be seconds old; a placement stays here until
they contain its Workload. Its start is found once, when a queue of its tree is next looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, count, zip_longest
from math import ceil, hypot, inf
from typing import TypeAlias

from webhook.kueue.durations import learned_on, of_any_class, remaining
from webhook.kueue.flavor_plan import Demand, demand
from webhook.kueue.profile import FoundStart, start_of, with_placement
from webhook.model.fields import FieldError
from webhook.model.forecasts import Profile, RunTime, Unseen
from webhook.model.queues import Amounts, Arrival, Snapshot
from webhook.model.run_keys import home_of, of_queue

_SIGMAS_OF_80_PERCENT = 2.5631
_ALONE = "queue "
_UNTIL_ROOT = 64
"""Cohorts above a ClusterQueue at most; a cycle of parents must not loop."""
_RUNS_IN_ORDER = 16
"""Beyond so many in a tree, placements join an earlier run of equals: see ``live_occupancy``."""
_TURNS = 16
"""Equal placements of which so many wait for one another are followed; of more, the rest is taken
to run in turns of equal length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """Equal Jobs that go to a ClusterQueue and that its profile does not know of."""

    cluster_queue: str
    demand: Demand
    priority: int = 0
    at: float
    """When the first of them came, on the clock of ``Snapshot.as_of``."""
    seconds: float | None = None
    """Expected run time; None: as long as the profile takes unknown ones to run."""
    spread: float = 0.0
    """One sigma of ``seconds``."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class _Start:
    """What equal Jobs will use, and when; seconds from ``Profile.computed_at``."""

    cluster_queue: str
    usage: Amounts
    at: float
    seconds: float
    spread: float
    priority: int
    unseen: Unseen | None = None
    """Nothing is known of their run times."""


_Batch: TypeAlias = tuple[PlacedJob, ...]


@dataclass(slots=True)
class _Tree:
    """The placements of one tree of profiles, as far as they were followed."""

    bases: dict[str, Profile] = field(default_factory=dict)
    placed: _Batch = ()
    starts: list[_Start] = field(default_factory=list)
    """Of *placed*, in order."""
    reached: dict[str, tuple[int, Profile]] = field(default_factory=dict)
    """ClusterQueue to its profile with the first so many of *starts*."""


@dataclass(frozen=True, slots=True)
class StartTimes:
    """A value: adding and dropping return another one, which shares what was worked out."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    roots: Mapping[str, str] = field(default_factory=dict)
    """ClusterQueue to the name of its tree, where it is not alone."""
    placed: Mapping[str, _Batch] = field(default_factory=dict)
    """Tree to its placements, oldest first."""
    _trees: dict[str, _Tree] = field(default_factory=dict, compare=False, repr=False)

    def adopt(self, snapshot: Snapshot) -> StartTimes:
        """Take over newly published profiles."""
        if snapshot.profiles is self.profiles:
            return self
        roots = roots_of(snapshot)
        found = StartTimes(snapshot.profiles, roots, self.placed, self._trees or {})
        return found if roots == self.roots else found._planted()

    def add(self, placement: PlacedJob) -> StartTimes:
        """Let equal Jobs come now, after all others."""
        if placement.cluster_queue not in self.profiles:
            return self
        root = self._root(placement.cluster_queue)
        runs = _with(self.placed.get(root, ()), placement)
        return replace(self, placed={**self.placed, root: runs})

    def drop(self, gone: Iterable[PlacedJob]) -> StartTimes:
        """Forget placements: the profiles contain them, or they never came."""
        placed = dict(self.placed)
        for placement in gone:
            root = self._root(placement.cluster_queue)
            left = _without(placed.pop(root, ()), placement)
            if left:
                placed[root] = left
        return replace(self, placed=placed)

    def start_of(
        self, cluster_queue: str, demand: Demand, *, now: float, priority: int = 0
    ) -> FoundStart | None:
        """Find when a newcomer would start; None: nothing is forecast for this queue."""
        profile = self.profile(cluster_queue)
        if profile is None:
            return None
        elapsed = max(0.0, now - profile.computed_at)
        return start_of(profile, demand, priority=priority, elapsed=elapsed)

    def profile(self, cluster_queue: str) -> Profile | None:
        """Return the profile with all placements of its tree: what is borrowed is gone for all."""
        if cluster_queue not in self.profiles:
            return None
        root = self._root(cluster_queue)
        placed = self.placed.get(root, ())
        tree = self._trees.get(root)
        news = _news(tree.placed, placed) if tree is not None and self._holds(tree) else None
        if tree is None or news is None:
            tree, news = _Tree(), placed
            self._trees[root] = tree
        for run in news:
            self._follow(tree, run)
        tree.placed = placed
        return self._reach(tree, cluster_queue)

    def _root(self, cluster_queue: str) -> str:
        return self.roots.get(cluster_queue) or f"{_ALONE}{cluster_queue}"

    def _planted(self) -> StartTimes:
        """Find anew which tree each placement belongs to."""
        placed: dict[str, _Batch] = {}
        for run in chain.from_iterable(self.placed.values()):
            root = self._root(run.cluster_queue)
            placed[root] = _with(placed.get(root, ()), run)
        return replace(self, placed=placed)

    def _holds(self, tree: _Tree) -> bool:
        return all(self.profiles.get(name) is base for name, base in tree.bases.items())

    def _reach(self, tree: _Tree, name: str) -> Profile | None:
        """Bring the profile of one queue up to all starts known so far."""
        base = self.profiles.get(name)
        if base is None:
            return None
        tree.bases[name] = base
        number, profile = tree.reached.get(name, (0, base))
        for start in tree.starts[number:]:
            profile = _taken(profile, start, is_own=start.cluster_queue == name)
        tree.reached[name] = len(tree.starts), profile
        return profile

    def _follow(self, tree: _Tree, run: PlacedJob) -> None:
        """Find the starts of equal Jobs, as many at once as start together."""
        left = run.count
        for turn in count(1):
            profile = self._reach(tree, run.cluster_queue) if left else None
            if profile is None:
                return
            elapsed = max(0.0, run.at - profile.computed_at)
            found = start_of(profile, run.demand, priority=run.priority, elapsed=elapsed)
            if found.start.seconds == inf:
                return
            at = elapsed + found.start.seconds
            together = min(left, max(1, _room(profile, at, found.usage)))
            turns = ceil(left / together) if turn == _TURNS else 1
            tree.starts.append(_start(run, found, profile, at, together, turns))
            left -= together * turns


def _start(
    run: PlacedJob, found: FoundStart, profile: Profile, at: float, together: int, turns: int
) -> _Start:
    """So many start together, and as many in each turn after it."""
    seconds, spread = run.seconds, run.spread
    if seconds is None:
        seconds, spread = profile.unknown_seconds, profile.unknown_seconds
    waits = (found.start.high - found.start.low) / _SIGMAS_OF_80_PERCENT
    return _Start(
        cluster_queue=run.cluster_queue,
        usage={cell: amount * together for cell, amount in found.usage.items()},
        at=at,
        seconds=seconds * turns,
        spread=hypot(waits, spread),
        priority=run.priority,
        unseen=_unseen(run, found, together * turns) if run.seconds is None else None,
    )


def _unseen(run: PlacedJob, found: FoundStart, count: int) -> Unseen:
    """Who starts at once is waited for by all; who waits, by those of no higher priority."""
    priority = run.priority if found.start.seconds > 0.0 else None
    return Unseen(cells=frozenset(found.usage), priority=priority, count=count)


def _with(runs: _Batch, placement: PlacedJob) -> _Batch:
    """Add a placement to the last run, or to an earlier one of equal ones where there are many."""
    first = len(runs) - 1 if len(runs) < _RUNS_IN_ORDER else 0
    for index in range(max(first, 0), len(runs)):
        run = runs[index]
        if _shape(run) == _shape(placement):
            longer = replace(run, count=run.count + placement.count)
            return (*runs[:index], longer, *runs[index + 1 :])
    return (*runs, placement)


def _without(runs: _Batch, placement: PlacedJob) -> _Batch:
    """Take a placement out of the oldest run of equal ones."""
    for index, run in enumerate(runs):
        if _shape(run) == _shape(placement):
            left = run.count - placement.count
            shorter = (replace(run, count=left),) if left > 0 else ()
            return (*runs[:index], *shorter, *runs[index + 1 :])
    return runs


def _news(before: _Batch, now: _Batch) -> _Batch | None:
    """List what was added; None: something was dropped."""
    found: list[PlacedJob] = []
    for old, run in zip_longest(before, now):
        if old is None:
            found.append(run)
        elif run is None or _shape(run) != _shape(old) or run.count < old.count:
            return None
        elif run.count > old.count:
            found.append(replace(run, count=run.count - old.count))
    return tuple(found)


def _shape(placement: PlacedJob) -> tuple[object, ...]:
    return (
        placement.cluster_queue,
        placement.priority,
        placement.seconds,
        placement.spread,
        placement.demand,
    )


def _room(profile: Profile, at: float, usage: Amounts) -> int:
    """Count the Jobs that find room at once in the step that *at* falls into."""
    index = bisect_right(profile.times, at) - 1
    free = dict(zip(profile.cells, profile.free[index], strict=True))
    return min((free.get(cell, 0) // n for cell, n in usage.items() if n), default=1)


def _taken(profile: Profile, start: _Start, *, is_own: bool) -> Profile:
    # Who waits elsewhere is in nobody's way but for what it uses.
    found = with_placement(
        profile if is_own else replace(profile, behind=()),
        start.usage,
        start.at,
        start.seconds,
        spread=start.spread,
        priority=start.priority,
    )
    if start.unseen is not None:
        found = replace(found, unseen=(*found.unseen, start.unseen))
    return found if is_own else replace(found, behind=profile.behind)


def roots_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Name the tree of each ClusterQueue that is in a cohort."""
    parents = {name: cohort.parent for name, cohort in snapshot.cohorts.items()}
    found = {}
    for queue in snapshot.cluster_queues.values():
        name = queue.cohort
        for _ in range(_UNTIL_ROOT):
            if not (above := parents.get(name)):
                break
            name = above
        if name:
            found[queue.name] = name
    return found


def placed(arrival: Arrival, snapshot: Snapshot, now: float) -> PlacedJob | None:
    """Find what a placement, made at *now*, will use; None: nothing, or it cannot be told."""
    local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
    name = local_queue.cluster_queue if local_queue is not None else ""
    queue = snapshot.cluster_queues.get(name)
    if queue is None or name not in snapshot.profiles:
        return None
    try:
        wanted = demand(arrival.needs, queue, snapshot)
    except FieldError:
        return None
    run = arrival.run
    if run is None or arrival.job_class is not None:
        run = _expected(arrival, name, wanted, snapshot) or run
    seconds, spread = (None, 0.0) if run is None else remaining(run)
    return PlacedJob(
        cluster_queue=name,
        demand=wanted,
        priority=arrival.priority,
        at=now,
        seconds=seconds,
        spread=spread,
        count=arrival.count,
    )


def _expected(
    arrival: Arrival, cluster_queue: str, wanted: Demand, snapshot: Snapshot
) -> RunTime | None:
    """Expect what its class took on the flavors it gets first, or what any class took there."""
    for flavors in wanted.combinations[:1]:
        found = arrival.job_class
        known = found and learned_on(snapshot.run_times, found, flavors)
        home = home_of(found.key) if found else arrival.namespace
        return known or of_any_class(snapshot.run_times, of_queue(cluster_queue, home), flavors)
    return None
