"""The worker clusters of a replay, as MultiKueue's AllAtOnce dispatcher uses them.

A Workload with quota at the manager is sent to all its active clusters, after the start delay of
the options that lead there. The first with quota for it takes it, and the others drop it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from webhook.decide import remote_options
from webhook.kueue import multikueue, occupancy
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.schedule import Schedule, StartedWorkloads
from webhook.kueue.start_times import placed
from webhook.learn import expected_runs
from webhook.learn.estimates import RunTimeLearner
from webhook.model.forecasts import Estimates
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, seconds
from webhook.model.queues import Amounts, Arrival
from webhook.simulate.replayed_forecasts import Forecasts
from webhook.simulate.scenario import Worker
from webhook.simulate.site import QueuedJob, Site, TrueRunTimes, amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A Workload that a cluster has reserved quota for."""

    cluster: str
    begun: StartedWorkloads
    usage: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coming:
    """A Workload on its way to a cluster."""

    one: QueuedJob
    sent_by: str
    sent: float
    comes: float
    age: int


@dataclass(slots=True, kw_only=True)
class _Cluster:
    site: Site
    is_watched: bool
    first: int
    """Number of its first schedule, among all in the replay."""
    coming: dict[str, _Coming]


class Workers:
    """All worker clusters; their schedules are numbered after those of the manager."""

    def __init__(
        self, given: Mapping[str, Worker], manager: Site, policies: Sequence[FallbackPolicy]
    ) -> None:
        """Begin with empty clusters; the start delays of all *policies* are the true ones."""
        self._manager, self._policies = manager, policies
        self._clusters: dict[str, _Cluster] = {}
        self._of_schedule: list[tuple[str, Schedule]] = []
        self._delays: dict[tuple[str, str], float] = {}
        self._began: dict[str, float] = {}
        """Key to the time at which it began in a cluster."""
        self._number = 0
        for name, worker in given.items():
            self._add(name, worker)

    def _add(self, name: str, worker: Worker) -> None:
        policies = self._manager.snapshot.policies if worker.watched else ()
        snapshot = replace(worker.snapshot, policies=policies)

        def known(*own: Estimates) -> tuple[Estimates, Estimates]:
            here = self._manager.snapshot
            given = (here.worker_clusters, here.cluster_queues, here.checks)
            runs, starts = (
                expected_runs.together(
                    expected_runs.lent(each, *given)[name], mine, snapshot.cluster_queues
                )
                for each, mine in zip(self._manager.forecasts.learned(), own, strict=True)
            )
            return runs, starts

        ruling = self._manager.snapshot
        site = Site(snapshot, Forecasts(snapshot, RunTimeLearner(), ruling=ruling, known=known))
        first = len(self._manager.schedules) + len(self._of_schedule)
        self._clusters[name] = _Cluster(
            site=site, is_watched=worker.watched, first=first, coming={}
        )
        self._of_schedule += [(name, schedule) for schedule in site.schedules]

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(schedule for _, schedule in self._of_schedule)

    def leads_away(self, cluster_queue: str) -> bool:
        """Return whether a Workload with quota in a ClusterQueue of the manager runs elsewhere.

        If not all of the queue's clusters are known, the manager's quota is all there is.
        """
        if not self._clusters:
            return False
        here = self._manager.snapshot
        queue = here.cluster_queues[cluster_queue]
        return multikueue.is_multikueue(queue, here) and not multikueue.unknown(
            queue, here, self._clusters
        )

    def around(self, here: Occupancy, job: Job, now: float) -> Occupancy:
        """Add what admission would know of the watched clusters."""
        found = {
            name: _with_coming(name, each, job, now)
            for name, each in self._clusters.items()
            if each.is_watched
        }
        return replace(here, clusters=found) if found else here

    def expected(self, arrival: Arrival, view: Occupancy) -> Arrival:
        """Return where a Job without a decision is expected to go."""
        if arrival.cluster or not self._clusters:
            return arrival
        place = arrival.namespace, arrival.local_queue
        return replace(arrival, cluster=remote_options.likely(view, place))

    def send(self, one: QueuedJob, begun: StartedWorkloads) -> Iterator[tuple[float, int]]:
        """Send a Workload with quota at the manager.

        Yield when something happens in which schedule.
        """
        here = self._manager.snapshot
        self._number += 1
        coming = _Coming(
            one=one,
            sent_by=",".join(sorted(set(begun.flavors))),
            sent=begun.at,
            comes=begun.at + self._delay(one),
            age=self._number,
        )
        for name in multikueue.behind(here.cluster_queues[one.cluster_queue], here):
            each = self._clusters.get(name)
            if each is None or multikueue.inactive(name, here) or not each.site.schedules:
                continue
            each.coming[one.key] = coming
            yield coming.comes, each.first

    def arrive(self, number: int, now: float) -> Iterator[int]:
        """Queue the Workloads that have reached a schedule's cluster; yield their schedules."""
        name, _ = self._of_schedule[number - len(self._manager.schedules)]
        each = self._clusters[name]
        for key in [key for key, coming in each.coming.items() if coming.comes <= now]:
            coming = each.coming.pop(key)
            runs = TrueRunTimes(coming.one, sent_by=coming.sent_by)
            index = each.site.join(coming.one, runs, now=coming.comes, age=coming.age)
            if index is not None:
                yield each.first + index

    def note(self, number: int) -> Iterator[Taken]:
        """Record which Workloads ended and started in the last step of a schedule."""
        name, schedule = self._of_schedule[number - len(self._manager.schedules)]
        site = self._clusters[name].site
        for ended in schedule.runs.ended:
            site.end(ended, ran_from=ended.at)
        for begun in schedule.runs.released:
            site.release(begun, amounts(schedule, begun))
        for begun in schedule.begun:
            usage = amounts(schedule, begun)
            site.begin(begun, usage)
            site.forecasts.start(begun.key, begun.at, usage)
            self._drop(begun.key, but=name)
            self._began[begun.key] = begun.at
            yield Taken(cluster=name, begun=begun, usage=usage)
        schedule.runs.ended.clear()
        schedule.runs.released.clear()
        schedule.begun.clear()

    def began(self, ended: StartedWorkloads) -> float:
        """Return when a Workload of the manager began to run, here or in a worker cluster."""
        return self._began.pop(ended.key, ended.at)

    def _drop(self, key: str, *, but: str) -> None:
        for name, each in self._clusters.items():
            each.coming.pop(key, None)
            if name != but and key in each.site.queued:
                each.site.leave(key)

    def _delay(self, one: QueuedJob) -> float:
        """Return how many seconds the way to a worker takes, by the policies' start delays."""
        place = one.arrival.local_queue, one.cluster_queue
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


def _with_coming(name: str, each: _Cluster, job: Job, now: float) -> Occupancy:
    """Count the Workloads on their way in the cluster where admission expects them."""
    view, snapshot = each.site.view(job, now), each.site.forecasts.published
    for coming in each.coming.values():
        arrival = coming.one.arrival
        if arrival.cluster != name:
            continue
        view = occupancy.with_arrival(view, arrival)
        if (found := placed(arrival, snapshot, coming.sent)) is not None:
            view = replace(view, start_times=view.start_times.add(found))
    return view
