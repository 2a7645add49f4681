"""Forecasts and run times during a replay, as the observer would publish them.

It learns only what the API server would show of Workloads: admissions and run times in whole
seconds. True run times of pending Jobs are not known here.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

from webhook.cost.congestion import STEP_SECONDS, by_queue, next_prices, rules_by_tree
from webhook.cost.lateness_weights import LateShares, followed_lateness, weighted
from webhook.decide import match
from webhook.decide.wishes import said_seconds
from webhook.kueue.flavor_plan import NOWHERE, Demand
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import StartTimes
from webhook.learn.dispatches import Dispatches, WaitingDispatches
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.job_class import Mark
from webhook.learn.run_records import Run, WorkloadRun
from webhook.model.costs.prices import LASTS_SECONDS, NO_CONGESTION, CongestionPrices, Prices
from webhook.model.fields import FieldError
from webhook.model.forecasts import Dispatch, Estimates, JobClass
from webhook.model.job import Job, Requester
from webhook.model.quantity import Amounts
from webhook.model.queues import Arrival, Stage
from webhook.model.reasons import Obstacle
from webhook.reconsider import choose
from webhook.simulate.scenario import EPOCH, ReplayedPrices, Submission
from webhook.state.forecast_input import (
    ForecastInput,
    ForecastInputs,
    market_of,
    running_in,
    watched,
)
from webhook.state.occupancy import NO_START_TIMES, Occupancy, beside
from webhook.state.queue_counts import Group, QueueContents
from webhook.state.snapshot import Snapshot, updated
from webhook.state.waiting_line import waiting_in
from webhook.state.workload import Workload
from webhook.state.workloads import ArrivedWorkloads


class Dispatched:
    def __init__(self, run_times: RunTimeLearner, epoch: int = EPOCH) -> None:
        """Start from *run_times*, and add what is learned; *epoch* as in ``Forecasts``."""
        self._run_times, self._epoch = run_times, epoch
        self._waiting: defaultdict[str, WaitingDispatches] = defaultdict(WaitingDispatches)
        self._dispatches = Dispatches()
        self._recounted: set[str] = set()
        self._learned = set(run_times.delays.dispatches)
        """Queues whose delays were known before."""

    def reserve(self, queued: QueuedJob, begun: StartedWorkloads) -> WorkloadRun:
        """Note a Workload that has quota and waits for AdmissionChecks."""
        reserved = int(begun.at) + self._epoch
        self._waiting[queued.cluster_queue].add(("", begun.key), reserved)
        self._recounted.add(queued.cluster_queue)
        return WorkloadRun(
            run=Run(0, digest(begun.key)),
            cluster_queue=queued.cluster_queue,
            flavors=",".join(sorted(set(begun.flavors))),
            reserved=reserved,
            mark=_mark(queued),
        )

    def admit(self, key: str, before: WorkloadRun, at: float, cluster: str) -> WorkloadRun:
        """Note that it was admitted in a cluster, and learn from the delay.

        When its pods are ready is left out: a true run time includes their start.
        """
        self._waiting[before.cluster_queue].remove(("", key))
        self._recounted.add(before.cluster_queue)
        begun = before._replace(admitted=int(at) + self._epoch, cluster=cluster)
        self._run_times.begin(begun)
        return begun

    def step(self) -> Mapping[str, Dispatch]:
        """Return what the observer would publish."""
        delays = self._run_times.delays
        dispatches = self._dispatches.step(
            self._waiting,
            delays.dispatches,
            recounted=self._recounted,
            dispatched=self._learned | delays.take_dispatched(),
            clock=-self._epoch,
        )
        self._recounted.clear()
        self._learned.clear()
        return dispatches


def _mark(queued: QueuedJob) -> Mark:
    return Mark(queued.job_class, queued.generation, queued.said)


def digest(key: str) -> int:
    return zlib.crc32(key.encode()) & 0xFFFF


FRESH_SECONDS = 1.0
"""A younger forecast is used again, with the placements since then, as admission does."""
FRESH_PART = 0.05
"""So is one that is younger than this part of the longest expected wait."""
_Shape: TypeAlias = tuple[object, ...]
Known: TypeAlias = Callable[[Estimates, Estimates], tuple[Estimates, Estimates]]
"""Learned estimates of runs and start-ups, to all that is known of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """An admitted review's Job: where its Workload is, or will be once the Job is not held."""

    submission: Submission
    job: Job
    arrival: Arrival
    age: int
    """The least is the oldest."""
    job_class: JobClass
    generation: int
    """Generation of the policy that decided; 0: none did."""
    cluster_queue: str = ""
    demand: Demand = NOWHERE
    # From here on of one that is sent to a worker cluster.
    sent_by: str = ""
    """The flavors that the manager assigned."""
    sent: float = 0.0
    comes: float = 0.0

    @property
    def key(self) -> str:
        return self.submission.name

    @property
    def said(self) -> int:
        """Return how long its owner said it runs in the first option; 0: nothing was said."""
        return said_seconds(self.job.annotations)


_ONLY = ""


@dataclass(slots=True)
class _Queue:
    waiting: dict[_Shape, tuple[Arrival, dict[str, Workload]]] = field(default_factory=dict)
    """Shape to its first Arrival and its Workloads."""
    holding: dict[str, Workload] = field(default_factory=dict)
    arrived: ArrivedWorkloads = field(default_factory=ArrivedWorkloads)

    def contents_of(self) -> QueueContents:
        groups = (
            Group(arrival, tuple(members.values()))
            for arrival, members in self.waiting.values()
            if members
        )
        return QueueContents(
            holding=tuple(self.holding.values()),
            waiting=tuple(groups),
            arrived=self.arrived.of(_ONLY),
        )


class Forecasts:
    """One cluster's forecasts in a replay; none, at no cost, if no policy decides by them."""

    def __init__(
        self,
        snapshot: Snapshot,
        run_times: RunTimeLearner,
        *,
        ruling: Snapshot | None = None,
        known: Known = lambda *own: own,
        prices: ReplayedPrices | None = None,
        cluster: str = "",
    ) -> None:
        """Start from *run_times*, what is learned already; it learns more here.

        *prices*: what resources cost in the course of the replay; None: as in *snapshot*, always.
        For a worker *cluster*, *ruling* is its manager, where decisions are made, and *known* adds
        what is known of runs and start-ups from there.
        """
        self._snapshot, self._prices = snapshot, prices
        self._epoch = EPOCH if prices is None else prices.start
        self._congestion = NO_CONGESTION
        self._late, self._weights = LateShares(), CongestionPrices(at=self._epoch)
        self._ruling, self._known_too, self._cluster = ruling or snapshot, known, cluster
        self._watched = watched(snapshot) | choose.trees(snapshot)
        self._trees_with_prices = rules_by_tree(
            snapshot.fallback.policies,
            snapshot.setup,
            manager=self._ruling.setup,
            cluster=cluster,
        )
        self._forecast_inputs = ForecastInputs()
        self._run_times = run_times
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._joined: dict[str, tuple[QueuedJob, _Shape]] = {}
        self._changed = set(self._watched)
        self._dispatched = Dispatched(run_times, self._epoch)
        self._start_times: StartTimes = NO_START_TIMES
        self.published = snapshot
        """The snapshot with the last forecasts."""
        self._fresh_until = -inf

    def seen(self, job: Job | None, now: float, requester: Requester | None = None) -> Snapshot:
        """Return what the observer would have published, without counts.

        If *job* has no choice, of options or of hours, older forecasts are used; None: there is one
        of clusters.
        """
        if not self._watched:
            return replace(self._snapshot, as_of=now)
        if now >= self._fresh_until and (job is None or self._has_choice(job, requester)):
            self._forecast(now)
        published = updated(self.published, as_of=now, dispatches=self._dispatched.step())
        return self._priced(published, now)

    def _priced(self, snapshot: Snapshot, now: float) -> Snapshot:
        """Return a snapshot with what resources cost at a moment."""
        unix = self.unix(now)
        self._let_weights_follow(unix)
        priced = updated(snapshot, prices=self._prices_at(unix), scarcity=self._weights)
        if not self._trees_with_prices:
            return priced
        self._let_prices_follow(priced, now)
        off = self._ruling.fallback.off
        scarce = by_queue(self._congestion, priced.setup, off, unix, self._cluster)
        return updated(priced, congestion=scarce)

    def _prices_at(self, unix: float) -> Mapping[str, Prices]:
        return self._ruling.costs.prices if self._prices is None else self._prices.at(unix)

    def _let_prices_follow(self, snapshot: Snapshot, now: float) -> None:
        """Take the steps that the leading controller would have taken since the last time."""
        unix = self.unix(now)
        if unix - self._congestion.at < STEP_SECONDS:
            return
        counted = {name: self._queues[name].contents_of() for name in self._watched}
        manager = updated(self._ruling, prices=snapshot.costs.prices)
        market = market_of(
            snapshot, counted, now=now, unix=unix, manager=manager, cluster=self._cluster
        )
        first = max(self._congestion.at, unix - LASTS_SECONDS)
        for step in range(int((unix - first) // STEP_SECONDS) - 1, -1, -1):
            behind = step * STEP_SECONDS
            then = replace(market, now=now - behind, unix=unix - behind)
            self._congestion = next_prices(self._congestion, then)

    def note_ended(self, policy: str, now: float, *, late: bool) -> None:
        """Note that a Job with a deadline that a policy decided has ended."""
        self._let_weights_follow(self.unix(now))
        self._late.note(policy, late=late)

    def _let_weights_follow(self, unix: float) -> None:
        """Change the weights of lateness as the leading controller would have until *unix*."""
        policies = self._ruling.fallback.policies
        if not any(map(followed_lateness, policies)):
            return
        while unix - (before := self._weights).at >= STEP_SECONDS:
            then = before.at + STEP_SECONDS
            weights = weighted(before.weights, self._late, policies, then)
            self._weights = CongestionPrices(at=then, weights=weights)

    def _has_choice(self, job: Job, requester: Requester | None) -> bool:
        try:
            policy = match.policy_for(job, self._ruling, requester=requester)
        except FieldError:
            return False
        if policy is None:
            return False
        return policy.spec.strategy.hold is not None or len(policy.spec.options) > 1

    def foreseen(self, view: Occupancy) -> Occupancy:
        """Return the view with the forecasts updated by the placements since the last forecast."""
        return replace(view, start_times=self._start_times)

    def snapshot(self, now: float) -> Snapshot:
        """Return the queues with what is learned of runs and of the delays before them."""
        run_times, starts = self.learned()
        self._let_weights_follow(self.unix(now))
        return updated(
            self._snapshot,
            as_of=now,
            run_times=run_times,
            start_delays=starts,
            dispatches=self._dispatched.step(),
            prices=self._prices_at(self.unix(now)),
            scarcity=self._weights,
            generation=1,
        )

    def learned(self) -> tuple[Estimates, Estimates]:
        """Return what is known of runs and of start-ups by now."""
        starts = self._run_times.delays.starts(at_once=None)
        return self._known_too(self._run_times.estimates(at_once=None), starts)

    def unix(self, now: float) -> float:
        return now + self._epoch

    def contents(self, names: Iterable[str]) -> Mapping[str, QueueContents]:
        return {name: self._queues[name].contents_of() for name in names}

    def starts(self, now: float) -> Mapping[str, float]:
        """Return in how many seconds each that waits here starts, by its key.

        inf: it does not, as far as is known.
        """
        contents = self.contents(self._watched)
        return {
            each.workload.name: each.start.seconds if each.start.is_known else inf
            for each in waiting_in(contents, self.snapshot(now), self.unix(now))
        }

    def running(self, names: Iterable[str]) -> Sequence[Running]:
        """Return what holds quota in followed queues."""
        return [
            run
            for name in names
            for run in running_in(name, self._queues[name].holding.values(), -self._epoch)
        ]

    def waiting(self) -> Iterator[Workload]:
        """Yield all Workloads that wait in followed queues."""
        for queue in self._queues.values():
            for _, members in queue.waiting.values():
                yield from members.values()

    def leave(self, key: str) -> None:
        """Remove a pending Workload, if its queue is followed."""
        if key not in self._joined:
            return
        queued, shape = self._joined.pop(key)
        self._changed.add(queued.cluster_queue)
        self._fresh_until = -inf
        del self._queues[queued.cluster_queue].waiting[shape][1][key]

    def join(self, queued: QueuedJob, now: float) -> None:
        arrival, name = queued.arrival, queued.cluster_queue
        if name not in self._watched:
            return
        shape = (
            arrival.namespace,
            arrival.local_queue,
            arrival.priority,
            arrival.policy,
            arrival.option,
            queued.demand,
        )
        group = self._queues[name].waiting.setdefault(shape, (arrival, {}))
        group[1][queued.key] = _pending(queued, queued.age, created=int(now) + self._epoch)
        self._joined[queued.key] = queued, shape
        self._changed.add(name)
        self._start_times = self._start_times.add(arrival, now)

    def start(self, key: str, at: float, usage: Amounts) -> None:
        self._hold(key, usage, admitted=int(at) + self._epoch)

    def reserve(self, begun: StartedWorkloads, usage: Amounts) -> None:
        """Note that a Workload has quota and waits for its AdmissionChecks."""
        self._hold(begun.key, usage, admitted=0)
        if begun.key not in self._joined:
            return
        queued, _ = self._joined[begun.key]
        holding = self._queues[queued.cluster_queue].holding
        run = self._dispatched.reserve(queued, begun)
        holding[begun.key] = holding[begun.key]._replace(run=run)

    def admit(self, key: str, at: float, cluster: str) -> None:
        """Note that a Workload with quota was admitted in a cluster."""
        if key not in self._joined:
            return
        queued, _ = self._joined[key]
        holding = self._queues[queued.cluster_queue].holding
        run = holding[key].run
        if run is not None:
            run = self._dispatched.admit(key, run, at, cluster)
        holding[key] = holding[key]._replace(admitted=int(at) + self._epoch, run=run)
        self._changed.add(queued.cluster_queue)

    def _hold(self, key: str, usage: Amounts, *, admitted: int) -> None:
        if key not in self._joined:
            return
        queued, shape = self._joined[key]
        queue = self._queues[queued.cluster_queue]
        workload = queue.waiting[shape][1].pop(key)
        holding = workload._replace(
            stage=Stage.RESERVING,
            cluster_queue=queued.cluster_queue,
            charge=tuple(usage.items()),
            admitted=admitted,
            is_evicted=False,
        )
        queue.holding[key] = holding
        if not workload.is_evicted:
            queue.arrived.note(_ONLY, holding)
        self._changed.add(queued.cluster_queue)

    def preempt(self, key: str) -> None:
        """Note that a Workload lost its quota and waits again, with its age; no run is learned."""
        if key not in self._joined:
            return
        queued, shape = self._joined[key]
        queue = self._queues[queued.cluster_queue]
        held = queue.holding.pop(key)
        waiting = _pending(queued, held.queued_at, created=held.created)._replace(
            is_evicted=True, obstacle=Obstacle.EVICTED
        )
        queue.waiting.setdefault(shape, (queued.arrival, {}))[1][key] = waiting
        self._changed.add(queued.cluster_queue)

    def end(self, key: str, at: float, finish: float, flavors: str) -> None:
        """Learn from a run that began at *at*."""
        if (dropped := self.drop(key)) is None:
            return
        queued, begun = dropped
        # How it was dispatched is learned at its admission.
        self._run_times.add(
            WorkloadRun(
                run=Run(
                    int(finish) + self._epoch,
                    digest(key),
                    round(finish - at),
                    generation=queued.generation,
                ),
                flavors=flavors,
                cluster=begun.cluster if begun is not None else "",
                mark=_mark(queued),
                policy=queued.arrival.policy,
                option=queued.arrival.option,
            )
        )

    def drop(self, key: str) -> tuple[QueuedJob, WorkloadRun | None] | None:
        """Remove what holds quota, and return it with its run; None: its queue is not followed."""
        if key not in self._joined:
            return None
        queued, _ = self._joined.pop(key)
        begun = self._queues[queued.cluster_queue].holding.pop(key).run
        self._changed.add(queued.cluster_queue)
        return queued, begun

    def _forecast(self, now: float) -> None:
        run_times, starts = self.learned()
        snapshot = updated(self._snapshot, as_of=now, run_times=run_times, start_delays=starts)
        forecast_input = ForecastInput(
            snapshot=snapshot,
            counted={name: self._queues[name].contents_of() for name in self._changed},
            due=self._watched,
            now=now,
            unix=now + self._epoch,
        )
        self._changed.clear()
        forecasts = self._forecast_inputs.forecasts(forecast_input)
        self.published = replace(snapshot, forecasts=forecasts)
        self._start_times = beside(NO_START_TIMES, self.published)
        horizon = max((of_tree.log.times[-1] for of_tree in forecasts.values()), default=0.0)
        self._fresh_until = now + max(FRESH_SECONDS, FRESH_PART * horizon)


def _pending(queued: QueuedJob, order: int, *, created: int) -> Workload:
    """Return it as the observer would read it; by *order* its queue orders it."""
    arrival = queued.arrival
    return Workload(
        namespace=arrival.namespace,
        name=queued.key,
        queue=arrival.local_queue,
        stage=Stage.PENDING,
        competes=True,
        priority=arrival.priority,
        created=created,
        # Many may come within a second, in an order that the whole seconds do not tell.
        evicted_at=order,
        decision_id=arrival.key,
        policy=arrival.policy,
        option=arrival.option,
        job=queued.key,
        replaces="",
        pod_sets=(),
        job_class=queued.job_class,
        said=queued.said,
    )
