"""When pending Jobs may be due to be moved at the soonest: a bound that costs no forecast.

A Job is moved when it is about to start, where it is or where it would go (``plan``), and quota
comes free no sooner than those that hold it are expected to finish, whoever waits for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from webhook.decide import filters, match, options
from webhook.kueue.durations import remaining
from webhook.kueue.flavor_plan import Demand, demand, flavors_with_topology
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import needs
from webhook.kueue.soonest_start import IdleTrees, SoonestStarts
from webhook.kueue.tree_workloads import GRAIN, Occupant
from webhook.learn.expected_runs import Expecting, held
from webhook.model.decision import Rejection
from webhook.model.fields import FieldError
from webhook.model.forecasts import JobClass
from webhook.model.job import OURS, Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.queues import Snapshot
from webhook.reconsider import plan
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeLine:
    """The places of pending Jobs that are alike in Kueue's order, ascending."""

    ages: Sequence[int]
    movable: Sequence[int]
    """Of those that their own limits let be moved now."""


class _Holding(NamedTuple):
    """How long quota is held, in seconds: the middle and the mean."""

    seconds: float
    mean: float


_UNKNOWN = _Holding(inf, inf)


class DueTimes:
    """Tells when Jobs may be due to be moved at the soonest, at one instant.

    Until then none is, unless quota comes free or other Jobs join: what is expected of a run never
    makes it end sooner the longer it lasts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        running: Sequence[Occupant],
        now: float,
        *,
        idle: IdleTrees | None = None,
    ) -> None:
        """*idle* as for ``SoonestStarts``."""
        self._snapshot = snapshot
        self._run_times = LentRunTimes(snapshot)
        self.starts = SoonestStarts(snapshot, running, self._run_times, now, idle=idle)
        self._known: dict[tuple[AlikeJobs, str], _Holding] = {}

    def first(self, groups: Collection[AlikeJobs | None]) -> float:
        """Return in how many seconds the first of the Jobs may be due; 0 or less: now."""
        return min(
            (-inf if group is None else self._of_any(group) for group in groups), default=inf
        )

    def first_tried(self, lines: Mapping[AlikeJobs, AlikeLine], *, most: int) -> float:
        """Return in how many seconds the first of the Jobs may be due that a plan would try.

        Where many wait, a plan tries only the last Jobs of a kind, and of few kinds: none of these
        starts before all that are alike and older. *lines* are of all Jobs that wait, and each of
        them can be moved to all other options. 0 or less: now, or it tries others, too.
        """
        tries = plan.tries_among(sum(len(line.ages) for line in lines.values()))
        last = plan.first_size(tries, most)
        moves = [
            (self._run(group, place).seconds - self._run(group, group.here).seconds, group, place)
            for group in lines
            for place in group.places
            if place is not group.here
        ]
        losses = sorted(loss for loss, group, _ in moves if lines[group].movable)
        # The first try is the forecast without moves.
        if len(losses) < tries - 1 or not all(map(self._is_foreseen, lines)):
            return 0.0
        most_lost = losses[tries - 2]
        return min(
            (
                self._of_last(group, place, lines[group], last)
                for loss, group, place in moves
                # What may not be moved yet may be at any moment, and is tried then.
                if loss <= most_lost or not lines[group].movable
            ),
            default=inf,
        )

    def _is_foreseen(self, group: AlikeJobs) -> bool:
        """Tell whether all runs are known, and what is open to a Job now will be so later."""
        is_limited = any(option.guests is not None for option in group.policy.spec.options)
        return not is_limited and all(
            self._run(group, place) is not _UNKNOWN for place in group.places
        )

    def _of_any(self, group: AlikeJobs) -> float:
        here = self._start(group, group.here)
        return min(
            (
                min(here, self._start(group, place)) - plan.soon(self._run(group, place).seconds)
                for place in group.places
                if place is not group.here
            ),
            default=inf,
        )

    def _of_last(self, group: AlikeJobs, place: _Place, line: AlikeLine, last: int) -> float:
        """Return when the last of alike Jobs may be due that could be moved to a place."""
        oldest = line.movable[-last:][0] if line.movable else line.ages[0]
        ahead = bisect_left(line.ages, oldest)
        here = self._start(group, group.here, ahead=ahead)
        there = self._start(group, place)
        return min(here, there) - plan.soon(self._run(group, place).seconds)

    def _start(self, group: AlikeJobs, place: _Place, *, ahead: int = 0) -> float:
        """Return when a Job would start at a place at the soonest."""
        run = self._run(group, place)
        if run is _UNKNOWN:
            return -inf
        start = self.starts.of(place.cluster_queue, place.demand)
        if ahead:
            # Before it start those ahead of it. Until one of them ends, all of them hold quota.
            after_all = self.starts.of(place.cluster_queue, place.demand, ahead=ahead)
            start = min(after_all, (start + run.mean) / (1 + GRAIN))
        return start

    def _run(self, group: AlikeJobs, place: _Place) -> _Holding:
        key = group, place.option.name
        if key not in self._known:
            self._known[key] = self._expected(group, place)
        return self._known[key]

    def _expected(self, group: AlikeJobs, place: _Place) -> _Holding:
        expecting = Expecting(
            run_times=self._snapshot.run_times,
            job_class=group.job_class,
            policy=group.policy,
            first_flavors=group.places[0].flavors,
            start_delays=self._snapshot.start_delays,
        )
        name = class_name(group.job_class, group.policy.name, place.option.name)
        run = held(expecting, place.option, place.flavors)
        lent = self._run_times(name, place.flavors)
        if run is None or lent is None:
            return _UNKNOWN
        return _Holding(run.seconds, remaining(lent)[0])
