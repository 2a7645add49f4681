"""What the domains of Topologies hold over time: those who run end, and those who wait are placed.

Kueue's order among those who wait is kept, and quota is left out: when that is free, profiles tell.
So a start found here is an expectation, not what Kueue is bound to do.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from webhook.kueue import topology_room
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.placed_assignment import pods_of, shifted
from webhook.kueue.topology_room import FlavorDomains, OccupiedDomains
from webhook.model.fields import FieldError
from webhook.model.forecasts import DomainMoment
from webhook.model.queues import ClusterQueue, PodSetNeeds, Queueing, Snapshot
from webhook.model.topologies import PlacedPods

MOST_MOMENTS: Final = 32
"""Of the future; what comes later is as it is at the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    ends_in: float
    """Seconds from now."""
    placed: tuple[PlacedPods, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGang:
    cluster_queue: str
    needs: tuple[PodSetNeeds, ...]
    seconds: float
    """For how long it runs."""
    count: int = 1


@dataclass(slots=True)
class _Loop:
    snapshot: Snapshot
    occupied: OccupiedDomains
    waiting: list[WaitingGang]
    left: list[int]
    """Of each waiting gang how many alike have not been placed."""
    ends: list[tuple[float, int, tuple[PlacedPods, ...]]] = field(default_factory=list)
    serial: count[int] = field(default_factory=count)

    def place(self, now: float) -> None:
        """Place those who wait, in order, where they have room."""
        failed: set[tuple[str, int]] = set()
        closed: set[str] = set()
        for number, gang in enumerate(self.waiting):
            shape = gang.cluster_queue, id(gang.needs)
            queue = self.snapshot.cluster_queues[gang.cluster_queue]
            while self.left[number] and shape not in failed and queue.name not in closed:
                placed = _placed(gang.needs, queue, self.snapshot, self.occupied)
                if placed is None:
                    failed.add(shape)
                    break
                self.left[number] -= 1
                self.occupied = shifted(self.occupied, placed, 1)
                heapq.heappush(self.ends, (now + gang.seconds, next(self.serial), placed))
            if self.left[number] and queue.queueing is Queueing.STRICT:
                closed.add(queue.name)

    def release(self) -> float:
        """Let those end that end next; return when."""
        now = self.ends[0][0]
        while self.ends and self.ends[0][0] <= now:
            self.occupied = shifted(self.occupied, heapq.heappop(self.ends)[-1], -1)
        return now


def timeline(
    snapshot: Snapshot,
    running: Iterable[RunningGang],
    waiting: Iterable[WaitingGang],
    elsewhere: OccupiedDomains,
) -> tuple[DomainMoment, ...]:
    """Return what is in use in domains from now on, at each moment at which that changes.

    *waiting* is in Kueue's order; *elsewhere* is what others hold whose end is not looked at.
    """
    gangs = list(waiting)
    loop = _Loop(snapshot, elsewhere, gangs, [gang.count for gang in gangs])
    for gang in running:
        loop.occupied = shifted(loop.occupied, gang.placed, 1)
        heapq.heappush(loop.ends, (gang.ends_in, next(loop.serial), gang.placed))
    loop.place(0.0)
    moments = [DomainMoment(at=0.0, occupied=loop.occupied)]
    while loop.ends and len(moments) < MOST_MOMENTS:
        now = loop.release()
        loop.place(now)
        moments.append(DomainMoment(at=now, occupied=loop.occupied))
    return tuple(moments)


def _placed(
    needs: Sequence[PodSetNeeds],
    queue: ClusterQueue,
    snapshot: Snapshot,
    occupied: OccupiedDomains,
) -> tuple[PlacedPods, ...] | None:
    """Return where pods would go in the first flavor with room; None: there is none."""
    names = flavors_with_topology(queue, snapshot)
    for name in (name for group in queue.groups for name in group.flavors if name in names):
        domains = topology_room.domains_of(name, snapshot)
        found = None if domains is None else _room(needs, domains, occupied)
        if found is not None:
            return found
    return None


def _room(
    needs: Sequence[PodSetNeeds], domains: FlavorDomains, occupied: OccupiedDomains
) -> tuple[PlacedPods, ...] | None:
    free = topology_room.free_of(domains, occupied)
    try:
        found = topology_room.placed(needs, domains, free)
    except FieldError:
        return None
    return None if found is None else tuple(pods_of(needs, domains, found))


def first_room(
    needs: Sequence[PodSetNeeds],
    flavors: Iterable[str],
    moments: Sequence[DomainMoment],
    snapshot: Snapshot,
    *,
    after: float,
) -> float | None:
    """Return from when on a newcomer's pods have room, in seconds, *after* or later.

    Room is taken not to go away again. None: there is none at any of the *moments*, or it is not
    known which domains count.
    """
    names = [
        name for name in flavors if name in snapshot.flavors and snapshot.flavors[name].topology
    ]
    domains = topology_room.domains_of(names[0], snapshot) if len(names) == 1 else None
    if domains is None or not moments:
        return None
    first = max(0, bisect_left(moments, after, key=_at) - 1)
    later = moments[first:]

    def has_room(moment: DomainMoment) -> bool:
        return _room(needs, domains, moment.occupied) is not None

    number = bisect_left(later, x=True, key=has_room)
    return None if number == len(later) else max(after, later[number].at)


def _at(moment: DomainMoment) -> float:
    return moment.at


def held_elsewhere(snapshot: Snapshot, queues: Mapping[str, object]) -> OccupiedDomains:
    """Return what the Workloads of other ClusterQueues than these hold in domains."""
    occupied: OccupiedDomains = {}
    for name, held in snapshot.held.items():
        if name not in queues:
            occupied = shifted(occupied, held.placed, 1)
    return occupied
