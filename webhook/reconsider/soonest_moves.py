"""When pending Jobs may be due to be moved at the soonest: a bound that costs no forecast.

A Job is moved when it is about to start, where it is or where it would go (``plan``), and quota
comes free no sooner than those that hold it are expected to finish, whoever waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from webhook.decide import filters, match, options
from webhook.kueue.durations import remaining
from webhook.kueue.flavor_plan import Demand, demand, flavors_with_topology
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import needs
from webhook.kueue.soonest_start import SoonestStarts
from webhook.kueue.tree_workloads import Occupant
from webhook.learn.expected_runs import Expecting, held
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.forecasts import JobClass
from webhook.model.job import OURS, Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.queues import Snapshot
from webhook.reconsider.plan import soon
from webhook.state.forecast_input import LentRunTimes, class_name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An option in which Jobs may wait."""

    option: Option
    cluster_queue: str
    demand: Demand
    flavors: str
    """The only ones that they may get there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlikeJobs:
    """Jobs that are due together, as far as the bound tells."""

    policy: FallbackPolicy
    job_class: JobClass
    here: _Place
    places: tuple[_Place, ...]
    """Of all options, the first one first."""


class SoonestMoves:
    """Tells which pending Jobs are alike."""

    def __init__(self, occupancy: Occupancy) -> None:
        """Read queues and policies from *occupancy*; they stay as they are."""
        self._occupancy = occupancy
        self._policies = {policy.name: policy for policy in occupancy.snapshot.policies}
        self._known: dict[tuple[object, ...], tuple[object, AlikeJobs | None]] = {}

    def alike(self, pending: Pending) -> AlikeJobs | None:
        """Return what a Job has in common with others; None: it may be due at any time."""
        job = pending.job
        key = (
            id(job.pod_sets),
            job.kind,
            job.namespace,
            pending.policy,
            pending.option,
            pending.queue,
            tuple(sorted(job.labels.items())),
            tuple(sorted(job.annotations.items())),
        )
        if key not in self._known:
            # The pod sets are kept beside their id: a freed object's id could be given to others.
            self._known[key] = job.pod_sets, self._work_out(pending)
        return self._known[key][1]

    def _work_out(self, pending: Pending) -> AlikeJobs | None:
        job, policy = pending.job, self._policies[pending.policy]
        # What a Job's owner says of its run, and what the price of devices says, is left out here.
        if policy.spec.strategy.least_cost is not None or any(
            key.startswith(OURS) for key in job.annotations
        ):
            return None
        try:
            places = tuple(self._places(pending, policy))
            job_class = match.class_of(job, policy, self._occupancy.snapshot)
        except FieldError:
            return None
        here = next((place for place in places if place.option.name == pending.option), None)
        if here is None or len(places) < len(policy.spec.options):
            return None
        return AlikeJobs(policy=policy, job_class=job_class, here=here, places=places)

    def _places(self, pending: Pending, policy: FallbackPolicy) -> Iterator[_Place]:
        """Yield the options in which all that a Job waits for is quota of certain flavors."""
        snapshot = self._occupancy.snapshot
        job = pending.job.as_created
        for option in policy.spec.options:
            queues = filters.resolve(option, job, pending.queue, self._occupancy)
            if isinstance(queues, Rejection):
                continue
            _, queue = queues
            asked = demand(needs(options.adapted(job, option, policy), snapshot), queue, snapshot)
            is_more = queue.checks or flavors_with_topology(queue, snapshot) or asked.fewer
            if is_more or len(asked.combinations) != 1:
                continue
            yield _Place(
                option=option,
                cluster_queue=queue.name,
                demand=asked,
                flavors=asked.combinations[0],
            )


def due_in(
    groups: Collection[AlikeJobs | None],
    snapshot: Snapshot,
    running: Sequence[Occupant],
    now: float,
) -> float:
    """Return in how many seconds the first of the Jobs may be due to be moved; 0 or less: now.

    Until then none is, unless quota comes free or other Jobs join: what is expected of a run never
    makes it end sooner the longer it lasts.
    """
    known = [group for group in groups if group is not None]
    if len(known) < len(groups):
        return 0.0
    run_times = LentRunTimes(snapshot)
    starts = SoonestStarts(snapshot, running, run_times, now)
    return min((_due_in(group, snapshot, starts, run_times) for group in known), default=inf)


def _due_in(
    group: AlikeJobs, snapshot: Snapshot, starts: SoonestStarts, run_times: LentRunTimes
) -> float:
    expecting = Expecting(
        run_times=snapshot.run_times,
        job_class=group.job_class,
        policy=group.policy,
        first_flavors=group.places[0].flavors,
        start_delays=snapshot.start_delays,
    )

    def soonest(place: _Place) -> tuple[float, float]:
        """Return when a Job would start there, as ``plan`` counts, and for how long it would run.

        A plan takes a run's middle from its expected end, which is its mean after the start.
        """
        name = class_name(group.job_class, group.policy.name, place.option.name)
        run, lent = held(expecting, place.option, place.flavors), run_times(name, place.flavors)
        if run is None or lent is None:
            return -inf, inf
        start = starts.of(place.cluster_queue, place.demand)
        return start + remaining(lent)[0] - run.seconds, run.seconds

    here, _ = soonest(group.here)
    there = [soonest(place) for place in group.places if place is not group.here]
    return min((min(here, start) - soon(runs) for start, runs in there), default=inf)
