"""When a newcomer would start, by the profiles in use and what was placed since they were computed.

Profiles are computed off the path of reviews and may be seconds old; a placement stays here until
they contain its Workload. Its start is found once, when a queue of its tree is next looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import hypot, inf
from typing import TypeAlias

from webhook.decide.demand import Demand
from webhook.decide.profile import Found, start_of, with_placement
from webhook.model.forecasts import Profile
from webhook.model.queues import Amounts, Snapshot

_SIGMAS_OF_80_PERCENT = 2.5631
_ALONE = "queue "
_UNTIL_ROOT = 64
"""Cohorts above a ClusterQueue at most; a cycle of parents must not loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A Job that goes to a ClusterQueue and that its profile does not know of."""

    key: str
    cluster_queue: str
    demand: Demand
    priority: int = 0
    at: float
    """On the clock of ``Snapshot.as_of``."""
    seconds: float | None = None
    """Expected run time; None: as long as the profile takes unknown ones to run."""
    spread: float = 0.0
    """One sigma of ``seconds``."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What equal Jobs will use, and when; seconds from ``Profile.computed_at``."""

    cluster_queue: str
    usage: Amounts
    at: float
    seconds: float
    spread: float
    priority: int


_Batch: TypeAlias = tuple[Placed, ...]


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
class Outlook:
    """A value: adding and dropping return another one, which shares what was worked out."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    roots: Mapping[str, str] = field(default_factory=dict)
    """ClusterQueue to the name of its tree, where it is not alone."""
    placed: Mapping[str, _Batch] = field(default_factory=dict)
    """Tree to its placements, oldest first."""
    _trees: dict[str, _Tree] = field(default_factory=dict, compare=False, repr=False)

    def adopt(self, snapshot: Snapshot) -> Outlook:
        """Take over newly published profiles."""
        if snapshot.profiles is self.profiles:
            return self
        return Outlook(snapshot.profiles, roots_of(snapshot), self.placed, self._trees or {})

    def add(self, placement: Placed) -> Outlook:
        if placement.cluster_queue not in self.profiles:
            return self
        root = self._root(placement.cluster_queue)
        kept = tuple(each for each in self.placed.get(root, ()) if each.key != placement.key)
        return replace(self, placed={**self.placed, root: (*kept, placement)})

    def drop(self, keys: Iterable[str]) -> Outlook:
        """Forget placements: the profiles contain them, or they never came."""
        gone = frozenset(keys)
        if not gone or not self.placed:
            return self
        kept = {
            root: left
            for root, batch in self.placed.items()
            if (left := tuple(each for each in batch if each.key not in gone))
        }
        return replace(self, placed=kept)

    def start_of(
        self, cluster_queue: str, demand: Demand, *, now: float, priority: int = 0
    ) -> Found | None:
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
        if tree is None or not self._still_holds(tree, placed):
            tree = self._trees[root] = _Tree()
        for _, alike in groupby(placed[len(tree.placed) :], key=_shape):
            self._follow(tree, tuple(alike))
        tree.placed = placed
        return self._reach(tree, cluster_queue)

    def _root(self, cluster_queue: str) -> str:
        return self.roots.get(cluster_queue) or f"{_ALONE}{cluster_queue}"

    def _still_holds(self, tree: _Tree, placed: _Batch) -> bool:
        is_longer = placed is tree.placed or placed[: len(tree.placed)] == tree.placed
        return is_longer and all(
            self.profiles.get(name) is base for name, base in tree.bases.items()
        )

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

    def _follow(self, tree: _Tree, alike: _Batch) -> None:
        """Find the starts of equal Jobs, as many at once as start together."""
        first, left = alike[0], len(alike)
        while left and (profile := self._reach(tree, first.cluster_queue)):
            elapsed = max(0.0, first.at - profile.computed_at)
            found = start_of(profile, first.demand, priority=first.priority, elapsed=elapsed)
            if found.start.seconds == inf:
                return
            at = elapsed + found.start.seconds
            count = min(left, max(1, _room(profile, at, found.usage)))
            tree.starts.append(_start(first, found, profile, at, count))
            left -= count


def _start(first: Placed, found: Found, profile: Profile, at: float, count: int) -> _Start:
    seconds, spread = first.seconds, first.spread
    if seconds is None:
        seconds, spread = profile.unknown_seconds, profile.unknown_seconds
    waits = (found.start.high - found.start.low) / _SIGMAS_OF_80_PERCENT
    return _Start(
        cluster_queue=first.cluster_queue,
        usage={cell: amount * count for cell, amount in found.usage.items()},
        at=at,
        seconds=seconds,
        spread=hypot(waits, spread),
        priority=first.priority,
    )


def _shape(placement: Placed) -> tuple[object, ...]:
    return (
        placement.cluster_queue,
        placement.demand,
        placement.priority,
        placement.seconds,
        placement.spread,
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
