"""One cluster in a replay: its queues and Workloads, and what admission would know of it.

Kueue's rules come from the same schedules as forecasts, with true run times instead of expected
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from webhook.kueue import occupancy, quota
from webhook.kueue.flavor_plan import NOWHERE, Demand, demand
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.queue_heads import PendingGroup
from webhook.kueue.quota import UsageTree
from webhook.kueue.schedule import Schedule, StartedWorkloads
from webhook.model.fields import FieldError
from webhook.model.forecasts import JobClass
from webhook.model.job import Job
from webhook.model.queues import (
    Amounts,
    Arrival,
    ClusterQueue,
    FlavorResource,
    Guest,
    Held,
    Queueing,
    Snapshot,
    StopPolicy,
    namespace_labels,
)
from webhook.simulate.replayed_forecasts import Forecasts, Joining
from webhook.simulate.scenario import Submission


@dataclass(slots=True)
class _QueueCounts:
    """Counts of one ClusterQueue."""

    pending: int = 0
    reserving: int = 0
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    guests: Counter[Guest] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Priorities of Workloads with quota reserved."""

    def held(self) -> Held:
        return Held(
            pending=self.pending,
            reserving=self.reserving,
            usage={cell: amount for cell, amount in self.usage.items() if amount},
            guests=dict(+self.guests),
            lowest_priority=min(+self.priorities, default=None),
        )


class KnownOccupancy:
    """Counts of all ClusterQueues, and the Occupancy made of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._view = occupancy.build(snapshot)
        self._counts_of = {name: _QueueCounts() for name in snapshot.cluster_queues}
        self._changed: set[str] = set()
        self._with_heads = frozenset(
            name
            for name, queue in snapshot.cluster_queues.items()
            if queue.queueing is Queueing.STRICT
        )

    @property
    def sets_aside(self) -> bool:
        """Return whether there are StrictFIFO queues, whose heads may keep others out."""
        return bool(self._with_heads)

    def join(self, cluster_queue: str, arrival: Arrival) -> None:
        """Count a Workload as pending."""
        counts = self._counts(cluster_queue)
        counts.pending += 1
        if arrival.policy:
            counts.guests[arrival.policy, arrival.option, arrival.namespace] += 1

    def leave(self, cluster_queue: str, arrival: Arrival) -> None:
        """Remove a pending Workload from the counts: it is moved."""
        counts = self._counts(cluster_queue)
        counts.pending -= 1
        if arrival.policy:
            counts.guests[arrival.policy, arrival.option, arrival.namespace] -= 1

    def start(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Count a pending Workload as reserving quota."""
        counts = self._counts(cluster_queue)
        counts.pending -= 1
        counts.reserving += 1
        counts.usage.update(usage)
        counts.priorities[arrival.priority] += 1

    def end(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Remove a Workload and its usage from the counts."""
        counts = self._counts(cluster_queue)
        counts.reserving -= 1
        counts.usage.subtract(usage)
        counts.priorities[arrival.priority] -= 1
        if arrival.policy:
            counts.guests[arrival.policy, arrival.option, arrival.namespace] -= 1

    def at(self, snapshot: Snapshot, heads: Mapping[str, Arrival]) -> Occupancy:
        """Return the occupancy with the latest counts; all else is from *snapshot*.

        *heads*: the first pending Workload of each StrictFIFO ClusterQueue that admits any.
        """
        names = self._changed | self._with_heads
        held = {**self._view.snapshot.held}
        for name in names:
            found = self._counts_of[name].held()
            held[name] = replace(found, pending=0) if name in heads else found
        snapshot = replace(snapshot, held=held)
        view = occupancy.as_held(replace(self._view, snapshot=snapshot), names)
        self._changed.clear()
        for name, head in heads.items():
            pending = self._counts_of[name].pending
            # They are counted as guests of their policy already.
            alike = replace(head, policy="", option="", count=pending)
            view = occupancy.with_waiting(view, alike)
        self._view = view
        return view

    def _counts(self, name: str) -> _QueueCounts:
        self._changed.add(name)
        return self._counts_of[name]


Runs: TypeAlias = Mapping[str, tuple[float, float]]
"""Flavors, joined by commas, to the seconds that a Job really runs there, and a spread."""
UNTIL_TOLD: Runs = {}
"""For Workloads that hold quota until something else ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """An admitted review's Job, and where its Workload is."""

    submission: Submission
    arrival: Arrival
    job: Job
    job_class: JobClass
    generation: int
    """Generation of the policy that decided; 0: none did."""
    cluster_queue: str = ""

    @property
    def key(self) -> str:
        return self.submission.name


class Site:
    """A cluster; it begins with empty queues."""

    def __init__(self, snapshot: Snapshot, forecasts: Forecasts) -> None:
        self.snapshot, self.forecasts = snapshot, forecasts
        self.known = KnownOccupancy(snapshot)
        self.schedules = tuple(_schedules(snapshot))
        self.places = {
            name: index
            for index, schedule in enumerate(self.schedules)
            for name in schedule.tree.leaves
        }
        """ClusterQueue to the number of its schedule."""
        self.queued: dict[str, QueuedJob] = {}
        """Workloads that wait or hold quota, by key."""
        self._demands: dict[Demand, Demand] = {}
        """Equal demands are one object, so that Workloads with the same one share a line."""

    def view(self, job: Job, now: float) -> Occupancy:
        """Return what admission would know when *job* is decided."""
        view = self.known.at(self.forecasts.seen(job, now), self.heads())
        return self.forecasts.foreseen(view)

    def cluster_queue(self, arrival: Arrival) -> ClusterQueue | None:
        """Return where a Workload waits; None: Kueue does not queue it."""
        place = self.snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
        if place is None or place.stop_policy is not StopPolicy.NONE:
            return None
        return self.snapshot.cluster_queues.get(place.cluster_queue)

    def join(self, one: QueuedJob, runs: Runs, *, now: float, age: int) -> int | None:
        """Add a pending Workload.

        Return the number of its schedule, None: Kueue never considers it.
        """
        arrival, queue = one.arrival, self.cluster_queue(one.arrival)
        if queue is None:
            return None
        self.known.join(queue.name, arrival)
        index = self.places.get(queue.name)
        if index is None or not self._is_selected(arrival, queue):
            return None
        self.queued[one.key] = replace(one, cluster_queue=queue.name)
        asked = self._demand(arrival, queue)
        joining = Joining(
            key=one.key,
            cluster_queue=queue.name,
            arrival=arrival,
            demand=asked,
            job_class=one.job_class,
            generation=one.generation,
        )
        self.forecasts.join(joining, now, age=age)
        waiting = PendingGroup(
            cluster_queue=queue.name,
            demand=asked,
            seconds=inf,
            by_flavors=runs,
            priority=arrival.priority,
            at=now,
            key=one.key,
        )
        self.schedules[index].add_waiting(waiting, age=age)
        return index

    def leave(self, key: str) -> int | None:
        """Remove a pending Workload; return its age if forecasts follow it."""
        one = self.queued.pop(key)
        self.schedules[self.places[one.cluster_queue]].withdraw(key)
        self.known.leave(one.cluster_queue, one.arrival)
        return self.forecasts.leave(key)

    def begin(self, begun: StartedWorkloads, usage: Amounts) -> QueuedJob:
        """Let a pending Workload reserve quota."""
        one = self.queued[begun.key]
        self.known.start(one.cluster_queue, one.arrival, usage)
        return one

    def end(self, ended: StartedWorkloads, *, ran_from: float) -> None:
        """Learn from a run."""
        flavors = ",".join(sorted(set(ended.flavors)))
        self.forecasts.end(ended.key, ran_from, ended.finish, flavors)

    def release(self, begun: StartedWorkloads, usage: Amounts) -> None:
        """Release a Workload's quota.

        Idle quota is not known to be free before its handover: waiting Workloads count as holding
        it, as in ``kueue.occupancy``.
        """
        one = self.queued.pop(begun.key)
        self.known.end(one.cluster_queue, one.arrival, usage)

    def heads(self) -> Mapping[str, Arrival]:
        """Return the first pending Workload of each StrictFIFO queue."""
        if not self.known.sets_aside:
            return {}
        return {
            line.queue.name: self.queued[line.entries[0][2].waiting.key].arrival
            for schedule in self.schedules
            for line in schedule.waiting()
            if line.is_strict
        }

    def _is_selected(self, arrival: Arrival, queue: ClusterQueue) -> bool:
        return queue.namespaces.matches(namespace_labels(self.snapshot, arrival.namespace))

    def _demand(self, arrival: Arrival, queue: ClusterQueue) -> Demand:
        try:
            found = demand(arrival.needs, queue, self.snapshot)
        except FieldError:
            # Kueue cannot assign it either: it stays pending.
            found = NOWHERE
        return self._demands.setdefault(found, found)


class TrueRunTimes(Runs):
    """Flavors to how long one Job really runs there; a time that is never needed may be missing."""

    def __init__(self, one: QueuedJob, *, sent_by: str = "") -> None:
        """Use the run times of *one*; *sent_by*: in a worker cluster, the manager's flavors."""
        self._submission, self._option = one.submission, one.arrival.option
        self._sent_by = sent_by

    def __getitem__(self, flavors: str) -> tuple[float, float]:
        seconds = self._submission.seconds_on(flavors, self._option, sent_by=self._sent_by)
        return seconds, 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self._submission.run_seconds)

    def __len__(self) -> int:
        return len(self._submission.run_seconds)


def amounts(schedule: Schedule, begun: StartedWorkloads) -> Amounts:
    return {schedule.tree.cells[cell]: amount for cell, amount in begun.usage}


def _schedules(snapshot: Snapshot) -> Iterator[Schedule]:
    """Yield a schedule for each tree, with empty queues."""
    forest = quota.plant(snapshot.cluster_queues, snapshot.cohorts).forest
    for root in sorted({forest.nodes[index].root for index in forest.places.values()}):
        schedule = Schedule(
            UsageTree(forest, root),
            snapshot.cluster_queues.values(),
            kueue=snapshot.kueue,
            live=True,
        )
        schedule.start_what_fits()
        yield schedule
