"""Which devices to cut otherwise, by what Jobs asked for: replayed, and never applied. Pure.

Jobs of one device are replayed in the order in which they came on a pool of one model, each on the
smallest unit that is enough and free. One change after another is taken that lowers most what they
wait, and what is free and of no use to them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, TypeAlias

from webhook.cost.geometries import WHOLE, Geometry, geometries, is_balanced
from webhook.kueue import quota
from webhook.kueue.flavor_plan import Demand, FlavorChoice
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Simulation
from webhook.model.costs.devices import Device
from webhook.model.queues import ClusterQueue, KueueConfig, Quota, ResourceGroup

_HOUR: Final = 3600.0
_FRAGMENTED: Final = 0.1
"""What an hour of a device that is free and of no use counts beside one that is waited for."""
_LEAST_GAIN: Final = 0.01
"""The next change must gain so much of what is left."""
WORTH: Final = 0.2
"""Advice is given that saves so much of what is waited, and would have in each half of the time."""
_LEAST_WAITED: Final = 1.0
"""Device-hours; for less nobody stops Jobs to cut devices anew."""
USABLE: Final = 0.95
"""Usable part of a slice's memory, as in decisions."""
_POOL: Final = "pool"
_UNITS: Final = "units"
"""The one resource of which each unit of a device is a flavor."""

Cells: TypeAlias = Mapping[str, int]
"""Resource, empty for whole devices, to how many units of it there are."""


class DeviceDemand(NamedTuple):
    """What one Job asked for."""

    at: float
    """Seconds since 1970."""
    seconds: float
    need: int | None
    """Bytes of one device's memory; None: a whole device, or several."""
    devices: int = 1

    @property
    def rank(self) -> tuple[float, float, float, int]:
        """Return a sort key: who came first starts first."""
        return self.at, self.seconds, inf if self.need is None else self.need, self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a replay comes to, in device-hours."""

    waited: float
    by_day: Mapping[int, float] = field(default_factory=dict)
    """Waiting by the day of arrival, counted since 1970."""
    fragmented: float = 0.0
    """Free, and of no use to the average Job."""
    free: float = 0.0

    @property
    def objective(self) -> float:
        return self.waited + _FRAGMENTED * self.fragmented

    @property
    def fragmentation(self) -> float:
        """Return which part of what is free is of no use to the average Job."""
        return self.fragmented / self.free if self.free else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAdvice:
    """How the devices of one model are better cut."""

    model: str
    before: Mapping[Geometry, int]
    after: Mapping[Geometry, int]
    """The same as before: nothing is to be gained."""
    now: Waits
    then: Waits
    jobs: int
    why_not: str = ""
    """Why there is no advice; empty: there is."""

    @property
    def saved(self) -> float:
        """Return which part of what was waited would not have been."""
        return 1 - self.then.waited / self.now.waited if self.now.waited else 0.0


class _Cell(NamedTuple):
    resource: str
    memory: float
    part: float


def advise(
    device: Device, before: Mapping[Geometry, int], demands: Sequence[DeviceDemand]
) -> PoolAdvice:
    """Return how a pool is better cut, by the Jobs that it had.

    *before*: how its devices are cut, and how many so.
    """
    pool = _Pool(device, demands)
    now = pool.replayed(before, demands)
    after, why_not = before, ""
    if now.waited < _LEAST_WAITED:
        why_not = "not one device-hour was waited, all together" if now.waited else "nobody waited"
    else:
        after = pool.improved(before, demands)
        then = pool.replayed(after, demands)
        if after == before or 1 - then.waited / now.waited < WORTH:
            why_not = f"no change would have saved {WORTH:.0%} of what was waited"
        elif not pool.is_stable(before, demands):
            why_not = "what would have helped in one half of the time would not in the other"
    if why_not:
        after = before
    return PoolAdvice(
        model=device.name,
        before=before,
        after=after,
        now=now,
        then=pool.replayed(after, demands),
        jobs=len(demands),
        why_not=why_not,
    )


def waits_of(device: Device, cut: Mapping[Geometry, int], demands: Sequence[DeviceDemand]) -> Waits:
    """Return what Jobs wait where the devices of a pool are cut so."""
    return _Pool(device, demands).replayed(cut, demands)


class _Pool:
    """The devices of one model, with the ways to cut them that are of use to Jobs."""

    def __init__(self, device: Device, demands: Sequence[DeviceDemand]) -> None:
        memories = {part.resource: USABLE * part.memory for part in device.slices}
        self._cells = {
            part.resource: _Cell(
                part.resource,
                memories[part.resource],
                max(part.compute / part.of, part.memory / (device.memory or part.memory)),
            )
            for part in device.slices
        }
        self._cells[""] = _Cell("", inf, 1.0)
        needs = {demand.need for demand in demands if demand.need is not None}
        sizes = [part.memory for part in device.slices if is_balanced(part, device)]
        smallest = {min((m for m in sizes if USABLE * m >= need), default=0) for need in needs}
        fitting = {
            part.resource
            for part in device.slices
            if part.memory in smallest and is_balanced(part, device)
        }
        self._ways = (WHOLE, *geometries(device, fitting))

    def cells(self, cut: Mapping[Geometry, int]) -> Cells:
        found: Counter[str] = Counter()
        for way, devices in cut.items():
            for resource, count in way or (("", 1),):
                found[resource] += count * devices
        return found

    def replayed(self, cut: Mapping[Geometry, int], demands: Sequence[DeviceDemand]) -> Waits:
        return replay(self.cells(cut), self._cells, demands)

    def improved(
        self, before: Mapping[Geometry, int], demands: Sequence[DeviceDemand]
    ) -> Mapping[Geometry, int]:
        """Return the cut after the changes that gain most, one after another."""
        best, least = dict(before), self.replayed(before, demands).objective
        while True:
            found = min(self._changes(best, 1, demands), key=lambda each: each[0], default=None)
            if found is None or not found[0] < least * (1 - _LEAST_GAIN):
                return best
            least, best, change = found
            # The same change again, as long as it goes on helping: pools have hundreds of devices.
            while (more := self._changed(best, *change, 1)) is not None:
                objective = self.replayed(more, demands).objective
                if not objective < least * (1 - _LEAST_GAIN):
                    break
                least, best = objective, more

    def _changes(
        self, cut: Mapping[Geometry, int], devices: int, demands: Sequence[DeviceDemand]
    ) -> Iterable[tuple[float, dict[Geometry, int], tuple[Geometry, Geometry]]]:
        for old in cut:
            for new in self._ways:
                changed = self._changed(cut, old, new, devices) if new != old else None
                if changed is not None:
                    yield self.replayed(changed, demands).objective, changed, (old, new)

    @staticmethod
    def _changed(
        cut: Mapping[Geometry, int], old: Geometry, new: Geometry, devices: int
    ) -> dict[Geometry, int] | None:
        if cut.get(old, 0) < devices:
            return None
        changed = Counter(cut)
        changed[old] -= devices
        changed[new] += devices
        return {way: count for way, count in changed.items() if count}

    def is_stable(self, before: Mapping[Geometry, int], demands: Sequence[DeviceDemand]) -> bool:
        """Return whether advice from either half of the time would have helped in the other."""
        ordered = sorted(demands, key=_rank)
        middle = (ordered[0].at + ordered[-1].at) / 2
        halves = [
            [demand for demand in ordered if (demand.at < middle) is first]
            for first in (True, False)
        ]
        for learned, tried in (halves, reversed(halves)):
            now = self.replayed(before, tried).waited
            if not learned or now <= 0:
                continue
            then = self.replayed(self.improved(before, learned), tried).waited
            if then > now * (1 - WORTH):
                return False
        return True


def replay(cells: Cells, units: Mapping[str, _Cell], demands: Sequence[DeviceDemand]) -> Waits:
    """Return what Jobs wait on a pool with so many units of each resource.

    Who can never start there waits for ever: infinitely long.
    """
    return _PoolReplay(cells, units, demands).run()


class _PoolReplay:
    """A ClusterQueue whose flavors are the units of one pool, the smallest first."""

    def __init__(
        self, cells: Cells, units: Mapping[str, _Cell], demands: Sequence[DeviceDemand]
    ) -> None:
        self._cells = cells
        self._units = sorted((units[name] for name in cells if name in units), key=_size)
        self._demands = sorted(demands, key=_rank)
        self._kinds = Counter((demand.need, demand.devices) for demand in self._demands)
        self._fitting = {kind: self._fits(kind[0]) for kind in self._kinds}

    def _fits(self, need: int | None) -> tuple[str, ...]:
        """Return the resources of which one unit is enough, the smallest first."""
        if need is None:
            return tuple(unit.resource for unit in self._units if not unit.resource)
        return tuple(unit.resource for unit in self._units if unit.memory >= need)

    def run(self) -> Waits:
        if any(not self._could_ever(kind) for kind in self._kinds):
            return Waits(waited=inf)
        begun = self._begun()
        by_day: defaultdict[int, float] = defaultdict(float)
        used: defaultdict[str, float] = defaultdict(float)
        for start in begun:
            demand = self._demands[int(start.key)]
            waited = (self._begin + start.at - demand.at) * demand.devices
            by_day[int(demand.at // 86_400)] += waited / _HOUR
            used[start.flavors[0]] += demand.devices * demand.seconds
        hours = max((start.finish for start in begun), default=0.0) / _HOUR
        free = {
            unit: self._cells[unit.resource] * hours - used[unit.resource] / _HOUR
            for unit in self._units
        }
        return Waits(
            waited=sum(by_day.values()),
            by_day=by_day,
            fragmented=sum(left * self._useless(unit) for unit, left in free.items()),
            free=sum(left * unit.part for unit, left in free.items()),
        )

    def _could_ever(self, kind: tuple[int | None, int]) -> bool:
        return any(self._cells[name] >= kind[1] for name in self._fitting[kind])

    def _useless(self, unit: _Cell) -> float:
        """Return which part of a device is of no use to the average Job while a unit is free."""
        without = (n for kind, n in self._kinds.items() if unit.resource not in self._fitting[kind])
        return unit.part * sum(without) / max(1, len(self._demands))

    @property
    def _begin(self) -> float:
        return self._demands[0].at if self._demands else 0.0

    def _begun(self) -> Sequence[StartedWorkloads]:
        """Return when each of the demands starts; its place is its key."""
        queue = self._queue()
        (tree,) = quota.plant({_POOL: queue}, {}).trees
        # Nobody is to wait for Kueue's requeue batch.
        simulation = Simulation(tree, [queue], kueue=KueueConfig(requeue_seconds=0.0))
        asked = {
            kind: Demand(parts=(tuple(_choice(name, kind[1]) for name in names),), combinations=())
            for kind, names in self._fitting.items()
        }
        for place, demand in enumerate(self._demands):
            simulation.add_waiting(
                PendingGroup(
                    cluster_queue=_POOL,
                    demand=asked[demand.need, demand.devices],
                    seconds=demand.seconds,
                    at=demand.at - self._begin,
                    key=str(place),
                )
            )
        simulation.run()
        return simulation.begun

    def _queue(self) -> ClusterQueue:
        names = tuple(unit.resource for unit in self._units)
        quotas = {(name, _UNITS): Quota(nominal=self._cells[name]) for name in names}
        group = ResourceGroup(resources=(_UNITS,), flavors=names, quotas=quotas)
        return ClusterQueue(name=_POOL, groups=(group,))


def _choice(resource: str, units: int) -> FlavorChoice:
    return FlavorChoice(flavor=resource, usage=(((resource, _UNITS), units),))


def _rank(demand: DeviceDemand) -> tuple[float, float, float, int]:
    return demand.rank


def _size(unit: _Cell) -> tuple[float, float, str]:
    return unit.memory, unit.part, unit.resource
