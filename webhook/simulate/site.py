"""One cluster in a replay: its queues and Workloads, what admission would know, and its workers.

Kueue's rules come from the same simulations as forecasts, with true run times instead of expected
ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from webhook.decide import remote_options
from webhook.kueue import multikueue, quota
from webhook.kueue.flavor_plan import NOWHERE, Demand, demand
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Simulation
from webhook.learn import expected_runs
from webhook.learn.estimates import RunTimeLearner
from webhook.model.fields import FieldError
from webhook.model.forecasts import Estimates
from webhook.model.job import Job, Requester
from webhook.model.policy.fallback_policy import FallbackPolicy, seconds
from webhook.model.quantity import Amounts
from webhook.model.queues import (
    Arrival,
    ClusterQueue,
    Preemption,
    Queueing,
    StopPolicy,
)
from webhook.simulate.replayed_forecasts import Forecasts, QueuedJob
from webhook.simulate.scenario import ReplayedPrices, Worker
from webhook.state import counted_arrivals
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import Occupancy
from webhook.state.queue_counts import HeldCounts
from webhook.state.snapshot import Snapshot, updated


class KnownOccupancy:
    """Counts of all ClusterQueues, and the Occupancy made of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._view = occupancy_of(snapshot)
        self._counts_of = {name: HeldCounts() for name in snapshot.setup.cluster_queues}
        self._changed: set[str] = set()
        self._with_heads = frozenset(
            name
            for name, queue in snapshot.setup.cluster_queues.items()
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
        _count_guest(counts, arrival, 1)

    def leave(self, cluster_queue: str, arrival: Arrival) -> None:
        """Remove a pending Workload from the counts: it is moved."""
        counts = self._counts(cluster_queue)
        counts.pending -= 1
        _count_guest(counts, arrival, -1)

    def start(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Count a pending Workload as reserving quota."""
        counts = self._counts(cluster_queue)
        counts.pending -= 1
        counts.count_reserving(arrival.priority, usage.items(), 1)

    def preempt(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Count a Workload that reserved quota as pending again."""
        counts = self._counts(cluster_queue)
        counts.pending += 1
        counts.count_reserving(arrival.priority, usage.items(), -1)

    def end(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Remove a Workload and its usage from the counts."""
        counts = self._counts(cluster_queue)
        counts.count_reserving(arrival.priority, usage.items(), -1)
        _count_guest(counts, arrival, -1)

    def at(self, snapshot: Snapshot, heads: Mapping[str, Arrival]) -> Occupancy:
        """Return the occupancy with the latest counts; all else is from *snapshot*.

        *heads*: the first pending Workload of each StrictFIFO ClusterQueue that admits any.
        """
        names = self._changed | self._with_heads
        held = {**self._view.snapshot.workloads.held}
        for name in names:
            queue_held = self._counts_of[name].held()
            held[name] = replace(queue_held, pending=0) if name in heads else queue_held
        snapshot = updated(snapshot, held=held)
        view = counted_arrivals.as_held(replace(self._view, snapshot=snapshot), names)
        self._changed.clear()
        for name, head in heads.items():
            pending = self._counts_of[name].pending
            # They are counted as guests of their policy already.
            alike = replace(head, policy="", option="", count=pending)
            view = counted_arrivals.with_waiting(view, alike)
        self._view = view
        return view

    def _counts(self, name: str) -> HeldCounts:
        self._changed.add(name)
        return self._counts_of[name]


def _count_guest(counts: HeldCounts, arrival: Arrival, step: int) -> None:
    """Count a Workload as a guest of its policy, if one decided."""
    if not arrival.policy:
        return
    counts.guests[arrival.policy, arrival.option, arrival.namespace] += step
    if arrival.job_class is not None:
        counts.trials[arrival.policy, arrival.option, arrival.job_class.key] += step


Runs: TypeAlias = Mapping[str, tuple[float, float]]
"""Flavors, joined by commas, to the seconds that a Job really runs there, and a spread."""
UNTIL_ENDED: Runs = {}
"""For Workloads that hold quota until something else ends them."""


class Site:
    """A cluster; it begins with empty queues."""

    def __init__(self, snapshot: Snapshot, forecasts: Forecasts, *, preempts: bool = False) -> None:
        """With *preempts*, Workloads may lose their quota as the ClusterQueues' policies say."""
        self.snapshot, self.forecasts = snapshot, forecasts
        self.known = KnownOccupancy(snapshot)
        self.simulations = tuple(_simulations(snapshot, preempts=preempts))
        self.places = {
            name: index
            for index, simulation in enumerate(self.simulations)
            for name in simulation.tree.leaves
        }
        """ClusterQueue to the number of its simulation."""
        self.queued: dict[str, QueuedJob] = {}
        """Workloads that wait or hold quota, by key."""
        self._idle: defaultdict[int, list[StartedWorkloads]] = defaultdict(list)
        """By the number of a simulation what has ended there since its last requeue batch."""
        self._demands: dict[Demand, Demand] = {}
        """Equal demands are one object, so that Workloads with the same one share a line."""

    def view(self, job: Job | None, now: float, requester: Requester | None) -> Occupancy:
        """Return what admission would know when *job*, created by *requester*, is decided.

        None: what it would know if there was anything to choose.
        """
        view = self.known.at(self.forecasts.seen(job, now, requester), self.heads())
        return self.forecasts.foreseen(view)

    def cluster_queue(self, arrival: Arrival) -> ClusterQueue | None:
        """Return where a Workload waits; None: Kueue does not queue it."""
        place = self.snapshot.setup.local_queues.get((arrival.namespace, arrival.local_queue))
        if place is None or place.stop_policy is not StopPolicy.NONE:
            return None
        return self.snapshot.setup.cluster_queues.get(place.cluster_queue)

    def join(self, queued: QueuedJob, runs: Runs, now: float) -> int | None:
        """Add a pending Workload.

        Return the number of its simulation, None: Kueue never considers it.
        """
        arrival, queue = queued.arrival, self.cluster_queue(queued.arrival)
        if queue is None:
            return None
        self.known.join(queue.name, arrival)
        index = self.places.get(queue.name)
        if index is None or not queue.namespaces.matches(
            self.snapshot.cluster.labels_of(arrival.namespace)
        ):
            return None
        queued = replace(queued, cluster_queue=queue.name, demand=self._demand(arrival, queue))
        self.queued[queued.key] = queued
        self.forecasts.join(queued, now)
        waiting = PendingGroup(
            cluster_queue=queue.name,
            demand=queued.demand,
            seconds=inf,
            by_flavors=runs,
            priority=arrival.priority,
            at=now,
            key=queued.key,
        )
        self.simulations[index].add_waiting(waiting, age=queued.age)
        return index

    def leave(self, key: str) -> None:
        """Remove a pending Workload."""
        queued = self.queued.pop(key)
        self.simulations[self.places[queued.cluster_queue]].withdraw(key)
        self.known.leave(queued.cluster_queue, queued.arrival)
        self.forecasts.leave(key)

    def begin(self, begun: StartedWorkloads, usage: Amounts) -> QueuedJob:
        """Let a pending Workload reserve quota."""
        queued = self.queued[begun.key]
        self.known.start(queued.cluster_queue, queued.arrival, usage)
        return queued

    def preempt(self, key: str, usage: Amounts) -> None:
        """Let a Workload that holds quota wait again."""
        queued = self.queued[key]
        self.known.preempt(queued.cluster_queue, queued.arrival, usage)
        self.forecasts.preempt(key)

    def end(self, ended: StartedWorkloads, *, ran_from: float) -> None:
        """Learn from a run."""
        flavors = ",".join(sorted(set(ended.flavors)))
        self.forecasts.end(ended.key, ran_from, ended.finish, flavors)

    def release(self, number: int) -> None:
        """Release the quota of what has ended in a simulation, once those who wait were tried.

        Until then they count as holding it, as in ``kueue.counted_arrivals``.
        """
        simulation = self.simulations[number]
        self._idle[number] += simulation.ended
        if simulation.is_settled or not any(simulation.waiting()):
            for ended in self._idle.pop(number):
                queued = self.queued.pop(ended.key)
                usage = amounts(simulation, ended)
                self.known.end(queued.cluster_queue, queued.arrival, usage)

    def heads(self) -> Mapping[str, Arrival]:
        """Return the first pending Workload of each StrictFIFO queue."""
        if not self.known.sets_aside:
            return {}
        return {
            line.queue.name: self.queued[line.entries[0][2].waiting.key].arrival
            for simulation in self.simulations
            for line in simulation.waiting()
            if line.is_strict
        }

    def _demand(self, arrival: Arrival, queue: ClusterQueue) -> Demand:
        try:
            asked = demand(arrival.needs, queue, self.snapshot.setup)
        except FieldError:
            # Kueue cannot assign it either: it stays pending.
            asked = NOWHERE
        return self._demands.setdefault(asked, asked)


class TrueRunTimes(Runs):
    """Flavors to how long one Job really runs there; a time that is never needed may be missing."""

    def __init__(self, queued: QueuedJob) -> None:
        self._submission, self._option = queued.submission, queued.arrival.option
        self._sent_by = queued.sent_by

    def __getitem__(self, flavors: str) -> tuple[float, float]:
        seconds = self._submission.seconds_on(flavors, self._option, sent_by=self._sent_by)
        return seconds, 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self._submission.run_seconds)

    def __len__(self) -> int:
        return len(self._submission.run_seconds)


def amounts(simulation: Simulation, held: StartedWorkloads) -> Amounts:
    return {simulation.tree.cells[cell]: amount for cell, amount in held.usage}


def _simulations(snapshot: Snapshot, *, preempts: bool) -> Iterator[Simulation]:
    """Yield a simulation for each tree, with empty queues."""
    queues = [
        queue if preempts else replace(queue, preemption=Preemption())
        for queue in snapshot.setup.cluster_queues.values()
    ]
    for tree in quota.plant(snapshot.setup.cluster_queues, snapshot.setup.cohorts).trees:
        simulation = Simulation(
            tree,
            queues,
            kueue=snapshot.setup.kueue,
            came_one_by_one=False,
        )
        simulation.step()
        yield simulation


@dataclass(slots=True, kw_only=True)
class _Cluster:
    site: Site
    is_watched: bool
    first: int
    """Number of its first simulation, among all in the replay."""
    coming: dict[str, QueuedJob]
    """Workloads on their way to it, by key."""


class Workers:
    """All worker clusters; their simulations are numbered after those of the manager."""

    def __init__(
        self,
        given: Mapping[str, Worker],
        manager: Site,
        policies: Sequence[FallbackPolicy],
        prices: ReplayedPrices | None = None,
    ) -> None:
        """Begin with empty clusters; the start delays of all *policies* are the true ones.

        *prices* are as in ``Forecasts``.
        """
        self._manager, self._policies, self._prices = manager, policies, prices
        self._clusters: dict[str, _Cluster] = {}
        self._of_simulation: list[tuple[str, Simulation]] = []
        self._delays: dict[tuple[str, str], float] = {}
        self._began: dict[str, float] = {}
        """Key to the time at which it began in a cluster."""
        self._number = 0
        for name, worker in given.items():
            self._add(name, worker)

    def _add(self, name: str, worker: Worker) -> None:
        policies = self._manager.snapshot.fallback.policies if worker.watched else ()
        snapshot = worker.snapshot.with_policies(policies)

        def known(*own: Estimates) -> tuple[Estimates, Estimates]:
            here = self._manager.snapshot
            given = (here.setup.worker_clusters, here.setup.cluster_queues, here.setup.checks)
            runs, starts = (
                expected_runs.together(
                    expected_runs.lent(learned, *given)[name], mine, snapshot.setup.cluster_queues
                )
                for learned, mine in zip(self._manager.forecasts.learned(), own, strict=True)
            )
            return runs, starts

        forecasts = Forecasts(
            snapshot,
            RunTimeLearner(),
            ruling=self._manager.snapshot,
            known=known,
            prices=self._prices,
            cluster=name,
        )
        site = Site(snapshot, forecasts)
        first = len(self._manager.simulations) + len(self._of_simulation)
        self._clusters[name] = _Cluster(
            site=site, is_watched=worker.watched, first=first, coming={}
        )
        self._of_simulation += [(name, simulation) for simulation in site.simulations]

    @property
    def simulations(self) -> tuple[Simulation, ...]:
        return tuple(simulation for _, simulation in self._of_simulation)

    def leads_away(self, cluster_queue: str) -> bool:
        """Return whether a Workload with quota in a ClusterQueue of the manager runs elsewhere.

        If not all of the queue's clusters are known, the manager's quota is all there is.
        """
        if not self._clusters:
            return False
        here = self._manager.snapshot
        queue = here.setup.cluster_queues[cluster_queue]
        return multikueue.is_multikueue(queue, here.setup) and not multikueue.unknown(
            queue, here.setup, self._clusters
        )

    def around(
        self, here: Occupancy, job: Job | None, now: float, requester: Requester | None
    ) -> Occupancy:
        """Add what admission would know of the watched clusters; *job* as for ``Site.view``."""
        clusters = {
            name: _with_coming(name, cluster, cluster.site.view(job, now, requester))
            for name, cluster in self._clusters.items()
            if cluster.is_watched
        }
        return replace(here, clusters=clusters) if clusters else here

    def expected(self, arrival: Arrival, view: Occupancy) -> Arrival:
        """Return where a Job without a decision is expected to go."""
        if arrival.cluster or not self._clusters:
            return arrival
        place = arrival.namespace, arrival.local_queue
        return replace(arrival, cluster=remote_options.likely(view, place))

    def sent(self, queued: QueuedJob, begun: StartedWorkloads) -> QueuedJob:
        """Return a Workload that has quota at the manager as it comes to the worker clusters."""
        self._number += 1
        return replace(
            queued,
            age=self._number,
            sent_by=",".join(sorted(set(begun.flavors))),
            sent=begun.at,
            comes=begun.at + self._delay(queued),
        )

    def send_to_all(self, coming: QueuedJob) -> Iterator[tuple[float, int]]:
        """Send a Workload to all worker clusters behind its queue, as AllAtOnce does."""
        here = self._manager.snapshot.setup
        for name in multikueue.behind(here.cluster_queues[coming.cluster_queue], here):
            yield from self._send(coming, name)

    def send(self, coming: QueuedJob, arrival: Arrival, now: float) -> Iterator[tuple[float, int]]:
        """Send a Workload to the cluster that is nominated for it *now*."""
        comes = now + coming.comes - coming.sent
        yield from self._send(replace(coming, arrival=arrival, comes=comes), arrival.cluster)

    def _send(self, coming: QueuedJob, name: str) -> Iterator[tuple[float, int]]:
        """Yield when it arrives in a cluster, with the number of its first simulation."""
        cluster = self._clusters.get(name)
        if cluster is None or multikueue.inactive(name, self._manager.snapshot.setup):
            return
        if cluster.site.simulations:
            cluster.coming[coming.key] = coming
            yield coming.comes, cluster.first

    def dispatched(self, now: float) -> Occupancy:
        """Return what the dispatcher knows of the watched clusters."""
        # The manager's quota as if nobody held any: those who wait for a cluster have theirs.
        here = counted_arrivals.idle(self._manager.forecasts.snapshot(now))
        return self.around(here, None, now, None)

    def waits(self, now: float) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Yield the watched clusters, with in how many seconds each that waits there starts."""
        for name, cluster in self._clusters.items():
            if cluster.is_watched:
                yield name, cluster.site.forecasts.starts(now)

    def arrive(self, number: int, now: float) -> Iterator[int]:
        """Queue the Workloads that have reached a simulation's cluster; yield their simulations."""
        cluster = self._clusters[self.cluster_of(number)]
        for key in [key for key, coming in cluster.coming.items() if coming.comes <= now]:
            coming = cluster.coming.pop(key)
            index = cluster.site.join(coming, TrueRunTimes(coming), coming.comes)
            if index is not None:
                yield cluster.first + index

    def cluster_of(self, number: int) -> str:
        """Return the cluster that a simulation is of."""
        return self._of_simulation[number - len(self._manager.simulations)][0]

    def note(self, number: int) -> Iterator[StartedWorkloads]:
        """Record which Workloads ended in the last step of a simulation; yield who started."""
        name, simulation = self._of_simulation[number - len(self._manager.simulations)]
        site = self._clusters[name].site
        for ended in simulation.ended:
            site.end(ended, ran_from=ended.at)
        site.release(site.simulations.index(simulation))
        for begun in simulation.begun:
            usage = amounts(simulation, begun)
            site.begin(begun, usage)
            site.forecasts.start(begun.key, begun.at, usage)
            self._drop(begun.key, but=name)
            self._began[begun.key] = begun.at
            yield begun
        simulation.ended.clear()
        simulation.begun.clear()

    def began(self, ended: StartedWorkloads) -> float:
        """Return when a Workload of the manager began to run, here or in a worker cluster."""
        return self._began.pop(ended.key, ended.at)

    def _drop(self, key: str, *, but: str) -> None:
        for name, cluster in self._clusters.items():
            cluster.coming.pop(key, None)
            if name != but and key in cluster.site.queued:
                cluster.site.leave(key)

    def _delay(self, queued: QueuedJob) -> float:
        """Return how many seconds the way to a worker takes, by the policies' start delays."""
        place = queued.arrival.local_queue, queued.cluster_queue
        if place not in self._delays:
            self._delays[place] = max(
                (
                    seconds(option.start_delay)
                    for policy in self._policies
                    for option in policy.spec.options
                    if option.queue == place[0] or option.cluster_queue == place[1]
                ),
                default=0.0,
            )
        return self._delays[place]


def _with_coming(name: str, cluster: _Cluster, view: Occupancy) -> Occupancy:
    """Count the Workloads on their way in the cluster where admission expects them."""
    for coming in cluster.coming.values():
        arrival = coming.arrival
        if arrival.cluster != name:
            continue
        view = counted_arrivals.with_arrival(view, arrival)
        view = replace(view, start_times=view.start_times.add(arrival, coming.sent))
    return view
