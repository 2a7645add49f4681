"""How all pending Workloads would fare if some Jobs were moved, by the forecasts of decisions.

Running and pending Workloads go in once, in Kueue's order, each Job that may be moved under its own
key; every set of moves is then forecast on them. Which moves are worth making is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from webhook.kueue import forecast
from webhook.kueue.forecast import Occupant, QueuedGroup
from webhook.kueue.live_occupancy import LiveOccupancy
from webhook.kueue.occupancy import Occupancy
from webhook.model.queues import Arrival, Snapshot
from webhook.reconsider.offers import (
    JobOptions,
    MoveQuestion,
    ReconsiderInput,
    class_text_of_workload,
)
from webhook.reconsider.plan import NEVER_SECONDS, Move, Moved, Prospect, Rank
from webhook.state import forecast_input
from webhook.state.workload import Workload


class Lineup:
    """Running and pending Workloads, with each Job that may be moved under its own key."""

    def __init__(self, world: ReconsiderInput, asked: Mapping[str, MoveQuestion]) -> None:
        self._world = world
        self._run_times = forecast_input.LentRunTimes(world.snapshot)
        clock = world.now - world.unix

        def key_of(workload: Workload) -> str:
            key = f"{workload.namespace}/{workload.job}" if workload.job else ""
            return key if key in asked else ""

        self._running: list[Occupant] = []
        self._waiting: list[QueuedGroup] = []
        for name in sorted(world.contents):
            contents = world.contents[name]
            self._running += forecast_input.occupants(name, contents.holding, clock)
            self._waiting += forecast_input.queued(contents.waiting, clock, key_of=key_of)
        self._waiting.sort(key=lambda each: each.arrival.created)
        self.length = sum(each.arrival.count for each in self._waiting)
        self._offers: dict[tuple[str, str], QueuedGroup] = {}
        """(key, option) to what would be pending in that option after a move."""
        self._here = {
            key: class_text_of_workload(each, each.option, world.snapshot)
            for key, each in asked.items()
        }
        """Key to the class by which its run time is looked up where it is."""
        self._ranks = {key: rank_of(each) for key, each in asked.items()}
        """Key to the rank for which its finish counts."""
        self._counts: defaultdict[Rank, int] = defaultdict(int)
        """Rank to the number of its pending Workloads."""
        self._waiting = [self._ranked(self._with_class(each)) for each in self._waiting]
        plan = self._planned(self._waiting)
        self._as_it_is = self._prospect(plan)
        # Options are assessed on the same profiles that moves are compared by.
        self.occupancy = _occupancy(replace(world.snapshot, profiles=plan.profiles))

    def offer(self, each: MoveQuestion, offers: JobOptions) -> None:
        """Add the options that a Job could be moved to."""
        key = each.pending.key
        # Kueue follows a move with the same Workload, whose creation time stays (decision 0013),
        # so the Job keeps its place in the order.
        for offer in offers.offers:
            arrival = replace(offer.arrival, key=key, created=each.workload.created)
            queued = QueuedGroup(arrival=arrival, job_class=offer.job_class)
            self._offers[key, offer.way.option] = queued

    def arrival(self, move: Move) -> Arrival:
        """Return what would be pending after a move."""
        return self._offers[move.candidate.key, move.way.option].arrival

    def foresee(self, moved: Moved) -> Prospect:
        """Forecast when all pending Workloads finish if these Jobs were moved."""
        if not moved:
            return self._as_it_is
        waiting: list[QueuedGroup] = []
        for each in self._waiting:
            arrival = each.arrival
            if arrival.key in moved:
                # The group stays with a count of 0, so that unknown run times are estimated alike.
                waiting.append(self._offers[arrival.key, moved[arrival.key].option])
                arrival = replace(arrival, count=0)
            waiting.append(replace(each, arrival=arrival))
        return self._prospect(self._planned(waiting))

    def _prospect(self, plan: forecast.Planned) -> Prospect:
        """Sum up the finishes of a forecast, by rank."""
        # Workloads that never start are in no forecast, and count with NEVER_SECONDS each.
        of_ranks = {rank: count * NEVER_SECONDS for rank, count in self._counts.items()}
        for begun in plan.begun:
            sooner = (begun.finish - NEVER_SECONDS) * begun.count
            of_ranks[self._ranks[begun.key]] += sooner
        finishes = {begun.key: begun.finish for begun in plan.begun}
        return Prospect(finishes=finishes, total=sum(of_ranks.values()), of_ranks=of_ranks)

    def _ranked(self, each: QueuedGroup) -> QueuedGroup:
        """Return a group with a key: a movable Job's own, or one for all others of its rank."""
        arrival = each.arrival
        if arrival.key not in self._here:
            rank = Rank(arrival.policy, arrival.namespace, arrival.priority)
            arrival = replace(arrival, key=f"of {rank}")
            self._ranks[arrival.key] = rank
        self._counts[self._ranks[arrival.key]] += arrival.count
        return replace(each, arrival=arrival)

    def _with_class(self, each: QueuedGroup) -> QueuedGroup:
        """Return a movable Job's group with the class by which its policy expects run times."""
        found = self._here.get(each.arrival.key)
        return each if found is None else replace(each, job_class=found)

    def _planned(self, waiting: Sequence[QueuedGroup]) -> forecast.Planned:
        world = self._world
        return forecast.planned(
            world.snapshot, self._running, waiting, self._run_times, world.now, world.contents
        )


def rank_of(each: MoveQuestion) -> Rank:
    """Return a Job's rank, with the priority that its Workload has now."""
    return Rank(each.policy.name, each.pending.job.namespace, each.workload.priority)


def _occupancy(snapshot: Snapshot) -> Occupancy:
    """Return the occupancy of a snapshot with its pending Workloads counted in."""
    live = LiveOccupancy()
    live.adopt(snapshot)
    return live.occupancy
