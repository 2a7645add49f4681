"""When a new Job would start, by the published profiles and the placements that they lack.

Profiles are computed beside the reviews and may be seconds old, so a placement is kept until they
contain its Workload. Its own start is worked out once, when a profile of its tree is next needed.
Policies and decisions are not known here.
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
from webhook.kueue.profile import (
    FoundStart,
    start_among_pending,
    start_of,
    taken_after,
)
from webhook.kueue.profile_with_placements import with_placement
from webhook.kueue.quota import tree_names
from webhook.model.fields import FieldError
from webhook.model.forecasts import (
    SIGMAS_OF_A_SIDE,
    Profile,
    RunTime,
    Unseen,
    home_of,
    of_queue,
)
from webhook.model.queues import Amounts, Arrival, Snapshot

_RUNS_IN_ORDER = 16
"""From so many groups in a tree on, a placement joins an earlier group of equals out of order."""
_MOMENT = 1e-6
"""Seconds that are as good as none."""
_TURNS = 16
"""Waves of equal placements whose starts are worked out; the rest is taken to run in waves of
equal length after the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """Equal Jobs placed in a ClusterQueue whose profile does not contain their Workloads yet."""

    cluster_queue: str
    local_queue: str = ""
    """``namespace/name``; "": it does not count."""
    demand: Demand
    priority: int = 0
    at: float
    """When the first of them was decided, on the clock of ``Snapshot.as_of``."""
    seconds: float | None = None
    """Expected run time; None: not known, so ``Profile.unknown_seconds`` stands in for it."""
    spread: float = 0.0
    """Standard deviation of ``seconds``, in seconds."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class _Start:
    """What equal Jobs that start together will use, and when."""

    cluster_queue: str
    usage: Amounts
    """Of all of them together."""
    at: float
    """In seconds since ``Profile.computed_at``."""
    later_at: float
    """The same where others come that are expected to; that of ``Profile.later``."""
    displaced: Amounts
    """Of the usage, what such others get there that then come after these."""
    seconds: float
    """For how long they hold the quota, with the waves that follow them."""
    spread: float
    """Standard deviation of when they release it, in seconds."""
    priority: int
    unseen: Unseen | None = None
    """Given where nothing is known of their run times."""


_Batch: TypeAlias = tuple[PlacedJob, ...]


@dataclass(slots=True)
class _Tree:
    """The placements of one cohort tree whose starts have been worked out."""

    bases: dict[str, Profile] = field(default_factory=dict)
    """ClusterQueue to its published profile on which the starts rest."""
    placed: _Batch = ()
    starts: list[_Start] = field(default_factory=list)
    """The starts of *placed*, in their order."""
    reached: dict[tuple[str, str], tuple[int, Profile]] = field(default_factory=dict)
    """ClusterQueue and LocalQueue to the number of *starts* added so far, and to the profile with
    these."""


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Published profiles with the placements that they lack; each change returns another value.

    The new value shares the starts that the old one has worked out.
    """

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    roots: Mapping[str, str] = field(default_factory=dict)
    """ClusterQueue to the name of its cohort tree."""
    placed: Mapping[str, _Batch] = field(default_factory=dict)
    """Cohort tree to its placements, oldest first."""
    _trees: dict[str, _Tree] = field(default_factory=dict, compare=False, repr=False)

    def adopt(self, snapshot: Snapshot) -> StartTimes:
        """Return the same placements, added to the profiles of *snapshot*."""
        if snapshot.profiles is self.profiles:
            return self
        # What rests on profiles that did not change stays valid, so ``_trees`` is handed on.
        roots = tree_names(snapshot.cluster_queues, snapshot.cohorts)
        adopted = StartTimes(snapshot.profiles, roots, self.placed, self._trees or {})
        return adopted if roots == self.roots else adopted._planted()

    def add(self, placement: PlacedJob) -> StartTimes:
        """Add a placement after all others; one in a ClusterQueue without a profile is ignored."""
        if placement.cluster_queue not in self.profiles:
            return self
        root = self._root(placement.cluster_queue)
        runs = _with(self.placed.get(root, ()), placement)
        return replace(self, placed={**self.placed, root: runs})

    def drop(self, gone: Iterable[PlacedJob]) -> StartTimes:
        """Remove placements that the profiles contain by now, or whose Workloads never came."""
        placed = dict(self.placed)
        for placement in gone:
            root = self._root(placement.cluster_queue)
            left = _without(placed.pop(root, ()), placement)
            if left:
                placed[root] = left
        return replace(self, placed=placed)

    def start_of(
        self,
        cluster_queue: str,
        demand: Demand,
        *,
        now: float,
        priority: int = 0,
        local_queue: str = "",
    ) -> FoundStart | None:
        """Return when a new Job would start after all placements; None: there is no profile.

        *now* is on the clock of ``Snapshot.as_of``; the start is in seconds from *now* on.
        *local_queue* (``namespace/name``) counts where these are served by their use; its namespace
        also tells whose word of run times the Job believes.
        """
        profile = self.profile(cluster_queue, local_queue)
        if profile is None:
            return None
        elapsed = max(0.0, now - profile.computed_at)
        known = profile.known_in(local_queue.partition("/")[0])
        return start_of(known, demand, priority=priority, elapsed=elapsed)

    def profile(self, cluster_queue: str, local_queue: str = "") -> Profile | None:
        """Return a ClusterQueue's profile with all placements of its tree; None: it has none.

        It is that for new Jobs of a LocalQueue (``namespace/name``) where that counts.
        """
        # Those in other ClusterQueues count too: what they borrow is gone for the whole tree.
        if cluster_queue not in self.profiles:
            return None
        root = self._root(cluster_queue)
        placed = self.placed.get(root, ())
        tree = self._trees.get(root)
        # Starts are added in order, so what was worked out is of use only while nothing of it was
        # dropped and no profile under it was published anew.
        news = _news(tree.placed, placed) if tree is not None and self._holds(tree) else None
        if tree is None or news is None:
            tree, news = _Tree(), placed
            self._trees[root] = tree
        for run in news:
            self._follow(tree, run)
        tree.placed = placed
        return self._reach(tree, cluster_queue, local_queue)

    def _root(self, cluster_queue: str) -> str:
        """Name the cohort tree of a ClusterQueue."""
        return self.roots.get(cluster_queue, cluster_queue)

    def _planted(self) -> StartTimes:
        """Return the same placements under the cohort trees that they belong to now."""
        placed: dict[str, _Batch] = {}
        for run in chain.from_iterable(self.placed.values()):
            root = self._root(run.cluster_queue)
            placed[root] = _with(placed.get(root, ()), run)
        return replace(self, placed=placed)

    def _holds(self, tree: _Tree) -> bool:
        """Return whether a tree's starts rest on the profiles that are published now."""
        return all(self.profiles.get(name) is base for name, base in tree.bases.items())

    def _reach(self, tree: _Tree, name: str, local_queue: str) -> Profile | None:
        """Return a ClusterQueue's profile with all starts so far; None: it has no profile."""
        base = self.profiles.get(name)
        if base is None:
            return None
        tree.bases[name] = base
        of_line = base.of(local_queue)
        key = name, of_line.local_queue
        number, profile = tree.reached.get(key, (0, of_line))
        for start in tree.starts[number:]:
            profile = _taken(profile, start, is_own=start.cluster_queue == name)
        tree.reached[key] = len(tree.starts), profile
        return profile

    def _follow(self, tree: _Tree, run: PlacedJob) -> None:
        """Work out the starts of equal Jobs, wave by wave: as many as have room start together."""
        left = run.count
        for turn in count(1):
            profile = self._reach(tree, run.cluster_queue, run.local_queue) if left else None
            if profile is None:
                return
            elapsed = max(0.0, run.at - profile.computed_at)
            earliest = start_among_pending(
                profile, run.demand, priority=run.priority, elapsed=elapsed
            )
            # What never starts takes no quota from anybody.
            if earliest.start.seconds == inf:
                return
            at = elapsed + earliest.start.seconds
            together = min(left, max(1, _room(profile, at, earliest.usage)))
            # Following hundreds of waves would cost a review more than it has time for.
            turns = ceil(left / together) if turn == _TURNS else 1
            tree.starts.append(_start(run, earliest, profile, at, together, turns))
            left -= together * turns


def _start(
    run: PlacedJob, earliest: FoundStart, profile: Profile, at: float, together: int, turns: int
) -> _Start:
    """Return one start for *together* Jobs at once, and as many in each of the *turns* waves."""
    seconds, spread = run.seconds, run.spread
    if seconds is None:
        seconds, spread = profile.unknown_seconds, profile.unknown_seconds
    # Start and run are taken to vary independently, so their variances add up at the release.
    usage = {cell: amount * together for cell, amount in earliest.usage.items()}
    later_at, displaced = _later(run, profile, at, usage)
    waits = (earliest.start.high - earliest.start.low) / (2 * SIGMAS_OF_A_SIDE)
    return _Start(
        cluster_queue=run.cluster_queue,
        usage=usage,
        at=at,
        later_at=later_at,
        displaced=displaced,
        seconds=seconds * turns,
        spread=hypot(waits, spread),
        priority=run.priority,
        unseen=_unseen(run, earliest, together * turns) if run.seconds is None else None,
    )


def _later(run: PlacedJob, profile: Profile, at: float, usage: Amounts) -> tuple[float, Amounts]:
    """Return when Jobs start that start at *at*, if others come, and what these get instead."""
    later = profile.later
    if later is None or not at:
        return at, {}
    elapsed = max(0.0, run.at - later.computed_at)
    found = start_among_pending(later, run.demand, priority=run.priority, elapsed=elapsed)
    later_at = max(at, elapsed + found.start.seconds)
    return later_at, taken_after(later, usage, later_at, priority=run.priority)


def _unseen(run: PlacedJob, earliest: FoundStart, count: int) -> Unseen:
    """Describe Jobs of unknown run time for those that come later."""
    # Once they hold quota all wait for them; while pending, only those of no higher priority do.
    priority = run.priority if earliest.start.seconds > 0.0 else None
    return Unseen(cells=frozenset(earliest.usage), priority=priority, count=count)


def _with(runs: _Batch, placement: PlacedJob) -> _Batch:
    """Return *runs* with a placement added: to the last group if equal, or as a new group."""
    # Among many groups the exact order matters little, and each group costs a review time.
    first = len(runs) - 1 if len(runs) < _RUNS_IN_ORDER else 0
    for index in range(max(first, 0), len(runs)):
        run = runs[index]
        if _shape(run) == _shape(placement):
            longer = replace(run, count=run.count + placement.count)
            return (*runs[:index], longer, *runs[index + 1 :])
    return (*runs, placement)


def _without(runs: _Batch, placement: PlacedJob) -> _Batch:
    """Return *runs* with a placement taken out of the oldest group of equals, if there is one."""
    for index, run in enumerate(runs):
        if _shape(run) == _shape(placement):
            left = run.count - placement.count
            shorter = (replace(run, count=left),) if left > 0 else ()
            return (*runs[:index], *shorter, *runs[index + 1 :])
    return runs


def _news(before: _Batch, now: _Batch) -> _Batch | None:
    """Return what *now* has more than *before*; None: something was dropped or reordered."""
    added: list[PlacedJob] = []
    for old, run in zip_longest(before, now):
        if old is None:
            added.append(run)
        elif run is None or _shape(run) != _shape(old) or run.count < old.count:
            return None
        elif run.count > old.count:
            added.append(replace(run, count=run.count - old.count))
    return tuple(added)


def _shape(placement: PlacedJob) -> tuple[object, ...]:
    """Return what equal placements have in common: all but their time and number."""
    return (
        placement.cluster_queue,
        placement.local_queue,
        placement.priority,
        placement.seconds,
        placement.spread,
        placement.demand,
    )


def _room(profile: Profile, at: float, usage: Amounts) -> int:
    """Count the Jobs, each with this usage, for which a profile has room together at *at*."""
    index = bisect_right(profile.times, at) - 1
    free = dict(zip(profile.cells, profile.free[index], strict=True))
    return min((free.get(cell, 0) // n for cell, n in usage.items() if n), default=1)


def _taken(profile: Profile, start: _Start, *, is_own: bool) -> Profile:
    """Return a profile with a start added; *is_own*: the start is in the same ClusterQueue."""
    # Under StrictFIFO it blocks later Workloads of its own ClusterQueue only; those of others
    # merely lack the quota that it uses.
    changed = with_placement(
        profile if is_own else replace(profile, behind=()),
        start.usage,
        start.at,
        start.seconds,
        spread=start.spread,
        priority=start.priority,
    )
    if start.unseen is not None:
        changed = replace(changed, unseen=(*changed.unseen, start.unseen))
    if profile.later is not None:
        changed = replace(changed, later=_taken_later(profile.later, start, is_own=is_own))
    return changed if is_own else replace(changed, behind=profile.behind)


def _taken_later(later: Profile, start: _Start, *, is_own: bool) -> Profile:
    """Return a profile with those who are expected to come, and with a start added."""
    # Those who come after it wait for longer, and do not take what they would have in vain: it
    # is theirs at that moment only.
    more = {cell: n - start.displaced.get(cell, 0) for cell, n in start.usage.items()}
    own = replace(start, at=start.later_at, usage=more, displaced={})
    moment = replace(own, usage=start.displaced, seconds=_MOMENT, spread=0.0, unseen=None)
    changed = _taken(later, own, is_own=is_own)
    return _taken(changed, moment, is_own=is_own) if start.displaced else changed


def placed(arrival: Arrival, snapshot: Snapshot, now: float) -> PlacedJob | None:
    """Return a placement decided at *now* with its demand and run time.

    *now* is on the clock of ``Snapshot.as_of``. None: its ClusterQueue is not known or has no
    profile, or a template cannot be read.
    """
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
    # Without a decision only time limits are known of its run; what its class took comes first.
    if run is None or arrival.job_class is not None:
        run = _expected(arrival, name, wanted, snapshot) or run
    seconds, spread = (None, 0.0) if run is None else remaining(run)
    return PlacedJob(
        cluster_queue=name,
        # Elsewhere Jobs of all LocalQueues are equal.
        local_queue=arrival.local_queue_key if queue.usage_based else "",
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
    """Return the run time learned of its class, or else of any class in the ClusterQueue.

    It is that on the flavors that Kueue tries first; None: too few runs are known.
    """
    for flavors in wanted.combinations[:1]:
        job_class = arrival.job_class
        known = job_class and learned_on(snapshot.run_times, job_class, flavors)
        home = home_of(job_class.key) if job_class else arrival.namespace
        return known or of_any_class(snapshot.run_times, of_queue(cluster_queue, home), flavors)
    return None
