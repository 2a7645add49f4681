"""The forecast of one cohort tree, and when new Jobs would start by it, beside those that it lacks.

What runs and what is pending is not known here: the log of the simulation contains it. A Job that
was just decided is in no forecast yet: its quota counts as taken from the start that its own
decision found until its run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, inf, sqrt

from webhook.kueue.assignment import held_elsewhere
from webhook.kueue.cycle_log import CycleLog
from webhook.kueue.durations import learned_on, of_any_class, remaining
from webhook.kueue.flavor_plan import Demand, demand, demand_of, flavors_with_topology
from webhook.kueue.newcomer import NEWEST, FoundStart, Newcomer, PlacedJob, Replay
from webhook.kueue.quota import UsageTree
from webhook.kueue.simulation import EVICTION_SECONDS
from webhook.kueue.tree_workloads import age_of
from webhook.model.fields import FieldError
from webhook.model.forecasts import (
    SIGMAS_OF_A_SIDE,
    Estimates,
    RunTime,
    Start,
    Unseen,
    home_of,
    of_queue,
)
from webhook.model.quantity import Amounts
from webhook.model.queues import Arrival, Held, PodSetNeeds
from webhook.model.snapshot_parts import KueueSetup

_WIDER = 1.5
"""Factor by which each reason for uncertainty widens a range."""
_LEAST_PART = 0.25
"""Least half-width of an uncertain range, as a part of the wait."""
_LEAST_DELAY = 0.05
"""Part of a wait by which those who come later must prolong it: simulations that differ anywhere
differ by a little everywhere."""
_MOST_PREEMPTED = 16
"""So often a newcomer is looked up again that others preempt."""
PREEMPTION = "preemption"
"""A reason why a start is uncertain: those who are still to come may preempt the Job."""
ARRIVALS = "arrivals"
"""A reason why a start is uncertain: others that are expected to come may come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOutlook:
    """What is known of one ClusterQueue beside the log of its tree."""

    waits: float = 0.0
    """Seconds until all that is pending has started, except what can never fit; inf: never."""
    unknown_seconds: float
    """How long a run is taken to be here whose run time is not known."""
    unordered: str = ""
    """Why it is not known which pending Workload is tried next: "fairSharing",
    "partialAdmission", "concurrentAdmission"; empty: it is."""
    uncertain: tuple[str, ...] = ()
    """Why ranges are widened: "preemption", "fairSharing", "cohortReclaim", "admissionFairSharing",
    "admissionChecks", "podsReady", "topology", "depth", "runTimes"."""
    outranked_below: int | None = None
    """New Jobs below this priority may be preempted here by others; None: nobody is."""

    def of(self, priority: int) -> QueueOutlook:
        """Return it without doubts that a Job of this priority need not have."""
        if self.outranked_below is None or priority < self.outranked_below:
            return self
        # Nobody can preempt it.
        certain = tuple(reason for reason in self.uncertain if reason != PREEMPTION)
        return replace(self, uncertain=certain)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeForecast:
    """What new Jobs find in one cohort tree from now on."""

    computed_at: float
    """On the clock of ``Snapshot.as_of``; the log counts from here."""
    tree: UsageTree
    """With nothing used."""
    log: CycleLog
    later: CycleLog | None = None
    """The same with the Workloads that are expected to come from then on; None: none are."""
    expected_per_second: float = 0.0
    """How many of these come to the tree."""
    queues: Mapping[str, QueueOutlook]
    unseen: tuple[Unseen, ...] = ()
    highest: float = -inf
    """The highest priority that was pending."""
    first_by_use: frozenset[str] = frozenset()
    """LocalQueues (``namespace/name``) that come before all others of their ClusterQueues by what
    they have used."""

    def waits(self, cluster_queue: str, now: float) -> float:
        """Return in how many seconds all that is pending in a ClusterQueue has started.

        What can never fit does not count; inf: some never start.
        """
        return max(0.0, self.queues[cluster_queue].waits - self.elapsed(now))

    def elapsed(self, now: float) -> float:
        """Return for how many seconds it has been known; *now* as for ``computed_at``."""
        return max(0.0, now - self.computed_at)

    @property
    def next_event(self) -> float:
        """Seconds until something is expected to happen; inf: nothing is."""
        return next((at for at in self.log.times if at > 0.0), inf)


def start_of(forecast: TreeForecast, newcomer: Newcomer, *, run_seconds: float = 0.0) -> FoundStart:
    """Return the expected start of a newcomer, in seconds from when it comes; inf: never.

    It comes after the Jobs that were placed before it, and others that are expected to come may
    come first. With *run_seconds* it is the start from which it runs to its end though others may
    preempt it.
    """
    found = _start_in(forecast.log, forecast, newcomer, run_seconds)
    if forecast.later is None or found.start.seconds in (0.0, inf):
        return found
    # Who was placed since is one of those who were expected to come.
    later = _start_in(forecast.later, forecast, replace(newcomer, among=()), 0.0).start
    return replace(found, start=overtaken(found.start, later, forecast.expected_per_second))


def _start_in(
    log: CycleLog, forecast: TreeForecast, newcomer: Newcomer, run_seconds: float
) -> FoundStart:
    """Return the start of a newcomer by one of a forecast's logs."""
    outlook = forecast.queues[newcomer.queue.name].of(newcomer.priority)
    found, preempted_by = _last(log, forecast, newcomer, run_seconds)
    if found is None:
        never = Start(seconds=inf, low=inf, high=inf, uncertain=outlook.uncertain)
        return FoundStart(start=_with_doubts(never, None, outlook, forecast, newcomer))
    if found.preempts:
        start = _start_on_preempted(found, outlook, forecast, newcomer)
    else:
        start = ranged(outlook, found.at - forecast.elapsed(newcomer.now), found.spread)
        start = _with_doubts(start, found, outlook, forecast, newcomer)
    return replace(
        found,
        start=replace(start, preempted_by=preempted_by) if preempted_by else start,
        usage=forecast.tree.amounts(found.assigned.taken),
    )


def _last(
    log: CycleLog, forecast: TreeForecast, newcomer: Newcomer, run_seconds: float
) -> tuple[FoundStart | None, int]:
    """Return from where the newcomer runs to its end, and how many preempt it before."""
    since, count = forecast.elapsed(newcomer.now), 0
    found = None
    for _ in range(_MOST_PREEMPTED):
        replay = Replay(forecast.tree, log, newcomer, began=forecast.computed_at)
        found = replay.begin(since)
        if found is None or not run_seconds:
            return found, count
        runs_from = found.at + EVICTION_SECONDS * found.preempts
        preempted = replay.preempted_at(found, runs_from + run_seconds)
        if preempted is None:
            return found, count
        since, number = preempted
        count += number
    return found, count


def _start_on_preempted(
    found: FoundStart, outlook: QueueOutlook, forecast: TreeForecast, newcomer: Newcomer
) -> Start:
    """Return the start of a Job for which others stop."""
    after = found.at - forecast.elapsed(newcomer.now)
    seconds = after + EVICTION_SECONDS
    if after > EVICTION_SECONDS:
        # Until then it waits as others do: for runs to end, and for its turn.
        start = ranged(outlook, seconds, found.spread)
        start = _with_doubts(start, found, outlook, forecast, newcomer)
        return replace(start, preempts=True, preempts_later=True)
    # It waits for nobody but its victims, so neither others' run times nor their order matter.
    is_next = _is_next(forecast, newcomer)
    return replace(ranged(outlook, seconds, 0.0), preempts=True, is_next=is_next)


def _unplaced(found: FoundStart | None, newcomer: Newcomer) -> str:
    """Say that it is not known when a domain has room for a Job that needs one; empty: it is.

    Each Job whose flavors have a Topology does, whether it asks for it or not.
    """
    queue, asked = newcomer.queue, newcomer.demand
    if asked.flavors.isdisjoint(flavors_with_topology(queue, newcomer.setup)):
        return ""
    is_known = found is not None and found.assigned.placed and not queue.checks
    return "" if is_known else "topology"


def _with_doubts(
    start: Start,
    found: FoundStart | None,
    outlook: QueueOutlook,
    forecast: TreeForecast,
    newcomer: Newcomer,
) -> Start:
    """Add to a start what is not known of it: run times ahead of it, or the order."""
    # A Job that starts at once waits for nobody, so nothing about others can be wrong.
    if start.seconds == 0.0:
        return start
    cells, priority = newcomer.demand.cells, newcomer.priority
    namespace = newcomer.local_queue.partition("/")[0]
    unseen = sum(
        jobs.count
        for jobs in forecast.unseen
        if not cells.isdisjoint(jobs.cells)
        and (jobs.priority is None or jobs.priority >= priority)
        and namespace not in jobs.known_in
    )
    now = forecast.computed_at + forecast.elapsed(newcomer.now)
    unseen += sum(
        placement.is_unseen and not cells.isdisjoint(placement.usage)
        for placement in newcomer.among
        if placement.cluster_queue in forecast.queues
        and (placement.start <= now or placement.priority >= priority)
    )
    unordered = outlook.unordered or _unplaced(found, newcomer)
    is_next = _is_next(forecast, newcomer)
    return replace(start, unseen=unseen, unordered=unordered, is_next=is_next)


def _is_next(forecast: TreeForecast, newcomer: Newcomer) -> bool:
    """Return whether all pending Workloads come after the newcomer."""
    # Use comes before priority.
    if newcomer.queue.usage_based:
        return newcomer.local_queue in forecast.first_by_use
    return -inf < forecast.highest < newcomer.priority


def wait_for(
    forecast: TreeForecast,
    cluster_queue: str,
    usage: Amounts,
    setup: KueueSetup,
    now: float,
) -> Start:
    """Return when a new Job would get this quota of one flavor, after all that are pending."""
    newcomer = Newcomer(
        queue=setup.cluster_queues[cluster_queue], demand=demand_of(usage), setup=setup, now=now
    )
    return start_of(forecast, newcomer).start


def pending_start(outlook: QueueOutlook, seconds: float, spread: float, *, priority: int) -> Start:
    """Return the start of a Workload that is pending already, with its range.

    *seconds*: when the simulation lets it start; inf: it never does. *spread*: the standard
    deviation of that.
    """
    outlook = outlook.of(priority)
    if seconds == inf:
        return Start(seconds=inf, low=inf, high=inf, uncertain=outlook.uncertain)
    return ranged(outlook, seconds, spread)


def ranged(outlook: QueueOutlook, seconds: float, spread: float) -> Start:
    """Return a start with the range that holds about 80 % of cases, wider where uncertain."""
    least = _LEAST_PART * seconds if outlook.uncertain else 0.0
    width = max(SIGMAS_OF_A_SIDE * spread, least) * _WIDER ** len(outlook.uncertain)
    return Start(
        seconds=seconds,
        low=max(0.0, seconds - width),
        high=seconds + width,
        uncertain=outlook.uncertain,
    )


def overtaken(start: Start, later: Start, per_second: float) -> Start:
    """Return a start before which others may come that are not there yet.

    *later* is the start if they come as often as they have, *per_second*.
    """
    delay = later.seconds - start.seconds
    if not _LEAST_DELAY * start.seconds < delay < inf:
        return start
    # The number of those that come within a time varies as the root of its mean.
    off = SIGMAS_OF_A_SIDE * delay / sqrt(max(1.0, per_second * later.seconds))
    is_large = later.seconds > start.high
    return replace(
        start,
        seconds=later.seconds if is_large else start.seconds,
        high=max(start.high, later.high, later.seconds + off),
        uncertain=(*start.uncertain, ARRIVALS),
    )


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Published forecasts with the placements that they lack; each change returns another value."""

    setup: KueueSetup = field(default_factory=KueueSetup)
    held: Mapping[str, Held] = field(default_factory=dict)
    """ClusterQueue to what it holds."""
    run_times: Estimates = field(default_factory=dict)
    forecasts: Mapping[str, TreeForecast] = field(default_factory=dict)
    """ClusterQueue to the forecast of its tree."""
    placed: Mapping[str, tuple[PlacedJob, ...]] = field(default_factory=dict)
    """By the key of an arrival what it adds to the forecasts, the oldest first."""

    def forecast(self, cluster_queue: str) -> TreeForecast | None:
        """Return the forecast of a ClusterQueue's tree; None: there is none."""
        return self.forecasts.get(cluster_queue)

    def start_of(  # noqa: PLR0913 - what one asks of a forecast
        self,
        cluster_queue: str,
        demand: Demand,
        *,
        now: float,
        priority: int = 0,
        local_queue: str = "",
        run_seconds: float = 0.0,
        needs: Sequence[PodSetNeeds] = (),
        created: int | None = None,
    ) -> FoundStart | None:
        """Return when a new Job would start after all placements; None: there is no forecast.

        *now* is on the clock of ``Snapshot.as_of``; the start is in seconds from *now* on.
        *local_queue* (``namespace/name``) counts where these are served by their use.
        *run_seconds* as for ``start_of``. *needs*: what its pods ask for of the
        domains of Topologies. *created*: the time by which its queue orders it, in seconds since
        1970; None: it is new.
        """
        forecast = self.forecast(cluster_queue)
        queue = self.setup.cluster_queues.get(cluster_queue)
        if forecast is None or queue is None:
            return None
        newcomer = Newcomer(
            queue=queue,
            demand=demand,
            setup=self.setup,
            now=now,
            among=[placement for of_one in self.placed.values() for placement in of_one],
            priority=priority,
            local_queue=local_queue,
            needs=needs,
            elsewhere=held_elsewhere(self.held, forecast.tree.leaves) if needs else {},
            age=NEWEST if created is None else float(age_of(created)),
        )
        return start_of(forecast, newcomer, run_seconds=run_seconds)

    def add(self, arrival: Arrival, now: float) -> StartTimes:
        """Add an arrival that was decided at *now*, after all others.

        The same value is returned where its ClusterQueue is not known or has no forecast, or a
        template cannot be read.
        """
        local_queue = self.setup.local_queues.get((arrival.namespace, arrival.local_queue))
        name = local_queue.cluster_queue if local_queue is not None else ""
        forecast, queue = self.forecast(name), self.setup.cluster_queues.get(name)
        if forecast is None or queue is None:
            return self
        try:
            asked = demand(arrival.needs, queue, self.setup)
        except FieldError:
            return self
        run = _run_of(arrival, name, asked, self.run_times)
        unknown = forecast.queues[name].unknown_seconds
        seconds, spread = (unknown, unknown) if run is None else remaining(run)
        added = self._without_ended(now)
        for _ in range(arrival.count):
            found = added.start_of(
                name,
                asked,
                now=now,
                priority=arrival.priority,
                local_queue=arrival.local_queue_key,
                needs=arrival.needs,
            )
            # What never starts takes no quota from anybody.
            if found is None or found.start.seconds == inf:
                break
            begins = now + found.start.seconds
            placement = PlacedJob(
                cluster_queue=name,
                usage=found.usage,
                start=begins,
                end=begins + seconds,
                priority=arrival.priority,
                spread=hypot(found.spread, spread),
                is_unseen=run is None,
            )
            before = added.placed.get(arrival.key, ())
            added = replace(added, placed={**added.placed, arrival.key: (*before, placement)})
        return added

    def _without_ended(self, now: float) -> StartTimes:
        """Leave out arrivals that take nothing any more, if it is known how long they run."""
        left = {
            key: of_one
            for key, of_one in self.placed.items()
            if any(placement.end > now or placement.is_unseen for placement in of_one)
        }
        return replace(self, placed=left)

    def drop(self, keys: Iterable[str]) -> StartTimes:
        """Remove arrivals that the forecasts contain by now, or whose Workloads never came."""
        gone = frozenset(keys) & self.placed.keys()
        if not gone:
            return self
        return replace(self, placed={key: of for key, of in self.placed.items() if key not in gone})


def _run_of(
    arrival: Arrival, cluster_queue: str, asked: Demand, run_times: Estimates
) -> RunTime | None:
    """Return how long it is expected to run; None: that is not known."""
    # Without a decision only time limits are known of its run; what its class took comes first.
    if arrival.run is None or arrival.job_class is not None:
        return _learned(arrival, cluster_queue, asked, run_times) or arrival.run
    return arrival.run


def _learned(
    arrival: Arrival, cluster_queue: str, asked: Demand, run_times: Estimates
) -> RunTime | None:
    """Return the run time learned of its class, or else of any class in the ClusterQueue.

    It is that on the flavors that Kueue tries first; None: too few runs are known.
    """
    for flavors in asked.combinations[:1]:
        job_class = arrival.job_class
        known = job_class and learned_on(run_times, job_class, flavors)
        home = home_of(job_class.key) if job_class else arrival.namespace
        return known or of_any_class(run_times, of_queue(cluster_queue, home), flavors)
    return None
