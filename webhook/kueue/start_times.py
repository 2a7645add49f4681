"""When new Jobs would start by the published forecasts, beside the Jobs that these lack.

A Job that was just decided is in no forecast yet. Its quota counts as taken from the start that its
own decision found until its run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, inf

from webhook.kueue.durations import learned_on, of_any_class, remaining
from webhook.kueue.flavor_plan import Demand, demand
from webhook.kueue.newcomer import NEWEST, Newcomer, PlacedJob
from webhook.kueue.tree_forecast import FoundStart, TreeForecast, start_of
from webhook.kueue.tree_workloads import age_of
from webhook.model.fields import FieldError
from webhook.model.forecasts import RunTime, home_of, of_queue
from webhook.model.queues import Arrival, PodSetNeeds, Snapshot


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Published forecasts with the placements that they lack; each change returns another value."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    placed: Mapping[str, tuple[PlacedJob, ...]] = field(default_factory=dict)
    """By the key of an arrival what it adds to the forecasts, the oldest first."""

    def adopt(self, snapshot: Snapshot) -> StartTimes:
        """Return the same placements beside the forecasts of *snapshot*."""
        return replace(self, snapshot=snapshot)

    def forecast(self, cluster_queue: str) -> TreeForecast | None:
        """Return the forecast of a ClusterQueue's tree; None: there is none."""
        found: TreeForecast | None = self.snapshot.forecasts.get(cluster_queue)
        return found

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
        *run_seconds* as for ``tree_forecast.start_of``. *needs*: what its pods ask for of the
        domains of Topologies. *created*: the time by which its queue orders it, in seconds since
        1970; None: it is new.
        """
        forecast = self.forecast(cluster_queue)
        queue = self.snapshot.cluster_queues.get(cluster_queue)
        if forecast is None or queue is None:
            return None
        newcomer = Newcomer(
            queue=queue,
            demand=demand,
            priority=priority,
            local_queue=local_queue,
            needs=needs,
            age=NEWEST if created is None else float(age_of(created)),
        )
        return start_of(
            forecast,
            newcomer,
            self.snapshot,
            now=now,
            among=[placement for of_one in self.placed.values() for placement in of_one],
            run_seconds=run_seconds,
        )

    def add(self, arrival: Arrival, now: float) -> StartTimes:
        """Add an arrival that was decided at *now*, after all others.

        The same value is returned where its ClusterQueue is not known or has no forecast, or a
        template cannot be read.
        """
        local_queue = self.snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
        name = local_queue.cluster_queue if local_queue is not None else ""
        forecast, queue = self.forecast(name), self.snapshot.cluster_queues.get(name)
        if forecast is None or queue is None:
            return self
        try:
            asked = demand(arrival.needs, queue, self.snapshot)
        except FieldError:
            return self
        run = _run_of(arrival, name, asked, self.snapshot)
        unknown = forecast.queues[name].unknown_seconds
        seconds, spread = (unknown, unknown) if run is None else remaining(run)
        added = self
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

    def drop(self, keys: Iterable[str]) -> StartTimes:
        """Remove arrivals that the forecasts contain by now, or whose Workloads never came."""
        gone = frozenset(keys) & self.placed.keys()
        if not gone:
            return self
        return replace(self, placed={key: of for key, of in self.placed.items() if key not in gone})


def _run_of(
    arrival: Arrival, cluster_queue: str, asked: Demand, snapshot: Snapshot
) -> RunTime | None:
    """Return how long it is expected to run; None: that is not known."""
    # Without a decision only time limits are known of its run; what its class took comes first.
    if arrival.run is None or arrival.job_class is not None:
        return _learned(arrival, cluster_queue, asked, snapshot) or arrival.run
    return arrival.run


def _learned(
    arrival: Arrival, cluster_queue: str, asked: Demand, snapshot: Snapshot
) -> RunTime | None:
    """Return the run time learned of its class, or else of any class in the ClusterQueue.

    It is that on the flavors that Kueue tries first; None: too few runs are known.
    """
    for flavors in asked.combinations[:1]:
        job_class = arrival.job_class
        known = job_class and learned_on(snapshot.run_times, job_class, flavors)
        home = home_of(job_class.key) if job_class else arrival.namespace
        return known or of_any_class(snapshot.run_times, of_queue(cluster_queue, home), flavors)
    return None
